//! PLT stubs of x86-64. Pure over bytes.

use nprof_object::ImageAddress;

use super::plt_stub::PltStub;

/// `jmp *distance(%rip)`, the jump of a stub; 4 bytes of distance follow.
const JUMP: [u8; 2] = [0xff, 0x25];

/// `push distance(%rip)`, the first instruction of the table's head.
const PUSH: [u8; 2] = [0xff, 0x35];

/// The length of the jump.
const JUMP_BYTES: usize = 6;

/// The most bytes before the jump: `endbr64` (4 bytes) and a `bnd` prefix.
const MAX_PREFIX_BYTES: usize = 5;

/// Finds the stubs in a section at `address` with entries of `entry_size` bytes.
pub(super) fn find_stubs(code: &[u8], address: ImageAddress, entry_size: u64) -> Vec<PltStub> {
    // `.plt.got` has entries of 8 bytes unless branches are tracked (CET).
    let size = if entry_size == 8 { 8 } else { 16 };
    let mut stubs = Vec::new();
    for (index, entry) in code.chunks_exact(size).enumerate() {
        let start = address.wrapping_add((index * size) as u64);
        // The head of the table jumps to the loader and is no stub.
        if entry.starts_with(&PUSH) {
            continue;
        }
        let jump = entry.windows(JUMP_BYTES).position(|bytes| bytes[..2] == JUMP);
        let Some(at) = jump.filter(|&at| at <= MAX_PREFIX_BYTES) else { continue };
        let distance = entry[at + 2..at + JUMP_BYTES].first_chunk();
        let distance = distance.map_or(0, |bytes| i32::from_le_bytes(*bytes));
        // The distance counts from the next instruction.
        let next = start.wrapping_add((at + JUMP_BYTES) as u64);
        let slot = ImageAddress(next.0.wrapping_add_signed(distance.into()));
        stubs.push(PltStub { start, size: size as u64, slot });
    }
    stubs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stub(start: u64, size: u64, slot: u64) -> PltStub {
        PltStub { start: ImageAddress(start), size, slot: ImageAddress(slot) }
    }

    #[test]
    fn stubs_of_every_layout_are_found() {
        let head = [0xff, 0x35, 2, 0, 0, 0, 0xff, 0x25, 4, 0, 0, 0, 0x0f, 0x1f, 0x40, 0];
        let lazy = [0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        let tracked =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x10, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
        let bound =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        let code = [head, lazy, tracked, bound].concat();
        let stubs = find_stubs(&code, ImageAddress(0x1000), 16);
        let expected =
            [stub(0x1010, 16, 0x1026), stub(0x1020, 16, 0x103a), stub(0x1030, 16, 0x104b)];
        assert_eq!(stubs, expected);
        let short = [0xff, 0x25, 0xfe, 0xff, 0xff, 0xff, 0x66, 0x90];
        assert_eq!(find_stubs(&short, ImageAddress(0x1000), 8), [stub(0x1000, 8, 0x1004)]);
    }
}
