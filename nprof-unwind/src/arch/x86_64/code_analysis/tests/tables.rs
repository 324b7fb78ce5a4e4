//! Tests with whole programs: the rules found in their code are compared with their unwind tables.

use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ReadCache};

use super::*;
use crate::image::cfi::UnwindTables;
use crate::image::elf;

/// A program or library with its tables hidden from the analysis.
struct Real {
    bytes: Vec<u8>,
    /// The image address of its code, and where it is in the file.
    address: ImageAddress,
    code: std::ops::Range<usize>,
    cfi: UnwindTables,
}

impl Real {
    fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("readable");
        let cfi = elf::read_tables(&ReadCache::new(Cursor::new(&bytes[..]))).expect("tables");
        let file = ElfFile64::<object::Endianness>::parse(&bytes[..]).expect("ELF");
        let text = file.section_by_name(".text").expect("code");
        let (offset, size) = text.file_range().expect("code");
        let (address, code) =
            (ImageAddress(text.address()), offset as usize..(offset + size) as usize);
        Self { bytes, address, code, cfi }
    }

    /// Returns the addresses of all instructions, with true after calls.
    fn places(&mut self) -> Vec<(ImageAddress, bool)> {
        let end = self.address.wrapping_add(self.code.len() as u64);
        let (mut at, mut returns) = (self.address, false);
        let mut places = Vec::new();
        while at < end {
            let Some(instruction) = decode(&self.code(at), at) else {
                (at, returns) = (at.wrapping_add(1), false);
                continue;
            };
            places.push((at, returns));
            let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
            (at, returns) = (ImageAddress(instruction.next_ip()), is_call);
        }
        places
    }
}

impl CodeBytes for Real {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let at = address.offset_from(self.address).map_or(usize::MAX, |at| at as usize);
        bytes_at(&self.bytes[self.code.clone()], at)
    }

    fn rule(&mut self, _address: ImageAddress) -> Option<Rc<UnwindRule>> {
        None
    }
}

/// The comparison of rules found in the code with those of tables.
#[derive(Debug, Default)]
struct Counts {
    agree: u32,
    none: u32,
    /// The places at which they do not agree.
    differ: Vec<ImageAddress>,
}

/// True if the found rule has the same CFA, or a CFA from another register with a register saved at
/// the same distance. While a register is being saved or restored, it is in both places, and tables
/// may name either.
fn agrees(row: &UnwindRule, table: &UnwindRule, behind_call: bool) -> bool {
    let saved = |row: &UnwindRule, register| {
        let found = row.registers.iter().find(|(other, _)| *other == register);
        found.map_or(RegisterRule::SameValue, |(_, saved)| saved.clone())
    };
    let base = |row: &UnwindRule| match row.cfa {
        Cfa::Register(register, _) => Some(register),
        Cfa::Expression(_) => None,
    };
    let pairs = arch::PRESERVED.map(|register| (saved(row, register), saved(table, register)));
    let same = pairs.iter().all(|(ours, theirs)| {
        let moves = !behind_call
            && (*ours == RegisterRule::SameValue || *theirs == RegisterRule::SameValue);
        ours == theirs || *ours == RegisterRule::Undefined || moves
    });
    let is_proven =
        || pairs.iter().any(|(one, other)| one == other && *one != RegisterRule::SameValue);
    same && (row.cfa == table.cfa || base(row) != base(table) && is_proven())
}

/// Compares at every `every`-th address after calls, or at the other ones.
fn compare(path: &Path, behind_calls: bool, every: usize) -> Counts {
    let mut real = Real::open(path);
    let mut counts = Counts::default();
    let places = real.places().into_iter().filter(|(_, returns)| *returns == behind_calls);
    for (at, returns) in places.step_by(every) {
        let table = real.cfi.rule(at.wrapping_sub(u64::from(returns)));
        let Some(table) = table.filter(|table| !table.is_end_of_stack() && !table.signal) else {
            continue;
        };
        if is_padding(&mut real, at) {
            continue;
        }
        match rule(&mut real, at, returns) {
            None => counts.none += 1,
            Some(row) if agrees(&row, &table, returns) => counts.agree += 1,
            Some(_) => counts.differ.push(at),
        }
    }
    counts
}

/// Returns the path of a library that is mapped into this program.
fn mapped(name: &str) -> PathBuf {
    let maps = std::fs::read("/proc/self/maps").expect("maps");
    let mut paths = nprof_object::maps::mappings(&maps)
        .map(|mapping| PathBuf::from(std::ffi::OsStr::from_bytes(&mapping.path)));
    paths.find(|path| path.to_string_lossy().contains(name)).expect("it is mapped")
}

#[test]
fn analyzed_rules_agree_with_unwind_tables() {
    let own = std::env::current_exe().expect("a path");
    for (path, every) in [(own, 67), (mapped("/libc.so"), 29)] {
        let calls = compare(&path, true, every);
        let others = compare(&path, false, every * 20);
        println!("{}: after calls {calls:x?}, elsewhere {others:x?}", path.display());
        assert!(calls.agree > 100 && others.agree > 100);
        // Cold parts of functions follow calls that never return; and tables of compilers
        // omit some pops.
        assert!(calls.differ.len() * 200 <= calls.agree as usize, "{:x?}", calls.differ);
        assert!(others.differ.len() * 50 <= others.agree as usize, "{:x?}", others.differ);
        assert!(calls.none < calls.agree);
    }
}
