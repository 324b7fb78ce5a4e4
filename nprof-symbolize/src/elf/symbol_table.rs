//! Symbol tables: the symbol that covers an address. Pure over bytes.
//!
//! Symbols overlap, have aliases, and may have no size. The table splits them once into ranges that
//! do not overlap, with one symbol each; a lookup is a binary search.

use std::cmp::Reverse;

use nprof_object::ImageAddress;
use object::elf::{self, Sym32, Sym64};
use object::read::elf::Sym;
use object::{Endianness, ReadRef};

use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::{Headers, Section};

/// The most symbols of one table: a sparse file may claim any number. The largest browsers have three
/// million.
pub(super) const MAX_SYMBOLS: usize = 1 << 23;

/// The most bytes of names that are read.
pub(super) const MAX_NAMES_BYTES: u64 = 512 << 20;

/// The longest name.
const MAX_NAME_BYTES: u64 = nprof_stream::limits::STRING as u64;

/// The most bytes that an export without a size names, if the unwind table does not have it: one page,
/// since the code after a function in assembly may be anything. Of ten such exports of x264, nine have
/// at most 1.1 KB, and the last one is followed by 225 KB of other functions.
const MAX_UNSIZED: u64 = 4096;

/// A range of addresses and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    /// The offset of the name.
    name: u32,
    is_exported: bool,
}

/// A symbol before the table is built.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    start: u64,
    /// 0 if the symbol has no size of its own.
    size: u64,
    /// The end of its section: a symbol without a size ends there at the latest.
    limit: u64,
    name: u32,
    binding: Binding,
    /// True if it is in `.dynsym`, which stripped files have, too.
    is_exported: bool,
}

/// The visibility of a symbol to the linker. The greater it is, the more likely users know the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    /// Visible in its object file.
    Local,
    /// Visible everywhere, may be overridden.
    Weak,
    /// Visible everywhere.
    Global,
}

/// Collects symbols for a [`SymbolTable`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolTableBuilder {
    candidates: Vec<Candidate>,
    strings: Vec<u8>,
    /// True if a full table is among the sources.
    is_full: bool,
    /// True if a table of exports is among them.
    has_exports: bool,
}

/// Names of ranges of addresses.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    ranges: Box<[Range]>,
    /// The names, each with a zero at its end.
    strings: Box<[u8]>,
    /// True if the names are those exported to other files only.
    is_exports: bool,
}

/// A symbol that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// Its name.
    pub(crate) name: &'a [u8],
    /// True if the file exports it: then the file has this name without debug information, too.
    pub(crate) is_exported: bool,
}

/// Code between two symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap<'a> {
    /// The end of the symbol before it.
    pub(crate) start: ImageAddress,
    /// The function before it. None if there are only PLT stubs, which lie in another section.
    pub(crate) after: Option<&'a [u8]>,
}

impl SymbolTable {
    /// Returns the symbol that covers an address.
    pub(crate) fn find(&self, address: ImageAddress) -> Option<Found<'_>> {
        let after = self.ranges.partition_point(|range| range.start <= address.0);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        let Range { end, name, is_exported, .. } = *range;
        (address.0 < end).then(|| Found { name: string(&self.strings, name), is_exported })
    }

    /// Returns the first address of the range that is named by the symbol of an address, and the one
    /// after its last.
    pub(crate) fn range(&self, address: ImageAddress) -> Option<(ImageAddress, ImageAddress)> {
        let after = self.ranges.partition_point(|range| range.start <= address.0);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address.0 < range.end).then_some((ImageAddress(range.start), ImageAddress(range.end)))
    }

    /// Returns the gap with an address that no symbol covers. None if no symbol lies before it.
    pub(crate) fn gap(&self, address: ImageAddress) -> Option<Gap<'_>> {
        let after = self.ranges.partition_point(|range| range.start <= address.0);
        let before = &self.ranges[..after];
        let start = ImageAddress(before.last()?.end);
        let mut names = before.iter().rev().map(|range| string(&self.strings, range.name));
        Some(Gap { start, after: names.find(|name| !name.ends_with(b"@plt")) })
    }

    /// True if its names are more than exports.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_exports && !self.is_empty()
    }

    /// True if it has no names.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of named ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns its memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.ranges) + self.strings.len()
    }
}

impl SymbolTableBuilder {
    /// Adds a symbol of `size` bytes. With the size 0 it ends at the next symbol, or at `limit`.
    pub(crate) fn add(
        &mut self,
        name: &[u8],
        start: ImageAddress,
        size: u64,
        limit: ImageAddress,
        binding: Binding,
    ) {
        // Offsets of names have 32 bits; symbols beyond 4 GiB of names are dropped.
        let Ok(at) = u32::try_from(self.strings.len()) else { return };
        self.strings.extend_from_slice(name);
        self.strings.push(0);
        let (start, limit) = (start.0, limit.0);
        let is_exported = false;
        self.candidates.push(Candidate { start, size, limit, name: at, binding, is_exported });
    }

    /// Adds the functions of the symbol tables of one kind (`SHT_SYMTAB`, `SHT_DYNSYM`) of an
    /// ELF file.
    pub(crate) fn add_elf<'d, R: ReadRef<'d>>(&mut self, headers: &Headers, data: R, kind: u32) {
        for table in headers.sections.iter().filter(|section| section.kind == kind) {
            // A table that lies outside of the file counts as absent.
            let added = if headers.is_64 {
                self.add_table::<Sym64<Endianness>, R>(headers, data, table)
            } else {
                self.add_table::<Sym32<Endianness>, R>(headers, data, table)
            };
            self.has_exports |= added.is_some() && kind == elf::SHT_DYNSYM.0;
            self.is_full |= added.is_some() && kind == elf::SHT_SYMTAB.0;
        }
    }

    fn add_table<'d, S, R>(&mut self, headers: &Headers, data: R, table: &Section) -> Option<()>
    where
        S: Sym<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let count = usize::try_from(table.size / size_of::<S>() as u64).ok()?;
        let symbols = data.read_slice_at::<S>(table.offset?, count.min(MAX_SYMBOLS)).ok()?;
        let names = headers.sections.get(table.link)?;
        // The names of functions often come first, so that the rest of the strings is not read.
        let used = symbols.iter().filter(|symbol| may_be_code(headers, *symbol));
        let last = used.map(|symbol| u64::from(symbol.st_name(headers.endian))).max();
        let length =
            last.map_or(0, |last| last + MAX_NAME_BYTES).min(names.size).min(MAX_NAMES_BYTES);
        let strings = data.read_bytes_at(names.offset?, length).ok()?;
        let base = u32::try_from(self.strings.len()).ok()?;
        // Offsets of names have 32 bits.
        base.checked_add(u32::try_from(strings.len()).ok()?)?.checked_add(1)?;
        self.strings.extend_from_slice(strings);
        self.strings.push(0);
        for symbol in symbols.iter().filter(|symbol| may_be_code(headers, *symbol)) {
            let name = symbol.st_name(headers.endian);
            if let Some(limit) = limit(headers, symbol, string(strings, name)) {
                self.candidates.push(Candidate {
                    start: symbol.st_value(headers.endian).into(),
                    size: symbol.st_size(headers.endian).into(),
                    limit,
                    name: base + name,
                    binding: binding(symbol),
                    is_exported: table.kind == elf::SHT_DYNSYM.0,
                });
            }
        }
        Some(())
    }

    /// Builds the table. `functions`, from the unwind table, end symbols without a size.
    pub(crate) fn build(mut self, functions: &FunctionRanges) -> SymbolTable {
        let is_exports = self.has_exports && !self.is_full;
        for symbol in self.candidates.iter_mut().filter(|symbol| symbol.size == 0) {
            symbol.limit = symbol.limit.min(unsized_end(symbol.start, functions, is_exports));
        }
        let strings = &self.strings;
        self.candidates.sort_unstable_by(|a, b| {
            // At one address the preferred symbol comes first; `split_ranges` relies on it.
            a.start.cmp(&b.start).then_with(|| preference(b, strings).cmp(&preference(a, strings)))
        });
        // Aliases of equal size: the preferred one stays.
        self.candidates.dedup_by_key(|candidate| (candidate.start, candidate.size));
        let ranges = split_ranges(&self.candidates).into_boxed_slice();
        SymbolTable { ranges, strings: self.strings.into_boxed_slice(), is_exports }
    }
}

/// Returns the end of the function of a symbol without a size.
fn unsized_end(start: u64, functions: &FunctionRanges, is_exports: bool) -> u64 {
    let address = ImageAddress(start);
    let next = functions.next_start(address).map_or(u64::MAX, |next| next.0);
    match functions.at(address) {
        Some(function) => function.end.0,
        // A full table has the next function, too.
        None if is_exports => next.min(start.saturating_add(MAX_UNSIZED)),
        None => next,
    }
}

/// True if a symbol has a type of code, and is defined in this file.
fn may_be_code<S: Sym<Endian = Endianness>>(headers: &Headers, symbol: &S) -> bool {
    let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE);
    is_code && symbol.st_shndx(headers.endian) != elf::SHN_UNDEF
}

/// Returns the end of the section of a symbol of code. None if it names no code.
fn limit<S: Sym<Endian = Endianness>>(headers: &Headers, symbol: &S, name: &[u8]) -> Option<u64> {
    let index = symbol.st_shndx(headers.endian);
    let section = headers.sections.get(usize::from(index.0)).filter(|_| index.0 != 0);
    let end = section.map(|section| section.address.saturating_add(section.size));
    match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC if index != elf::SHN_UNDEF => {
            (!name.is_empty()).then_some(end.unwrap_or_default())
        }
        // Labels of assembly. Mapping symbols such as `$x` (ARM) separate code from data, and `.L`
        // labels are local to the compiler.
        elf::STT_NOTYPE if section.is_some_and(|section| section.executable) => {
            let hidden = name.is_empty() || name.starts_with(b"$") || name.starts_with(b".L");
            end.filter(|_| !hidden)
        }
        _ => None,
    }
}

fn binding<S: Sym<Endian = Endianness>>(symbol: &S) -> Binding {
    match symbol.st_bind() {
        elf::STB_LOCAL => Binding::Local,
        elf::STB_WEAK => Binding::Weak,
        _ => Binding::Global,
    }
}

/// Returns the rank of a symbol among those at one address. The greatest names it: with a size, then
/// an export, since it does not depend on installed debug files. Among exports, the name with the fewest
/// leading underscores, the shortest and the first in the alphabet: `write`, not `__write`. Among
/// others, the more visible, no system call of 32-bit programs, with fewer leading underscores, longer, first
/// in the alphabet.
fn preference<'s>(symbol: &Candidate, strings: &'s [u8]) -> impl Ord + use<'s> {
    let name = string(strings, symbol.name);
    let underscores = Reverse(name.iter().take_while(|&&byte| byte == b'_').count());
    // Linux for x86-64 has one function for both kinds of programs if a call has no arguments
    // (SYSCALL_DEFINE0 in arch/x86/include/asm/syscall_wrapper.h).
    let is_native = !name.starts_with(b"__ia32_sys_");
    let among = match symbol.is_exported {
        true => (Binding::Global, true, underscores, Reverse(name.len())),
        false => (symbol.binding, is_native, underscores, Reverse(usize::MAX - name.len())),
    };
    (symbol.size > 0, symbol.is_exported, among, Reverse(name))
}

/// Splits symbols into ranges that do not overlap: an address belongs to the symbol with the nearest
/// start among those that cover it. The symbols are sorted by start, the preferred one first.
fn split_ranges(symbols: &[Candidate]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::with_capacity(symbols.len());
    // Symbols that have begun and not ended, the innermost last.
    let mut open: Vec<Range> = Vec::new();
    for (i, symbol) in symbols.iter().enumerate() {
        close(&mut ranges, &mut open, symbol.start);
        // A symbol without a size is sorted after those with one at the same address.
        let next = symbols.get(i + 1).map(|next| next.start);
        let end = match symbol.size {
            // A label inside of a function is part of that function.
            0 if !open.is_empty() => continue,
            0 => next.map_or(symbol.limit, |next| next.min(symbol.limit)),
            size => symbol.start.saturating_add(size),
        };
        // A size that overflows, or a label at the end of its section.
        if end <= symbol.start {
            continue;
        }
        let Candidate { start, name, is_exported, .. } = *symbol;
        let range = Range { start, end, name, is_exported };
        match open.last_mut().filter(|last| last.start == symbol.start) {
            // A longer alias names the bytes after the preferred one.
            Some(last) if last.end < end => open.insert(open.len() - 1, range),
            Some(_) => {}
            None => {
                if let Some(last) = open.last() {
                    push(&mut ranges, Range { end: symbol.start, ..*last });
                }
                open.push(range);
            }
        }
    }
    close(&mut ranges, &mut open, u64::MAX);
    ranges
}

/// Ends the symbols that end at or before `at`.
fn close(ranges: &mut Vec<Range>, open: &mut Vec<Range>, at: u64) {
    while let Some(last) = open.pop_if(|last| last.end <= at) {
        push(ranges, last);
    }
}

/// Adds the part of a range after the ranges before it.
fn push(ranges: &mut Vec<Range>, range: Range) {
    let done = ranges.last().map_or(0, |last| last.end);
    let start = range.start.max(done);
    if start < range.end {
        ranges.push(Range { start, ..range });
    }
}

/// Returns the string at an offset, without the version of a symbol (`@@GLIBC_2.34`).
pub(super) fn string(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let name = &rest[..end];
    match name.iter().position(|&byte| byte == b'@') {
        // The suffix of stubs is ours and no version.
        Some(at) if at > 0 && !name.ends_with(b"@plt") => &name[..at],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(symbols: &[(&str, u64, u64, Binding)]) -> SymbolTable {
        let mut builder = SymbolTableBuilder::default();
        for &(name, start, size, binding) in symbols {
            builder.add(name.as_bytes(), ImageAddress(start), size, ImageAddress(1000), binding);
        }
        builder.build(&FunctionRanges::default())
    }

    fn name(table: &SymbolTable, address: u64) -> &str {
        let found = table.find(ImageAddress(address));
        found.map_or("", |found| std::str::from_utf8(found.name).unwrap())
    }

    #[test]
    fn symbol_does_not_cover_its_end() {
        let table = table(&[("a", 10, 5, Binding::Local), ("b", 20, 5, Binding::Local)]);
        let names = [9, 10, 14, 15, 19, 20, 24, 25].map(|address| name(&table, address));
        assert_eq!(names, ["", "a", "a", "", "", "b", "b", ""]);
    }

    #[test]
    fn gap_begins_after_a_symbol_and_has_the_function_before_it() {
        let symbols = [("f@plt", 1, 5), ("recv", 10, 5), ("g@plt", 30, 5), ("recvfrom", 40, 5)];
        let table = table(&symbols.map(|(name, start, size)| (name, start, size, Binding::Global)));
        let gap = |address| table.gap(ImageAddress(address));
        let starts_after = |start, after: &'static str| {
            Some(Gap { start: ImageAddress(start), after: Some(after.as_bytes()) })
        };
        assert_eq!(gap(0), None);
        assert_eq!(gap(9), Some(Gap { start: ImageAddress(6), after: None }));
        assert_eq!(gap(15), starts_after(15, "recv"));
        assert_eq!(gap(29), starts_after(15, "recv"));
        assert_eq!(gap(36), starts_after(35, "recv"));
        assert_eq!(gap(99), starts_after(45, "recvfrom"));
    }

    #[test]
    fn export_without_a_size_ends_with_its_function_or_after_a_page() {
        let functions = FunctionRanges::of(&[(0x1000, 0x1100), (0x1200, 0x9000)]);
        let end = |start, is_exports| unsized_end(start, &functions, is_exports);
        // In the unwind table; before a function that is; after all of them.
        assert_eq!([0x1000, 0x1100, 0x1200].map(|at| end(at, true)), [0x1100, 0x1200, 0x9000]);
        assert_eq!(end(0x9000, true), 0x9000 + MAX_UNSIZED);
        assert_eq!(end(0x9000, false), u64::MAX, "a full table ends it");
    }

    #[test]
    fn exported_alias_is_preferred_to_all_others() {
        let exported = |name: &str, aliases: &[&str]| {
            let mut builder = SymbolTableBuilder::default();
            for alias in aliases {
                builder.add(alias.as_bytes(), ImageAddress(8), 4, ImageAddress(99), Binding::Weak);
                builder.candidates.last_mut().unwrap().is_exported = true;
            }
            // The same with and without a full table.
            for full in [false, true] {
                let mut builder = builder.clone();
                for local in ["__GI_x", "a", "x_impl"].iter().filter(|_| full) {
                    let (at, end) = (ImageAddress(8), ImageAddress(99));
                    builder.add(local.as_bytes(), at, 4, end, Binding::Global);
                }
                let table = builder.build(&FunctionRanges::default());
                let found = table.find(ImageAddress(9));
                assert_eq!(found, Some(Found { name: name.as_bytes(), is_exported: true }));
            }
        };
        exported("write", &["__write", "write"]);
        exported("puts", &["_IO_puts", "puts"]);
        exported("pread", &["pread64", "pread", "__pread64"]);
        exported("_ZN1AC1Ev", &["_ZN1AC2Ev", "_ZN1AC1Ev"]);
    }

    #[test]
    fn label_ends_at_the_next_symbol_or_the_end_of_its_section() {
        let table = table(&[("a", 10, 0, Binding::Local), ("b", 20, 0, Binding::Local)]);
        let names = [10, 19, 20, 999, 1000].map(|address| name(&table, address));
        assert_eq!(names, ["a", "a", "b", "b", ""]);
    }

    #[test]
    fn label_inside_a_function_is_ignored() {
        let table = table(&[("f", 10, 20, Binding::Local), ("label", 15, 0, Binding::Global)]);
        assert_eq!([14, 15, 29, 30].map(|address| name(&table, address)), ["f", "f", "f", ""]);
    }

    #[test]
    fn outer_function_continues_after_an_inner_one() {
        let table = table(&[("f", 10, 20, Binding::Local), ("g", 15, 5, Binding::Local)]);
        let names = [10, 14, 15, 19, 20, 29, 30].map(|address| name(&table, address));
        assert_eq!(names, ["f", "f", "g", "g", "f", "f", ""]);
    }

    #[test]
    fn preferred_alias_names_the_range() {
        let table = table(&[
            ("__GI_write", 10, 5, Binding::Local),
            ("__write", 10, 5, Binding::Global),
            ("write", 10, 5, Binding::Weak),
            ("exit", 20, 5, Binding::Global),
            ("_exit", 20, 5, Binding::Global),
            ("label", 20, 0, Binding::Global),
            ("longer", 30, 9, Binding::Global),
            ("long", 30, 5, Binding::Global),
        ]);
        assert_eq!(name(&table, 10), "__write");
        assert_eq!(name(&table, 20), "exit");
        assert_eq!([30, 34, 38].map(|address| name(&table, address)), ["longer"; 3]);
    }

    #[test]
    fn symbol_versions_are_removed() {
        let table = table(&[("f@@V_1", 10, 5, Binding::Local), ("g@plt", 20, 5, Binding::Local)]);
        assert_eq!((name(&table, 10), name(&table, 20)), ("f", "g@plt"));
    }

    proptest! {
        #[test]
        fn lookup_finds_the_nearest_covering_symbol(
            symbols in prop::collection::vec((0u64..60, 1u64..20), 0..12)
        ) {
            let names: Vec<_> = (0..symbols.len()).map(|i| format!("s{i:02}")).collect();
            let list: Vec<_> = names.iter().zip(&symbols)
                .map(|(name, &(start, size))| (name.as_str(), start, size, Binding::Local))
                .collect();
            let table = table(&list);
            for address in 0..90 {
                let covers = |&(start, size): &(u64, u64)| (start..start + size).contains(&address);
                let nearest = symbols.iter().filter(|s| covers(s)).map(|s| s.0).max();
                let found = table.find(ImageAddress(address)).map(|found| {
                    let i: usize = std::str::from_utf8(&found.name[1..]).unwrap().parse().unwrap();
                    prop_assert!(covers(&symbols[i]));
                    Ok(symbols[i].0)
                }).transpose()?;
                prop_assert_eq!(found, nearest, "address {}", address);
            }
        }
    }
}
