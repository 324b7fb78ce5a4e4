//! The code of a function: its bytes as they were executed, the calls at its instructions, and the
//! functions that it calls.

use nprof_object::{FileOffset, ImageAddress, ImageOffset};
use nprof_stream::limits;

use super::code_bytes::CodeBytes;
use super::instructions::{Arch, Step, instructions};
use super::opened::{ElfImage, OpenImage, resolve};
use crate::dwarf::Call;
use crate::dwarf::detail::Detail;

/// The longest function of which code is read: longer ones are not functions but gaps between symbols.
const MAX_FUNCTION_BYTES: u64 = 4 << 20;

/// The most calls at the instructions of one code, inlined ones included.
const MAX_CALLS: usize = 1 << 16;

/// The code of a function, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionCode {
    /// The offset of its first byte.
    pub(crate) start: ImageOffset,
    pub(crate) arch: Arch,
    pub(crate) bytes: Vec<u8>,
    /// The calls at an instruction and at those after it up to the next entry, innermost first.
    pub(crate) rows: Vec<(u32, Vec<Call>)>,
    /// The functions that instructions jump to or call.
    pub(crate) callees: Vec<(u32, Call)>,
}

/// The place of code in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodePlace {
    /// The offset of its first byte.
    pub(crate) start: ImageOffset,
    length: u64,
    /// The image address of its first byte.
    address: ImageAddress,
    /// The function that it is a part of.
    function: FunctionRange,
    arch: Arch,
}

/// The addresses of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FunctionRange {
    start: ImageAddress,
    end: ImageAddress,
}

impl CodePlace {
    /// True if the stream has the function in several records.
    pub(crate) fn is_long(self) -> bool {
        self.length > limits::CODE as u64
    }

    /// Returns the part of a long function with an offset, given those of [`part_ends`].
    pub(crate) fn part(self, ends: &[u64], offset: ImageOffset) -> Self {
        let wanted = offset.0.saturating_sub(self.start.0);
        let index = ends.partition_point(|&end| end <= wanted);
        let start = index.checked_sub(1).map_or(0, |before| ends[before]);
        let end = ends.get(index).copied().unwrap_or(self.length);
        Self {
            start: ImageOffset(self.start.0 + start),
            length: end - start,
            address: ImageAddress(self.address.0.wrapping_add(start)),
            ..self
        }
    }
}

/// Finds the function at an offset.
///
/// # Errors
///
/// The reason why the stream cannot have its code.
pub(crate) fn place(image: &OpenImage, offset: ImageOffset) -> Result<CodePlace, String> {
    bytes_of(image)?;
    let (arch, range) = match image {
        OpenImage::Elf(elf) => {
            let machine = elf.headers.machine;
            let arch = Arch::of_machine(machine);
            let arch = arch.ok_or_else(|| format!("there is no decoder for machine {machine}"))?;
            let address = elf.headers.segments.image_address(FileOffset(offset.0));
            (arch, range_of(elf, address.ok_or("no segment has its address")?))
        }
        // A kernel with another architecture than this program cannot run here.
        OpenImage::Symbols(kernel) => {
            let arch = Arch::of_this_program().ok_or("there is no decoder for this machine")?;
            (arch, kernel.symbols.range(ImageAddress(offset.0)))
        }
    };
    let (start, end) = range.ok_or("no symbol or unwind table covers it")?;
    let length = end.0.saturating_sub(start.0);
    if length > MAX_FUNCTION_BYTES {
        return Err(format!("the function has {length} bytes, more than {MAX_FUNCTION_BYTES}"));
    }
    let (function, address) = (FunctionRange { start, end }, start);
    let start = offset_of(image, start).ok_or("its segment does not begin in the file")?;
    Ok(CodePlace { start, length, address, function, arch })
}

/// Returns the ends of the parts of a long function, as distances from its start: they lie between
/// instructions.
///
/// # Errors
///
/// The reason why the code cannot be read.
pub(crate) fn part_ends(image: &OpenImage, whole: CodePlace) -> Result<Vec<u64>, String> {
    let code =
        bytes_of(image)?.read(whole.start, whole.length).map_err(|error| error.to_string())?;
    let (mut ends, mut start, mut end) = (Vec::new(), 0, 0);
    for step in instructions(whole.arch, &code, whole.address) {
        if step.end - start > limits::CODE {
            ends.push(end as u64);
            start = end;
        }
        end = step.end;
    }
    ends.push(end as u64);
    Ok(ends)
}

/// Reads the code at a place, and looks up its instructions.
///
/// # Errors
///
/// The reason why it cannot be read.
pub(crate) fn read(
    image: &OpenImage,
    place: CodePlace,
    detail: Detail,
) -> Result<FunctionCode, String> {
    let CodePlace { start, length, address, function, arch } = place;
    let bytes = bytes_of(image)?.read(start, length).map_err(|error| error.to_string())?;
    let (mut rows, mut callees) = (Vec::<(u32, Vec<Call>)>::new(), Vec::new());
    let mut calls_left = MAX_CALLS;
    for Step { offset, target, .. } in instructions(arch, &bytes, address) {
        let at = ImageOffset(start.0 + offset as u64);
        let calls = calls_at(image, at, detail);
        if rows.last().is_none_or(|(_, last)| *last != calls) {
            let Some(left) = calls_left.checked_sub(calls.len().max(1)) else {
                // The calls before this instruction are not those of the rest.
                rows.push((offset as u32, Vec::new()));
                break;
            };
            calls_left = left;
            rows.push((offset as u32, calls));
        }
        let outside = target.filter(|&target| target < function.start || target >= function.end);
        if let Some(target) = outside.and_then(|target| offset_of(image, target))
            && let Some(callee) = calls_at(image, target, detail).pop()
        {
            callees.push((offset as u32, Call { function: callee.function, ..Call::default() }));
        }
    }
    Ok(FunctionCode { start, arch, bytes, rows, callees })
}

/// Returns the calls at an offset, innermost first.
fn calls_at(image: &OpenImage, offset: ImageOffset, detail: Detail) -> Vec<Call> {
    resolve(image, offset, detail).calls
}

fn bytes_of(image: &OpenImage) -> Result<&dyn CodeBytes, String> {
    let code = match image {
        OpenImage::Elf(elf) => &elf.code,
        OpenImage::Symbols(kernel) => &kernel.code,
    };
    code.as_deref().map_err(Clone::clone)
}

/// Returns the addresses of the function at an address: of its symbol, or else of its entry in the
/// unwind table.
fn range_of(elf: &ElfImage, address: ImageAddress) -> Option<(ImageAddress, ImageAddress)> {
    elf.symbols.range(address).or_else(|| {
        let function = elf.function_ranges.at(address)?;
        Some((function.start, function.end))
    })
}

/// Returns the offset of an image address.
fn offset_of(image: &OpenImage, address: ImageAddress) -> Option<ImageOffset> {
    match image {
        OpenImage::Elf(elf) => {
            elf.headers.segments.file_offset(address).map(|(offset, _)| ImageOffset(offset.0))
        }
        OpenImage::Symbols(_) => Some(ImageOffset(address.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_function_is_divided_between_its_instructions() {
        let start = ImageOffset(0x100);
        let (address, end) = (ImageAddress(0x40_0100), ImageAddress(0x41_4100));
        let function = FunctionRange { start: address, end };
        let whole = CodePlace { start, length: 0x14000, address, function, arch: Arch::X86_64 };
        assert!(whole.is_long());
        let part = |offset| {
            let part = whole.part(&[0xffff, 0x14000], ImageOffset(offset));
            assert_eq!(part.address.0 - part.start.0, 0x40_0000);
            (part.start.0, part.length)
        };
        assert_eq!(part(0x100), (0x100, 0xffff));
        assert_eq!(part(0x100 + 0xfffe), (0x100, 0xffff));
        assert_eq!(part(0x100 + 0xffff), (0x100 + 0xffff, 0x4001));
        assert_eq!(part(0x100 + 0x13fff), (0x100 + 0xffff, 0x4001));
    }
}
