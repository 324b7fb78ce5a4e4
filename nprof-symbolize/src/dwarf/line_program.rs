//! The line programs of `.debug_line` (DWARF 2 to 5, section 6.2): the header with its files, and
//! the state machine that emits rows: addresses with their lines. Pure.
//!
//! gimli's reader of line programs keeps all fields of a header, any number of them in a hostile
//! file, and cannot begin in the middle of a program. This one reads the fields that lead to a
//! file, a line and a column.

use gimli::{
    Abbreviations, AttributeSpecification, AttributeValue, Encoding, EntriesRaw, Reader,
    RunTimeEndian, UnitOffset,
};

use nprof_stream::Md5Sum;

use super::debug_file::Slice;
use super::error::{DwarfError, Result};

/// The largest number of files of a unit, and of directories.
const FILES: u64 = 1 << 20;

/// A string of a header, inline or in another section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StringRef {
    /// In the header.
    Inline(Box<[u8]>),
    /// In `.debug_line_str`, at an offset.
    LineStr(u64),
    /// In `.debug_str`, at an offset.
    Str(u64),
    /// In a form that no compiler uses in line programs.
    Unsupported,
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) name: StringRef,
    pub(crate) directory: u64,
}

/// The header of a line program.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) version: u16,
    pub(crate) directories: Vec<StringRef>,
    pub(crate) files: Vec<File>,
    /// The MD5 of each file, 0 if the compiler did not know it. Empty if the header has none.
    md5s: Vec<Md5Sum>,
    encoding: LineEncoding,
}

/// The encoding of instructions.
#[derive(Clone, Debug)]
struct LineEncoding {
    address_size: u8,
    minimum_length: u64,
    operations: u64,
    opcode_base: u8,
    /// The advances of address and line by the special opcodes (DWARF 5, 6.2.5.1), computed once:
    /// most instructions are special, and a division each is 10 % of the time of a program.
    special: Box<[(u8, i16)]>,
    /// The number of operands of each standard opcode, so that unknown ones can be skipped.
    lengths: Box<[u8]>,
}

/// An address with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) address: u64,
    /// The number of a file of the header.
    pub(crate) file: u32,
    /// 0 when there is none.
    pub(crate) line: u32,
    /// 0 when unknown.
    pub(crate) column: u32,
}

impl Header {
    /// Reads the header at the beginning of a program. `program` ends where the program does.
    /// The second value is the offset of the instructions.
    ///
    /// # Errors
    ///
    /// When it is malformed or of an unknown version.
    pub(crate) fn read(program: Slice<'_>, mut address_size: u8) -> Result<(Self, usize)> {
        let mut input = program;
        let (_, format) = input.read_initial_length()?;
        let version = input.read_u16()?;
        if !(2..=5).contains(&version) {
            return Err(gimli::Error::UnknownVersion(version.into()).into());
        }
        if version >= 5 {
            address_size = input.read_address_size()?;
            // The size of segment selectors, which no flat address space has.
            input.read_u8()?;
        }
        let length = input.read_length(format)?;
        let mut input = input.split(length)?;
        let begin = input.offset_from(program) + input.len();
        let minimum_length = input.read_u8()?.into();
        // More than one only on VLIW machines; 0 would divide by zero.
        let operations = if version >= 4 { input.read_u8()?.max(1).into() } else { 1 };
        // default_is_stmt: all rows count here, since samples lie between statements, too.
        input.read_u8()?;
        let (line_base, line_range) = (input.read_i8()?, input.read_u8()?);
        let opcode_base = input.read_u8()?;
        if line_range == 0 || opcode_base == 0 {
            return Err(gimli::Error::LineRangeZero.into());
        }
        let lengths = input.split(usize::from(opcode_base) - 1)?.slice().into();
        let encoding = LineEncoding {
            address_size,
            minimum_length,
            operations,
            opcode_base,
            special: special_opcodes(line_base, line_range, opcode_base),
            lengths,
        };
        let (mut directories, mut files, mut md5s) = (Vec::new(), Vec::new(), Vec::new());
        if version >= 5 {
            let encoding = Encoding { address_size, format, version };
            let named = table(&mut input, encoding, &mut Vec::new())?;
            directories = named.into_iter().map(|file| file.name).collect();
            files = table(&mut input, encoding, &mut md5s)?;
        } else {
            while let Some(name) = name(&mut input)? {
                directories.push(name);
            }
            while let Some(name) = name(&mut input)? {
                let directory = input.read_uleb128()?;
                // Time of modification and size.
                input.read_uleb128()?;
                input.read_uleb128()?;
                files.push(File { name, directory });
            }
        }
        Ok((Self { version, directories, files, md5s, encoding }, begin))
    }

    /// Returns the MD5 of a file by its index. None if the compiler did not state it.
    pub(crate) fn md5(&self, file: usize) -> Option<Md5Sum> {
        // GNU as writes zeros for a file without one if other files have theirs.
        self.md5s.get(file).copied().filter(|md5| *md5 != [0; 16])
    }

    /// Returns the memory that its files and directories take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let inline = |string: &StringRef| match string {
            StringRef::Inline(text) => text.len() + 16,
            _ => 0,
        };
        let names = self.files.iter().map(|file| inline(&file.name)).sum::<usize>();
        let directories = self.directories.iter().map(inline).sum::<usize>();
        self.files.capacity() * size_of::<File>()
            + self.directories.capacity() * size_of::<StringRef>()
            + self.md5s.capacity() * size_of::<Md5Sum>()
            + names
            + directories
            + size_of_val(&*self.encoding.special)
    }

    /// Runs instructions. Passes to `take` each row, whether it ends a sequence, and the offset of
    /// the instructions after it.
    ///
    /// # Errors
    ///
    /// When an instruction is malformed.
    pub(crate) fn run(
        &self,
        instructions: Slice<'_>,
        mut take: impl FnMut(Row, bool, usize),
    ) -> Result<()> {
        let encoding = &self.encoding;
        let mut input = instructions;
        let mut state = Registers::new();
        while !input.is_empty() {
            let step = state.step(encoding, &mut input)?;
            if step != Step::None {
                take(state.row, step == Step::End, instructions.len() - input.len());
            }
            if step == Step::End {
                state = Registers::new();
            }
        }
        Ok(())
    }
}

/// The effect of an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    Row,
    End,
}

/// The registers of the state machine (DWARF 5, 6.2.2).
struct Registers {
    row: Row,
    operation: u64,
}

impl Registers {
    fn new() -> Self {
        Self { row: Row { address: 0, file: 1, line: 1, column: 0 }, operation: 0 }
    }

    #[inline]
    fn advance(&mut self, encoding: &LineEncoding, by: u64) {
        // The division is needed on VLIW machines only.
        let step = if encoding.operations == 1 {
            by
        } else {
            let total = self.operation.wrapping_add(by);
            self.operation = total % encoding.operations;
            total / encoding.operations
        };
        self.row.address =
            self.row.address.wrapping_add(step.wrapping_mul(encoding.minimum_length));
    }

    #[inline]
    fn step(&mut self, encoding: &LineEncoding, input: &mut Slice<'_>) -> Result<Step> {
        let opcode = input.read_u8()?;
        if opcode >= encoding.opcode_base {
            let (by, lines) = encoding.special[usize::from(opcode - encoding.opcode_base)];
            self.advance(encoding, by.into());
            self.row.line = self.row.line.wrapping_add_signed(lines.into());
            return Ok(Step::Row);
        }
        if opcode == 0 {
            let length = input.read_uleb128()?;
            let mut rest = input.split(usize::try_from(length).unwrap_or(usize::MAX))?;
            return self.extended(encoding, &mut rest);
        }
        match gimli::DwLns(opcode) {
            gimli::DW_LNS_copy => return Ok(Step::Row),
            gimli::DW_LNS_advance_pc => {
                let by = input.read_uleb128()?;
                self.advance(encoding, by);
            }
            gimli::DW_LNS_advance_line => {
                let lines = input.read_sleb128()?;
                self.row.line = self.row.line.wrapping_add(lines as u32);
            }
            gimli::DW_LNS_set_file => self.row.file = small(input.read_uleb128()?),
            gimli::DW_LNS_set_column => self.row.column = small(input.read_uleb128()?),
            gimli::DW_LNS_const_add_pc => {
                let (by, _) = encoding.special[usize::from(255 - encoding.opcode_base)];
                self.advance(encoding, by.into());
            }
            gimli::DW_LNS_fixed_advance_pc => {
                self.row.address = self.row.address.wrapping_add(input.read_u16()?.into());
                self.operation = 0;
            }
            gimli::DW_LNS_negate_stmt
            | gimli::DW_LNS_set_basic_block
            | gimli::DW_LNS_set_prologue_end
            | gimli::DW_LNS_set_epilogue_begin => {}
            _ => {
                let operands = encoding.lengths.get(usize::from(opcode) - 1).copied();
                for _ in 0..operands.unwrap_or(0) {
                    input.read_uleb128()?;
                }
            }
        }
        Ok(Step::None)
    }

    fn extended(&mut self, encoding: &LineEncoding, input: &mut Slice<'_>) -> Result<Step> {
        match gimli::DwLne(input.read_u8()?) {
            gimli::DW_LNE_end_sequence => return Ok(Step::End),
            gimli::DW_LNE_set_address => {
                // The operand fills the instruction, even if the header has another size.
                let size = if input.len() <= 8 { input.len() as u8 } else { encoding.address_size };
                self.row.address = input.read_address(size)?;
                self.operation = 0;
            }
            // DW_LNE_set_discriminator, DW_LNE_define_file (gone in DWARF 5) and extensions of vendors.
            _ => {}
        }
        Ok(Step::None)
    }
}

/// Clamps a file or column number; compilers write small ones.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Reads a name up to its zero. None for the empty name, which ends a table.
fn name(input: &mut Slice<'_>) -> Result<Option<StringRef>> {
    let name = input.read_null_terminated_slice()?;
    Ok((!name.is_empty()).then(|| StringRef::Inline(name.slice().into())))
}

/// Reads a table of DWARF 5 (6.2.4.1): the format of its entries, their number, the entries. Adds the MD5
/// of each entry to `md5s` if the table has them.
fn table(input: &mut Slice<'_>, encoding: Encoding, md5s: &mut Vec<Md5Sum>) -> Result<Vec<File>> {
    let formats = usize::from(input.read_u8()?);
    let mut format = Vec::with_capacity(formats);
    for _ in 0..formats {
        let content = gimli::DwLnct(input.read_uleb128_u16()?);
        let form = gimli::DwForm(input.read_uleb128_u16()?);
        format.push((content, AttributeSpecification::new(gimli::DW_AT_name, form, None)));
    }
    let count = input.read_uleb128()?;
    // Forms without bytes (DW_FORM_flag_present) would allow 2^63 files in a few bytes.
    if count > FILES.min(input.len() as u64) {
        return Err(DwarfError::Limit("more source files than there is room for"));
    }
    let none = Abbreviations::default();
    let mut values = EntriesRaw::new(*input, encoding, &none, UnitOffset(0));
    let mut files = Vec::new();
    for _ in 0..count {
        let mut file = File { name: StringRef::Unsupported, directory: 0 };
        let mut sum = None;
        for &(content, specification) in &format {
            let value = values.read_attribute(specification)?;
            match content {
                gimli::DW_LNCT_path => file.name = text(value.value()),
                gimli::DW_LNCT_directory_index => {
                    file.directory = value.udata_value().unwrap_or_default();
                }
                gimli::DW_LNCT_MD5 => sum = Some(md5(value.value(), input.endian())),
                _ => {}
            }
        }
        files.push(file);
        md5s.extend(sum);
    }
    input.skip(values.next_offset().0)?;
    Ok(files)
}

/// Computes the advances of the special opcodes: address, in instructions, and line.
fn special_opcodes(line_base: i8, line_range: u8, opcode_base: u8) -> Box<[(u8, i16)]> {
    let advances = |special: u8| {
        (special / line_range, i16::from(line_base) + i16::from(special % line_range))
    };
    (0..=255 - opcode_base).map(advances).collect()
}

/// Returns an MD5: gimli reads its bytes as a number. 0 if it has another form than DW_FORM_data16.
fn md5(value: AttributeValue<Slice<'_>>, endian: RunTimeEndian) -> Md5Sum {
    match (value, endian) {
        (AttributeValue::Data16(number), RunTimeEndian::Little) => number.to_le_bytes(),
        (AttributeValue::Data16(number), RunTimeEndian::Big) => number.to_be_bytes(),
        _ => [0; 16],
    }
}

fn text(value: AttributeValue<Slice<'_>>) -> StringRef {
    match value {
        AttributeValue::String(text) => StringRef::Inline(text.slice().into()),
        AttributeValue::DebugLineStrRef(offset) => StringRef::LineStr(offset.0 as u64),
        AttributeValue::DebugStrRef(offset) => StringRef::Str(offset.0 as u64),
        _ => StringRef::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::EndianSlice;

    /// A header of version 3 with one file, and these instructions.
    fn program(instructions: &[u8]) -> Vec<u8> {
        let mut rest = vec![1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        rest.extend_from_slice(b"/src\0\0a.c\0\x01\0\0\0");
        let mut bytes = vec![3, 0];
        bytes.extend_from_slice(&(rest.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&rest);
        bytes.extend_from_slice(instructions);
        let length = (bytes.len() as u32).to_le_bytes();
        [&length[..], &bytes].concat()
    }

    fn slice(bytes: &[u8]) -> Slice<'_> {
        EndianSlice::new(bytes, RunTimeEndian::Little)
    }

    const TWO_ROWS: &[u8] = &[0, 9, 2, 0, 0x10, 0, 0, 0, 0, 0, 0, 3, 9, 1, 0x4c, 2, 3, 0, 1, 1];

    #[test]
    fn runs_special_and_standard_opcodes() {
        let bytes = program(TWO_ROWS);
        let (header, begin) = Header::read(slice(&bytes), 8).unwrap();
        assert_eq!(header.directories, [StringRef::Inline((*b"/src").into())]);
        assert_eq!(
            header.files,
            [File { name: StringRef::Inline((*b"a.c").into()), directory: 1 }]
        );
        let mut rows = Vec::new();
        let instructions = slice(&bytes[begin..]);
        header
            .run(instructions, |row, is_end, _| rows.push((row.address, row.line, is_end)))
            .unwrap();
        // `4c` is 63 after the base: 4 bytes and -5 + 7 lines.
        assert_eq!(rows, [(0x1000, 10, false), (0x1004, 12, false), (0x1007, 12, true)]);
    }

    #[test]
    fn rejects_truncated_programs() {
        let bytes = program(TWO_ROWS);
        let (header, begin) = Header::read(slice(&bytes), 8).unwrap();
        for end in 0..begin {
            assert!(Header::read(slice(&bytes[..end]), 8).is_err());
        }
        assert!(header.run(slice(&bytes[begin..bytes.len() - 1]), |_, _, _| {}).is_err());
    }

    #[test]
    fn rejects_tables_of_empty_entries() {
        // 2^63 and 2^20 files of DW_FORM_flag_present, which has no bytes.
        let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        for (sevens, last) in [(9, 1), (2, 0x40)] {
            let mut bytes = vec![1, 1, 0x19];
            bytes.extend_from_slice(&[0x80; 9][..sevens]);
            bytes.push(last);
            assert!(table(&mut slice(&bytes), encoding, &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn md5_of_a_file_is_read_unless_it_is_zero() {
        let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        let sum: Md5Sum = std::array::from_fn(|at| at as u8);
        // Two formats: a path of DW_FORM_string and an MD5 of DW_FORM_data16. Two files.
        let bytes = [&[2, 1, 0x08, 5, 0x1e, 2][..], b"a\0", &sum, b"b\0", &[0; 16]].concat();
        let mut md5s = Vec::new();
        let files = table(&mut slice(&bytes), encoding, &mut md5s).unwrap();
        let (mut header, _) = Header::read(slice(&program(TWO_ROWS)), 8).unwrap();
        assert_eq!((files.len(), header.md5(0)), (2, None));
        header.md5s = md5s;
        assert_eq!([0, 1, 2].map(|file| header.md5(file)), [Some(sum), None, None]);
    }
}
