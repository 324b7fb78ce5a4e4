//! Values that change with the address in a function: file numbers, lines, inlined calls. Pure over
//! bytes.

/// The most values of one function. Generated functions of a megabyte have 100,000.
const MAX_VALUES: usize = 1 << 18;

/// The longest encoding of the values of one function, in bytes.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// The values of one kind in one function.
#[derive(Debug, Default)]
pub(super) struct PcValues(Box<[PcValue]>);

/// The value of the addresses before `end`, down to the end of the value before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PcValue {
    /// A distance from the start of the function.
    end: u64,
    value: i32,
}

impl PcValues {
    /// Decodes values up to the end mark, as `step` in `runtime/symtab.go` does. Distances are
    /// multiples of `quantum`. A truncated encoding keeps its whole values.
    pub(super) fn decode(bytes: &[u8], quantum: u8) -> Self {
        let mut rest = bytes;
        let mut values = Vec::new();
        let (mut end, mut value) = (0_u64, -1_i32);
        while values.len() < MAX_VALUES {
            let Some(difference) = varint(&mut rest) else { break };
            // A difference of 0 is the end mark, except in the first pair.
            if difference == 0 && !values.is_empty() {
                break;
            }
            let Some(distance) = varint(&mut rest) else { break };
            // Zigzag encoding: the lowest bit is the sign.
            let sign = (difference & 1).wrapping_neg();
            value = value.wrapping_add((sign ^ (difference >> 1)).cast_signed());
            end += u64::from(distance) * u64::from(quantum);
            values.push(PcValue { end, value });
        }
        Self(values.into())
    }

    /// True if the bytes have the end mark: the encoding is whole.
    pub(super) fn is_ended(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let mut is_first = true;
        while let Some(difference) = varint(&mut rest) {
            if difference == 0 && !is_first {
                return true;
            }
            is_first = false;
            if varint(&mut rest).is_none() {
                break;
            }
        }
        false
    }

    /// Returns the value at a distance from the start of the function. None after its end, and if
    /// it is negative, which Go uses for "none".
    pub(super) fn at(&self, distance: u64) -> Option<u32> {
        let index = self.0.partition_point(|value| value.end <= distance);
        u32::try_from(self.0.get(index)?.value).ok()
    }

    /// Returns the distance from the start of the function to its end. None if there are no values.
    pub(super) fn end(&self) -> Option<u64> {
        self.0.last().map(|value| value.end)
    }

    /// Returns its memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Reads a number of 32 bits with seven in each byte; Go drops higher bits.
fn varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_up_to_their_end() {
        // From -1: +6 for 4 bytes, -3 for 0x90 bytes, the end mark, and bytes of another table.
        let values = PcValues::decode(&[12, 4, 5, 0x90, 1, 0, 9, 9], 1);
        let at = [0, 3, 4, 0x93, 0x94].map(|distance| values.at(distance));
        assert_eq!(at, [Some(5), Some(5), Some(2), Some(2), None]);
        assert_eq!(values.end(), Some(0x94));
    }

    #[test]
    fn first_difference_may_be_zero_and_negative_is_none() {
        let values = PcValues::decode(&[0, 2, 2, 1, 0], 4);
        assert_eq!(
            [0, 7, 8, 11, 12].map(|distance| values.at(distance)),
            [None, None, Some(0), Some(0), None]
        );
    }

    #[test]
    fn damaged_values_end() {
        assert_eq!(PcValues::decode(&[], 1).end(), None);
        assert_eq!(PcValues::decode(&[0x80; 40], 1).end(), None);
        assert_eq!(PcValues::decode(&[2, 7, 3, 0xff], 1).end(), Some(7));
        let endless = [1, 0].repeat(MAX_VALUES + 9);
        assert_eq!(PcValues::decode(&endless, 1).0.len(), MAX_VALUES);
    }
}
