//! Lists of ranges of addresses: `.debug_ranges` (DWARF 2 to 4) and `.debug_rnglists` (DWARF 5,
//! section 7.25). Pure.
//!
//! A list has an end mark and no length, so that bytes without the mark are an error here; gimli
//! takes their end for the end of the list.

use std::ops::Range;

use gimli::{Encoding, Reader};

use super::debug_file::Slice;
use super::error::{DwarfError, Result};

/// The largest number of ranges of one entry.
const RANGES: usize = 1 << 16;

/// Reads the list at the beginning of `input`. Ranges count from `base` until the list sets another
/// one; `indexed` returns addresses by their index. Ranges of code that was not linked are left
/// out.
///
/// # Errors
///
/// When the list is malformed or truncated, or an address cannot be read.
pub(crate) fn read(
    mut input: Slice<'_>,
    encoding: Encoding,
    mut base: u64,
    indexed: impl Fn(u64) -> Result<u64>,
) -> Result<Vec<Range<u64>>> {
    let size = encoding.address_size;
    let highest = u64::MAX >> (64 - 8 * u32::from(size.clamp(1, 8)));
    let mut ranges = Vec::new();
    loop {
        let next = if encoding.version < 5 {
            pair(&mut input, size, highest, base)?
        } else {
            entry(&mut input, size, base, &indexed)?
        };
        let (begin, end) = match next {
            Next::End => return Ok(ranges),
            Next::Base(address) => {
                base = address;
                continue;
            }
            // Additions may have left the address size.
            Next::Range(begin, end) => (begin & highest, end & highest),
        };
        // Linkers mark code that they dropped with the highest address (lld: -1, and -2 in
        // .debug_ranges, where -1 sets the base).
        if begin < end && begin < highest - 1 && base < highest - 1 {
            if ranges.len() >= RANGES {
                return Err(DwarfError::Limit("ranges without end"));
            }
            ranges.push(begin..end);
        }
    }
}

/// An entry of a list.
enum Next {
    End,
    Base(u64),
    Range(u64, u64),
}

fn pair(input: &mut Slice<'_>, size: u8, highest: u64, base: u64) -> Result<Next> {
    Ok(match (input.read_address(size)?, input.read_address(size)?) {
        (0, 0) => Next::End,
        (begin, end) if begin == highest => Next::Base(end),
        (begin, end) => Next::Range(base.wrapping_add(begin), base.wrapping_add(end)),
    })
}

fn entry(
    input: &mut Slice<'_>,
    size: u8,
    base: u64,
    indexed: impl Fn(u64) -> Result<u64>,
) -> Result<Next> {
    let kind = gimli::DwRle(input.read_u8()?);
    Ok(match kind {
        gimli::DW_RLE_end_of_list => Next::End,
        gimli::DW_RLE_base_addressx => Next::Base(indexed(input.read_uleb128()?)?),
        gimli::DW_RLE_startx_endx => {
            let (begin, end) = (input.read_uleb128()?, input.read_uleb128()?);
            Next::Range(indexed(begin)?, indexed(end)?)
        }
        gimli::DW_RLE_startx_length => {
            let (begin, length) = (input.read_uleb128()?, input.read_uleb128()?);
            let begin = indexed(begin)?;
            Next::Range(begin, begin.saturating_add(length))
        }
        gimli::DW_RLE_offset_pair => {
            let (begin, end) = (input.read_uleb128()?, input.read_uleb128()?);
            Next::Range(base.wrapping_add(begin), base.wrapping_add(end))
        }
        gimli::DW_RLE_base_address => Next::Base(input.read_address(size)?),
        gimli::DW_RLE_start_end => {
            Next::Range(input.read_address(size)?, input.read_address(size)?)
        }
        gimli::DW_RLE_start_length => {
            let (begin, length) = (input.read_address(size)?, input.read_uleb128()?);
            Next::Range(begin, begin.saturating_add(length))
        }
        _ => return Err(gimli::Error::UnknownRangeListsEntry(kind).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::{EndianSlice, Format, RunTimeEndian};

    fn ranges(bytes: &[u8], version: u16, size: u8) -> Result<Vec<Range<u64>>> {
        let input = EndianSlice::new(bytes, RunTimeEndian::Little);
        let encoding = Encoding { address_size: size, format: Format::Dwarf32, version };
        read(input, encoding, 0x1000, |index| Ok(0x5000 + index))
    }

    #[test]
    fn reads_all_kinds_of_entries() {
        let list = [
            &[4, 1, 2][..],
            &[1, 3, 4, 5, 6],
            &[2, 1, 9],
            &[3, 7, 4],
            &[5, 0, 0x20, 0, 0, 4, 1, 2],
            &[6, 0, 0x30, 0, 0, 8, 0x30, 0, 0],
            &[7, 0, 0x40, 0, 0, 2],
            // Code that was not linked: an empty range, and one at the highest address.
            &[7, 0, 0x40, 0, 0, 0, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0],
        ];
        let list = list.concat();
        let expected = [
            0x1001..0x1002,
            0x5003 + 5..0x5003 + 6,
            0x5001..0x5009,
            0x5007..0x500b,
            0x2001..0x2002,
            0x3000..0x3008,
            0x4000..0x4002,
        ];
        assert_eq!(ranges(&list, 5, 4).unwrap(), expected);
        for end in 0..list.len() {
            assert!(ranges(&list[..end], 5, 4).is_err(), "{end}");
        }
    }

    #[test]
    fn reads_pairs_before_dwarf_5() {
        let words = [1, 2, 0xffff_ffff, 0x2000, 3, 5, 0, 0];
        let list: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        assert_eq!(ranges(&list, 4, 4).unwrap(), [0x1001..0x1002, 0x2003..0x2005]);
        for end in 0..list.len() {
            assert!(ranges(&list[..end], 4, 4).is_err(), "{end}");
        }
    }
}
