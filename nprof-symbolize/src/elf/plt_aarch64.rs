//! PLT stubs of 64-bit ARM. Pure over bytes.

use nprof_object::ImageAddress;

use super::plt_stub::PltStub;

/// `stp x16, x30, [sp, #-16]!`, the first instruction of the table's head, after `bti c` if branches are
/// tracked.
const PUSH: u32 = 0xa9bf_7bf0;

/// `bti c`, the first instruction of a stub if branches are tracked.
const BTI: u32 = 0xd503_245f;

/// `br x17`, the jump of a stub.
const JUMP: u32 = 0xd61f_0220;

/// `nop`, after the jump.
const NOP: u32 = 0xd503_201f;

/// The most instructions from the slot's address to the jump: `ldr`, `add`, `autia1716`, `br`.
const JUMP_DISTANCE: usize = 4;

/// Finds the stubs in a section at `address`. Each loads the page of its slot (`adrp x16`), then the
/// slot (`ldr x17, [x16, #distance]`), and jumps.
pub(super) fn find_stubs(code: &[u8], address: ImageAddress, _entry_size: u64) -> Vec<PltStub> {
    let words: Vec<u32> =
        code.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let mut stubs = Vec::new();
    for at in 0..words.len().saturating_sub(1) {
        let Some(page) = page(words[at], address.wrapping_add(at as u64 * 4)) else { continue };
        let Some(distance) = distance(words[at + 1]) else { continue };
        let before = at.checked_sub(1).map(|before| words[before]);
        // The head of the table jumps to the loader and is no stub.
        if before == Some(PUSH) {
            continue;
        }
        let rest = words[at + 1..].iter().take(JUMP_DISTANCE);
        let Some(jump) = rest.into_iter().position(|&word| word == JUMP) else { continue };
        let after = at + 1 + jump + 1;
        let nops = words[after..].iter().take_while(|&&word| word == NOP).count();
        let first = at - usize::from(before == Some(BTI));
        stubs.push(PltStub {
            start: address.wrapping_add(first as u64 * 4),
            size: (after + nops - first) as u64 * 4,
            slot: ImageAddress(page.wrapping_add(distance)),
        });
    }
    stubs
}

/// Returns the page that `adrp x16, page` at an address loads. None if the instruction is another.
fn page(instruction: u32, at: ImageAddress) -> Option<u64> {
    if instruction & 0x9f00_001f != 0x9000_0010 {
        return None;
    }
    let (low, high) = (instruction >> 29 & 3, instruction >> 5 & 0x7_ffff);
    // A number of pages of 21 bits with a sign.
    let pages = ((high << 2 | low) << 11) as i32 >> 11;
    Some((at.0 & !0xfff).wrapping_add_signed(i64::from(pages) << 12))
}

/// Returns the distance of `ldr x17, [x16, #distance]`. None if the instruction is another.
fn distance(instruction: u32) -> Option<u64> {
    (instruction & 0xffc0_03ff == 0xf940_0211).then(|| u64::from(instruction >> 10 & 0xfff) * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stub(start: u64, size: u64, slot: u64) -> PltStub {
        PltStub { start: ImageAddress(start), size, slot: ImageAddress(slot) }
    }

    fn found(words: &[u32], start: u64) -> Vec<PltStub> {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        find_stubs(&code, ImageAddress(start), 16)
    }

    /// `adrp x16, +0x1f000; ldr x17, [x16, #0xfc8]; add x16, x16, #0xfc8; br x17`.
    const LAZY: [u32; 4] = [0xf000_00f0, 0xf947_e611, 0x913f_2210, JUMP];

    #[test]
    fn stubs_are_found_after_the_head_of_the_table() {
        let head = [PUSH, 0xf000_00f0, 0xf947_e211, 0x913f_0210, JUMP, NOP, NOP, NOP];
        let code = [&head[..], &LAZY, &LAZY].concat();
        let expected = [stub(0x620, 16, 0x1ffc8), stub(0x630, 16, 0x1ffc8)];
        assert_eq!(found(&code, 0x600), expected);
    }

    #[test]
    fn stubs_with_branch_tracking_begin_with_its_instruction() {
        let tracked = [&[BTI][..], &LAZY, &[NOP]].concat();
        assert_eq!(found(&tracked, 0x1000), [stub(0x1000, 24, 0x20fc8)]);
        // autia1716 before the jump.
        let [page, load, add, jump] = LAZY;
        let signed = [BTI, page, load, add, 0xd503_219f, jump];
        assert_eq!(found(&signed, 0x1000), [stub(0x1000, 24, 0x20fc8)]);
    }

    #[test]
    fn slot_may_lie_before_the_stub() {
        // adrp x16, -0x1000.
        let code = [0xf0ff_fff0, 0xf940_0211, 0x9100_0210, JUMP];
        assert_eq!(found(&code, 0x5000), [stub(0x5000, 16, 0x4000)]);
    }

    #[test]
    fn other_code_has_no_stubs() {
        assert_eq!(found(&[NOP; 8], 0), []);
        assert_eq!(found(&LAZY[..3], 0), []);
        assert_eq!(find_stubs(&[0xf0], ImageAddress(0), 16), []);
    }
}
