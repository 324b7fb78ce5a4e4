//! The engine on the debug information of real programs, whole and damaged.

#![allow(clippy::unwrap_used)] // what cannot be set up is a failed test

use std::collections::BTreeMap;
use std::process::Command;
use std::rc::Rc;

use object::{Object, ObjectSection, ObjectSymbol};

use super::detail::Detail;
use super::{DebugFile, DebugFiles, Dwarf, ROOM_BYTES, Section, SplitUnit};

const ALL: Detail = Detail { inlines: true, lines: true, debug: true };

/// A program with what makes debug information interesting.
const SOURCE: &str = r#"
#include <algorithm>
#include <string>
#include <vector>
namespace { struct Item { std::string name; int count; }; volatile int sink; }
static int weigh(const Item &item) { sink = item.count; return item.count * 3; }
template <class T> int total(const std::vector<T> &items) {
    int sum = 0;
    for (auto &item : items) sum += weigh(item);
    return sum;
}
int main(int argc, char **argv) {
    std::vector<Item> items;
    for (int i = 0; i < argc; i++) items.push_back({argv[i], i});
    std::sort(items.begin(), items.end(), [](auto &a, auto &b) { return a.count > b.count; });
    return total(items);
}
"#;

/// The sections of a program, in memory.
#[derive(Clone)]
struct Program {
    sections: BTreeMap<String, Vec<u8>>,
    addresses: Vec<u64>,
}

impl Program {
    fn compile(flags: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a.cc"), SOURCE).unwrap();
        let mut command = Command::new("g++");
        command.args(["-std=c++17", "-O2"]).args(flags.split_whitespace());
        assert!(command.arg("-o").args([path("a"), path("a.cc")]).status().unwrap().success());
        let bytes = std::fs::read(path("a")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let sections =
            file.sections().filter(|section| section.name().unwrap().starts_with(".debug"));
        let sections = sections
            .map(|section| (section.name().unwrap().to_owned(), section.data().unwrap().to_vec()));
        let text = file.section_by_name(".text").unwrap();
        let addresses = (text.address()..text.address() + text.size()).step_by(37);
        let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap().address();
        let addresses = addresses.chain((main..main + 200).step_by(3)).collect();
        Self { sections: sections.collect(), addresses }
    }

    /// How many calls all addresses have, and how many have a fault.
    fn ask(&self) -> (usize, usize) {
        let Ok(dwarf) = Dwarf::load(Box::new(self.clone()), ROOM_BYTES) else { return (0, 1) };
        let found: Vec<_> =
            self.addresses.iter().map(|&address| dwarf.calls(address, ALL)).collect();
        // What is made of a file may not be much larger than the file.
        let size: usize = self.sections.values().map(Vec::len).sum();
        assert!(dwarf.bytes() < 10 * size + (8 << 20), "{} of {size}", dwarf.bytes());
        let calls = found.iter().map(|found| found.calls.len()).sum();
        (calls, found.iter().filter(|found| found.fault.is_some()).count())
    }
}

impl DebugFile for Program {
    fn is_little_endian(&self) -> bool {
        true
    }

    fn section(&self, name: &str) -> anyhow::Result<Section> {
        let bytes = self.sections.get(name).cloned().unwrap_or_default();
        Ok(Section::Memory(Rc::new(bytes)))
    }
}

impl DebugFiles for Program {
    fn main(&self) -> Box<dyn DebugFile> {
        Box::new(self.clone())
    }

    fn supplementary(&self) -> Option<Box<dyn DebugFile>> {
        None
    }

    fn package(&self) -> Option<Box<dyn DebugFile>> {
        None
    }

    fn split(&self, _: &SplitUnit) -> Option<Box<dyn DebugFile>> {
        None
    }
}

#[test]
fn what_is_flipped_costs_no_more_than_names() {
    let mut numbers = fastrand::Rng::with_seed(3);
    for flags in ["-g -gdwarf-3", "-g -gdwarf-4", "-g -gdwarf-5"] {
        let whole = Program::compile(flags);
        let (calls, faults) = whole.ask();
        assert!(calls > whole.addresses.len() && faults == 0, "{flags}: {calls} {faults}");
        let mut fewer = 0;
        for round in 0..150 {
            let mut damaged = whole.clone();
            let names: Vec<String> = damaged.sections.keys().cloned().collect();
            for _ in 0..1 + round % 8 {
                // The abbreviations rule all entries.
                let name = match numbers.usize(..3) {
                    0 => ".debug_abbrev",
                    _ => &names[numbers.usize(..names.len())],
                };
                let bytes = damaged.sections.get_mut(name).unwrap();
                let at = numbers.usize(..bytes.len());
                bytes[at] = [bytes[at] ^ (1 << numbers.usize(..8)), 0, 0x7f, 0x80, 0xff]
                    [numbers.usize(..5)];
            }
            fewer += usize::from(damaged.ask() != (calls, 0));
        }
        assert!(fewer > 20, "{flags}: {fewer}");
    }
}

#[test]
fn what_is_cut_off_anywhere_costs_no_more_than_names() {
    let whole = Program::compile("-g");
    for (name, bytes) in &whole.sections {
        for tenths in 0..10 {
            let mut cut = whole.clone();
            let kept = bytes[..bytes.len() * tenths / 10].to_vec();
            cut.sections.insert(name.clone(), kept);
            cut.ask();
        }
    }
}
