//! Damaged debug information: it costs names, never more time or memory than the whole one.

use object::{Object, ObjectSymbol};
use std::rc::Rc;

use super::program::{ALL, CXX, Program};
use crate::dwarf::{Dwarf, ROOM_BYTES};

/// A program, and addresses in it.
#[derive(Clone)]
struct Damaged {
    program: Program,
    addresses: Vec<u64>,
}

impl Damaged {
    fn compile(flags: &str) -> Self {
        let command = format!("g++ -std=c++17 -O2 {flags} -o @/prog a.cc");
        let program = Program::compile("a.cc", CXX, &[&command]);
        let bytes = std::fs::read(program.directory.path().join("prog")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap().address();
        let addresses = program.text.clone().step_by(37).chain((main..main + 200).step_by(3));
        Self { addresses: addresses.collect(), program }
    }

    /// Returns the number of calls at all addresses, and of addresses with a fault.
    fn calls(&self) -> (usize, usize) {
        let Ok(dwarf) = Dwarf::load(Box::new(self.program.clone()), ROOM_BYTES) else {
            return (0, 1);
        };
        let calls = |&address: &u64| dwarf.calls(address, ALL, None);
        let found: Vec<_> = self.addresses.iter().map(calls).collect();
        // The tables of a file may not be much larger than the file.
        let size = self.program.main.size();
        assert!(dwarf.bytes() < 10 * size + (8 << 20), "{} of {size}", dwarf.bytes());
        let calls = found.iter().map(|found| found.calls.len()).sum();
        (calls, found.iter().filter(|found| found.fault.is_some()).count())
    }
}

#[test]
fn flipped_bytes_cost_names_only() {
    let mut numbers = fastrand::Rng::with_seed(3);
    for flags in ["-g -gdwarf-3", "-g -gdwarf-4", "-g -gdwarf-5"] {
        let whole = Damaged::compile(flags);
        let (calls, faults) = whole.calls();
        assert!(calls > whole.addresses.len() && faults == 0, "{flags}: {calls} {faults}");
        let mut fewer = 0;
        for round in 0..150 {
            let mut damaged = whole.clone();
            let names: Vec<String> = damaged.program.main.0.keys().cloned().collect();
            for _ in 0..1 + round % 8 {
                // The abbreviations rule all entries.
                let name = match numbers.usize(..3) {
                    0 => ".debug_abbrev",
                    _ => &names[numbers.usize(..names.len())],
                };
                let bytes = Rc::make_mut(damaged.program.main.0.get_mut(name).unwrap());
                let at = numbers.usize(..bytes.len());
                bytes[at] = [bytes[at] ^ (1 << numbers.usize(..8)), 0, 0x7f, 0x80, 0xff]
                    [numbers.usize(..5)];
            }
            fewer += usize::from(damaged.calls() != (calls, 0));
        }
        assert!(fewer > 20, "{flags}: {fewer}");
    }
}

#[test]
fn truncated_sections_cost_names_only() {
    let whole = Damaged::compile("-g");
    for (name, bytes) in &whole.program.main.0 {
        for tenths in 0..10 {
            let mut cut = whole.clone();
            let kept = bytes[..bytes.len() * tenths / 10].to_vec();
            cut.program.main.0.insert(name.clone(), Rc::new(kept));
            cut.calls();
        }
    }
}
