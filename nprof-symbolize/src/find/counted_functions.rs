//! The functions of an image with the jumps of their code, also of parts that lie elsewhere.

use std::borrow::Cow;

use nprof_object::ImageAddress;
use object::elf;
use rustc_hash::{FxHashMap, FxHashSet};

use super::elf_file::ElfFile;
use crate::elf::entry::Jumps;
use crate::elf::entry_arch::EntryArch;
use crate::elf::function_ranges::FunctionRange;
use crate::elf::function_symbols::{self, FunctionSymbol, SymbolKind};

/// The bytes of a function that are searched for a place: its first block is rarely longer.
pub(super) const ENTRY_BYTES: u64 = 256;

/// The largest function: a hostile symbol may have any size.
pub(super) const MAX_FUNCTION_BYTES: u64 = 16 << 20;

/// A function with all its names.
pub(super) struct Function {
    pub(super) start: ImageAddress,
    pub(super) size: u64,
    pub(super) kind: SymbolKind,
    pub(super) names: Vec<Vec<u8>>,
    pub(super) jumps: Jumps,
}

impl Function {
    /// Returns the addresses of its code.
    pub(super) fn range(&self) -> std::ops::Range<u64> {
        self.start.0..self.start.0.saturating_add(self.size)
    }

    /// True if it is the part of another function that is rarely executed.
    pub(super) fn is_cold_part(&self) -> bool {
        self.names.iter().all(|name| cold_part_of(name).is_some())
    }
}

/// Reads the functions of an image by address; those of other files come first.
pub(super) fn functions(image: &ElfFile, debug: &[ElfFile]) -> Vec<Function> {
    let mut symbols = Vec::new();
    let mut full = std::iter::once(image).chain(debug);
    if let Some(file) = full.find(|file| file.headers.has_symbols()) {
        let kind = elf::SHT_SYMTAB.0;
        function_symbols::read(&file.headers, &file.data(), kind, &mut symbols);
    }
    let kind = elf::SHT_DYNSYM.0;
    function_symbols::read(&image.headers, &image.data(), kind, &mut symbols);
    symbols.sort_unstable();
    let mut functions: Vec<Function> = Vec::new();
    for FunctionSymbol { start, size, kind, name } in symbols {
        let last = functions.last_mut();
        // Imports have no address.
        let is_alias = |last: &&mut Function| last.start == start && kind != SymbolKind::Import;
        match last.filter(is_alias) {
            Some(last) => {
                last.size = last.size.max(size);
                last.kind = last.kind.max(kind);
                last.names.push(name);
            }
            None => {
                let (names, jumps) = (vec![name], Jumps::default());
                functions.push(Function { start, size, kind, names, jumps });
            }
        }
    }
    functions
}

/// Returns the ranges that belong to no function: in a stripped file, static functions and the cold
/// parts of all functions.
pub(super) fn unnamed_code(
    functions: &[Function],
    ranges: impl Iterator<Item = FunctionRange>,
) -> Vec<FunctionRange> {
    let is_named = |range: &FunctionRange| {
        let after = functions.partition_point(|it| it.start <= range.start);
        let before = after.checked_sub(1).map(|index| &functions[index]);
        before.is_some_and(|it| range.start.0 - it.start.0 < it.size.max(1))
    };
    ranges.filter(|range| !is_named(range)).collect()
}

/// Reads the jumps of all functions and of the code without names. Returns the targets of branches near
/// the start of a function, sorted.
pub(super) fn read_jumps(
    arch: EntryArch,
    image: &ElfFile,
    functions: &mut [Function],
    unnamed: &[FunctionRange],
) -> Vec<u64> {
    let mut reader = JumpReader::new(arch, functions);
    for (index, function) in functions.iter_mut().enumerate() {
        if function.kind == SymbolKind::Function {
            let code = code(image, function.start, function.size.min(MAX_FUNCTION_BYTES));
            function.jumps = reader.read(&code, function.start, Some(index));
        }
    }
    let mut own_jumps = std::mem::take(&mut reader.leaving);
    mark_cold_parts(functions, &mut own_jumps);
    own_jumps.sort_unstable();
    for range in unnamed {
        let size = (range.end.0 - range.start.0).min(MAX_FUNCTION_BYTES);
        let jumps = reader.read(&code(image, range.start, size), range.start, None);
        let leaving: FxHashSet<u64> = reader.leaving.drain(..).map(|(target, _)| target).collect();
        let entered = own_jumps.partition_point(|(target, _)| *target < range.start.0);
        let from = own_jumps[entered..].iter().take_while(|(target, _)| *target < range.end.0);
        for &(_, function) in from {
            let function = &mut functions[function];
            function.jumps.has_computed |= jumps.has_computed;
            // A function that it jumps to, and which jumps back to it, may be its cold part.
            function.jumps.to_entry |= leaving.contains(&function.start.0);
        }
    }
    reader.targets.sort_unstable();
    reader.targets.dedup();
    reader.targets
}

/// Returns the cold parts of functions, by the names of the functions.
pub(super) fn cold_parts(functions: &[Function]) -> FxHashMap<&[u8], Vec<&Function>> {
    let mut parts: FxHashMap<&[u8], Vec<&Function>> = FxHashMap::default();
    for function in functions {
        for of in function.names.iter().filter_map(|name| cold_part_of(name)) {
            parts.entry(of).or_default().push(function);
        }
    }
    parts
}

/// Returns the function that contains an address. None if there is none.
pub(super) fn function_at(functions: &[Function], address: u64) -> Option<&Function> {
    let after = functions.partition_point(|it| it.start.0 <= address);
    let function = &functions[after.checked_sub(1)?];
    function.range().contains(&address).then_some(function)
}

/// The jumps of the cold parts of the functions of one name.
#[derive(Default)]
struct ColdParts {
    has_computed: bool,
    targets: FxHashSet<u64>,
}

/// Adds the jumps of cold parts to those of their functions.
fn mark_cold_parts(functions: &mut [Function], leaving: &mut [(u64, usize)]) {
    leaving.sort_unstable_by_key(|(_, from)| *from);
    // Static functions of several files may share a name: all parts of the name count.
    let mut cold: FxHashMap<Vec<u8>, ColdParts> = FxHashMap::default();
    for (index, function) in functions.iter().enumerate() {
        for of in function.names.iter().filter_map(|name| cold_part_of(name)) {
            let parts = cold.entry(of.to_vec()).or_default();
            parts.has_computed |= function.jumps.has_computed;
            let first = leaving.partition_point(|(_, from)| *from < index);
            let own = leaving[first..].iter().take_while(|(_, from)| *from == index);
            parts.targets.extend(own.map(|(target, _)| *target));
        }
    }
    for function in functions {
        for parts in function.names.iter().filter_map(|name| cold.get(name)) {
            function.jumps.has_computed |= parts.has_computed;
            function.jumps.to_entry |= parts.targets.contains(&function.start.0);
        }
    }
}

/// Reads jumps, and keeps those that matter for other functions.
struct JumpReader {
    arch: EntryArch,
    /// The starts of all functions, sorted.
    starts: Vec<u64>,
    /// The targets of branches near the start of a function.
    targets: Vec<u64>,
    /// The jumps that leave the code that contains them: target, and index of the function.
    leaving: Vec<(u64, usize)>,
}

impl JumpReader {
    fn new(arch: EntryArch, functions: &[Function]) -> Self {
        let starts = functions.iter().map(|function| function.start.0).collect();
        Self { arch, starts, targets: Vec::new(), leaving: Vec::new() }
    }

    /// Reads the jumps of a range of code.
    fn read(&mut self, code: &[u8], start: ImageAddress, function: Option<usize>) -> Jumps {
        let own = start.0..start.0.saturating_add(code.len() as u64);
        self.arch.jumps(code, start.0, |branch| {
            if !branch.is_call && !own.contains(&branch.target) {
                self.leaving.push((branch.target, function.unwrap_or(usize::MAX)));
            }
            if is_near_start(&self.starts, branch.target) {
                self.targets.push(branch.target);
            }
        })
    }
}

/// True if an address is among the first bytes of a function.
fn is_near_start(starts: &[u64], target: u64) -> bool {
    let after = starts.partition_point(|start| *start < target);
    let start = after.checked_sub(1).map(|before| starts[before]);
    start.is_some_and(|start| target - start < ENTRY_BYTES)
}

/// Returns the code from an address; empty if it is in no executable segment of the file.
pub(super) fn code(image: &ElfFile, start: ImageAddress, size: u64) -> Vec<u8> {
    let segments = image.headers.segments.executable();
    let Some((offset, left)) = segments.file_offset(start) else { return Vec::new() };
    let bytes = image.bytes().read(offset.0, size.min(left)).map(Cow::into_owned);
    bytes.unwrap_or_default()
}

/// Returns the name of the function of which this is the part that is rarely executed: `f` of
/// `f.cold` or `f.cold.1`. None if the name is not that of such a part.
pub(super) fn cold_part_of(name: &[u8]) -> Option<&[u8]> {
    let at = name.windows(5).rposition(|window| window == b".cold")?;
    let is_number = name[at + 5..].iter().all(|byte| *byte == b'.' || byte.is_ascii_digit());
    is_number.then_some(&name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_parts_have_the_name_of_their_function() {
        for (name, of) in [
            ("f.cold", Some("f")),
            ("_Z1fi.part.0.cold", Some("_Z1fi.part.0")),
            ("f.cold.12", Some("f")),
            ("f.colder", None),
            ("f.cold_path", None),
            ("f", None),
        ] {
            assert_eq!(cold_part_of(name.as_bytes()), of.map(str::as_bytes), "{name}");
        }
    }
}
