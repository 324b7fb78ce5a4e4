//! From a captured stack to its addresses: unwound from the copy, or as the source walked it.

use nprof_object::RuntimeAddress;
use nprof_preload::protocol::MEMO_WORDS;
use nprof_stream::Mark;
use nprof_unwind::arch;
use nprof_unwind::arch::rule::AnalyzedRule;
use nprof_unwind::unwind::stack_copy::StackCopy;
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, Words};
use nprof_unwind::unwind::{
    self, CodeMap, FrameAddress, FrameNotes, FrameState, FrameVisitor, Registers, UnwindInfo,
    WalkWords,
};

/// Returns true if the user registers are still those of the previous image, while execve(2) loads
/// the next one. Clears `not_seen_since_exec` otherwise, see
/// [`crate::convert::process_tree::Process::not_seen_since_exec`].
fn is_from_before_exec(
    not_seen_since_exec: &mut bool,
    ip: RuntimeAddress,
    input: &StackInput<'_>,
    code: &mut impl CodeMap,
) -> bool {
    let is_stale =
        *not_seen_since_exec && input.in_kernel && code.unwind_info(ip) == UnwindInfo::Unmapped;
    *not_seen_since_exec &= is_stale;
    is_stale
}

/// Unwinds a copied stack and appends its addresses, at most `depth` of them. Returns the reason
/// why the stack is incomplete.
pub(crate) fn unwind_copy(
    not_seen_since_exec: &mut bool,
    input: &StackInput<'_>,
    copied: &CopiedStack<'_>,
    code: &mut impl CodeMap,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
    visitor: &mut impl FrameVisitor,
) -> Mark {
    let Some(registers) = Registers::from_sample(copied.registers.iter()) else {
        // A kernel thread has no user registers, and no user code that could be missing.
        return if input.in_kernel { Mark::None } else { Mark::NoStack };
    };
    let registers = if copied.is_of_system_call { registers.of_system_call() } else { registers };
    let frame = if copied.is_after_call {
        FrameState::calling(registers)
    } else {
        FrameState::interrupted(registers)
    };
    let (Ok(frame), Ok(sp)) = (frame, registers.get(arch::SP)) else {
        return Mark::NoStack;
    };
    if is_from_before_exec(not_seen_since_exec, frame.address.value(), input, code) {
        return Mark::None;
    }
    if copied.is_compat {
        // The tables of 32-bit images number other registers.
        addresses.push(frame.address);
        return Mark::Bits32;
    }
    let stack = StackCopy::with_segments(sp, copied.bytes, copied.requested_bytes, copied.segments);
    let mark = unwind::unwind(frame, &stack, code, depth, addresses, visitor);
    visitor.end(stack.read_range(), stack.absent());
    mark
}

/// Returns the words on which the walk of a call's copied stack depends, which was complete and led to
/// `addresses` and `notes`. None if it depends on more, or on more words than a memo has.
pub(crate) fn words_of_walk(
    copied: &CopiedStack<'_>,
    code: &mut impl CodeMap,
    addresses: &[FrameAddress],
    notes: &FrameNotes,
) -> Option<WalkWords> {
    let start = FrameState::calling(Registers::from_sample(copied.registers.iter())?).ok()?;
    let sp = start.registers.get(arch::SP).ok()?;
    let stack = StackCopy::new(sp, copied.bytes);
    WalkWords::find(&start, &stack, code, addresses, notes, MEMO_WORDS)
}

/// Appends the addresses of a stack that the source walked along frame pointers, at most `depth` of
/// them. Returns the reason why the stack is incomplete; `mark_of_end` returns it for an address at
/// which an earlier stack ended.
pub(crate) fn take_walked(
    not_seen_since_exec: &mut bool,
    input: &StackInput<'_>,
    walked: Words<'_>,
    code: &mut impl CodeMap,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
    mark_of_end: impl FnOnce(FrameAddress) -> Option<Mark>,
) -> Mark {
    let leaf = walked.iter().next().map(RuntimeAddress);
    if leaf.is_some_and(|ip| is_from_before_exec(not_seen_since_exec, ip, input, code)) {
        return Mark::None;
    }
    let returns = walked.iter().take(depth).map(RuntimeAddress);
    addresses.extend(returns.map(FrameAddress::Return));
    if let (Some(first), Some(leaf)) = (addresses.first_mut(), leaf) {
        *first = FrameAddress::Instruction(leaf);
    }
    if walked.iter().nth(depth).is_some() {
        return Mark::MaxDepth;
    }
    let Some(last) = addresses.last() else {
        return if input.in_kernel { Mark::None } else { Mark::NoStack };
    };
    if let Some(mark) = mark_of_end(*last) {
        return mark;
    }
    // A chain of frame pointers ends in the same way at the end of the stack and in a function
    // that keeps no frame pointer. The unwind table of the last frame decides.
    match code.unwind_info(last.address_for_lookup()) {
        UnwindInfo::Entry => Mark::None,
        UnwindInfo::Rule(rule) if rule.is_end_of_stack() => Mark::None,
        UnwindInfo::NoTable if code.analyze(*last) == AnalyzedRule::ThreadStart => Mark::None,
        UnwindInfo::Unmapped => {
            // Functions without a frame pointer leave other values in its register.
            addresses.pop();
            Mark::Unmapped
        }
        _ => Mark::UnwindFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_unwind::arch::rule::{Cfa, RegisterRule, UnwindRule};
    use std::rc::Rc;

    /// Everything below 0x9000 is mapped; the end of the stack is from 0x3000 on, and a thread
    /// begins at 0x4005.
    struct Program;

    impl CodeMap for Program {
        fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
            let saved = if address >= 0x3000 {
                RegisterRule::Undefined
            } else {
                arch::RETURN_ADDRESS_BELOW_CFA
            };
            let rule = UnwindRule {
                cfa: Cfa::Register(arch::SP, 8),
                return_address: saved,
                registers: [].into(),
                signal: false,
            };
            match address {
                0x4000..0x5000 => UnwindInfo::NoTable,
                0..0x9000 => UnwindInfo::Rule(Rc::new(rule)),
                _ => UnwindInfo::Unmapped,
            }
        }

        fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
            if address.value().0 == 0x4005 {
                AnalyzedRule::ThreadStart
            } else {
                AnalyzedRule::Unknown
            }
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn input(in_kernel: bool) -> StackInput<'static> {
        StackInput { ip: 0x1000, in_kernel, ..StackInput::default() }
    }

    fn walk(chain: &[u64], depth: usize) -> (usize, Mark) {
        let mut addresses = Vec::new();
        let chain = bytes(chain);
        let mark = take_walked(
            &mut false,
            &input(false),
            Words(&chain),
            &mut Program,
            depth,
            &mut addresses,
            |_| None,
        );
        (addresses.len(), mark)
    }

    fn unwind(
        not_seen_since_exec: &mut bool,
        registers: &[u8],
        in_kernel: bool,
        addresses: &mut Vec<FrameAddress>,
    ) -> Mark {
        let copied = CopiedStack { registers: Words(registers), ..CopiedStack::default() };
        unwind_copy(
            not_seen_since_exec,
            &input(in_kernel),
            &copied,
            &mut Program,
            9,
            addresses,
            &mut (),
        )
    }

    #[test]
    fn walked_stack_is_complete_only_if_it_ends_at_a_known_end() {
        assert_eq!(walk(&[0x1000, 0x3005], 9), (2, Mark::None));
        assert_eq!(walk(&[0x1000, 0x2005], 9), (2, Mark::UnwindFailed));
        assert_eq!(walk(&[0x1000, 0xa000], 9), (1, Mark::Unmapped));
        assert_eq!(walk(&[0x1000, 0x4005], 9), (2, Mark::None));
        assert_eq!(walk(&[0x1000, 0x4006], 9), (2, Mark::UnwindFailed));
        assert_eq!(walk(&[0x1000, 0x3005], 1), (1, Mark::MaxDepth));
        assert_eq!(walk(&[], 9), (0, Mark::NoStack));
    }

    #[test]
    fn registers_from_before_an_exec_yield_no_stack() {
        let mut words = [0; arch::COUNT];
        words[8] = 0xa000; // ip, in an image that is not mapped any more
        let registers = bytes(&words);
        let mut addresses = Vec::new();
        let mut not_seen = true;
        assert_eq!(unwind(&mut not_seen, &registers, true, &mut addresses), Mark::None);
        assert!(not_seen);
        assert_eq!(unwind(&mut not_seen, &registers, false, &mut addresses), Mark::Unmapped);
        assert!(!not_seen, "it has run");
        assert_eq!(unwind(&mut not_seen, &registers, true, &mut addresses), Mark::Unmapped);
        assert!(addresses.is_empty());
    }

    #[test]
    fn missing_user_registers_are_complete_only_in_the_kernel() {
        let mut addresses = Vec::new();
        let mut mark = |in_kernel| unwind(&mut false, &[], in_kernel, &mut addresses);
        assert_eq!((mark(true), mark(false)), (Mark::None, Mark::NoStack));
    }
}
