//! Where functions begin and end in code whose symbols were stripped: the ranges of the unwind
//! table (`.eh_frame`), which every function that can be unwound has. Pure over bytes.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};

/// The ranges of functions, by address.
#[derive(Debug, Default)]
pub(crate) struct FunctionRanges(Box<[(u64, u64)]>);

impl FunctionRanges {
    /// Reads an `.eh_frame` that is loaded at `address`, of code for addresses of
    /// `address_size` bytes. What is malformed ends the reading; what was read before is kept.
    pub(crate) fn read(bytes: &[u8], address: u64, little_endian: bool, address_size: u8) -> Self {
        let endian = if little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let mut table = EhFrame::from(EndianSlice::new(bytes, endian));
        table.set_address_size(address_size);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut ranges = Vec::new();
        let mut entries = table.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(function) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = function.initial_address();
            if let Some(end) = start.checked_add(function.len()).filter(|&end| end > start) {
                ranges.push((start, end));
            }
        }
        ranges.sort_unstable();
        ranges.dedup_by_key(|range| range.0);
        Self(ranges.into())
    }

    /// The start of the function that covers an address.
    pub(crate) fn start(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|range| range.0 <= address);
        let &(start, end) = self.0.get(after.checked_sub(1)?)?;
        (address < end).then_some(start)
    }

    /// How many functions there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CIE whose pointers are absolute, and one FDE for each range.
    fn table(ranges: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let cie = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0];
        bytes.extend_from_slice(&(cie.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&cie);
        for (start, length) in ranges {
            bytes.extend_from_slice(&20u32.to_le_bytes());
            let back = bytes.len() as u32;
            bytes.extend_from_slice(&back.to_le_bytes());
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_address_belongs_to_the_function_that_covers_it() {
        let bytes = table(&[(0x2000, 0x10), (0x1000, 0x80), (0x3000, 0)]);
        let function_ranges = FunctionRanges::read(&bytes, 0x9000, true, 8);
        assert_eq!(function_ranges.len(), 2);
        for (address, start) in [
            (0xfff, None),
            (0x1000, Some(0x1000)),
            (0x107f, Some(0x1000)),
            (0x1080, None),
            (0x200f, Some(0x2000)),
            (0x3000, None),
        ] {
            assert_eq!(function_ranges.start(address), start, "{address:#x}");
        }
    }

    #[test]
    fn a_table_that_is_cut_off_gives_what_is_there() {
        let bytes = table(&[(0x1000, 0x80), (0x2000, 0x10)]);
        for length in 0..bytes.len() {
            assert!(FunctionRanges::read(&bytes[..length], 0, true, 8).len() < 2);
        }
    }
}
