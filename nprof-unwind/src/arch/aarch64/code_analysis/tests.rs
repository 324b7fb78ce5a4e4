//! Tests with single instructions.

use std::rc::Rc;

use super::*;
use crate::arch::aarch64::registers::{FP, SP};
use crate::arch::code_bytes::{Bytes, INSTRUCTION_MAX};
use crate::arch::rule::{Cfa, RegisterRule};

/// The address of code that is written down.
const START: ImageAddress = ImageAddress(0x1000);

/// Code, and the place from which on a table covers it.
struct Written(Vec<u32>, Option<ImageAddress>);

impl CodeBytes for Written {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let all: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = address.offset_from(START).map_or(usize::MAX, |at| at as usize);
        let found = all.get(at..).unwrap_or_default();
        let length = found.len().min(INSTRUCTION_MAX);
        let mut code = Bytes { length, ..Bytes::default() };
        code.bytes[..length].copy_from_slice(&found[..length]);
        code
    }

    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        let rule = UnwindRule {
            cfa: Cfa::Register(SP, 0),
            return_address: RegisterRule::Register(LINK),
            registers: [].into(),
            signal: false,
        };
        self.1.is_some_and(|start| address >= start).then(|| Rc::new(rule))
    }
}

const RET: u32 = 0xd65f_03c0;
const NOP: u32 = 0xd503_201f;
/// bl .+0x1000
const BL: u32 = 0x9400_0400;
/// stp x29, x30, [sp, #-32]!
const PUSH: u32 = 0xa9be_7bfd;
/// ldp x29, x30, [sp], #32
const POP: u32 = 0xa8c2_7bfd;
/// stp x19, x20, [sp, #16]
const SAVE_19: u32 = 0xa901_53f3;
/// ldp x19, x20, [sp, #16]
const LOAD_19: u32 = 0xa941_53f3;
/// sub sp, sp, #64; add sp, sp, #64
const SUB_64: u32 = 0xd101_03ff;
const ADD_64: u32 = 0x9101_03ff;
/// str x30, [sp, #-16]!; ldr x30, [sp], #16
const PUSH_LINK: u32 = 0xf81f_0ffe;
const POP_LINK: u32 = 0xf841_07fe;

type Found = ((u16, i64), RegisterRule, Vec<(u16, RegisterRule)>);

fn parts(rule: UnwindRule) -> Found {
    let Cfa::Register(register, offset) = rule.cfa else { panic!("{rule:?}") };
    ((register, offset), rule.return_address, rule.registers.to_vec())
}

/// The rule at the beginning of some code.
fn found(code: &[u32], returns: bool) -> Option<Found> {
    rule(&mut Written(code.to_vec(), None), START, returns).map(parts)
}

/// The place of the CFA and of the return address.
fn place(code: &[u32], returns: bool) -> Option<((u16, i64), RegisterRule)> {
    found(code, returns).map(|(cfa, return_address, _)| (cfa, return_address))
}

const fn at(offset: i64) -> RegisterRule {
    RegisterRule::AtCfaOffset(offset)
}

#[test]
fn frame_is_found_at_each_instruction_of_a_function() {
    let code = [PUSH, SAVE_19, BL, LOAD_19, POP, RET];
    let link = RegisterRule::Register(LINK);
    assert_eq!(found(&code, false), Some(((SP, 0), link.clone(), vec![])), "before it is saved");
    // The registers have their values still; then they are restored from the frame.
    let restored = vec![(19, at(-16)), (20, at(-8)), (FP, at(-32))];
    assert_eq!(found(&code[3..], true), Some(((SP, 32), at(-24), restored.clone())));
    assert_eq!(found(&code[3..], false), Some(((SP, 32), at(-24), restored)));
    let saved = found(&code[1..], false).expect("a rule");
    assert_eq!((saved.0, saved.1, saved.2), ((SP, 32), at(-24), vec![(FP, at(-32))]));
    assert_eq!(found(&code[5..], false), Some(((SP, 0), link, vec![])));
    assert_eq!(found(&code[5..], true), None, "a call changed the link register");
}

#[test]
fn stack_pointer_is_followed_through_each_form_of_arithmetic() {
    for (name, code, cfa) in [
        ("add", &[ADD_64, POP_LINK, RET][..], (SP, 80)),
        ("add, shifted by 12", &[0x9140_07ff, ADD_64, POP_LINK, RET], (SP, 0x1000 + 80)),
        ("from the frame pointer", &[0x9100_03bf, POP, RET], (FP, 32)),
        // mov x12, #0x1230; add sp, sp, x12
        ("a number", &[0xd282_460c, 0x8b2c_63ff, POP_LINK, RET], (SP, 0x1230 + 16)),
        // mov x12, #0x10; movk x12, #1, lsl #16; add sp, sp, x12
        (
            "a number in two parts",
            &[0xd280_020c, 0xf2a0_002c, 0x8b2c_63ff, POP_LINK, RET],
            (SP, 0x1_0010 + 16),
        ),
        // ldp d8, d9, [sp], #16
        ("vectors", &[0x6cc1_27e8, POP_LINK, RET], (SP, 32)),
    ] {
        assert_eq!(place(code, true).map(|(found, _)| found), Some(cfa), "{name}");
    }
}

#[test]
fn frame_of_unknown_size_is_found_by_the_frame_pointer_only() {
    // sub sp, sp, x0; add x0, x0, #1; bl; mov sp, x29; ldp; ret
    let code = [0xcb20_63ff, 0x9100_0400, BL, 0x9100_03bf, POP, RET];
    assert_eq!(place(&code, false), Some(((FP, 32), at(-24))));
    // sub sp, sp, x0; ldp; ret
    assert_eq!(place(&[0xcb20_63ff, POP, RET], false), None);
}

#[test]
fn all_ends_agree_on_the_frame() {
    // cbz x0, 1f; ldp; ret; 1: nop; ldp; ret
    let code = [0xb400_0060, POP, RET, NOP, POP, RET];
    assert_eq!(place(&code, true), Some(((SP, 32), at(-24))));
    // The other path leaves another frame.
    let code = [0xb400_0060, POP, RET, NOP, POP_LINK, RET];
    assert_eq!(place(&code, true), None);
    // tbnz w0, #3, 1f; b.ne 1f; b 1f; brk; 1: ldp; ret
    let code = [0x3718_0080, 0x5400_0061, 0x1400_0002, 0xd420_0000, POP, RET];
    assert_eq!(place(&code, true), Some(((SP, 32), at(-24))));
}

#[test]
fn call_that_never_returns_yields_no_rule() {
    // The next function saves and restores the link register, which the call changed.
    assert_eq!(found(&[BL, PUSH, BL, POP, RET], false), None);
    assert_eq!(found(&[BL, RET], true), None);
    // A table covers the next function.
    let next = START.wrapping_add(4);
    assert_eq!(rule(&mut Written(vec![BL, POP, RET], Some(next)), START, true), None);
}

#[test]
fn tail_calls_are_ends() {
    let link = RegisterRule::Register(LINK);
    // ldr x30, [sp], #16; br x1
    assert_eq!(place(&[POP_LINK, 0xd61f_0020], true), Some(((SP, 16), at(-16))));
    // br x17 of a linkage table; br x1 of a jump table
    assert_eq!(place(&[0xd61f_0220], false), Some(((SP, 0), link.clone())));
    assert_eq!(place(&[0xd61f_0020], false), None);
    // b to code that a table covers
    let covered = START.wrapping_add(12);
    let code = vec![POP_LINK, 0x1400_0002, NOP, NOP];
    let found = rule(&mut Written(code, Some(covered)), START, true).map(parts);
    assert_eq!(found, Some(((SP, 16), at(-16), vec![])));
}

#[test]
fn return_address_with_a_signature_is_found() {
    // autiasp; retaa
    let ends = [[POP, 0xd503_23bf, RET], [POP, 0xd65f_0bff, NOP]];
    for code in ends {
        assert_eq!(place(&code, true), Some(((SP, 32), at(-24))));
    }
}

#[test]
fn changed_registers_are_lost() {
    // mov x19, #1; ldr w20, [x0]; ldr x21, [sp, #8]; fmov x22, d0; umov w23, v0.b[0]; ldr d24, [sp]; svc #0
    let code = [
        0xd280_0033,
        0xb940_0014,
        0xf940_07f5,
        0x9e66_0016,
        0x0e01_3c17,
        0xfd40_03f8,
        0xd400_0001,
        POP_LINK,
        RET,
    ];
    let (_, _, registers) = found(&code, true).expect("a rule");
    let lost = |register| (register, RegisterRule::Undefined);
    assert_eq!(registers, vec![lost(19), lost(20), (21, at(-8)), lost(22), lost(23)]);
}

#[test]
fn function_that_never_returns_is_followed_from_its_start() {
    // ret; stp x29, x30, [sp, #-32]!; stp x19, x20, [sp, #16]; mov x19, x0; bl; brk
    let code = vec![RET, PUSH, SAVE_19, 0xaa00_03f3, BL, 0xd420_0000];
    let mut written = Written(code, None);
    let place = START.wrapping_add(20);
    assert_eq!(rule(&mut written, place, true), None);
    let rules: Vec<_> = rules_since_prologues(&mut written, place).into_iter().map(parts).collect();
    assert_eq!(rules, [((SP, 32), at(-24), vec![(19, at(-16))])]);
    // sub sp, sp, #64; str x30, [sp, #-16]!; bl
    let mut written = Written(vec![RET, SUB_64, PUSH_LINK, BL, 0xd420_0000], None);
    let rules: Vec<_> = rules_since_prologues(&mut written, START.wrapping_add(16))
        .into_iter()
        .map(parts)
        .collect();
    assert_eq!(rules, [((SP, 80), at(-80), vec![])]);
    // The function before returns.
    let mut written = Written(vec![PUSH, POP, RET, BL, NOP], None);
    assert_eq!(rules_since_prologues(&mut written, START.wrapping_add(16)), []);
}

#[test]
fn jumps_and_calls_are_followed_in_a_function_with_a_table() {
    // ret; stp x29, x30, [sp, #-32]!; bl; b over an instruction; bl; brk
    let code = vec![RET, PUSH, BL, 0x1400_0002, NOP, BL, 0xd420_0000];
    let place = START.wrapping_add(24);
    let mut written = Written(code, Some(START));
    let rules: Vec<_> = rules_since_prologues(&mut written, place).into_iter().map(parts).collect();
    assert_eq!(rules, [((SP, 32), at(-24), vec![])]);
}

#[test]
fn thread_exit_follows_the_return_of_its_function() {
    let ends = |code: &[u32]| is_thread_exit(&mut Written(code.to_vec(), None), START);
    let svc = 0xd400_0001;
    assert!(ends(&[0xd280_0ba8, svc]), "musl's");
    assert!(ends(&[NOP, 0x5280_0ba8, svc]));
    assert!(!ends(&[0xd280_0bc8, svc]), "another call");
    assert!(!ends(&[0xd280_0ba8, BL, svc]));
    assert!(!ends(&[0xd280_0ba8]));
}
