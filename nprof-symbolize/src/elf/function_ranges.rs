//! The ranges of functions without symbols, from the unwind table (`.eh_frame`): stripped files keep
//! it, since exceptions need it. Pure over bytes.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use nprof_object::ImageAddress;

/// The ranges of functions, by address.
#[derive(Debug, Default)]
pub(crate) struct FunctionRanges(Box<[FunctionRange]>);

/// The range of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FunctionRange {
    /// The address of its first byte.
    pub(crate) start: ImageAddress,
    /// The address after its last byte.
    pub(crate) end: ImageAddress,
}

impl FunctionRanges {
    /// Reads an `.eh_frame` that is loaded at `address`, with addresses of `address_size` bytes. A
    /// malformed entry ends the table.
    pub(crate) fn read(
        bytes: &[u8],
        address: ImageAddress,
        little_endian: bool,
        address_size: u8,
    ) -> Self {
        let endian = if little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let mut table = EhFrame::from(EndianSlice::new(bytes, endian));
        table.set_address_size(address_size);
        let bases = BaseAddresses::default().set_eh_frame(address.0);
        let mut ranges = Vec::new();
        let mut entries = table.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            // A CIE has no range of its own.
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(function) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = ImageAddress(function.initial_address());
            // The linker sets the length of a discarded function to 0.
            if let Some(end) = start.checked_add(function.len()).filter(|&end| end > start) {
                ranges.push(FunctionRange { start, end });
            }
        }
        ranges.sort_unstable();
        // One entry for each address: identical functions may have been folded (ICF).
        ranges.dedup_by_key(|range| range.start);
        Self(ranges.into())
    }

    /// Returns the function that covers an address.
    pub(crate) fn at(&self, address: ImageAddress) -> Option<FunctionRange> {
        self.last_before(address).filter(|range| address < range.end)
    }

    /// Returns the function with the greatest start up to an address.
    pub(crate) fn last_before(&self, address: ImageAddress) -> Option<FunctionRange> {
        let after = self.0.partition_point(|range| range.start <= address);
        self.0.get(after.checked_sub(1)?).copied()
    }

    /// Returns the start of the first function after an address.
    pub(crate) fn next_start(&self, address: ImageAddress) -> Option<ImageAddress> {
        let after = self.0.partition_point(|range| range.start <= address);
        self.0.get(after).map(|range| range.start)
    }

    /// Returns all ranges, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FunctionRange> {
        self.0.iter().copied()
    }

    /// Creates a table of functions, each from its start to its end, by address.
    #[cfg(test)]
    pub(crate) fn of(ranges: &[(u64, u64)]) -> Self {
        let range =
            |&(start, end)| FunctionRange { start: ImageAddress(start), end: ImageAddress(end) };
        Self(ranges.iter().map(range).collect())
    }

    /// Returns the number of functions.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns its memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CIE with absolute pointers, and an FDE for each range.
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
    fn address_belongs_to_the_function_that_covers_it() {
        let bytes = table(&[(0x2000, 0x10), (0x1000, 0x80), (0x3000, 0)]);
        let function_ranges = FunctionRanges::read(&bytes, ImageAddress(0x9000), true, 8);
        assert_eq!(function_ranges.len(), 2);
        for (address, start) in [
            (0xfff, None),
            (0x1000, Some(0x1000)),
            (0x107f, Some(0x1000)),
            (0x1080, None),
            (0x200f, Some(0x2000)),
            (0x3000, None),
        ] {
            let found = function_ranges.at(ImageAddress(address)).map(|range| range.start);
            assert_eq!(found, start.map(ImageAddress), "{address:#x}");
        }
    }

    #[test]
    fn truncated_table_keeps_its_whole_entries() {
        let bytes = table(&[(0x1000, 0x80), (0x2000, 0x10)]);
        for length in 0..bytes.len() {
            assert!(FunctionRanges::read(&bytes[..length], ImageAddress(0), true, 8).len() < 2);
        }
    }
}
