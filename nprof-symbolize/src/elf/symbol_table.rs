//! Symbol tables: which symbol covers an address. Pure over bytes.
//!
//! Symbols overlap, have aliases, and may have no size. They are laid out once as ranges that
//! do not overlap, each with the one symbol that names it; a lookup is a binary search.

use std::cmp::Reverse;

use object::elf::{self, Sym32, Sym64};
use object::read::elf::Sym;
use object::{Endianness, ReadRef};

use crate::elf::headers::{Headers, Section};

/// As many symbols as are read of one table: a file may have holes, and claim to be of any size.
/// The largest browsers have three million.
const SYMBOLS: usize = 1 << 23;

/// As much as is read of their names, bytes.
const NAMES: u64 = 512 << 20;

/// The longest name, bytes.
const NAME: u64 = nprof_stream::limits::STRING as u64;

/// What a place is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    name: u32,
}

/// A symbol on the way into a table.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    start: u64,
    /// 0 when the symbol has no size of its own.
    size: u64,
    /// How far it may reach without one: the end of its section.
    limit: u64,
    name: u32,
    binding: Binding,
}

/// How visible a symbol is to the linker; the greater, the more it is what users know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    /// Known in its object file.
    Local,
    /// May be overridden.
    Weak,
    /// Known everywhere.
    Global,
}

/// Gathers symbols for a [`SymbolTable`].
#[derive(Debug, Default)]
pub(crate) struct SymbolTableBuilder {
    candidates: Vec<Candidate>,
    strings: Vec<u8>,
    /// Whether there is a full table among those it was made of.
    is_full: bool,
}

/// Names of ranges of addresses.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    ranges: Box<[Range]>,
    /// The names, each ended by a zero.
    strings: Box<[u8]>,
    /// Whether they are those other files may use, and not all.
    is_exports: bool,
}

/// The names around a place that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bracket<'a> {
    /// The symbol before it, and where that begins.
    pub(crate) before: &'a [u8],
    pub(crate) start: u64,
    /// The one behind it.
    pub(crate) behind: &'a [u8],
}

impl SymbolTable {
    /// The name of the symbol that covers an address.
    pub(crate) fn find(&self, address: u64) -> Option<&[u8]> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (address < range.end).then(|| string(&self.strings, range.name))
    }

    /// The exports around an address that none of them covers, if all names are exports: stubs
    /// do not count.
    pub(crate) fn around(&self, address: u64) -> Option<Bracket<'_>> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let name = |range: &Range| string(&self.strings, range.name);
        let is_export = |range: &&Range| !name(range).ends_with(b"@plt");
        let before = self.ranges[..after].iter().rfind(is_export).filter(|_| self.is_exports)?;
        let behind = self.ranges[after..].iter().find(is_export)?;
        Some(Bracket { before: name(before), start: before.start, behind: name(behind) })
    }

    /// Whether its names are more than exports.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_exports && !self.is_empty()
    }

    /// Whether it names nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges have a name.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.ranges) + self.strings.len()
    }
}

impl SymbolTableBuilder {
    /// Adds a symbol. Without a `size` (0) it reaches up to the next symbol, at most to `limit`.
    pub(crate) fn add(&mut self, name: &[u8], start: u64, size: u64, limit: u64, binding: Binding) {
        let Ok(at) = u32::try_from(self.strings.len()) else { return };
        self.strings.extend_from_slice(name);
        self.strings.push(0);
        self.candidates.push(Candidate { start, size, limit, name: at, binding });
    }

    /// Adds the functions of the symbol tables of one kind (`SHT_SYMTAB`, `SHT_DYNSYM`) of an
    /// ELF file.
    pub(crate) fn add_elf<'d, R: ReadRef<'d>>(&mut self, headers: &Headers, data: R, kind: u32) {
        for table in headers.sections.iter().filter(|section| section.kind == kind) {
            // What lies outside of the file is as good as absent.
            let added = match headers.is_64 {
                true => self.add_table::<Sym64<Endianness>, R>(headers, data, table),
                false => self.add_table::<Sym32<Endianness>, R>(headers, data, table),
            };
            self.is_full |= added.is_some() && kind == elf::SHT_SYMTAB.0;
        }
    }

    fn add_table<'d, S, R>(&mut self, headers: &Headers, data: R, table: &Section) -> Option<()>
    where
        S: Sym<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let count = usize::try_from(table.size / size_of::<S>() as u64).ok()?;
        let symbols = data.read_slice_at::<S>(table.offset?, count.min(SYMBOLS)).ok()?;
        let names = headers.sections.get(table.link)?;
        // Names of variables, and what nothing refers to, stand behind often enough.
        let used = symbols.iter().filter(|symbol| may_be_code(headers, *symbol));
        let last = used.map(|symbol| u64::from(symbol.st_name(headers.endian))).max();
        let length = last.map_or(0, |last| last + NAME).min(names.size).min(NAMES);
        let strings = data.read_bytes_at(names.offset?, length).ok()?;
        let base = u32::try_from(self.strings.len()).ok()?;
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
                });
            }
        }
        Some(())
    }

    /// The table of what was gathered.
    pub(crate) fn build(mut self) -> SymbolTable {
        let strings = &self.strings;
        self.candidates.sort_unstable_by(|a, b| {
            a.start.cmp(&b.start).then_with(|| preference(b, strings).cmp(&preference(a, strings)))
        });
        self.candidates.dedup_by_key(|candidate| (candidate.start, candidate.size));
        let ranges = lay_out(&self.candidates).into_boxed_slice();
        SymbolTable { ranges, strings: self.strings.into_boxed_slice(), is_exports: !self.is_full }
    }
}

/// Whether a symbol is of a type code has, and is not another file's.
fn may_be_code<S: Sym<Endian = Endianness>>(headers: &Headers, symbol: &S) -> bool {
    let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE);
    is_code && symbol.st_shndx(headers.endian) != elf::SHN_UNDEF
}

/// The end of the section a symbol of code lies in; `None` when it names no code.
fn limit<S: Sym<Endian = Endianness>>(headers: &Headers, symbol: &S, name: &[u8]) -> Option<u64> {
    let index = symbol.st_shndx(headers.endian);
    let section = headers.sections.get(usize::from(index.0)).filter(|_| index.0 != 0);
    let end = section.map(|section| section.address.saturating_add(section.size));
    match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC if index != elf::SHN_UNDEF => {
            (!name.is_empty()).then_some(end.unwrap_or_default())
        }
        // Labels of assembly. `$x` and the like mark what kind of bytes follow, `.L` labels
        // are the compiler's own.
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

/// Of symbols that begin at one place, the greatest gives the name: with a size, global, with
/// few underscores in front, long, first in the alphabet.
fn preference<'s>(symbol: &Candidate, strings: &'s [u8]) -> impl Ord + use<'s> {
    let name = string(strings, symbol.name);
    let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
    (symbol.size > 0, symbol.binding, Reverse(underscores), name.len(), Reverse(name))
}

/// Ranges that do not overlap, for symbols sorted by start and, at one start, the preferred one
/// first: every address belongs to the symbol that begins nearest before it, of those that
/// cover it.
fn lay_out(symbols: &[Candidate]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::with_capacity(symbols.len());
    // Symbols that have begun and not ended, the innermost last.
    let mut open: Vec<Range> = Vec::new();
    for (i, symbol) in symbols.iter().enumerate() {
        close(&mut ranges, &mut open, symbol.start);
        // A symbol without a size is the last of those that begin where it does.
        let next = symbols.get(i + 1).map(|next| next.start);
        let end = match symbol.size {
            // A label inside of a function is a place in it, not another function.
            0 if !open.is_empty() => continue,
            0 => next.map_or(symbol.limit, |next| next.min(symbol.limit)),
            size => symbol.start.saturating_add(size),
        };
        if end <= symbol.start {
            continue;
        }
        let range = Range { start: symbol.start, end, name: symbol.name };
        match open.last_mut().filter(|last| last.start == symbol.start) {
            // A longer alias names what lies behind the preferred one.
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

/// Adds what of a range lies behind the ranges before it.
fn push(ranges: &mut Vec<Range>, range: Range) {
    let done = ranges.last().map_or(0, |last| last.end);
    let start = range.start.max(done);
    if start < range.end {
        ranges.push(Range { start, ..range });
    }
}

/// The string that begins at `at`, without the version (`@@GLIBC_2.34`) a symbol may have.
fn string(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let name = &rest[..end];
    match name.iter().position(|&byte| byte == b'@') {
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
            builder.add(name.as_bytes(), start, size, 1000, binding);
        }
        builder.build()
    }

    fn name(table: &SymbolTable, address: u64) -> &str {
        table.find(address).map_or("", |name| std::str::from_utf8(name).unwrap())
    }

    #[test]
    fn an_address_past_the_end_of_a_symbol_is_not_in_it() {
        let table = table(&[("a", 10, 5, Binding::Local), ("b", 20, 5, Binding::Local)]);
        let names = [9, 10, 14, 15, 19, 20, 24, 25].map(|address| name(&table, address));
        assert_eq!(names, ["", "a", "a", "", "", "b", "b", ""]);
    }

    #[test]
    fn a_place_between_exports_is_told_by_them() {
        let symbols = [("recv", 10, 5), ("f@plt", 30, 5), ("recvfrom", 40, 5)];
        let table = table(&symbols.map(|(name, start, size)| (name, start, size, Binding::Global)));
        let bracket = Bracket { before: b"recv", start: 10, behind: b"recvfrom" };
        assert_eq!(
            [9, 15, 36, 45].map(|address| table.around(address)),
            [None, Some(bracket), Some(bracket), None]
        );
    }

    #[test]
    fn a_label_reaches_up_to_the_next_symbol_or_the_end_of_its_section() {
        let table = table(&[("a", 10, 0, Binding::Local), ("b", 20, 0, Binding::Local)]);
        let names = [10, 19, 20, 999, 1000].map(|address| name(&table, address));
        assert_eq!(names, ["a", "a", "b", "b", ""]);
    }

    #[test]
    fn a_label_inside_of_a_function_is_not_a_function() {
        let table = table(&[("f", 10, 20, Binding::Local), ("label", 15, 0, Binding::Global)]);
        assert_eq!([14, 15, 29, 30].map(|address| name(&table, address)), ["f", "f", "f", ""]);
    }

    #[test]
    fn a_function_inside_of_another_ends_and_the_other_goes_on() {
        let table = table(&[("f", 10, 20, Binding::Local), ("g", 15, 5, Binding::Local)]);
        let names = [10, 14, 15, 19, 20, 29, 30].map(|address| name(&table, address));
        assert_eq!(names, ["f", "f", "g", "g", "f", "f", ""]);
    }

    #[test]
    fn of_aliases_the_one_users_know_is_shown() {
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
    fn versions_are_no_part_of_the_name() {
        let table = table(&[("f@@V_1", 10, 5, Binding::Local), ("g@plt", 20, 5, Binding::Local)]);
        assert_eq!((name(&table, 10), name(&table, 20)), ("f", "g@plt"));
    }

    proptest! {
        #[test]
        fn a_name_is_found_just_where_a_symbol_with_a_size_is(
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
                let found = table.find(address).map(|name| {
                    let i: usize = std::str::from_utf8(&name[1..]).unwrap().parse().unwrap();
                    prop_assert!(covers(&symbols[i]));
                    Ok(symbols[i].0)
                }).transpose()?;
                prop_assert_eq!(found, nearest, "address {}", address);
            }
        }
    }
}
