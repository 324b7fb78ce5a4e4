use std::rc::Rc;

use nprof_object::{ImageAddress, RuntimeAddress};

use super::*;
use crate::arch;
use crate::arch::code_bytes::{Bytes, CodeBytes, INSTRUCTION_MAX};
use crate::arch::rule::{AnalyzedRule, GeneratedFrame};
use crate::arch::rule::{Cfa, Expression, RegisterRule};
use crate::arch::x86_64::code_analysis;

/// Code with rules by address; everything from 0x1000 to 0x9000 is mapped.
struct Rules(Vec<(u64, UnwindInfo)>);

impl CodeMap for Rules {
    fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
        let found = self.0.iter().rev().find(|(start, _)| address >= *start);
        match found {
            Some((_, unwind_info)) if (0x1000..0x9000).contains(&address) => unwind_info.clone(),
            _ => UnwindInfo::Unmapped,
        }
    }
}

fn row(
    cfa: Cfa,
    return_address: RegisterRule,
    registers: &[(u16, RegisterRule)],
    signal: bool,
) -> UnwindInfo {
    UnwindInfo::Rule(Rc::new(UnwindRule {
        cfa,
        return_address,
        registers: registers.into(),
        signal,
    }))
}

/// A frame of `size` bytes, its return address included, that saves nothing.
fn frame(size: i64) -> UnwindInfo {
    row(Cfa::Register(arch::SP, size), RegisterRule::AtCfaOffset(-8), &[], false)
}

fn root() -> UnwindInfo {
    row(Cfa::Register(arch::SP, 8), RegisterRule::Undefined, &[], false)
}

fn walk(rules: Vec<(u64, UnwindInfo)>, fp: u64, words: &[u64]) -> (Vec<u64>, Mark) {
    walk_in(&mut Rules(rules), fp, words)
}

fn walk_in(code: &mut impl CodeMap, fp: u64, words: &[u64]) -> (Vec<u64>, Mark) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x1000);
    registers.set(arch::SP, 0x7000_0000);
    registers.set(arch::FP, fp);
    let stack = StackCopy::new(0x7000_0000, &bytes);
    let mut addresses = Vec::new();
    let mark = unwind(
        FrameState::interrupted(registers).expect("an address"),
        &stack,
        code,
        10,
        &mut addresses,
        &mut (),
    );
    (addresses.iter().map(|address| address.value().0).collect(), mark)
}

#[test]
fn rules_lead_to_the_end_of_stack() {
    let rules = vec![(0x1000, frame(16)), (0x2000, frame(8)), (0x3000, root())];
    assert_eq!(walk(rules, 0, &[1, 0x2005, 0x3005]), (vec![0x1000, 0x2005, 0x3005], Mark::None));
}

#[test]
fn return_address_is_looked_up_one_byte_before() {
    // 0x2000 is where the next function begins: the call was the last of its function.
    let rules = vec![(0x1000, frame(8)), (0x1500, root()), (0x2000, UnwindInfo::NoTable)];
    assert_eq!(walk(rules, 0, &[0x2000]), (vec![0x1000, 0x2000], Mark::None));
}

#[test]
fn zero_return_address_ends_the_stack() {
    assert_eq!(walk(vec![(0x1000, frame(8))], 0, &[0]).1, Mark::None);
}

#[test]
fn each_failure_has_its_mark() {
    let long = || vec![(0x1000, frame(8))];
    assert_eq!(walk(long(), 0, &[0x1001, 0x1001]).1, Mark::StackTruncated);
    assert_eq!(walk(long(), 0, &[]).1, Mark::NoStack);
    assert_eq!(walk(long(), 0, &[0x1001; 20]).1, Mark::MaxDepth);
    assert_eq!(walk(long(), 0, &[0xdead_0000]).1, Mark::Unmapped);
    assert_eq!(walk(vec![(0x1000, frame(0))], 0, &[0x1001]).1, Mark::UnwindFailed);
    let lost = row(Cfa::Register(10, 8), RegisterRule::AtCfaOffset(-8), &[], false);
    assert_eq!(walk(vec![(0x1000, lost)], 0, &[0x1001]).1, Mark::UnwindFailed);
    assert_eq!(walk(vec![(0x1000, UnwindInfo::NoTable)], 0, &[0x1001]).1, Mark::NoUnwindInfo);
    assert_eq!(walk(vec![], 0, &[0x1001]), (vec![], Mark::Unmapped));
}

#[test]
fn frame_pointer_must_lead_to_mapped_code() {
    let rules = || vec![(0x1000, UnwindInfo::NoTable), (0x3000, root())];
    let words = [7, 0x7000_0000, 0x3005, 8];
    assert_eq!(walk(rules(), 0x7000_0008, &words), (vec![0x1000, 0x3005], Mark::None));
    assert_eq!(walk(rules(), 0x7000_0010, &words), (vec![0x1000], Mark::NoUnwindInfo));
    assert_eq!(walk(rules(), 0, &words), (vec![0x1000], Mark::NoUnwindInfo));
    assert_eq!(walk(rules(), u64::MAX - 4, &words), (vec![0x1000], Mark::NoUnwindInfo));
}

/// Code without tables but for where the process begins, at 0x8000: rules by address. Calls end
/// at odd addresses.
struct Bare(Vec<(u64, AnalyzedRule)>);

impl CodeMap for Bare {
    fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
        match address {
            0x1000..0x8000 => UnwindInfo::NoTable,
            0x8000..0x8100 => UnwindInfo::Entry,
            _ => UnwindInfo::Unmapped,
        }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        let found = self.0.iter().find(|(at, _)| *at == address.value().0);
        found.map_or(AnalyzedRule::Unknown, |(_, followed)| followed.clone())
    }

    fn is_after_call(&mut self, RuntimeAddress(address): RuntimeAddress) -> Option<bool> {
        let is_readable = matches!(address, 0x1001..0x7000 | 0x8000..=0x8100);
        is_readable.then_some(address % 2 == 1)
    }
}

fn walk_bare(rules: &[(u64, AnalyzedRule)], fp: u64, words: &[u64]) -> (Vec<u64>, Mark) {
    walk_in(&mut Bare(rules.to_vec()), fp, words)
}

fn followed(size: i64) -> AnalyzedRule {
    let UnwindInfo::Rule(row) = frame(size) else { unreachable!() };
    AnalyzedRule::Rule(row)
}

#[test]
fn analyzed_rule_must_lead_to_the_end_of_a_call() {
    let rules = [(0x1000, followed(16))];
    let ip = |words: &[u64]| walk_bare(&rules, 0, words).0.get(1).copied();
    assert_eq!(ip(&[0, 0x2001, 0]), Some(0x2001));
    assert_eq!(ip(&[0, 0x2000, 0]), None);
    assert_eq!(ip(&[0, 0x9001, 0]), None, "nothing is mapped");
    assert_eq!(ip(&[0, 0x7100, 0]), Some(0x7100), "it cannot be read");
    assert_eq!(
        walk_bare(&rules, 0, &[0, 0]),
        (vec![0x1000], Mark::NoUnwindInfo),
        "no end is found so"
    );
    assert_eq!(walk_bare(&rules, 0, &[0]), (vec![0x1000], Mark::StackTruncated));
    // The frame pointer is tried after it.
    let words = [0, 0x2000, 0, 0x3001];
    assert_eq!(walk_bare(&rules, 0x7000_0010, &words).0, [0x1000, 0x3001]);
}

/// Code with tables and with analyzed rules, in which calls end at odd addresses.
struct Both(Rules, Bare);

impl CodeMap for Both {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        self.0.unwind_info(address)
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        self.1.analyze(address)
    }

    fn is_after_call(&mut self, RuntimeAddress(address): RuntimeAddress) -> Option<bool> {
        Some((0x1000..0x9000).contains(&address) && address % 2 == 1)
    }
}

/// Walks from 0x1000 through frames of 8 and of 16 bytes by tables. `by_code` is the size of the second
/// frame by its code.
fn walk_both(by_code: Option<i64>, words: &[u64]) -> (Vec<u64>, Mark) {
    let rules = vec![(0x1000, frame(8)), (0x2000, frame(16)), (0x3000, root())];
    let analyzed = by_code.map(|size| (0x2001, followed(size))).into_iter().collect();
    walk_in(&mut Both(Rules(rules), Bare(analyzed)), 0, words)
}

#[test]
fn table_that_leads_to_no_call_is_compared_with_the_code() {
    // Zero, the middle of a function, and an address at which nothing is mapped.
    for wrong in [0, 0x3004, 0xa001] {
        let words = [0x2001, 7, wrong, 8, 0x3005];
        let right = (vec![0x1000, 0x2001, 0x3005], Mark::None);
        assert_eq!(walk_both(Some(32), &words), right, "{wrong:#x}");
    }
    // Code that leads there, too, or nowhere, confirms the table: stacks that are set up by hand.
    for by_code in [Some(16), Some(8), Some(24), None] {
        let words = [0x2001, 7, 0x3004, 8, 0x3005];
        let by_table = (vec![0x1000, 0x2001, 0x3004], Mark::None);
        assert_eq!(walk_both(by_code, &words), by_table, "{by_code:?}");
        let words = [0x2001, 7, 0, 8, 0x3005];
        assert_eq!(walk_both(by_code, &words), (vec![0x1000, 0x2001], Mark::None), "{by_code:?}");
    }
    // The code is not asked after a call.
    let words = [0x2001, 7, 0x3001, 8, 0x3005];
    assert_eq!(walk_both(Some(32), &words), (vec![0x1000, 0x2001, 0x3001], Mark::None));
}

#[test]
fn compared_frame_is_found_after_others_and_not_watched() {
    let rules = vec![(0x1000, frame(8)), (0x1800, frame(8)), (0x2000, frame(16)), (0x3000, root())];
    let analyzed = vec![(0x2001, followed(24)), (0x2003, followed(24))];
    let mut code = Both(Rules(rules), Bare(analyzed));
    let words = [0x1801, 0x1803, 0x2001, 7, 0x2004, 0x2003, 9, 0x3004, 0x3005];
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x1000);
    registers.set(arch::SP, 0x7000_0000);
    let stack = StackCopy::new(0x7000_0000, &bytes);
    let (mut addresses, mut seen) = (Vec::new(), Seen::default());
    let frame = FrameState::interrupted(registers).expect("an address");
    let mark = unwind(frame, &stack, &mut code, 10, &mut addresses, &mut seen);
    let addresses: Vec<u64> = addresses.iter().map(|address| address.value().0).collect();
    assert_eq!(addresses, [0x1000, 0x1801, 0x1803, 0x2001, 0x2003, 0x3005]);
    assert_eq!(mark, Mark::None);
    assert_eq!(seen.0, [0x7000_0008, 0x7000_0010, 0x7000_0018], "frames by tables that hold");
}

/// The stack pointers of the callers that a walk has shown.
#[derive(Default)]
struct Seen(Vec<u64>);

impl FrameVisitor for Seen {
    fn visit(&mut self, caller: &Registers, _frames: usize) -> bool {
        self.0.push(caller.get(arch::SP).expect("of a caller"));
        false
    }
}

#[test]
fn first_caller_is_found_by_a_register_that_the_leaf_has_kept() {
    let by_scratch = row(Cfa::Register(0, 8), RegisterRule::AtCfaOffset(-8), &[], false);
    let rules = vec![(0x1000, frame(8)), (0x2000, by_scratch), (0x3000, root())];
    let walk = |scratch: u64, words: &[u64]| {
        let mut code = Both(Rules(rules.clone()), Bare(Vec::new()));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut registers = Registers::default();
        let values = [(arch::IP, 0x1000), (arch::SP, 0x7000_0000), (0, scratch)];
        values.into_iter().for_each(|(register, value)| registers.set(register, value));
        let (stack, mut addresses) = (StackCopy::new(0x7000_0000, &bytes), Vec::new());
        let frame = FrameState::interrupted(registers).expect("an address");
        let mark = unwind(frame, &stack, &mut code, 10, &mut addresses, &mut ());
        (addresses.last().map(|address| address.value().0), mark)
    };
    let words = [0x2001, 7, 8, 0x3005, 9, 0x3004];
    assert_eq!(walk(0x7000_0018, &words), (Some(0x3005), Mark::None));
    // The leaf has changed it: no call ends there, or nothing was copied.
    assert_eq!(walk(0x7000_0028, &words), (Some(0x2001), Mark::UnwindFailed));
    assert_eq!(walk(5, &words), (Some(0x2001), Mark::UnwindFailed));
    // Not that of a caller further out.
    let words = [0x2001, 0x2003, 8, 0x3005];
    assert_eq!(walk(0x7000_0008, &words), (Some(0x2003), Mark::UnwindFailed));
}

#[test]
fn noreturn_function_is_left_only_to_the_start() {
    let base = 0x8011;
    let words = [1, 0x9001, 0x2000, base, 5];
    assert_eq!(walk_bare(&[], 0, &words), (vec![0x1000, base], Mark::None));
    let between = [1, 0x2001, base, 5];
    assert_eq!(
        walk_bare(&[], 0, &between),
        (vec![0x1000], Mark::NoUnwindInfo),
        "a caller lies between"
    );
    let unread = [1, 0x7001, base, 5];
    assert_eq!(
        walk_bare(&[], 0, &unread),
        (vec![0x1000], Mark::NoUnwindInfo),
        "one may lie between"
    );
    let thread = [(0x2001, AnalyzedRule::ThreadStart)];
    assert_eq!(walk_bare(&thread, 0, &between), (vec![0x1000, 0x2001], Mark::None));
    let mut far = vec![0; 64];
    far.push(base);
    assert_eq!(walk_bare(&[], 0, &far), (vec![0x1000], Mark::NoUnwindInfo));
}

#[test]
fn thread_start_requires_zero_frame_pointer() {
    let rules = [(0x1000, followed(8)), (0x2001, AnalyzedRule::ThreadStart)];
    let words = [0x2001, 0, 0, 0];
    assert_eq!(walk_bare(&rules, 0, &words), (vec![0x1000, 0x2001], Mark::None));
    assert_eq!(walk_bare(&rules, 5, &words), (vec![0x1000, 0x2001], Mark::NoUnwindInfo));
}

/// Generated code from 0x1000 on, with frames of a kind; 0x3000 is the end of the stack.
struct Generated {
    frame: GeneratedFrame,
    /// The kind once the code is read again.
    later: GeneratedFrame,
}

impl CodeMap for Generated {
    fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
        match address {
            0x1000..0x3000 => UnwindInfo::NoTable,
            0x3000..0x4000 => root(),
            _ => UnwindInfo::Unmapped,
        }
    }

    fn is_generated(&self, RuntimeAddress(address): RuntimeAddress) -> bool {
        address < 0x3000
    }

    fn generated_frame(&mut self, _address: RuntimeAddress) -> GeneratedFrame {
        self.frame
    }

    fn has_changed(&mut self, _address: RuntimeAddress) -> bool {
        std::mem::replace(&mut self.frame, self.later) != self.later
    }

    fn is_after_call(&mut self, RuntimeAddress(address): RuntimeAddress) -> Option<bool> {
        Some(address % 2 == 1)
    }
}

#[test]
fn frame_pointer_of_generated_code_is_a_guess_unless_the_code_sets_it() {
    let words = [7, 0x7000_0020, 0x2001, 8, 0, 0x3001];
    let mark = |frame| walk_in(&mut Generated { frame, later: frame }, 0x7000_0008, &words);
    let expected = vec![0x1000, 0x2001, 0x3001];
    assert_eq!(mark(GeneratedFrame::FramePointer), (expected.clone(), Mark::None));
    assert_eq!(mark(GeneratedFrame::Unknown), (expected.clone(), Mark::NoUnwindInfo));
    // The words below the frame pointer are not those of an interpreter.
    assert_eq!(mark(GeneratedFrame::Interpreter), (expected.clone(), Mark::NoUnwindInfo));
    // The code was generated after it was read.
    let mut new = Generated { frame: GeneratedFrame::Unknown, later: GeneratedFrame::FramePointer };
    assert_eq!(walk_in(&mut new, 0x7000_0008, &words), (expected, Mark::None));
}

#[test]
fn entry_without_table_ends_the_stack() {
    assert_eq!(walk(vec![(0x1000, UnwindInfo::Entry)], 0, &[1]).1, Mark::None);
}

#[test]
fn saved_register_is_the_cfa_base_of_the_caller() {
    // The first function saved rbx, which holds the second one's frame.
    let first = row(
        Cfa::Register(arch::SP, 16),
        RegisterRule::AtCfaOffset(-8),
        &[(3, RegisterRule::AtCfaOffset(-16))],
        false,
    );
    let second = row(Cfa::Register(3, 16), RegisterRule::AtCfaOffset(-8), &[], false);
    let rules = vec![(0x1000, first), (0x2000, second), (0x3000, root())];
    let words = [0x7000_0018, 0x2005, 0, 5, 0x3005];
    assert_eq!(walk(rules, 0, &words), (vec![0x1000, 0x2005, 0x3005], Mark::None));
}

#[test]
fn return_address_in_a_register_is_found() {
    let first = row(Cfa::Register(arch::SP, 0), RegisterRule::Register(5), &[], false);
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x1000);
    registers.set(arch::SP, 0x7000_0000);
    registers.set(5, 0x3005);
    let stack = StackCopy::new(0x7000_0000, &[0; 8]);
    let mut addresses = Vec::new();
    let mut rules = Rules(vec![(0x1000, first), (0x3000, root())]);
    let mark = unwind(
        FrameState::interrupted(registers).expect("an address"),
        &stack,
        &mut rules,
        10,
        &mut addresses,
        &mut (),
    );
    assert_eq!((addresses.len(), mark), (2, Mark::None));
}

#[test]
fn expression_reads_registers_and_stack() {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    // DW_OP_breg7 8; DW_OP_deref: the CFA is stored above the stack pointer.
    let code = Expression { code: vec![0x77, 8, 0x06].into(), encoding };
    let rules = vec![
        (0x1000, row(Cfa::Expression(code), RegisterRule::AtCfaOffset(-8), &[], false)),
        (0x3000, root()),
    ];
    let words = [0, 0x7000_0018, 0x3005];
    assert_eq!(walk(rules, 0, &words), (vec![0x1000, 0x3005], Mark::None));
}

#[test]
fn caller_of_signal_handler_is_an_interrupted_frame() {
    let mut words = [0u64; 24];
    words[15] = 0x7000_0050; // rbp
    words[20] = 0x7000_00a8; // rsp
    words[21] = 0x3000; // rip: the first instruction of its function
    words[0] = 0x2001;
    let mut shifted = words.to_vec();
    shifted.insert(0, 0x2001);
    let rules = vec![(0x1000, frame(8)), (0x2000, UnwindInfo::SignalReturn), (0x3000, root())];
    let mut addresses = Vec::new();
    let bytes: Vec<u8> = shifted.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x1000);
    registers.set(arch::SP, 0x7000_0000);
    let stack = StackCopy::new(0x7000_0000, &bytes);
    let mark = unwind(
        FrameState::interrupted(registers).expect("an address"),
        &stack,
        &mut Rules(rules),
        10,
        &mut addresses,
        &mut (),
    );
    assert_eq!(mark, Mark::None);
    let no_call = FrameAddress::Instruction(RuntimeAddress(0x2001));
    assert_eq!(addresses[1], no_call, "nothing called the code that the handler returns to");
    assert_eq!(addresses[2], FrameAddress::Instruction(RuntimeAddress(0x3000)));
}

#[test]
fn signal_of_a_call_through_a_null_pointer_leads_to_its_caller() {
    let handler = row(Cfa::Register(arch::SP, 16), RegisterRule::AtCfaOffset(-8), &[], true);
    let rules = vec![(0x1000, frame(8)), (0x2000, handler), (0x3000, root())];
    let walk = |called, words: &[u64]| {
        let mut code = Both(Rules(rules.clone()), Bare(Vec::new()));
        walk_in(&mut code, 0, &[&[0x2001, 7, called][..], words].concat())
    };
    for called in [0, 8] {
        let found = (vec![0x1000, 0x2001, 0x3005], Mark::None);
        assert_eq!(walk(called, &[0x3005, 9]), found, "{called}");
        // A jump, or a stack that was changed since.
        let (addresses, mark) = walk(called, &[0x3004, 9]);
        assert_eq!((addresses, mark), (vec![0x1000, 0x2001], Mark::Unmapped), "{called}");
        assert_eq!(walk(called, &[]).1, Mark::Unmapped, "{called}");
    }
    assert_eq!(walk(0xa000, &[0x3005]).1, Mark::Unmapped, "code that is not known");
}

#[test]
fn zero_return_address_after_a_guess_leaves_the_stack_incomplete() {
    let rules = vec![(0x1000, UnwindInfo::NoTable), (0x3000, frame(8))];
    let words = [7, 0x7000_0000, 0x3005, 0];
    assert_eq!(walk(rules, 0x7000_0008, &words), (vec![0x1000, 0x3005], Mark::NoUnwindInfo));
}

#[test]
fn frame_pointer_that_skips_a_return_address_leaves_the_stack_incomplete() {
    // The word at 0x70000008 may be the return address of a function without frame pointer.
    let words = [7, 0x2001, 0x7000_0020, 0x8011, 5];
    assert_eq!(walk_bare(&[], 0x7000_0010, &words), (vec![0x1000, 0x8011], Mark::NoUnwindInfo));
    let words = [7, 0x2000, 0x7000_0020, 0x8011, 5];
    assert_eq!(walk_bare(&[], 0x7000_0010, &words), (vec![0x1000, 0x8011], Mark::None));
}

/// Code that shows nothing, and must not be searched if the frame pointer is enough.
struct FramePointers {
    searches: usize,
}

impl CodeMap for FramePointers {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        Bare(Vec::new()).unwind_info(address)
    }

    fn is_after_call(&mut self, address: RuntimeAddress) -> Option<bool> {
        Bare(Vec::new()).is_after_call(address)
    }

    fn rules_since_prologues(&mut self, _address: FrameAddress) -> Rc<[UnwindRule]> {
        self.searches += 1;
        Rc::default()
    }
}

#[test]
fn frame_pointer_to_the_only_return_address_saves_searches() {
    let searches = |fp: u64, words: &[u64]| {
        let mut code = FramePointers { searches: 0 };
        let (addresses, _) = walk_in(&mut code, fp, words);
        assert_eq!(addresses, [0x1000, 0x8011]);
        code.searches
    };
    assert_eq!(searches(0x7000_0010, &[7, 7, 0x7000_0040, 0x8011, 5, 7]), 0);
    assert_eq!(searches(0x7000_0010, &[7, 0x2001, 0x7000_0040, 0x8011, 5, 7]), 1, "another call");
    assert_eq!(searches(0x7000_0010, &[7, 7, 0x7000_0008, 0x8011, 5, 7]), 1, "an inner frame");
    // The frame pointer leads to the copy of a return address on a stack that is aligned to 32 bytes.
    assert_eq!(searches(0x7000_0010, &[7, 7, 0x7000_0040, 0x8011, 5, 0x8011]), 1, "a copy");
}

#[test]
fn address_that_no_call_precedes_is_the_bottom_of_a_stack() {
    let rules = [(0x1000, followed(16)), (0x2000, AnalyzedRule::StackBottom)];
    let bytes: Vec<u8> = [0u64, 0x2000, 5].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x1000);
    registers.set(arch::SP, 0x7000_0000);
    let stack = StackCopy::new(0x7000_0000, &bytes);
    let frame = FrameState::interrupted(registers).expect("an address");
    let mut addresses = Vec::new();
    let mark = unwind(frame, &stack, &mut Bare(rules.to_vec()), 9, &mut addresses, &mut ());
    assert_eq!(mark, Mark::None);
    assert_eq!(addresses[1..], [FrameAddress::Instruction(RuntimeAddress(0x2000))]);
}

/// Code at 0x1000 without tables, called by the function at which the program starts, at 0x8000.
struct Written(Vec<u8>);

impl CodeBytes for Written {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let at = address.0.checked_sub(0x1000).map_or(self.0.len(), |at| at as usize);
        let found = self.0.get(at..).unwrap_or_default();
        let length = found.len().min(INSTRUCTION_MAX);
        let mut code = Bytes { length, ..Bytes::default() };
        code.bytes[..length].copy_from_slice(&found[..length]);
        // `call` of the code.
        if address.0 == 0x8000 {
            code.bytes[..5].copy_from_slice(&[0xe8, 0xfb, 0x8f, 0xff, 0xff]);
            code.length = 5;
        }
        code
    }

    fn rule(&mut self, _address: ImageAddress) -> Option<Rc<UnwindRule>> {
        None
    }
}

/// The same, analyzed from an address to its return (`true`), or from its start to the address.
struct WrittenMap(Written, bool);

impl CodeMap for WrittenMap {
    fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
        match address {
            0x1000..0x2000 => UnwindInfo::NoTable,
            0x8000..0x8010 => UnwindInfo::Entry,
            _ => UnwindInfo::Unmapped,
        }
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        let at = ImageAddress(address.value().0);
        match code_analysis::rule(&mut self.0, at, address.is_return()) {
            Some(rule) if self.1 => AnalyzedRule::Rule(Rc::new(rule)),
            _ => AnalyzedRule::Unknown,
        }
    }

    fn rule_since_call(
        &mut self,
        call_end: RuntimeAddress,
        address: FrameAddress,
    ) -> Option<Rc<UnwindRule>> {
        let start = code_analysis::call_target(&mut self.0, ImageAddress(call_end.0))?;
        let at = ImageAddress(address.value().0);
        code_analysis::rule_since_entry(&mut self.0, start, at).map(Rc::new)
    }

    fn is_after_call(&mut self, address: RuntimeAddress) -> Option<bool> {
        Some(address.0 == 0x8005)
    }
}

/// The stack pointer at the start of a function that realigns its stack.
const START_SP: u64 = 0x7000_0128;

/// A function of gcc that realigns its stack. Each instruction with the values before it of the stack
/// pointer, the frame pointer and r10.
fn realigned() -> Vec<(&'static [u8], u64, u64, u64)> {
    let (sp, fp, drap) = (START_SP, 0x7000_0100 - 16, START_SP + 8);
    vec![
        (&[0x4c, 0x8d, 0x54, 0x24, 0x08], sp, 1, 2), // lea 8(%rsp),%r10
        (&[0x48, 0x83, 0xe4, 0xc0], sp, 1, drap),    // and $-64,%rsp
        (&[0x41, 0xff, 0x72, 0xf8], fp + 16, 1, drap), // push -8(%r10)
        (&[0x55], fp + 8, 1, drap),                  // push %rbp
        (&[0x48, 0x89, 0xe5], fp, 1, drap),          // mov %rsp,%rbp
        (&[0x41, 0x52], fp, fp, drap),               // push %r10
        (&[0x53], fp - 8, fp, drap),                 // push %rbx
        (&[0x48, 0x83, 0xec, 0x30], fp - 16, fp, drap), // sub $48,%rsp
        (&[0xe8, 0, 1, 0, 0], fp - 64, fp, 2),       // call
        (&[0x48, 0x8d, 0x65, 0xf0], fp - 64, fp, 2), // lea -16(%rbp),%rsp
        (&[0x5b], fp - 16, fp, 2),                   // pop %rbx
        (&[0x41, 0x5a], fp - 8, fp, 2),              // pop %r10
        (&[0x5d], fp, fp, drap),                     // pop %rbp
        (&[0x49, 0x8d, 0x62, 0xf8], fp + 8, 1, drap), // lea -8(%r10),%rsp
        (&[0xc3], sp, 1, drap),                      // ret
    ]
}

#[test]
fn realigned_frame_is_followed_from_each_instruction() {
    let code: Vec<u8> = realigned().iter().flat_map(|(bytes, ..)| bytes.to_vec()).collect();
    for to_return in [true, false] {
        let mut at = 0x1000;
        for (bytes, sp, fp, r10) in realigned() {
            let mut stack = vec![0u64; 0x140 / 8];
            let mut write = |address: u64, value| {
                stack[(address - 0x7000_0000) as usize / 8] = value;
            };
            write(START_SP, 0x8005);
            let frame = 0x7000_0100 - 16;
            for (address, value) in
                [(frame + 8, 0x8005), (frame, 1), (frame - 8, START_SP + 8), (frame - 16, 5)]
            {
                // As far as it was pushed; what is below is left over from other calls.
                write(address, if address >= sp { value } else { 0x8005 });
            }
            let bytes_of_stack: Vec<u8> =
                stack.iter().flat_map(|word| word.to_le_bytes()).collect();
            let from = (sp - 0x7000_0000) as usize;
            let copy = StackCopy::new(sp, &bytes_of_stack[from..]);
            let mut registers = Registers::default();
            for (register, value) in [(arch::IP, at), (arch::SP, sp), (arch::FP, fp), (10, r10)] {
                registers.set(register, value);
            }
            let frame = FrameState::interrupted(registers).expect("an address");
            let mut addresses = Vec::new();
            let mut map = WrittenMap(Written(code.clone()), to_return);
            let mark = unwind(frame, &copy, &mut map, 9, &mut addresses, &mut ());
            let found: Vec<u64> = addresses.iter().map(|address| address.value().0).collect();
            assert_eq!((found, mark), (vec![at, 0x8005], Mark::None), "{at:#x} {to_return}");
            at += bytes.len() as u64;
        }
    }
}

/// Keeps the CFA, whether the return address is known, and the number of frames of each visit.
#[derive(Default)]
struct Visits(Vec<(u64, bool, usize)>);

impl FrameVisitor for Visits {
    fn visit(&mut self, caller: &Registers, frames: usize) -> bool {
        let cfa = caller.get(arch::SP).unwrap_or(0);
        self.0.push((cfa, caller.get(arch::IP).is_ok(), frames));
        self.0.len() == 3
    }
}

fn visits(rules: Vec<(u64, UnwindInfo)>, words: &[u64]) -> Vec<(u64, bool, usize)> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut registers = Registers::default();
    registers.set(arch::IP, 0x1000);
    registers.set(arch::SP, 0x7000_0000);
    registers.set(arch::FP, 0x7000_0008);
    let stack = StackCopy::new(0x7000_0000, &bytes);
    let mut visited = Visits::default();
    let mark = unwind(
        FrameState::interrupted(registers).expect("an address"),
        &stack,
        &mut Rules(rules),
        10,
        &mut Vec::new(),
        &mut visited,
    );
    assert_eq!(mark, Mark::StackTruncated);
    visited.0
}

#[test]
fn frames_are_visited_up_to_the_end_of_the_copy() {
    let rules = vec![(0x1000, frame(16)), (0x2000, frame(32))];
    let expected = [(0x7000_0010, true, 1), (0x7000_0030, false, 2)];
    assert_eq!(visits(rules, &[1, 0x2005]), expected);
    let stopped = visits(vec![(0x1000, frame(8))], &[0x1005; 9]);
    assert_eq!(stopped.len(), 3, "the third visit stops the walk");
}

#[test]
fn guessed_and_interrupted_frames_are_not_visited() {
    let rules = vec![(0x1000, UnwindInfo::NoTable), (0x2000, frame(16))];
    assert_eq!(visits(rules, &[0, 9, 0x2005, 0, 0x2005]), []);
    let signal = row(Cfa::Register(arch::SP, 16), RegisterRule::AtCfaOffset(-8), &[], true);
    let expected = [(0x7000_0020, true, 2)];
    let rules = vec![(0x1000, signal), (0x2000, frame(16))];
    let all = visits(rules, &[0, 0x2005, 0, 0x2005]);
    assert_eq!(all[..1], expected);
}
