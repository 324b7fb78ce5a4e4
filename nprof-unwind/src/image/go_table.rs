//! The table of a Go program (`.gopclntab`) as an unwind table: the size of each function's frame by
//! address. Go keeps it for its own tracebacks, in stripped programs, too. Pure over bytes.
//!
//! Unlike `.debug_frame` it marks the functions at which stacks end, and those that switch to another
//! stack, whose caller by that table would be an arbitrary word. The layout is that of
//! `runtime/symtab.go` since Go 1.18.

use std::rc::Rc;

use nprof_object::ImageAddress;

use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};
use crate::arch::stack::RETURN_ADDRESS_BELOW_CFA;
use crate::arch::x86_64::{FP, SP};

/// The first bytes up to Go 1.19 and since Go 1.20: a magic number, zeros, the unit of instructions and the
/// size of a pointer, of x86-64.
const MAGIC_1_18: [u8; 8] = [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8];
const MAGIC_1_20: [u8; 8] = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];

/// The most functions of one table. Large programs have 200,000.
const FUNCTIONS_MAX: u64 = 1 << 22;

/// The most values of one function, so that a look-up in a crafted table ends soon. Large functions have a thousand.
const VALUES_MAX: usize = 1 << 20;

/// The bytes of an entry of the list of functions: the distance of the function from the text, and the
/// place of its record.
const ENTRY_BYTES: usize = 8;

/// The offsets of fields in the record of a function (`_func`), and of its flags up to Go 1.19.
const NAME: usize = 4;
const FRAME_SIZES: usize = 16;
const FLAGS_1_18: usize = 37;

/// The flags of a function: stacks end there, it sets the stack pointer to the value of a variable, it is
/// assembly.
const TOP_FRAME: u8 = 1;
const WRITES_SP: u8 = 2;
const ASSEMBLY: u8 = 4;

/// The function at the entry point of programs that Go's own linker has linked.
const ENTRY: &[u8] = b"_rt0_amd64_linux";

/// The handler of all signals. It is marked as the end of a stack, and is called by the kernel.
const SIGNAL_HANDLER: &[u8] = b"runtime.sigtramp";

/// The start of the name of the function to which it returns.
const SIGNAL_RETURN: &[u8] = b"runtime.sigreturn";

/// The table of a Go program.
#[derive(Clone, Debug)]
pub struct GoTable {
    bytes: Rc<[u8]>,
    /// The image address of the first function.
    text: u64,
    /// The number of functions.
    functions: usize,
    /// The offsets of the names, of the values by address, and of the list of functions.
    names: usize,
    values: usize,
    list: usize,
    flags: usize,
}

/// A function of the table.
#[derive(Clone, Copy, Debug)]
struct Function<'a> {
    /// The distance of its first instruction from the text.
    start: u64,
    name: &'a [u8],
    /// The offset of the sizes of its frame.
    frame_sizes: usize,
    flags: u8,
}

impl GoTable {
    /// Reads the header of a table, of a program with this entry point. None if the table has another
    /// layout, or does not state where the text is.
    pub fn read(bytes: Rc<[u8]>, entry: ImageAddress) -> Option<Self> {
        let flags = match *bytes.first_chunk()? {
            MAGIC_1_18 => FLAGS_1_18,
            // The first line of the function comes before them.
            MAGIC_1_20 => FLAGS_1_18 + 4,
            _ => return None,
        };
        let word = |index: usize| {
            let at = 8 + 8 * index;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let offset = |index| usize::try_from(word(index)?).ok().filter(|&at| at < bytes.len());
        let functions = word(0).filter(|count| (1..=FUNCTIONS_MAX).contains(count))? as usize;
        let (text, names, values, list) = (word(2)?, offset(3)?, offset(6)?, offset(7)?);
        bytes.get(list..)?.get(..functions * ENTRY_BYTES)?;
        let mut table = Self { bytes, text, functions, names, values, list, flags };
        if table.text == 0 {
            // The dynamic linker fills it in; since Go 1.26 it stays 0.
            let mut all = (0..functions).filter_map(|index| table.function(index));
            let start = all.find(|function| function.name == ENTRY)?.start;
            table.text = entry.0.checked_sub(start)?;
        }
        Some(table)
    }

    /// Returns its memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the rule at an image address. None if it is in no function, or signal handlers return to it.
    pub fn rule(&self, address: ImageAddress) -> Option<UnwindRule> {
        let at = address.0.checked_sub(self.text)?;
        let index = self.index_of(at)?;
        let function = self.function(index)?;
        // The address for lookup of a return to the start of a function is in the one before.
        let next = self.function(index + 1).filter(|next| next.start == at + 1);
        let is_signal_return = |function: Function<'_>| function.name.starts_with(SIGNAL_RETURN);
        if is_signal_return(function) || next.is_some_and(is_signal_return) {
            return None;
        }
        let distance = at - function.start;
        let rule = |size: u64, return_address| UnwindRule {
            cfa: Cfa::Register(SP, size as i64 + 8),
            return_address,
            registers: [].into(),
            signal: false,
        };
        if function.flags & TOP_FRAME != 0 && function.name != SIGNAL_HANDLER {
            return Some(rule(0, RegisterRule::Undefined));
        }
        let size = self.frame_size(function.frame_sizes, distance)?;
        if function.flags & WRITES_SP != 0 {
            return Some(rule(0, RegisterRule::OnOtherStack));
        }
        let mut rule = rule(size, RETURN_ADDRESS_BELOW_CFA);
        // The compiler saves the frame pointer in the highest word. Assembly may have no such word; callers
        // in Go do not need it.
        if size > 0 && function.flags & ASSEMBLY == 0 {
            rule.registers = [(FP, RegisterRule::AtCfaOffset(-16))].into();
        }
        Some(rule)
    }

    /// Returns the index of the function at a distance from the text. None before the first one.
    fn index_of(&self, at: u64) -> Option<usize> {
        let (mut first, mut after) = (0, self.functions);
        while first < after {
            let middle = first.midpoint(after);
            if u64::from(self.number(self.list + middle * ENTRY_BYTES)?) <= at {
                first = middle + 1;
            } else {
                after = middle;
            }
        }
        first.checked_sub(1)
    }

    /// Returns a function of the list.
    fn function(&self, index: usize) -> Option<Function<'_>> {
        if index >= self.functions {
            return None;
        }
        let entry = self.list + index * ENTRY_BYTES;
        let record = self.list.checked_add(self.number(entry + 4)? as usize)?;
        let name = self.names.checked_add(self.number(record + NAME)? as usize)?;
        let name = self.bytes.get(name..)?;
        // Compared with short names only.
        let name = &name[..name.len().min(64)];
        Some(Function {
            start: self.number(entry)?.into(),
            name: name.split(|&byte| byte == 0).next()?,
            frame_sizes: self.values.checked_add(self.number(record + FRAME_SIZES)? as usize)?,
            flags: *self.bytes.get(record + self.flags)?,
        })
    }

    /// Returns the distance of the stack pointer from the return address at a distance from the start of a
    /// function. None after its end.
    fn frame_size(&self, values: usize, distance: u64) -> Option<u64> {
        let mut rest = self.bytes.get(values..)?;
        let (mut end, mut size) = (0_u64, -1_i32);
        for index in 0..VALUES_MAX {
            let difference = varint(&mut rest)?;
            // A difference of 0 is the end mark, except in the first pair.
            if difference == 0 && index > 0 {
                return None;
            }
            // Zigzag encoding: the lowest bit is the sign.
            let sign = (difference & 1).wrapping_neg();
            size = size.wrapping_add((sign ^ (difference >> 1)).cast_signed());
            end += u64::from(varint(&mut rest)?);
            if distance < end {
                return u64::try_from(size).ok();
            }
        }
        None
    }

    /// Reads a number of 32 bits.
    fn number(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Reads a number of 32 bits with seven in each byte, so that it has at most five.
fn varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..u32::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0x40_1000;

    /// The functions of a table: distance from the text, name, flags, values of the frame size.
    const FUNCTIONS: [(u32, &str, u8, &[u8]); 7] = [
        (0x00, "_rt0_amd64_linux", ASSEMBLY, &[2, 0x20, 0]),
        (0x20, "runtime.goexit", TOP_FRAME | ASSEMBLY, &[2, 0x20, 0]),
        // 0 for 4 bytes, 24 for 0x90 bytes, 0 for 1 byte, and padding.
        (0x40, "main.main", 0, &[2, 4, 48, 0x90, 1, 47, 1, 0]),
        (0x100, "runtime.systemstack", WRITES_SP | ASSEMBLY, &[2, 0x40, 0]),
        (0x140, "runtime.sigtramp", TOP_FRAME | ASSEMBLY, &[2, 4, 16, 0x1c, 0]),
        (0x160, "runtime.sigreturn", ASSEMBLY, &[2, 0x10, 0]),
        (0x170, "main.last", 0, &[2, 8, 0]),
    ];

    fn table(text: u64, magic: [u8; 8]) -> Vec<u8> {
        let flags = if magic == MAGIC_1_20 { FLAGS_1_18 + 4 } else { FLAGS_1_18 };
        let (mut names, mut values) = (vec![0], vec![0]);
        let (mut list, mut records) = (Vec::new(), Vec::new());
        let list_bytes = FUNCTIONS.len() * ENTRY_BYTES + 4;
        for (start, name, flag, sizes) in FUNCTIONS {
            let mut record = vec![0; flags + 1];
            record[NAME..NAME + 4].copy_from_slice(&(names.len() as u32).to_le_bytes());
            let at = (values.len() as u32).to_le_bytes();
            record[FRAME_SIZES..FRAME_SIZES + 4].copy_from_slice(&at);
            record[flags] = flag;
            list.extend(start.to_le_bytes());
            list.extend(((list_bytes + records.len()) as u32).to_le_bytes());
            records.extend(record);
            names.extend([name.as_bytes(), &[0]].concat());
            values.extend(sizes);
        }
        list.extend(0x180_u32.to_le_bytes());
        let names_at = 72;
        let values_at = names_at + names.len();
        let list_at = values_at + values.len();
        let words = [FUNCTIONS.len(), 0, text as usize, names_at, 0, 0, values_at, list_at];
        let header = words.map(|word| (word as u64).to_le_bytes()).concat();
        [&magic[..], &header, &names, &values, &list, &records].concat()
    }

    fn rule(table: &GoTable, at: u64) -> Option<(i64, RegisterRule)> {
        let rule = table.rule(ImageAddress(TEXT + at))?;
        let Cfa::Register(SP, offset) = rule.cfa else { panic!("{rule:?}") };
        Some((offset, rule.return_address))
    }

    #[test]
    fn frame_sizes_and_ends_of_stacks_are_found_in_each_layout() {
        for (magic, text) in [(MAGIC_1_18, TEXT), (MAGIC_1_20, TEXT), (MAGIC_1_20, 0)] {
            let table = GoTable::read(table(text, magic).into(), ImageAddress(TEXT)).expect("one");
            let called = |size| Some((size, RETURN_ADDRESS_BELOW_CFA));
            assert_eq!([0x40, 0x43].map(|at| rule(&table, at)), [called(8), called(8)]);
            assert_eq!([0x44, 0xd3].map(|at| rule(&table, at)), [called(32), called(32)]);
            assert_eq!([0xd4, 0xd5, 0xff].map(|at| rule(&table, at)), [called(8), None, None]);
            assert_eq!(rule(&table, 0x21), Some((8, RegisterRule::Undefined)));
            assert_eq!(rule(&table, 0x110), Some((8, RegisterRule::OnOtherStack)));
            assert_eq!(rule(&table, 0x150), called(16), "the kernel calls it");
            assert_eq!([0x15f, 0x160, 0x16f].map(|at| rule(&table, at)), [const { None }; 3]);
            assert_eq!(rule(&table, 0x177), called(8));
            assert_eq!([0x178, 0x1000].map(|at| rule(&table, at)), [const { None }; 2]);
            assert_eq!(table.rule(ImageAddress(TEXT - 1)), None);
        }
    }

    #[test]
    fn frame_pointer_is_restored_from_frames_of_the_compiler() {
        let table = GoTable::read(table(TEXT, MAGIC_1_20).into(), ImageAddress(0)).expect("one");
        let registers = |at| table.rule(ImageAddress(TEXT + at)).expect("a rule").registers;
        assert_eq!(*registers(0x50), [(FP, RegisterRule::AtCfaOffset(-16))]);
        assert!(registers(0x40).is_empty() && registers(0x150).is_empty());
    }

    #[test]
    fn text_of_a_program_with_another_entry_point_is_unknown() {
        let mut bytes = table(0, MAGIC_1_20);
        let entry = bytes.windows(4).position(|bytes| bytes == b"_rt0").expect("its name");
        bytes[entry] = b'x';
        assert!(GoTable::read(bytes.into(), ImageAddress(TEXT)).is_none());
    }

    #[test]
    fn numbers_and_values_without_an_end_are_none() {
        assert_eq!(varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..]), Some(u32::MAX));
        assert_eq!(varint(&mut &[0x80; 6][..]), None);
        let mut bytes = table(TEXT, MAGIC_1_20);
        bytes.extend([2, 0].repeat(2 * VALUES_MAX));
        bytes.extend([2, 1]);
        let found = GoTable::read(bytes.into(), ImageAddress(TEXT)).expect("one");
        let end = found.bytes.len();
        assert_eq!(found.frame_size(end - 4, 0), Some(1));
        assert_eq!(found.frame_size(end - 2 - 4 * VALUES_MAX, 0), None);
    }

    #[test]
    fn damaged_tables_do_not_panic() {
        let whole = table(TEXT, MAGIC_1_20);
        for length in 0..whole.len() {
            let table = GoTable::read(whole[..length].into(), ImageAddress(TEXT));
            table.into_iter().for_each(|table| (0..0x200).for_each(|at| drop(rule(&table, at))));
        }
        for at in 0..whole.len() {
            let mut wild = whole.clone();
            wild[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff);
            let table = GoTable::read(wild.into(), ImageAddress(TEXT));
            let find = |table: GoTable| {
                (0..0x200).for_each(|at| drop(table.rule(ImageAddress(TEXT + at))));
            };
            table.into_iter().for_each(find);
        }
    }
}
