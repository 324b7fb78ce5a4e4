//! Tests with single instructions.

use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions};

use super::*;
use crate::arch;
use crate::arch::code_bytes::{Bytes, INSTRUCTION_MAX};
use crate::arch::rule::Cfa;

/// The address of code that is written down.
const START: ImageAddress = ImageAddress(0x1000);

/// Code, and the places tables cover.
#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    is_generated: bool,
    rows: Vec<(ImageAddress, UnwindRule)>,
}

impl CodeBytes for Written {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let at = address.offset_from(START).map_or(usize::MAX, |at| at as usize);
        bytes_at(&self.bytes, at)
    }

    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        let found = self.rows.iter().find(|(at, _)| *at == address);
        found.map(|(_, row)| Rc::new(row.clone()))
    }

    fn is_generated(&self) -> bool {
        self.is_generated
    }

    fn keeps_frame_pointer_only(&self) -> bool {
        self.is_generated
    }
}

fn bytes_at(all: &[u8], at: usize) -> Bytes {
    let found = all.get(at..).unwrap_or_default();
    let length = found.len().min(INSTRUCTION_MAX);
    let mut code = Bytes { length, ..Bytes::default() };
    code.bytes[..length].copy_from_slice(&found[..length]);
    code
}

const RET: &[u8] = &[0xc3];
const PUSH_RBX: &[u8] = &[0x53];
const POP_RBX: &[u8] = &[0x5b];
const PUSH_RBP: &[u8] = &[0x55];
const LEAVE: &[u8] = &[0xc9];
const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
const SUB_32: &[u8] = &[0x48, 0x83, 0xec, 0x20];
const ADD_32: &[u8] = &[0x48, 0x83, 0xc4, 0x20];
const HLT: &[u8] = &[0xf4];

type Found = ((u16, i64), Vec<(u16, RegisterRule)>);

/// The rule at the beginning of some code: its CFA, and the registers that are not the same.
fn found(code: &[&[u8]], returns: bool) -> Option<Found> {
    let mut written = Written { bytes: code.concat(), rows: Vec::new(), ..Written::default() };
    let row = rule(&mut written, START, returns)?;
    assert_eq!((&row.return_address, row.signal), (&RegisterRule::AtCfaOffset(-8), false));
    let Cfa::Register(register, offset) = row.cfa else { panic!("{row:?}") };
    Some(((register, offset), row.registers.to_vec()))
}

/// Returns the distance of the CFA from the stack pointer after a call.
fn behind(code: &[&[u8]]) -> Option<i64> {
    let ((register, offset), _) = found(code, true)?;
    assert_eq!(register, arch::SP);
    Some(offset)
}

/// The rule at the beginning of code generated at run time.
fn generated(code: &[&[u8]], returns: bool) -> Option<UnwindRule> {
    let mut written = Written { bytes: code.concat(), is_generated: true, rows: Vec::new() };
    rule(&mut written, START, returns)
}

#[test]
fn generated_code_preserves_only_the_frame_pointer() {
    let row = generated(&[&[0x31, 0xdb], ADD_32, &[0x5d], RET], true).expect("a rule"); // xor %ebx,%ebx
    assert_eq!(row.cfa, Cfa::Register(arch::SP, 48));
    assert_eq!(
        row.registers[..2],
        [(3, RegisterRule::Undefined), (arch::FP, RegisterRule::AtCfaOffset(-16))]
    );
    assert_eq!(found(&[&[0x31, 0xdb], ADD_32, &[0x5d], RET], true), None);
}

#[test]
fn interpreter_returns_by_a_jump() {
    // pop %rax; mov %r13,%rsp; jmp *%rax
    let row = generated(&[&[0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe0]], false).expect("a rule");
    assert_eq!(row.cfa, Cfa::Register(13, 0));
    assert!(matches!(row.return_address, RegisterRule::AtExpression(_)), "{row:?}");
    // mov (%rsp),%rax; mov %r13,%rsp; jmp *%rax
    let loaded = generated(&[&[0x48, 0x8b, 0x04, 0x24, 0x49, 0x8b, 0xe5, 0xff, 0xe0]], false);
    assert!(loaded.is_some());
    // mov 8(%rsp),%rax; jmp *%rax: the word is still in the frame.
    assert_eq!(generated(&[&[0x48, 0x8b, 0x44, 0x24, 8, 0xff, 0xe0]], false), None);
    assert_eq!(found(&[&[0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe0]], false), None, "of a compiler");
}

#[test]
fn stub_of_virtual_call_has_the_return_address_of_its_caller() {
    let stub: &[u8] = &[0xff, 0x63, 0x50]; // jmp *0x50(%rbx)
    assert_eq!(generated(&[stub], false).map(|row| row.cfa), Some(Cfa::Register(arch::SP, 8)));
    let table: &[u8] = &[0xff, 0x24, 0xc3]; // jmp *(%rbx,%rax,8)
    assert_eq!(generated(&[table], false), None);
    assert_eq!(found(&[stub], false), None);
}

#[test]
fn long_jump_of_generated_code_is_not_followed() {
    // je to a stub with another frame, after 64 KiB; add $32,%rsp; pop %rbp; ret
    let far = (FUNCTION_MAX_BYTES_GENERATED as u32 + 64).to_le_bytes();
    let jump = [&[0x0f, 0x84][..], &far].concat();
    let rest = vec![0x90; FUNCTION_MAX_BYTES_GENERATED as usize + 64 - 6];
    let code = [&jump[..], ADD_32, &[0x5d], RET, &rest, ADD_32, ADD_32, RET];
    assert_eq!(generated(&code, true).map(|row| row.cfa), Some(Cfa::Register(arch::SP, 48)));
    assert_eq!(found(&code, true), None, "the ends disagree");
}

#[test]
fn popped_register_was_saved_in_its_slot() {
    let epilogue = [ADD_32, POP_RBX, &[0x41, 0x5e], RET]; // ...; pop %r14; ret
    let saved = vec![(3, RegisterRule::AtCfaOffset(-24)), (14, RegisterRule::AtCfaOffset(-16))];
    assert_eq!(found(&epilogue, true), Some(((arch::SP, 56), saved.clone())));
    assert_eq!(found(&epilogue[1..], false), Some(((arch::SP, 24), saved)));
    assert_eq!(found(&[RET], false), Some(((arch::SP, 8), Vec::new())));
    let whole = [PUSH_RBX, SUB_32, CALL, ADD_32, POP_RBX, RET];
    assert_eq!(found(&whole, false), Some(((arch::SP, 8), Vec::new())), "from the beginning");
    // mov 8(%rsp),%rbx; lea 24(%rsp),%rsp; ret
    let moved = [&[0x48, 0x8b, 0x5c, 0x24, 8][..], &[0x48, 0x8d, 0x64, 0x24, 24], RET];
    assert_eq!(
        found(&moved, true),
        Some(((arch::SP, 32), vec![(3, RegisterRule::AtCfaOffset(-24))]))
    );
    let with_popf = [&[0x9d][..], POP_RBX, RET];
    assert_eq!(
        found(&with_popf, true),
        Some(((arch::SP, 24), vec![(3, RegisterRule::AtCfaOffset(-16))]))
    );
}

#[test]
fn frame_pointer_is_the_cfa_base_if_the_stack_pointer_is_lost() {
    let saved = vec![(arch::FP, RegisterRule::AtCfaOffset(-16))];
    assert_eq!(found(&[CALL, LEAVE, RET], true), Some(((arch::FP, 16), saved.clone())));
    let alloca = [&[0x48, 0x29, 0xc4][..], CALL, LEAVE, RET]; // sub %rax,%rsp
    assert_eq!(found(&alloca, true), Some(((arch::FP, 16), saved)));
    // lea -8(%rbp),%rsp; pop %rbx; pop %rbp; ret
    let lea = [&[0x48, 0x8d, 0x65, 0xf8][..], POP_RBX, &[0x5d], RET];
    let saved =
        vec![(3, RegisterRule::AtCfaOffset(-24)), (arch::FP, RegisterRule::AtCfaOffset(-16))];
    assert_eq!(found(&lea, true), Some(((arch::FP, 16), saved)));
    // push %rbp; mov %rsp,%rbp; and $-32,%rsp; call; leave; ret
    let whole = [PUSH_RBP, &[0x48, 0x89, 0xe5], &[0x48, 0x83, 0xe4, 0xe0], CALL, LEAVE, RET];
    assert_eq!(found(&whole, false), Some(((arch::SP, 8), Vec::new())));
    let lost = [&[0x48, 0x83, 0xe4, 0xe0][..], RET];
    assert_eq!(found(&lost, true), None);
}

#[test]
fn disagreeing_ends_yield_no_rule() {
    let je_4 = &[0x74, 5][..]; // over add and ret
    assert_eq!(behind(&[je_4, ADD_32, RET, ADD_32, RET]), Some(40));
    assert_eq!(behind(&[je_4, ADD_32, RET, POP_RBX, RET]), None);
    let one_restores = [je_4, &[0x48, 0x8b, 0x1c, 0x24], RET, RET]; // mov (%rsp),%rbx; ret; ret
    assert_eq!(found(&one_restores, false), Some(((arch::SP, 8), Vec::new())), "not from above");
    let one_pops = [&[0x74, 2][..], POP_RBX, RET, &[0x41, 0x58], RET]; // pop %r8
    assert_eq!(found(&one_pops, true), Some(((arch::SP, 16), vec![(3, RegisterRule::Undefined)])));
    // A table of jumps has no say.
    assert_eq!(behind(&[&[0x74, 2], &[0xff, 0xe0], ADD_32, RET]), Some(40));
    assert_eq!(behind(&[&[0xff, 0xe0], ADD_32, RET]), None);
}

#[test]
fn function_after_a_noreturn_call_is_ignored() {
    let next = [PUSH_RBX, CALL, POP_RBX, RET];
    let alone: Vec<_> = [CALL].into_iter().chain(next).collect();
    assert_eq!(behind(&alone), None);
    assert_eq!(behind(&next), None, "directly after the call");
    let guarded: Vec<_> = [&[0x74, 5], ADD_32, RET].into_iter().chain(alone).collect();
    assert_eq!(behind(&guarded), Some(40));
    // A register that is not given back.
    assert_eq!(behind(&[&[0x31, 0xdb], ADD_32, RET]), None);
    let padded = [&[0x74, 5][..], ADD_32, RET, CALL, &[0x90], POP_RBX, RET];
    assert_eq!(behind(&padded), Some(40), "only if there is no other end");
    assert_eq!(behind(&[CALL, &[0x90], ADD_32, RET]), Some(40));
    let covered = Written {
        bytes: [CALL, ADD_32, RET].concat(),
        rows: vec![(START.wrapping_add(5), entry_row())],
        ..Written::default()
    };
    assert_eq!(rule(&mut { covered }, START, true), None);
}

fn entry_row() -> UnwindRule {
    let cfa = Cfa::Register(arch::SP, 8);
    UnwindRule {
        cfa,
        return_address: RegisterRule::AtCfaOffset(-8),
        registers: [].into(),
        signal: false,
    }
}

#[test]
fn jump_to_another_function_is_an_end() {
    let jump = &[0xeb, 0x10][..];
    let to = START.wrapping_add(4 + 2 + 0x10);
    let bytes = [ADD_32, jump].concat();
    let at = |row| {
        let mut written =
            Written { bytes: bytes.clone(), rows: vec![(to, row)], ..Written::default() };
        rule(&mut written, START, true).map(|row| (row.cfa, row.registers.to_vec()))
    };
    assert_eq!(at(entry_row()), Some((Cfa::Register(arch::SP, 40), Vec::new())));
    let part = UnwindRule {
        cfa: Cfa::Register(arch::SP, 24),
        registers: [(3, RegisterRule::AtCfaOffset(-16))].into(),
        ..entry_row()
    };
    let expected = (Cfa::Register(arch::SP, 56), vec![(3, RegisterRule::AtCfaOffset(-16))]);
    assert_eq!(at(part), Some(expected), "or a part of the same, out of line");
    assert_eq!(at(UnwindRule { signal: true, ..entry_row() }), None);
    let by_pointer = [ADD_32, &[0xff, 0x25, 0, 0, 0, 0]]; // jmp *0(%rip)
    assert_eq!(behind(&by_pointer), Some(40));
}

#[test]
fn register_jump_is_an_end_after_registers_were_restored() {
    let jump = &[0xff, 0xe0][..]; // jmp *%rax
    let saved = vec![(3, RegisterRule::AtCfaOffset(-16))];
    assert_eq!(found(&[ADD_32, POP_RBX, jump], true), Some(((arch::SP, 48), saved)));
    assert_eq!(found(&[ADD_32, jump], true), None);
    assert_eq!(found(&[jump], false), None, "nothing precedes it");
    let at = |before: u8, from| {
        let mut bytes = vec![before; 16];
        bytes.extend(jump);
        let mut written =
            Written { bytes: bytes[from..].to_vec(), rows: Vec::new(), ..Written::default() };
        rule(&mut written, START.wrapping_add(16 - from as u64), false).map(|row| row.cfa)
    };
    assert_eq!(at(0x90, 0), Some(Cfa::Register(arch::SP, 8)), "a function of one jump");
    assert_eq!(at(0xd0, 0), None);
    assert_eq!(at(0x90, 1), None, "it is not aligned");
}

#[test]
fn counter_does_not_keep_a_loop_going() {
    // add $4,%rbx; lea 1(%rsi),%rsi; jne back; then the end.
    let back = &[&[0x48, 0x83, 0xc3, 4, 0x48, 0x8d, 0x76, 1][..], &[0x75, 0xf6]];
    let bytes = [back.concat(), ADD_32.to_vec(), POP_RBX.to_vec(), RET.to_vec()].concat();
    let mut written = Counted { inner: Written { bytes, ..Written::default() }, read: 0 };
    assert!(rule(&mut written, START, true).is_some());
    assert!(written.read < 20, "{}", written.read);
}

/// Counts the instructions that are read.
struct Counted {
    inner: Written,
    read: u32,
}

impl CodeBytes for Counted {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        self.read += 1;
        self.inner.code(address)
    }

    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        self.inner.rule(address)
    }
}

#[test]
fn code_without_end_yields_no_rule() {
    assert_eq!(behind(&[&[0xeb, 0xfe]]), None);
    assert_eq!(behind(&[PUSH_RBX, &[0xeb, 0xfd]]), None, "pushes for ever");
    assert_eq!(behind(&[CALL, HLT]), None);
    assert_eq!(behind(&[ADD_32, &[0x0f, 0x0b]]), None);
    assert_eq!(behind(&[ADD_32]), None);
    assert_eq!(behind(&[&ADD_32[..2]]), None);
    assert_eq!(behind(&[]), None);
    // call next; pop %rax: how code finds out where it is.
    assert_eq!(behind(&[&[0xe8, 0, 0, 0, 0], &[0x58], RET]), None);
    let huge = [0x48, 0x81, 0xc4, 0xff, 0xff, 0xff, 0x7f]; // add $0x7fffffff,%rsp
    assert_eq!(behind(&[&huge[..], &huge, RET]), Some(0xffff_fffe + 8));
    // push %rax; ret: it returns to an address of its own.
    assert_eq!(found(&[&[0x50], RET], false), None);
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) as u8
    };
    // Bytes of instructions that move the stack pointer or jump are made more frequent.
    const LIKELY: [u8; 16] = [
        0x48, 0x53, 0x5b, 0x55, 0x5d, 0xc9, 0xe8, 0x74, 0xeb, 0xe9, 0x83, 0xec, 0xc4, 0x8b, 0xff,
        0x24,
    ];
    for round in 0..300 {
        let bytes: Vec<u8> = (0..2048)
            .map(|_| if next() % 2 == 0 { LIKELY[usize::from(next() % 16)] } else { next() })
            .collect();
        let mut written = Written { bytes, ..Written::default() };
        let Some(row) = rule(&mut written, START.wrapping_add(round), round % 2 == 0) else {
            continue;
        };
        assert_eq!(row.return_address, RegisterRule::AtCfaOffset(-8));
    }
    for length in 0..16 {
        let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
        let _ = call_before(&bytes);
    }
}

#[test]
fn call_is_recognized_by_its_last_bytes() {
    for code in [&[0xe8, 1, 2, 3, 4][..], &[0x90, 0x90, 0xe8, 1, 2, 3, 0xff]] {
        assert_eq!(call_before(code), Some(Call::Direct), "{code:x?}");
    }
    for code in [
        &[0xff, 0xd0][..],
        &[0x41, 0xff, 0xd1],
        &[0xff, 0x15, 1, 2, 3, 4],
        &[0xff, 0x53, 0x18],
        &[0xff, 0x54, 0x24, 8],
        &[0x41, 0xff, 0x94, 0xc0, 1, 2, 3, 4],
    ] {
        assert_eq!(call_before(code), Some(Call::Indirect), "{code:x?}");
    }
    for code in [&[0x90; 8][..], &[0x0f, 0x05], &[0xff, 0xe0], &[0xc3], &[], &[0xe8, 1, 2, 3]] {
        assert_eq!(call_before(code), None, "{code:x?}");
    }
}

#[test]
fn calls_before_an_address_are_those_of_the_decoder() {
    const PREFIXES: [u8; 4] = [0x41, 0x67, 0x2e, 0x3e];
    let decoded = |bytes: &[u8]| {
        (2..=bytes.len()).find_map(|length| {
            let code = &bytes[bytes.len() - length..];
            let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
            match instruction.flow_control() {
                _ if instruction.is_invalid() || instruction.len() != length => None,
                FlowControl::IndirectCall if !instruction.is_call_far_indirect() => {
                    Some(Call::Indirect)
                }
                FlowControl::Call if instruction.is_call_near() => Some(Call::Direct),
                _ => None,
            }
        })
    };
    let mut found = 0;
    // All ModRM and SIB bytes at all lengths, with prefixes and as the end of other bytes.
    for (opcode, modrm) in [0xe8, 0xff].into_iter().flat_map(|it| (0..=255).map(move |to| (it, to)))
    {
        for sib in 0..=255 {
            for length in 2..=8 {
                let mut bytes =
                    [&[PREFIXES[length % 4]][..], &[opcode, modrm, sib, 0, 0, 0, 0, 0]].concat();
                bytes.truncate(1 + length);
                let call = call_before(&bytes);
                assert_eq!(call, decoded(&bytes), "{bytes:x?}");
                found += u32::from(call.is_some());
            }
        }
    }
    assert!(found > 10_000, "{found}");
}

#[test]
fn thread_exit_follows_the_return_of_its_function() {
    let ends = |code: &[&[u8]]| {
        is_thread_exit(
            &mut Written { bytes: code.concat(), rows: Vec::new(), ..Written::default() },
            START,
        )
    };
    let to_edi = &[0x89, 0xc7][..];
    let (xor, al, syscall) = (&[0x31, 0xc0][..], &[0xb0, 60][..], &[0x0f, 0x05][..]);
    assert!(ends(&[to_edi, xor, al, syscall, HLT]), "musl's");
    assert!(ends(&[to_edi, &[0xb8, 60, 0, 0, 0], syscall, HLT]), "glibc's");
    assert!(ends(&[&[0x48, 0xc7, 0xc0, 60, 0, 0, 0], syscall]));
    assert!(!ends(&[to_edi, al, syscall]), "rax is not known");
    assert!(!ends(&[xor, &[0xb0, 39], syscall]), "another call");
    assert!(!ends(&[xor, al, to_edi]));
    assert!(!ends(&[xor, al, &[0xeb, 0], syscall]));
    assert!(!ends(&[xor, al, &[0x48, 0x89, 0xd0], syscall]), "rax is another register's");
}

#[test]
fn code_never_returns_if_padding_or_a_trap_follows_its_calls() {
    let ends = |code: &[&[u8]]| {
        never_returns(
            &mut Written { bytes: code.concat(), rows: Vec::new(), ..Written::default() },
            START,
        )
    };
    assert!(ends(&[CALL, &[0x90]]), "Go's goexit");
    // mov %rbx,%rsp; test %rdi,%rdi; je; call; mov %rax,%rdi; call; hlt
    let start_context = [
        &[0x48, 0x89, 0xdc][..],
        &[0x48, 0x85, 0xff],
        &[0x74, 8],
        CALL,
        &[0x48, 0x89, 0xc7],
        CALL,
        HLT,
    ];
    assert!(ends(&start_context), "glibc's __start_context");
    assert!(!ends(&[CALL, RET]));
    assert!(!ends(&[&[0x74, 1], RET, CALL, HLT]), "one path returns");
    assert!(!ends(&[&[0xff, 0xe0]]), "the target of a jump is not known");
    assert!(ends(&[&[0xeb, 0xfe]]), "an endless loop");
}

#[test]
fn go_function_preserves_only_the_frame_pointer() {
    // mov %rax,%rbx; mov 24(%rsp),%rbp; add $32,%rsp; ret
    let code = [&[0x48, 0x89, 0xc3][..], &[0x48, 0x8b, 0x6c, 0x24, 24], ADD_32, RET];
    assert_eq!(found(&code, true), None);
    let mut state = SymbolicState::new(true, true);
    let mut at = START;
    let mut written = Written { bytes: code.concat(), rows: Vec::new(), ..Written::default() };
    let mut factory = InstructionInfoFactory::new();
    while let Some(instruction) = decode(&written.code(at), at)
        && instruction.flow_control() == FlowControl::Next
    {
        state.execute(&instruction, &mut factory);
        at = ImageAddress(instruction.next_ip());
    }
    let rule = state.rule_at_return().expect("a rule");
    assert_eq!(rule.cfa, Cfa::Register(arch::SP, 40));
    let saved = |register| rule.registers.iter().find(|(other, _)| *other == register);
    assert_eq!(saved(arch::FP), Some(&(arch::FP, RegisterRule::AtCfaOffset(-16))));
    assert_eq!(saved(3), Some(&(3, RegisterRule::Undefined)));
}

#[test]
fn pages_of_a_large_frame_are_touched_in_a_loop() {
    // lea -0x3000(%rsp),%r11; 1: sub $0x1000,%rsp; orq $0,(%rsp); cmp %r11,%rsp; jne 1b
    let probes = [
        &[0x4c, 0x8d, 0x9c, 0x24, 0, 0xd0, 0xff, 0xff][..],
        &[0x48, 0x81, 0xec, 0, 0x10, 0, 0],
        &[0x48, 0x83, 0x0c, 0x24, 0],
        &[0x4c, 0x39, 0xdc],
        &[0x75, 0xef],
        CALL,
        &[0x48, 0x81, 0xc4, 0, 0x30, 0, 0],
        RET,
    ];
    assert_eq!(found(&probes, false), Some(((arch::SP, 8), Vec::new())));
}

#[test]
fn function_that_never_returns_is_followed_from_its_start() {
    // ret; push %rbx; sub $32,%rsp; call; hlt
    let mut written = Written {
        bytes: [RET, PUSH_RBX, SUB_32, CALL, HLT].concat(),
        rows: Vec::new(),
        ..Written::default()
    };
    let at = START.wrapping_add(11);
    assert_eq!(rule(&mut written, at, true), None);
    let rules = rules_since_prologues(&mut written, at);
    let rule = rules.first().expect("a rule");
    assert_eq!(rule.cfa, Cfa::Register(arch::SP, 48));
    assert_eq!(*rule.registers, [], "the pushed register still has its value");
    let from_start = rule_since_entry(&mut written, START.wrapping_add(1), at);
    assert_eq!(from_start.as_ref(), Some(rule));
    assert_eq!(rule_since_entry(&mut written, START, at), None, "another function");
    // After the zeros between two sections: mov %edi,%eax; sub $32,%rsp; call; hlt
    let mut zeros = [0; 16];
    zeros[0] = RET[0];
    written.bytes = [&[0x90; 16][..], &zeros, &[0x89, 0xf8], SUB_32, CALL, HLT].concat();
    let rules = rules_since_prologues(&mut written, START.wrapping_add(43));
    assert_eq!(rules.first().map(|rule| &rule.cfa), Some(&Cfa::Register(arch::SP, 40)));
}

#[test]
fn jumps_are_followed_in_a_function_with_a_table() {
    // ret; push %rbx; sub $32,%rsp; jmp over a byte; call; hlt
    let bytes = [RET, PUSH_RBX, SUB_32, &[0xeb, 1, 0x90], CALL, HLT].concat();
    let (target, at) = (START.wrapping_add(9), START.wrapping_add(14));
    let row = UnwindRule {
        cfa: Cfa::Register(arch::FP, 16),
        return_address: RegisterRule::AtCfaOffset(-8),
        registers: Box::default(),
        signal: false,
    };
    let rules = |places: &[ImageAddress]| {
        let rows = places.iter().map(|&place| (place, row.clone())).collect();
        let mut written = Written { bytes: bytes.clone(), rows, ..Written::default() };
        let rules = rules_since_prologues(&mut written, at);
        rules.iter().map(|rule| rule.cfa.clone()).collect::<Vec<_>>()
    };
    assert_eq!(rules(&[target, at]), [Cfa::Register(arch::SP, 48)]);
    assert_eq!(rules(&[target]), [], "a jump to another function");
}

#[test]
fn start_after_int3_is_tried_before_nearer_ones() {
    // A jump over `push %rbp`, with which a function might begin.
    let over_push = [&[0xeb, 1], PUSH_RBP].concat();
    let ends = [RET, &[0xcc; 15]].concat();
    let bytes = [&ends, PUSH_RBX, SUB_32, &over_push, CALL, HLT].concat();
    let mut written = Written { bytes, ..Written::default() };
    let rules = rules_since_prologues(&mut written, START.wrapping_add(29));
    let places: Vec<_> = rules.iter().map(|rule| rule.cfa.clone()).collect();
    assert_eq!(places, [Cfa::Register(arch::SP, 48), Cfa::Register(arch::SP, 16)]);
}

mod tables;
