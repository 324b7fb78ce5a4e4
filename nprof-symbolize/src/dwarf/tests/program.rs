//! Programs compiled by the tests, with their debug information in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use object::{Object, ObjectSection};

use crate::dwarf::detail::Detail;
use crate::dwarf::{DebugFile, DebugFiles, Section, SplitUnit, UNIT_HEADER, is_type_unit};

/// Everything the engine has.
pub(crate) const ALL: Detail = Detail { inlines: true, lines: true, debug: true };

/// C++ with inlined templates, lambdas and functions without a linkage name.
pub(crate) const CXX: &str = r#"
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

/// C with inlined calls, one in the next, a nested function and a part that is split off (cold).
pub(crate) const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static inline int inner(int n) { return n * 7 + 3; }
static inline int middle(int n) { return n > 5 ? inner(n) ^ inner(n + 1) : n; }
__attribute__((noinline, cold)) int complain(int n) { fprintf(stderr, "%d\n", n); exit(n); }
__attribute__((noinline)) int outer(int n) {
    int sum = 0;
    __attribute__((noinline)) int nested(int k) { return middle(k) + n; }
    for (int i = 0; i < n; i++) {
        sum ^= middle(i + sum) + nested(i);
        if (__builtin_expect(sum == 12345, 0)) sum += complain(i);
    }
    return sum;
}
int main(int argc, char **argv) { return outer(argc + 1000) & 1; }
"#;

/// Rust, generic and inlined, with some of the standard library.
pub(crate) const RUST: &str = r#"
use std::collections::BTreeMap;
mod words {
    pub fn lengths<'a>(words: impl Iterator<Item = &'a str>) -> Vec<(usize, &'a str)> {
        let mut all: Vec<_> = words.map(|word| (word.len(), word)).collect();
        all.sort_by(|a, b| b.cmp(a));
        all
    }
}
fn main() {
    let text: String = std::env::args().collect::<Vec<_>>().join(" ");
    let mut counts = BTreeMap::new();
    for (length, word) in words::lengths(text.split(' ')) {
        *counts.entry((length, word)).or_insert(0u32) += 1;
    }
    println!("{counts:?}");
}
"#;

/// The sections of a file by their names, decompressed.
#[derive(Clone, Default)]
pub(crate) struct Sections(pub(crate) BTreeMap<String, Rc<Vec<u8>>>);

impl Sections {
    /// Reads a file. Of several sections of a name, the first that is no type unit counts.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).unwrap();
        let mut sections = BTreeMap::new();
        for section in file.sections().filter(|s| s.name().unwrap().starts_with(".debug")) {
            let name = section.name().unwrap().to_owned();
            let data = section.uncompressed_data().unwrap().into_owned();
            let head = &data[..data.len().min(UNIT_HEADER as usize)];
            if name != ".debug_info.dwo" || !is_type_unit(head, true) {
                sections.entry(name).or_insert_with(|| Rc::new(data));
            }
        }
        Some(Self(sections))
    }

    /// Returns the size of all sections in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.values().map(|bytes| bytes.len()).sum()
    }
}

impl DebugFile for Sections {
    fn is_little_endian(&self) -> bool {
        true
    }

    fn section(&self, name: &str) -> anyhow::Result<Section> {
        Ok(Section::Memory(self.0.get(name).cloned().unwrap_or_default()))
    }
}

/// A program in a directory of its own.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) directory: Rc<tempfile::TempDir>,
    pub(crate) main: Sections,
    pub(crate) supplementary: Option<Sections>,
    /// Addresses all over `.text`.
    pub(crate) text: std::ops::Range<u64>,
}

impl Program {
    /// Compiles a source by a command, in which `@` is the directory; it writes `@/prog`.
    pub(crate) fn compile(name: &str, source: &str, commands: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(name), source).unwrap();
        for command in commands {
            run(directory.path(), command);
        }
        Self::open(Rc::new(directory))
    }

    /// Reads the program of a directory.
    pub(crate) fn open(directory: Rc<tempfile::TempDir>) -> Self {
        let path = directory.path().join("prog");
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let text = text.address()..text.address() + text.size();
        let supplementary = Sections::read(&directory.path().join("shared"));
        Self { main: Sections::read(&path).unwrap(), supplementary, text, directory }
    }

    /// Returns some 5,000 addresses; all of them, if there are fewer.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        // An odd step comes to all remainders, so to the begin and the inside of instructions.
        let step = ((self.text.end - self.text.start) / 5000) | 1;
        self.text.clone().step_by(step as usize)
    }

    /// Returns the path of a file in the directory of the compilation.
    pub(crate) fn path(&self, name: &[u8]) -> PathBuf {
        self.directory.path().join(String::from_utf8_lossy(name).into_owned())
    }
}

/// Runs a command without a shell.
pub(crate) fn run(directory: &Path, command: &str) {
    let at = directory.to_str().unwrap();
    let words: Vec<String> = command.split_whitespace().map(|word| word.replace('@', at)).collect();
    let output = Command::new(&words[0]).args(&words[1..]).current_dir(at).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {message}");
}

impl DebugFiles for Program {
    fn main(&self) -> Box<dyn DebugFile> {
        Box::new(self.main.clone())
    }

    fn supplementary(&self) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(self.supplementary.clone()?))
    }

    fn package(&self) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(Sections::read(&self.directory.path().join("prog.dwp"))?))
    }

    fn split(&self, wanted: &SplitUnit) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(Sections::read(&self.path(&wanted.name))?))
    }
}
