//! The functions of a Go program: the calls at an address. Pure over bytes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nprof_object::{ImageAddress, Segments};
use object::Endianness;
use rustc_hash::FxHashMap;

use super::header::{Header, SearchRoom, Version};
use super::module_data::ModuleData;
use super::pc_values::{self, PcValues};
use crate::dwarf::{Call, PagedSection, Section};
use crate::elf::headers::Headers;

/// The names of the section with the table; the second is that of PIE up to Go 1.25.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// Sections of every Go program. The table has no section of its own if the linker of another
/// language merged it into `.data.rel.ro` (cgo, PIE).
const GO_SECTIONS: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

/// The most headers of tables in a segment that are tried. Each may take a search of the whole file.
const MAX_HEADERS: usize = 16;

/// The most bytes that the list of functions may take in the file.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The most calls at one address. The compiler inlines at most a few dozen; a damaged tree may have
/// a cycle.
pub(super) const MAX_CALLS: usize = 256;

/// The most names and paths that are kept.
const MAX_STRINGS: usize = 1 << 16;

/// The number of the values with inlined calls among those of a function (`PCDATA_InlTreeIndex`).
const INLINED_VALUES: u32 = 2;

/// The number of the tree of inlined calls among the data of a function (`FUNCDATA_InlTree`).
const TREE: u64 = 3;

/// The candidates for the word of the module data with the address of the trees (`gofunc`).
const TREES_WORDS: std::ops::Range<usize> = 36..46;

/// The number of functions that must confirm a candidate, if there are as many with a tree.
const CONFIRMATIONS: usize = 16;

/// The functions of a Go program.
pub(crate) struct GoTable {
    file: PagedSection,
    segments: Segments,
    header: Header,
    /// The file offset of the table.
    start: u64,
    /// The address of the table.
    address: ImageAddress,
    functions: Box<[Listed]>,
    /// The address after the last function.
    end: u64,
    trees: Trees,
    strings: RefCell<FxHashMap<u64, Option<Arc<[u8]>>>>,
    /// The function of the latest lookup: lookups come sorted.
    latest: RefCell<Option<Rc<Function>>>,
}

/// A function in the list.
#[derive(Clone, Copy, Debug)]
struct Listed {
    /// Its first address.
    start: u64,
    /// The offset of its record.
    record: u64,
}

/// The place of the trees of inlined calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trees {
    /// Unknown.
    None,
    /// Functions have the addresses of their trees: Go 1.16 and 1.17.
    Addresses,
    /// Functions have offsets from this address.
    From(u64),
}

/// A function, decoded.
struct Function {
    start: u64,
    /// The file offset of its name.
    name: u64,
    /// The place of its compilation unit in the list of files.
    unit: u64,
    files: PcValues,
    lines: PcValues,
    inlined: PcValues,
    /// The file offset of its tree of inlined calls.
    tree: Option<u64>,
    start_line: u32,
}

/// The numbers of a function's record (`runtime._func`).
struct Record {
    /// The offset of the name.
    name: u32,
    /// The offset of the values with file numbers.
    files: u32,
    /// The offset of the values with lines.
    lines: u32,
    /// The place of its compilation unit in the list of files.
    unit: u32,
    /// The offset of the values with inlined calls, 0 if there are none.
    inlined: u32,
    /// The tree of inlined calls: an offset or an address. None if there is none.
    tree: Option<u64>,
    /// The line at which it begins, 0 before Go 1.20.
    start_line: u32,
}

/// An inlined call in a tree.
#[derive(Clone, Copy)]
struct TreeEntry {
    /// The offset of the function's name.
    name: u32,
    /// The distance of an instruction at the call from the start of the function.
    call: u32,
    /// The line at which the function begins, 0 before Go 1.20.
    start_line: u32,
}

impl GoTable {
    /// Finds and reads the table of an ELF file. None if it has none, or none that can be used.
    pub(crate) fn read(file: &Section, headers: &Headers) -> Option<Self> {
        if !headers.is_64 || headers.endian != Endianness::Little {
            return None;
        }
        let section = |name: &&[u8]| headers.section(name);
        let mut room = SearchRoom::new();
        if let Some(table) = SECTIONS.iter().find_map(section) {
            let start = table.offset?;
            let end = start.saturating_add(table.size).min(file.len());
            return Self::at(file, headers, start, end, &mut room);
        }
        // Without section headers, every file may be of Go.
        if !headers.sections.is_empty() && GO_SECTIONS.iter().find_map(section).is_none() {
            return None;
        }
        headers.segments.iter().find_map(|segment| {
            let mut start = segment.offset.0;
            let end = start.saturating_add(segment.size).min(file.len());
            // Code and data may have the bytes of a header by chance, or in a program like this one.
            for _ in 0..MAX_HEADERS {
                let found = Header::find(file, start, end, &mut room)?;
                let table = Self::at(file, headers, found, end, &mut room);
                if table.is_some() {
                    return table;
                }
                start = found + 8;
            }
            None
        })
    }

    /// Reads the table at a file offset; its parts end before `end`.
    fn at(
        file: &Section,
        headers: &Headers,
        start: u64,
        end: u64,
        room: &mut SearchRoom,
    ) -> Option<Self> {
        let header = Header::read(&file.part(start, end.saturating_sub(start)))?;
        let place = nprof_object::FileOffset(start);
        let address = headers.segments.image_address(place)?;
        let module = (header.version >= Version::Go1_18)
            .then(|| ModuleData::find(file, headers, &header, address, room))
            .flatten();
        let text = match header.version {
            // The list has addresses.
            Version::Go1_2 | Version::Go1_16 => 0,
            Version::Go1_18 | Version::Go1_20 => {
                module.as_ref().map(ModuleData::text).or(header.text)?
            }
        };
        let (functions, end) = read_list(file, &header, start, text)?;
        let mut table = Self {
            file: PagedSection::new(file.clone()),
            segments: headers.segments.clone(),
            header,
            start,
            address,
            functions,
            end,
            trees: Trees::None,
            strings: RefCell::default(),
            latest: RefCell::default(),
        };
        table.trees = match header.version {
            // Go 1.9 to 1.15 have one header and several layouts of inlined calls.
            Version::Go1_2 => Trees::None,
            Version::Go1_16 => Trees::Addresses,
            Version::Go1_18 | Version::Go1_20 => {
                let words = module.iter().flat_map(|module| &module.0[TREES_WORDS]);
                let mut candidates = words.map(|&word| Trees::From(word));
                candidates.find(|&trees| table.confirms(trees)).unwrap_or(Trees::None)
            }
        };
        Some(table)
    }

    /// Returns the calls at an address, innermost first. Empty outside of all functions.
    pub(crate) fn calls(&self, address: ImageAddress) -> Vec<Call> {
        let Some(function) = self.function(address.0) else { return Vec::new() };
        let mut distance = address.0 - function.start;
        // Addresses after the last instruction pad the function.
        if function.lines.end().is_some_and(|end| distance >= end) {
            return Vec::new();
        }
        let mut calls = Vec::new();
        while calls.len() < MAX_CALLS {
            let inlined = function
                .tree
                .and_then(|tree| self.tree_entry(tree, function.inlined.at(distance)?));
            let (name, start_line) = match &inlined {
                Some(entry) => (self.names_at(entry.name), entry.start_line),
                None => (function.name, function.start_line),
            };
            let call = self.call(&function, distance, self.string(name));
            // A line says nothing without its file.
            let start_line = if call.file.is_some() { start_line } else { 0 };
            calls.push(Call { start_line, ..call });
            let Some(entry) = inlined else { break };
            distance = entry.call.into();
        }
        // A call without a name has no use to readers.
        calls.retain(|call| call.function.is_some());
        calls
    }

    /// Returns the number of functions.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }

    /// True if inlined calls are known.
    pub(crate) fn has_inlined_calls(&self) -> bool {
        self.trees != Trees::None
    }

    /// Returns its memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let latest = self.latest.borrow();
        let values = latest.iter().flat_map(|one| [&one.files, &one.lines, &one.inlined]);
        // Names have about 40 bytes, an entry of the map and two counters as many.
        let strings = self.strings.borrow().len() * 96;
        size_of_val(&*self.functions)
            + values.map(PcValues::bytes).sum::<usize>()
            + strings
            + self.file.bytes()
            + self.file.kept_bytes()
    }

    /// Returns a call of `name` with the position at a distance from the start of the function.
    fn call(&self, function: &Function, distance: u64, name: Option<Arc<[u8]>>) -> Call {
        let line = function.lines.at(distance);
        let file = function.files.at(distance).and_then(|file| self.path(function, file));
        // A line says nothing without its file.
        let line = line.filter(|_| file.is_some()).unwrap_or(0);
        Call { function: name, file, line, ..Call::default() }
    }

    /// Returns the function that covers an address, decoded.
    fn function(&self, address: u64) -> Option<Rc<Function>> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let listed = *self.functions.get(after.checked_sub(1)?)?;
        if address >= self.end {
            return None;
        }
        let mut latest = self.latest.borrow_mut();
        if let Some(function) = latest.as_ref().filter(|latest| latest.start == listed.start) {
            return Some(Rc::clone(function));
        }
        let function = Rc::new(self.decode(listed)?);
        *latest = Some(Rc::clone(&function));
        Some(function)
    }

    fn decode(&self, listed: Listed) -> Option<Function> {
        let record = self.record(listed)?;
        Some(Function {
            start: listed.start,
            name: self.names_at(record.name),
            unit: record.unit.into(),
            files: self.values(record.files),
            lines: self.values(record.lines),
            inlined: self.values(record.inlined),
            tree: record.tree.and_then(|tree| self.tree_offset(self.trees, tree)),
            start_line: record.start_line,
        })
    }

    /// Reads the values at an offset. None of Go's values have the offset 0.
    fn values(&self, offset: u32) -> PcValues {
        if offset == 0 {
            return PcValues::default();
        }
        let at = self.start + self.header.values + u64::from(offset);
        // Most functions have less than a hundred bytes.
        let mut length = 512;
        loop {
            let Ok(bytes) = self.file.near(at, length) else { return PcValues::default() };
            let is_all = (bytes.len() as u64) < length || length >= pc_values::MAX_BYTES;
            if is_all || PcValues::is_ended(&bytes) {
                return PcValues::decode(&bytes, self.header.quantum);
            }
            length = (length * 8).min(pc_values::MAX_BYTES);
        }
    }

    /// Reads the record of a function.
    fn record(&self, listed: Listed) -> Option<Record> {
        let version = self.header.version;
        let at = self.start + self.header.records + listed.record;
        // The first field is an address, since Go 1.18 an offset; the other fields have 32 bits.
        let first = version.number_bytes() as u64;
        let fields = self.numbers::<9>(at + first)?;
        let [name, _, _, _, files, lines, values, unit, begin] = fields;
        let start_line = if version == Version::Go1_20 { begin } else { 0 };
        // The file numbers of Go up to 1.15 belong to the whole program.
        let unit = if version == Version::Go1_2 { 0 } else { unit };
        let counts_at = at
            + first
            + match version {
                Version::Go1_2 => 28,
                Version::Go1_16 | Version::Go1_18 => 32,
                Version::Go1_20 => 36,
            };
        let [counts] = self.numbers::<1>(counts_at)?;
        let data = counts >> 24;
        let values_at = counts_at + 4;
        let inlined = if version > Version::Go1_2 && values > INLINED_VALUES {
            self.numbers::<1>(values_at + 4 * u64::from(INLINED_VALUES))?[0]
        } else {
            0
        };
        let data_at = values_at + 4 * u64::from(values);
        let has_tree = inlined != 0 && u64::from(data) > TREE;
        let tree = if !has_tree {
            None
        } else if version == Version::Go1_16 {
            // Addresses are aligned in memory.
            let misaligned = self.address.0.wrapping_add(data_at - self.start) & 4;
            let [low, high] = self.numbers(data_at + misaligned + 8 * TREE)?;
            Some(u64::from(high) << 32 | u64::from(low)).filter(|&address| address != 0)
        } else {
            let [offset] = self.numbers(data_at + 4 * TREE)?;
            Some(offset.into()).filter(|_| offset != u32::MAX)
        };
        Some(Record { name, files, lines, unit, inlined, tree, start_line })
    }

    /// Returns the file offset of a tree.
    fn tree_offset(&self, trees: Trees, tree: u64) -> Option<u64> {
        let address = match trees {
            Trees::None => return None,
            Trees::Addresses => tree,
            Trees::From(base) => base.checked_add(tree)?,
        };
        self.segments.file_offset(ImageAddress(address)).map(|(offset, _)| offset.0)
    }

    /// Reads an inlined call of the tree at a file offset.
    fn tree_entry(&self, tree: u64, index: u32) -> Option<TreeEntry> {
        let index = u64::from(index);
        if self.header.version == Version::Go1_20 {
            let [_, name, call, start_line] = self.numbers(tree.checked_add(index * 16)?)?;
            return Some(TreeEntry { name, call, start_line });
        }
        let [_, _, _, name, call] = self.numbers(tree.checked_add(index * 20)?)?;
        Some(TreeEntry { name, call, start_line: 0 })
    }

    /// True if the first trees have inlined calls with whole names and places inside the function.
    fn confirms(&self, trees: Trees) -> bool {
        let mut confirmed = 0;
        let ends = self.functions.iter().skip(1).map(|next| next.start).chain([self.end]);
        for (listed, end) in self.functions.iter().zip(ends) {
            let Some(record) = self.record(*listed) else { continue };
            let Some(tree) = record.tree else { continue };
            let entry = self.tree_offset(trees, tree).and_then(|tree| self.tree_entry(tree, 0));
            let is_valid = entry.is_some_and(|entry| {
                u64::from(entry.call) < end - listed.start && self.is_name(entry.name)
            });
            if !is_valid {
                return false;
            }
            // The first name has the offset 0; so have all in a page of zeros.
            confirmed += usize::from(entry.is_some_and(|entry| entry.name != 0));
            if confirmed == CONFIRMATIONS {
                break;
            }
        }
        confirmed > 0
    }

    /// True if a name begins at an offset: the first one, or after the end of another.
    fn is_name(&self, name: u32) -> bool {
        if name == 0 {
            return true;
        }
        let before = name.checked_sub(1).map(|before| self.file.near(self.names_at(before), 2));
        before.is_some_and(|bytes| bytes.is_ok_and(|b| b.len() == 2 && b[0] == 0 && b[1] != 0))
    }

    /// Returns the path of a file of a function.
    fn path(&self, function: &Function, file: u32) -> Option<Arc<[u8]>> {
        let Header { version, units, files, .. } = self.header;
        let [number_at, paths] = if version == Version::Go1_2 {
            [files + 4 * u64::from(file), 0]
        } else {
            [units + 4 * (function.unit + u64::from(file)), files]
        };
        let [offset] = self.numbers(self.start + number_at)?;
        // A file that the linker dropped.
        if offset == u32::MAX {
            return None;
        }
        self.string(self.start + paths + u64::from(offset))
    }

    fn names_at(&self, offset: u32) -> u64 {
        self.start + self.header.names + u64::from(offset)
    }

    /// Reads the string at a file offset. None if it is empty or has no end.
    fn string(&self, at: u64) -> Option<Arc<[u8]>> {
        let mut strings = self.strings.borrow_mut();
        if strings.len() >= MAX_STRINGS {
            strings.clear();
        }
        let read = || self.file.string(at).ok().filter(|name| !name.is_empty()).map(Into::into);
        strings.entry(at).or_insert_with(read).clone()
    }

    /// Reads numbers of 32 bits at a file offset.
    fn numbers<const COUNT: usize>(&self, at: u64) -> Option<[u32; COUNT]> {
        let bytes = self.file.near(at, 4 * COUNT as u64).ok()?;
        let (words, _) = bytes.as_chunks::<4>();
        let words: &[[u8; 4]; COUNT] = words.try_into().ok()?;
        Some(words.map(u32::from_le_bytes))
    }
}

/// Reads the list of functions, and the address after the last one. None if it is not sorted.
fn read_list(
    file: &Section,
    header: &Header,
    start: u64,
    text: u64,
) -> Option<(Box<[Listed]>, u64)> {
    let width = header.version.number_bytes();
    let bytes = header.version.list_bytes(header.functions);
    if bytes > MAX_LIST_BYTES {
        return None;
    }
    let bytes = file.read(start + header.list, bytes).ok()?;
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut pairs = bytes.chunks_exact(2 * width);
    let functions: Box<[Listed]> = pairs
        .by_ref()
        .map(|pair| Listed {
            start: text.wrapping_add(number(&pair[..width])),
            record: number(&pair[width..]),
        })
        .collect();
    let end = text.wrapping_add(number(pairs.remainder()));
    let is_sorted = functions.is_sorted_by(|a, b| a.start < b.start);
    let is_before_end = functions.last().is_some_and(|last| last.start < end);
    // Offsets of records beyond the file would overflow.
    let is_bounded = functions.iter().all(|function| function.record < file.len());
    (is_sorted && is_before_end && is_bounded && functions[0].start != 0)
        .then_some((functions, end))
}
