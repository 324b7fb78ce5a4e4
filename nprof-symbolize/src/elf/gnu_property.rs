//! The properties of a program that the kernel and the loader read (`.note.gnu.property`). Pure over
//! bytes.

/// The section.
pub(crate) const SECTION: &[u8] = b".note.gnu.property";

/// The largest section that is read.
pub(crate) const MAX_BYTES: u64 = 64 << 10;

/// GNU_PROPERTY_X86_FEATURE_1_AND and GNU_PROPERTY_AARCH64_FEATURE_1_AND, with their bits for shadow stacks.
const FEATURES: u32 = 0xc000_0002;
const SHADOW_STACK: u32 = 2;
const ARM_FEATURES: u32 = 0xc000_0000;
const ARM_SHADOW_STACK: u32 = 4;

/// Size of the header of a note, with the name `GNU`.
const NOTE_BYTES: usize = 16;

/// True if a program can run with a shadow stack (CET, GCS).
pub(crate) fn has_shadow_stack(section: &[u8]) -> bool {
    properties(section).any(|(kind, value)| match kind {
        FEATURES => value & SHADOW_STACK != 0,
        ARM_FEATURES => value & ARM_SHADOW_STACK != 0,
        _ => false,
    })
}

/// Returns the properties of the first note, each with its first word.
fn properties(section: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = section.get(NOTE_BYTES..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (kind, size) = (word(rest, 0)?, word(rest, 4)? as usize);
        let value = word(rest, 8).unwrap_or_default();
        rest = rest.get(size.checked_add(8)?.checked_next_multiple_of(8)?..).unwrap_or_default();
        Some((kind, value))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(properties: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = vec![4, 0, 0, 0, 16, 0, 0, 0, 5, 0, 0, 0];
        bytes.extend_from_slice(b"GNU\0");
        for (kind, value) in properties {
            for word in [*kind, 4, *value, 0] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn shadow_stack_is_a_bit_of_the_features() {
        assert!(has_shadow_stack(&section(&[(FEATURES, 3)])));
        assert!(has_shadow_stack(&section(&[(0xc000_8002, 9), (FEATURES, 2)])));
        assert!(!has_shadow_stack(&section(&[(FEATURES, 1), (0xc000_8002, 2)])));
        assert!(has_shadow_stack(&section(&[(ARM_FEATURES, 7)])));
        assert!(!has_shadow_stack(&section(&[(ARM_FEATURES, 3)])));
        let whole = section(&[(FEATURES, 3)]);
        for length in 0..whole.len() {
            // The padding is not needed.
            assert_eq!(has_shadow_stack(&whole[..length]), length >= whole.len() - 4, "{length}");
        }
    }
}
