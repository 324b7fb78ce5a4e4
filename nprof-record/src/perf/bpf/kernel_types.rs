//! Reduces the types of the kernel to those that programs use. Pure.
//!
//! The format is that of Documentation/bpf/btf.rst of Linux. A kernel has 150,000 types, and aya-obj
//! takes 0.1 s and 40 MiB to read them with all members.

use anyhow::Context;
use memchr::memmem;
use rustc_hash::FxHashMap;

/// The magic number at the start, in the byte order of this machine.
const MAGIC: u16 = 0xeb9f;

/// Bytes of the header up to the position of the strings, and of a type without its members.
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;

/// Kinds of types.
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FORWARD: u32 = 7;
/// A name, `volatile`, `const`, `restrict` and a tag: each has the type it refers to.
const REFERENCES: [u32; 5] = [8, 9, 10, 11, 18];
const FUNCTION: u32 = 12;

/// Types that refer to each other, with their own numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reduced {
    pub(super) types: Vec<u8>,
    /// The numbers in the kernel of the structures and functions among the names.
    pub(super) numbers: FxHashMap<String, u32>,
}

impl Reduced {
    /// Returns the number in the kernel of a structure or a function.
    ///
    /// # Errors
    ///
    /// If the kernel has none with this name.
    pub(crate) fn number(&self, name: &str) -> anyhow::Result<u32> {
        self.numbers.get(name).copied().with_context(|| format!("the kernel has no type {name}"))
    }
}

/// The number of types of which the place of one is kept. To keep those of all takes 0.7 ms, most of it for
/// page faults.
const STARTS_STEP: u32 = 64;

/// Returns the structures of a kernel with a name in `names`, with the types of their members as far as
/// these lie in them: other structures with a name have no members, and pointers point to nothing. None
/// if the types cannot be read: they are truncated, or of a kind of a later kernel.
pub(super) fn reduced(types: &[u8], names: &[&str]) -> Option<Reduced> {
    let header = types.get(..HEADER_BYTES)?;
    let (magic, header_bytes) = (word(header, 0)? as u16, word(header, 4)? as usize);
    if magic != MAGIC || header_bytes < HEADER_BYTES {
        return None;
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = header_bytes.checked_add(word(header, at)? as usize)?;
        types.get(start..)?.get(..word(header, at + 4)? as usize)
    };
    let (types, strings) = (section(8)?, section(16)?);
    let places: Vec<_> =
        names.iter().filter_map(|name| Some((place(strings, name)?, *name))).collect();
    let mut reducer = Reducer { types, strings, ..Reducer::default() };
    let mut reduced = Reduced::default();
    // Number 0 is the type `void`, which is not written.
    let (mut at, mut number) = (0, 0);
    while at < types.len() {
        if number % STARTS_STEP == 0 {
            reducer.starts.push(at);
        }
        number += 1;
        let (name, info) = (word(types, at)?, word(types, at + 4)?);
        let kind = kind(info);
        at = end_of_type(types, at)?;
        if matches!(kind, STRUCT | FUNCTION)
            && let Some((_, name)) = places.iter().find(|(place, _)| *place == name)
        {
            reduced.numbers.insert((*name).to_owned(), number);
            if kind == STRUCT {
                reducer.number_of(number);
                reducer.roots.push(number);
            }
        }
    }
    reduced.types = reducer.write()?;
    Some(reduced)
}

/// Copies types.
#[derive(Debug, Default)]
struct Reducer<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// The places of the types 1, 1 + [`STARTS_STEP`] and so on.
    starts: Vec<usize>,
    /// Structures that are copied with their members.
    roots: Vec<u32>,
    /// The new numbers of types by the old ones, and the old ones in the order of the new ones.
    numbers: FxHashMap<u32, u32>,
    copied: Vec<u32>,
    names: Vec<u8>,
}

impl Reducer<'_> {
    /// Returns the new number of a type, which is copied.
    fn number_of(&mut self, old: u32) -> u32 {
        if old == 0 {
            return 0;
        }
        *self.numbers.entry(old).or_insert_with(|| {
            self.copied.push(old);
            self.copied.len() as u32
        })
    }

    /// Returns the new place of a string, which is copied.
    fn name_at(&mut self, old: u32) -> Option<u32> {
        let text = self.strings.get(old as usize..)?;
        let length = text.iter().position(|byte| *byte == 0)?;
        if length == 0 {
            return Some(0);
        }
        let at = self.names.len();
        self.names.extend_from_slice(&text[..=length]);
        u32::try_from(at).ok()
    }

    fn write(mut self) -> Option<Vec<u8>> {
        self.names.push(0);
        let (mut types, mut next) = (Vec::new(), 0);
        // `write_type` adds more.
        while let Some(&number) = self.copied.get(next) {
            next += 1;
            self.write_type(number, &mut types)?;
        }
        let length = |section: &[u8]| u32::try_from(section.len()).ok();
        let (types_bytes, names_bytes) = (length(&types)?, length(&self.names)?);
        let first = u32::from(MAGIC) | 1 << 16;
        let header = [first, HEADER_BYTES as u32, 0, types_bytes, types_bytes, names_bytes];
        let header = header.iter().flat_map(|word| word.to_ne_bytes());
        Some(header.chain(types).chain(self.names).collect())
    }

    /// Returns the place of a type.
    fn start(&self, number: u32) -> Option<usize> {
        let index = number.checked_sub(1)?;
        let first = *self.starts.get((index / STARTS_STEP) as usize)?;
        (0..index % STARTS_STEP).try_fold(first, |at, _| end_of_type(self.types, at))
    }

    fn write_type(&mut self, number: u32, to: &mut Vec<u8>) -> Option<()> {
        let at = self.start(number)?;
        let old = |index: usize| word(self.types, at + 4 * index);
        let (name, info, size) = (old(0)?, old(1)?, old(2)?);
        let kind = kind(info);
        let mut words = match kind {
            INT => vec![self.name_at(name)?, info, size, word(self.types, at + TYPE_BYTES)?],
            POINTER => vec![0, info, 0],
            ARRAY => {
                let (element, index, length) = (old(3)?, old(4)?, old(5)?);
                vec![0, info, 0, self.number_of(element), self.number_of(index), length]
            }
            _ if REFERENCES.contains(&kind) => {
                vec![self.name_at(name)?, info, self.number_of(size)]
            }
            STRUCT | UNION if name == 0 || self.roots.contains(&number) => {
                vec![self.name_at(name)?, info, size]
            }
            _ => vec![0, FORWARD << 24, 0],
        };
        if words[1] == info && matches!(kind, STRUCT | UNION) {
            for member in 0..info as usize & 0xffff {
                let at = at + TYPE_BYTES + 12 * member;
                let [name, member, offset] =
                    [word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?];
                words.extend([self.name_at(name)?, self.number_of(member), offset]);
            }
        }
        to.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        Some(())
    }
}

/// Returns the place after a type. None if its kind is unknown or it is truncated.
fn end_of_type(types: &[u8], at: usize) -> Option<usize> {
    let info = word(types, at.checked_add(4)?)?;
    let end = at.checked_add(TYPE_BYTES + member_bytes(kind(info), info as usize & 0xffff)?)?;
    (end <= types.len()).then_some(end)
}

fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

/// Returns the bytes of the members of a type. None if its kind is unknown.
fn member_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // An integer, a variable, and a tag of a declaration have one word.
        INT | 14 | 17 => 4,
        ARRAY => 12,
        // Structures, unions, sections and enumerations of 64 bits.
        STRUCT | UNION | 15 | 19 => 12 * members,
        // Enumerations and the types of functions.
        6 | 13 => 8 * members,
        // Pointers, forward declarations, names, qualifiers, functions, floats and tags of types.
        POINTER | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

/// Returns the place of a name among the strings, of which each is there once: to read the name of each
/// type would take longer. None if no type has it.
fn place(strings: &[u8], name: &str) -> Option<u32> {
    let text = [b"\0", name.as_bytes(), b"\0"].concat();
    let before = memmem::find(strings, &text)?;
    u32::try_from(before + 1).ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRINGS: &[u8] = b"\0int\0task\0pid\0other\0run\0walk\0";
    const INT_TYPE: [u32; 4] = [1, INT << 24, 4, 32];

    /// Returns types in their encoding.
    fn encoded(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let bytes = 4 * types.len() as u32;
        let header = [0x1_eb9f, 24, 0, bytes, bytes, strings.len() as u32];
        let words = header.iter().chain(types).flat_map(|word| word.to_ne_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn structure_is_kept_with_the_types_in_it() {
        let (other, choice) = ([14, STRUCT << 24 | 1, 4, 10, 2, 0], [14, 6 << 24 | 1, 4, 1, 0]);
        let (run, walk) = ([20, FUNCTION << 24, 4], [24, FUNCTION << 24, 4]);
        // An `int` in a union, an `other`, and a pointer to one.
        let task = [5, STRUCT << 24 | 3, 16, 0, 5, 0, 10, 1, 32, 14, 8, 64];
        let unnamed = [0, UNION << 24 | 1, 4, 10, 2, 0];
        let pointer = [0, POINTER << 24, 1];
        let all = [&other[..], &INT_TYPE, &choice, &task, &unnamed, &run, &walk, &pointer].concat();
        let reduced = reduced(&encoded(&all, STRINGS), &["task", "walk"]).expect("it is complete");
        let types = [
            &[1, STRUCT << 24 | 3, 16, 0, 2, 0, 6, 3, 32, 10, 4, 64][..],
            &[0, UNION << 24 | 1, 4, 16, 5, 0],
            &[0, FORWARD << 24, 0],
            &[0, POINTER << 24, 0],
            &[20, INT << 24, 4, 32],
        ];
        let expected = encoded(&types.concat(), b"\0task\0pid\0other\0pid\0int\0");
        assert_eq!(reduced.types, expected);
        let numbers = [("task", 4), ("walk", 7)].map(|(name, number)| (name.to_owned(), number));
        assert_eq!(reduced.numbers, numbers.into_iter().collect());
    }

    #[test]
    fn arrays_and_names_of_types_keep_what_they_refer_to() {
        let task = [5, STRUCT << 24 | 1, 16, 10, 3, 0];
        let array = [0, ARRAY << 24, 0, 4, 1, 4];
        let constant = [0, 10 << 24, 1];
        let all = [&INT_TYPE[..], &task, &array, &constant].concat();
        let reduced = reduced(&encoded(&all, STRINGS), &["task"]).expect("it is complete");
        let types = [
            &[1, STRUCT << 24 | 1, 16, 6, 2, 0][..],
            &[0, ARRAY << 24, 0, 3, 4, 4],
            &[0, 10 << 24, 4],
            &[10, INT << 24, 4, 32],
        ];
        assert_eq!(reduced.types, encoded(&types.concat(), b"\0task\0pid\0int\0"));
    }

    #[test]
    fn types_are_found_after_any_number_of_others() {
        let reduced_after = |others: u32| {
            let task = [5, STRUCT << 24 | 1, 8, 10, others + 1, 0];
            let all = [&INT_TYPE.repeat(others as usize + 1)[..], &task].concat();
            reduced(&encoded(&all, STRINGS), &["task"]).expect("it is complete")
        };
        let first = reduced_after(0);
        for others in [1, STARTS_STEP - 2, STARTS_STEP - 1, STARTS_STEP, 2 * STARTS_STEP + 5] {
            let reduced = reduced_after(others);
            assert_eq!(reduced.types, first.types, "{others}");
            assert_eq!(reduced.number("task").ok(), Some(others + 2));
        }
    }

    #[test]
    fn whole_names_are_compared() {
        let task = [5, STRUCT << 24, 8];
        let count = |names: &[&str]| {
            let reduced = reduced(&encoded(&task, STRINGS), names).expect("it is complete");
            reduced.types.len() - HEADER_BYTES
        };
        assert_eq!((count(&["tas"]), count(&["tasks"])), (1, 1));
        assert_eq!(count(&["x", "task"]), TYPE_BYTES + b"\0task\0".len());
    }

    #[test]
    fn truncated_and_unknown_types_are_refused() {
        let task = [5, STRUCT << 24 | 1, 8, 10, 1, 32];
        let encoded = |types: &[u32]| encoded(types, STRINGS);
        let whole = encoded(&[&INT_TYPE[..], &task].concat());
        for length in 0..whole.len() {
            assert_eq!(reduced(&whole[..length], &["task"]), None, "{length}");
        }
        assert_eq!(reduced(&encoded(&[1, 31 << 24, 0]), &["task"]), None);
        assert_eq!(reduced(&encoded(&task[..5]), &["task"]), None);
        assert_eq!(reduced(&encoded(&[5, STRUCT << 24 | 1, 8, 10, 9, 32]), &["task"]), None);
        let mut other_order = whole;
        other_order.swap(0, 1);
        assert_eq!(reduced(&other_order, &["task"]), None);
    }
}
