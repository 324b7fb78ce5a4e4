//! Functions generated at run time, by a process or by the kernel: names and addresses. Pure.
//!
//! Each sampled function becomes an image of its own. Functions are generated and dropped without
//! end, so each is freed when nothing refers to it, and their memory is bounded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_stream::limits;
use rustc_hash::FxHashMap;

use crate::image::jit::runtime_unwinding::RuntimeUnwinding;
use crate::os::task_serial::ProcessId;

/// The most memory for all functions.
const BYTES_MAX: usize = 256 << 20;

/// The bytes of a function besides its name: this structure, and its entries in maps.
const FUNCTION_BYTES: usize = 192;

/// The bytes of a region in a copy of regions.
const REGION_BYTES: usize = 48;

/// The place of a function's code in a jitdump file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DumpedCode {
    /// The inode of the file.
    pub(crate) inode: u64,
    /// The position of the first byte.
    pub(crate) at: u64,
    /// The number of bytes.
    pub(crate) size: u64,
}

/// A generated function.
#[derive(Debug)]
pub(crate) struct RuntimeFunction {
    /// The name: not empty, and no longer than a string of a stream may be.
    pub(crate) name: Box<[u8]>,
    /// The address from which offsets are counted.
    pub(crate) start: u64,
    /// The process that has it in memory. None for the kernel.
    pub(crate) owner: Option<ProcessId>,
    /// The unwind table that its generator wrote for it.
    pub(crate) unwinding: Option<Rc<RuntimeUnwinding>>,
    /// Its code as its generator wrote it.
    pub(crate) dumped: Option<DumpedCode>,
    /// Its number among the sampled functions; 0 before its first sample.
    number: Cell<u32>,
    /// The memory of all functions.
    bytes: Rc<Cell<usize>>,
}

impl RuntimeFunction {
    /// Returns the same function at another address. None if there are too many.
    pub(crate) fn moved(&self, start: u64) -> Option<Rc<Self>> {
        let Self { name, owner, unwinding, dumped, .. } = self;
        Self::new(name.clone(), start, *owner, unwinding.clone(), *dumped, &self.bytes)
    }

    fn new(
        name: Box<[u8]>,
        start: u64,
        owner: Option<ProcessId>,
        unwinding: Option<Rc<RuntimeUnwinding>>,
        dumped: Option<DumpedCode>,
        bytes: &Rc<Cell<usize>>,
    ) -> Option<Rc<Self>> {
        let (number, bytes) = (Cell::new(0), bytes.clone());
        let function = Self { name, start, owner, unwinding, dumped, number, bytes };
        let bytes = &function.bytes;
        let used = bytes.get() + function.cost();
        // Before the check: the drop of a refused function subtracts its bytes again.
        bytes.set(used);
        (used <= BYTES_MAX).then(|| Rc::new(function))
    }

    fn cost(&self) -> usize {
        let unwinding = self.unwinding.as_ref().map_or(0, |unwinding| unwinding.bytes());
        self.name.len() + unwinding + FUNCTION_BYTES
    }
}

impl Drop for RuntimeFunction {
    fn drop(&mut self) {
        self.bytes.set(self.bytes.get().saturating_sub(self.cost()));
    }
}

/// Creates functions, and numbers those that are sampled.
#[derive(Debug, Default)]
pub(crate) struct RuntimeFunctions {
    /// The memory of all functions.
    bytes: Rc<Cell<usize>>,
    last_number: u32,
    /// The functions sampled in the current epoch, by number.
    sampled: FxHashMap<u32, Rc<RuntimeFunction>>,
    /// True if an epoch has begun: the functions sampled before are dropped at the next stack.
    is_stale: bool,
}

impl RuntimeFunctions {
    /// Creates a function; a too long name is truncated. None if the name is empty, or there are
    /// too many functions.
    pub(crate) fn create(
        &self,
        name: &[u8],
        start: u64,
        owner: Option<ProcessId>,
    ) -> Option<Rc<RuntimeFunction>> {
        self.create_from_dump(name, start, owner, None, None)
    }

    /// Creates a function as [`RuntimeFunctions::create`] does, with the unwind table and the code that a
    /// jitdump has of it.
    pub(crate) fn create_from_dump(
        &self,
        name: &[u8],
        start: u64,
        owner: Option<ProcessId>,
        unwinding: Option<RuntimeUnwinding>,
        dumped: Option<DumpedCode>,
    ) -> Option<Rc<RuntimeFunction>> {
        if name.is_empty() {
            return None;
        }
        let unwinding = unwinding.map(Rc::new);
        RuntimeFunction::new(clip(name), start, owner, unwinding, dumped, &self.bytes)
    }

    /// Begins a new stack.
    pub(crate) fn begin_stack(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.sampled.clear();
        }
    }

    /// Begins a new epoch, to which the current stack already belongs.
    pub(crate) fn begin_epoch(&mut self) {
        self.is_stale = true;
    }

    /// Returns the number of a sampled function. None if no numbers are left.
    pub(crate) fn number(&mut self, function: &Rc<RuntimeFunction>) -> Option<u32> {
        if function.number.get() == 0 {
            // Numbers are never reused: ids in the stream depend on them.
            self.last_number = self.last_number.checked_add(1)?;
            function.number.set(self.last_number);
        }
        let number = function.number.get();
        self.sampled.entry(number).or_insert_with(|| function.clone());
        Some(number)
    }

    /// Returns a function of the current stack by its number.
    pub(crate) fn get(&self, number: u32) -> Option<&Rc<RuntimeFunction>> {
        self.sampled.get(&number)
    }
}

/// Truncates a name to the longest string of a stream.
fn clip(name: &[u8]) -> Box<[u8]> {
    const DOTS: &[u8] = b"...";
    match name.get(..limits::STRING - DOTS.len()) {
        Some(front) if name.len() > limits::STRING => [front, DOTS].concat().into(),
        _ => name.into(),
    }
}

/// A range of addresses of a function.
#[derive(Clone, Debug)]
struct Region {
    /// The address after its last byte.
    end: u64,
    function: Rc<RuntimeFunction>,
}

/// The functions by address. A later function replaces the overlapped part of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct CodeRegions {
    by_start: BTreeMap<u64, Region>,
    /// For a copy: its bytes, and the memory of all functions to which they were added.
    copied: Option<(usize, Rc<Cell<usize>>)>,
}

impl Drop for CodeRegions {
    fn drop(&mut self) {
        if let Some((cost, bytes)) = &self.copied {
            bytes.set(bytes.get().saturating_sub(*cost));
        }
    }
}

impl CodeRegions {
    /// Returns regions that can be changed. Shared ones are copied; the copy counts as memory of
    /// functions, and is empty if the limit is exceeded.
    pub(crate) fn make_mut(shared: &mut Rc<Self>) -> &mut Self {
        if Rc::get_mut(shared).is_none() {
            *shared = Rc::new(shared.copy().unwrap_or_default());
        }
        // Not shared any more: this does not fail.
        Rc::get_mut(shared).unwrap_or_else(|| unreachable!())
    }

    fn copy(&self) -> Option<Self> {
        // Any function has the counter of the memory of all.
        let Some((_, first)) = self.by_start.first_key_value() else {
            return Some(Self::default());
        };
        let bytes = first.function.bytes.clone();
        let cost = self.by_start.len() * REGION_BYTES;
        let used = bytes.get() + cost;
        (used <= BYTES_MAX).then(|| {
            bytes.set(used);
            Self { by_start: self.by_start.clone(), copied: Some((cost, bytes)) }
        })
    }

    /// Inserts a function with `size` bytes from its start. Ignores empty and overflowing ranges.
    pub(crate) fn insert(&mut self, function: Rc<RuntimeFunction>, size: u64) {
        let start = function.start;
        let Some(end) = start.checked_add(size).filter(|_| size > 0) else { return };
        // The region before it may reach into it, and beyond its end.
        if let Some((_, before)) = self.by_start.range_mut(..start).next_back()
            && before.end > start
        {
            let rest = Region { end: before.end, function: before.function.clone() };
            before.end = start;
            if rest.end > end {
                self.by_start.insert(end, rest);
            }
        }
        // Removes the regions that start inside, except their parts after the end.
        while let Some((&at, covered)) = self.by_start.range(start..end).next() {
            let rest = covered.clone();
            self.by_start.remove(&at);
            if rest.end > end {
                self.by_start.insert(end, rest);
            }
        }
        self.by_start.insert(start, Region { end, function });
    }

    /// Removes the function that starts at an address, in the `size` bytes from there on.
    pub(crate) fn remove(&mut self, start: u64, size: u64) {
        let Some(region) =
            self.by_start.get(&start).filter(|region| region.function.start == start)
        else {
            return;
        };
        let function = region.function.clone();
        // Later functions may have split it into several regions.
        let pieces = self.by_start.range(start..start.saturating_add(size));
        let pieces = pieces.filter(|(_, region)| Rc::ptr_eq(&region.function, &function));
        let starts: Vec<u64> = pieces.map(|(&at, _)| at).collect();
        for at in starts {
            self.by_start.remove(&at);
        }
    }

    /// Returns the function at an address, and the offset in it.
    pub(crate) fn find(&self, address: u64) -> Option<(&Rc<RuntimeFunction>, u64)> {
        let (_, region) = self.by_start.range(..=address).next_back()?;
        let function = &region.function;
        (address < region.end).then(|| (function, address.wrapping_sub(function.start)))
    }

    /// Returns the end of the bytes that a function has from its start on. None if it has no more there.
    pub(crate) fn end_of(&self, function: &Rc<RuntimeFunction>) -> Option<u64> {
        let region = self.by_start.get(&function.start)?;
        Rc::ptr_eq(&region.function, function).then_some(region.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(functions: &RuntimeFunctions, ranges: &[(&str, u64, u64)]) -> CodeRegions {
        let mut regions = CodeRegions::default();
        for &(name, start, size) in ranges {
            let function = functions.create(name.as_bytes(), start, None).expect("room");
            regions.insert(function, size);
        }
        regions
    }

    fn name(regions: &CodeRegions, address: u64) -> Option<(String, u64)> {
        let (function, offset) = regions.find(address)?;
        Some((String::from_utf8_lossy(&function.name).into_owned(), offset))
    }

    fn at(name: &str, offset: u64) -> Option<(String, u64)> {
        Some((name.to_owned(), offset))
    }

    #[test]
    fn function_ends_where_another_one_begins() {
        let functions = RuntimeFunctions::default();
        let mut regions = CodeRegions::default();
        let [outer, inner, last] =
            [0x100, 0x140, 0x100].map(|start| functions.create(b"f", start, None).expect("room"));
        regions.insert(outer.clone(), 0x100);
        assert_eq!(regions.end_of(&outer), Some(0x200));
        regions.insert(inner.clone(), 0x10);
        assert_eq!((regions.end_of(&outer), regions.end_of(&inner)), (Some(0x140), Some(0x150)));
        regions.insert(last.clone(), 8);
        assert_eq!((regions.end_of(&outer), regions.end_of(&last)), (None, Some(0x108)));
    }

    #[test]
    fn later_function_replaces_overlapped_part() {
        let functions = RuntimeFunctions::default();
        let found = regions(&functions, &[("outer", 0x100, 0x100), ("inner", 0x140, 0x10)]);
        assert_eq!(name(&found, 0xff), None);
        assert_eq!(name(&found, 0x13f), at("outer", 0x3f));
        assert_eq!(name(&found, 0x140), at("inner", 0));
        assert_eq!(name(&found, 0x150), at("outer", 0x50));
        assert_eq!(name(&found, 0x200), None);
        let all = [("a", 1, 4), ("b", 7, 2), ("c", 12, 8), ("d", 3, 12), ("e", 3, 12)];
        let found = regions(&functions, &all);
        let names: String =
            (0..21).map(|at| name(&found, at).map_or("-".into(), |(name, _)| name)).collect();
        assert_eq!(names, "-aaeeeeeeeeeeeeccccc-");
    }

    #[test]
    fn random_ranges_match_painted_array() {
        const ROOM: u64 = 64;
        let functions = RuntimeFunctions::default();
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % below
        };
        let (mut regions, mut painted) = (CodeRegions::default(), [None; ROOM as usize]);
        for number in 0..2000u64 {
            let (start, size) = (next(ROOM), next(12));
            let here = painted[start as usize];
            if next(4) > 0 {
                let name = number.to_string();
                regions.insert(functions.create(name.as_bytes(), start, None).expect("room"), size);
                painted.iter_mut().skip(start as usize).take(size as usize).for_each(|at| {
                    *at = Some((number, start));
                });
            } else if here.is_some_and(|(_, begins)| begins == start) {
                regions.remove(start, ROOM);
                painted.iter_mut().filter(|at| **at == here).for_each(|at| *at = None);
            }
            for (address, expected) in (0..ROOM).zip(&painted) {
                let expected =
                    expected.map(|(number, start)| (number.to_string(), address - start));
                assert_eq!(name(&regions, address), expected);
            }
        }
        drop(regions);
        assert_eq!(functions.bytes.get(), 0);
    }

    #[test]
    fn ignores_empty_and_overflowing_ranges() {
        let functions = RuntimeFunctions::default();
        let found = regions(&functions, &[("empty", 5, 0), ("around", u64::MAX, 2)]);
        assert!(found.by_start.is_empty());
        assert!(functions.create(b"", 1, None).is_none());
        let last = regions(&functions, &[("last", u64::MAX - 1, 1)]);
        assert_eq!((name(&last, u64::MAX), name(&last, u64::MAX - 1)), (None, at("last", 0)));
    }

    #[test]
    fn remove_drops_all_parts_of_one_function() {
        let functions = RuntimeFunctions::default();
        let mut found = regions(&functions, &[("outer", 0, 9), ("inner", 3, 3), ("next", 9, 2)]);
        found.remove(4, 9);
        found.remove(1, u64::MAX);
        assert_eq!((name(&found, 2), name(&found, 4)), (at("outer", 2), at("inner", 1)));
        found.remove(0, 9);
        assert_eq!((name(&found, 0), name(&found, 8)), (None, None));
        assert_eq!((name(&found, 4), name(&found, 9)), (at("inner", 1), at("next", 0)));
    }

    #[test]
    fn memory_is_bounded_and_released() {
        let functions = RuntimeFunctions::default();
        let long = vec![b'x'; 1 << 20];
        let mut kept = Vec::new();
        while let Some(function) = functions.create(&long, 1, None) {
            assert_eq!(function.name.len(), limits::STRING);
            assert!(function.name.ends_with(b"x..."));
            kept.push(function);
        }
        assert!(functions.bytes.get() <= BYTES_MAX && kept.len() > 4000);
        kept.pop();
        assert!(functions.create(&long, 1, None).is_some());
        kept.clear();
        assert_eq!(functions.bytes.get(), 0);
    }

    #[test]
    fn copies_count_and_are_empty_above_limit() {
        let functions = RuntimeFunctions::default();
        let mut shared = Rc::new(regions(&functions, &[("a", 1, 4), ("b", 7, 2)]));
        let alone = functions.bytes.get();
        CodeRegions::make_mut(&mut shared);
        assert_eq!(functions.bytes.get(), alone, "regions that are not shared are not copied");
        let mut child = shared.clone();
        CodeRegions::make_mut(&mut child).insert(functions.create(b"c", 7, None).expect("room"), 2);
        assert_eq!((name(&child, 7), name(&shared, 7)), (at("c", 0), at("b", 0)));
        assert_eq!(name(&child, 1), at("a", 0));
        drop(child);
        assert_eq!(functions.bytes.get(), alone);
        let long = vec![b'x'; 1 << 20];
        let _kept: Vec<_> = std::iter::from_fn(|| functions.create(&long, 1, None)).collect();
        let left = BYTES_MAX - functions.bytes.get();
        let mut copies = Vec::new();
        while let mut copy = shared.clone()
            && name(CodeRegions::make_mut(&mut copy), 1).is_some()
        {
            copies.push(copy);
        }
        assert_eq!(copies.len(), left / (2 * REGION_BYTES));
        assert!(functions.bytes.get() <= BYTES_MAX);
        assert_eq!(name(&shared, 1), at("a", 0));
    }

    #[test]
    fn numbers_stay_and_epochs_drop_sampled_functions() {
        let mut functions = RuntimeFunctions::default();
        let [a, b] =
            ["a", "b"].map(|name| functions.create(name.as_bytes(), 1, None).expect("room"));
        assert_eq!([&a, &b, &a].map(|f| functions.number(f)), [Some(1), Some(2), Some(1)]);
        let third = functions.create(b"c", 1, None).expect("room");
        let last = std::mem::replace(&mut functions.last_number, u32::MAX);
        assert_eq!(functions.number(&third), None);
        functions.last_number = last;
        functions.begin_epoch();
        assert!(functions.get(2).is_some(), "the current stack belongs to the new epoch");
        functions.begin_stack();
        assert!(functions.get(2).is_none());
        assert_eq!(functions.number(&b), Some(2));
        assert_eq!(functions.get(2).map(|function| &*function.name), Some(&b"b"[..]));
    }
}
