//! Stacks of 64-bit ARM: return addresses in the link register, signatures, frame records, signal frames.

use std::rc::Rc;

use nprof_object::RuntimeAddress;

use super::*;
use crate::arch::aarch64::{Aarch64, FP, IP, LINK, SIGNAL_SAVED, SP};
use crate::arch::rule::{AnalyzedRule, Cfa, RegisterRule};

/// The stack of all walks.
const STACK: u64 = 0x7000_0000;

/// Code with rules by address; everything from 0x1000 to 0x9000 is mapped, and calls end at odd addresses.
#[derive(Default)]
struct Code {
    rules: Vec<(u64, UnwindInfo)>,
    /// The rules that the code shows, by its address.
    analyzed: Vec<(u64, Rc<UnwindRule>)>,
    /// The same by the code before the address.
    since_prologues: Vec<(u64, UnwindRule)>,
}

impl CodeMap<Aarch64> for Code {
    fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
        let found = self.rules.iter().rev().find(|(start, _)| address >= *start);
        match found {
            Some((_, unwind_info)) if (0x1000..0x9000).contains(&address) => unwind_info.clone(),
            _ => UnwindInfo::Unmapped,
        }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        let found = self.analyzed.iter().find(|(at, _)| *at == address.value().0);
        found.map_or(AnalyzedRule::Unknown, |(_, rule)| AnalyzedRule::Rule(rule.clone()))
    }

    fn rules_since_prologues(&mut self, address: FrameAddress) -> Rc<[UnwindRule]> {
        let found = self.since_prologues.iter().filter(|(at, _)| *at == address.value().0);
        found.map(|(_, rule)| rule.clone()).collect()
    }

    fn is_after_call(&mut self, RuntimeAddress(address): RuntimeAddress) -> Option<bool> {
        Some((0x1000..0x9000).contains(&address) && address % 2 == 1)
    }
}

fn rule(size: i64, return_address: RegisterRule, registers: &[(u16, RegisterRule)]) -> UnwindInfo {
    let cfa = Cfa::Register(SP, size);
    let registers = registers.into();
    UnwindInfo::Rule(Rc::new(UnwindRule { cfa, return_address, registers, signal: false }))
}

/// A function that has not saved its return address.
fn leaf() -> UnwindInfo {
    rule(0, RegisterRule::Register(LINK), &[])
}

/// A function with the frame record at the bottom of its frame, as gcc lays it out.
fn frame(size: i64) -> UnwindInfo {
    let saved = [(FP, RegisterRule::AtCfaOffset(-size))];
    rule(size, RegisterRule::AtCfaOffset(8 - size), &saved)
}

fn root() -> UnwindInfo {
    rule(0, RegisterRule::Undefined, &[])
}

fn walk(
    rules: Vec<(u64, UnwindInfo)>,
    registers: &[(u16, u64)],
    words: &[u64],
) -> (Vec<u64>, Mark) {
    walk_code(Code { rules, ..Code::default() }, registers, words)
}

fn walk_code(mut code: Code, registers: &[(u16, u64)], words: &[u64]) -> (Vec<u64>, Mark) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut known = Registers::<Aarch64>::default();
    known.set(IP, 0x1000);
    known.set(SP, STACK);
    for &(register, value) in registers {
        known.set(register, value);
    }
    let (stack, mut addresses) = (StackCopy::new(STACK, &bytes), Vec::new());
    let frame = FrameState::interrupted(known).expect("an address");
    let mark = unwind(frame, &stack, &mut code, 10, &mut addresses, &mut ());
    (addresses.iter().map(|address| address.value().0).collect(), mark)
}

#[test]
fn leaf_returns_to_the_link_register_and_its_caller_to_its_frame() {
    let code = vec![(0x1000, leaf()), (0x2000, frame(32)), (0x3000, root())];
    let words = [STACK + 32, 0x3005, 0, 0, 0, 0];
    let found = walk(code, &[(LINK, 0x2005), (FP, STACK)], &words);
    assert_eq!(found, (vec![0x1000, 0x2005, 0x3005], Mark::None));
}

#[test]
fn signatures_of_return_addresses_are_removed() {
    let code = vec![(0x1000, leaf()), (0x2000, frame(32)), (0x3000, root())];
    let signed = 0x002a_0000_0000_3005;
    let words = [STACK + 32, signed, 0, 0, 0, 0];
    let found = walk(code, &[(LINK, 0x7f55_0000_0000_2005)], &words);
    assert_eq!(found, (vec![0x1000, 0x2005, 0x3005], Mark::None));
}

#[test]
fn link_register_of_a_caller_is_unknown() {
    // The second function has called, so its return address must be on the stack.
    let code = vec![(0x1000, leaf()), (0x2000, leaf())];
    let found = walk(code, &[(LINK, 0x2005)], &[0; 4]);
    assert_eq!(found, (vec![0x1000, 0x2005], Mark::UnwindFailed));
}

#[test]
fn thread_in_a_system_call_continues_at_the_frame_record_of_a_caller() {
    // The registers of the leaf at 0x1000 are unknown; its caller, at 0x2000, cannot be found.
    let code = vec![(0x1000, leaf()), (0x3000, frame(32)), (0x4000, root())];
    let words = [STACK + 32, 0x3005, 0, 0, STACK + 64, 0x4005, 0, 0];
    let (addresses, mark) = walk(code.clone(), &[], &words);
    assert_eq!(addresses, [0x1000, 0x3005, 0x4005]);
    assert_ne!(mark, Mark::None, "a frame is missing");
    // No call ends at the address, or the record is below.
    for words in [[STACK + 32, 0x3004], [STACK - 8, 0x3005]] {
        assert_eq!(walk(code.clone(), &[], &words), (vec![0x1000], Mark::UnwindFailed));
    }
}

#[test]
fn signal_frame_gives_all_registers() {
    // The handler at 0x1000 interrupted 0x4000, which has not saved its return address.
    let code = vec![
        (0x1000, leaf()),
        (0x2000, UnwindInfo::SignalReturn),
        (0x4000, leaf()),
        (0x5000, frame(16)),
        (0x6000, root()),
    ];
    let mut words = vec![0; 80];
    let interrupted = [(LINK, 0x5005), (SP, STACK + 0x270), (IP, 0x4000), (FP, 1)];
    for (register, value) in interrupted {
        let (_, at) = SIGNAL_SAVED[usize::from(register)];
        words[at as usize / 8] = value;
    }
    words[0x278 / 8] = 0x6005;
    let found = walk(code, &[(LINK, 0x2001)], &words);
    assert_eq!(found, (vec![0x1000, 0x2001, 0x4000, 0x5005, 0x6005], Mark::None));
}

#[test]
fn callers_of_code_without_a_table_are_found_by_frame_records() {
    // The interrupted function has saved its return address: the link register has the same.
    let code = || vec![(0x1000, UnwindInfo::NoTable), (0x2000, frame(48)), (0x3000, root())];
    let words = [STACK + 16, 0x2005, STACK + 64, 0x3005, 0, 0, 0, 0];
    let registers = |link| [(LINK, link), (FP, STACK)];
    let found = walk(code(), &registers(0x2005), &words);
    // The frame of 0x2000 is found by its record, which need not be its own.
    assert_eq!(found, (vec![0x1000, 0x2005, 0x3005], Mark::NoUnwindInfo));
    // It may have left the record of its caller.
    let found = walk(code(), &registers(0x1801), &words);
    assert_eq!(found, (vec![0x1000, 0x2005, 0x3005], Mark::NoUnwindInfo));
    let found =
        walk(vec![(0x1000, UnwindInfo::NoTable), (0x2000, root())], &registers(0x2005), &words);
    assert_eq!(found, (vec![0x1000, 0x2005], Mark::None));
}

#[test]
fn frame_records_that_do_not_lead_outwards_end_the_walk() {
    let code = vec![(0x1000, UnwindInfo::NoTable)];
    for next in [STACK, STACK - 8] {
        let found = walk(code.clone(), &[(FP, STACK)], &[next, 0x1005, 0, 0]);
        assert_eq!(found, (vec![0x1000], Mark::NoUnwindInfo));
    }
}

/// A frame as a rule of its own.
fn frame_rule(size: i64) -> UnwindRule {
    match frame(size) {
        UnwindInfo::Rule(rule) => (*rule).clone(),
        info => panic!("{info:?}"),
    }
}

#[test]
fn analyzed_code_leads_to_the_root() {
    // A leaf and its caller without tables, called by a function with one; the program's start has the address 0.
    let link = RegisterRule::Register(LINK);
    let leaf = UnwindRule {
        cfa: Cfa::Register(SP, 0),
        return_address: link,
        registers: [].into(),
        signal: false,
    };
    let code = |root_fp| {
        let code = Code {
            rules: vec![
                (0x1000, UnwindInfo::NoTable),
                (0x3000, frame(32)),
                (0x4000, UnwindInfo::NoTable),
            ],
            analyzed: vec![(0x1000, Rc::new(leaf.clone())), (0x2005, Rc::new(frame_rule(16)))],
            // The call of exit(3) never returns.
            since_prologues: vec![(0x4005, frame_rule(32))],
        };
        let signed_zero = 0x0055_0000_0000_0000;
        let words = [STACK + 16, 0x3005, STACK + 48, 0x4005, 0, 0, root_fp, signed_zero, 0, 0, 0];
        walk_code(code, &[(LINK, 0x2005), (FP, STACK)], &words)
    };
    let addresses = vec![0x1000, 0x2005, 0x3005, 0x4005];
    assert_eq!(code(0), (addresses.clone(), Mark::None));
    assert_eq!(code(7), (addresses, Mark::NoUnwindInfo), "the start of a program sets both to 0");
}
