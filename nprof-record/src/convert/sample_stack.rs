//! Which addresses the stack of a sample has: unwound from its copy, or as the kernel walked it.

use nprof_stream::Mark;
use perf_event_open_sys::bindings as perf;

use crate::arch;
use crate::perf::record::Sample;
use crate::unwind::stack_copy::StackCopy;
use crate::unwind::{
    self, AnalyzedRule, CodeMap, FrameAddress, FrameVisitor, Registers, UnwindInfo,
};

/// What stands before the kernel's part in a call chain.
pub(crate) const CONTEXT_KERNEL: u64 = perf::PERF_CONTEXT_KERNEL;

/// What stands before the user part in a call chain.
const CONTEXT_USER: u64 = perf::PERF_CONTEXT_USER;

/// The part of a call chain that belongs to a context, leaf first.
pub(crate) fn context(sample: &Sample<'_>, wanted: u64) -> impl Iterator<Item = u64> {
    let is_mark = |entry: u64| entry >= perf::PERF_CONTEXT_MAX;
    let from = sample.chain().skip_while(move |&entry| entry != wanted).skip(1);
    from.take_while(move |&entry| !is_mark(entry))
}

/// Whether the user registers are those of the image before, while the kernel loads the next
/// one. `fresh` says that the process has executed an image and was not seen in it yet.
fn is_left_over(
    not_seen_since_exec: &mut bool,
    ip: u64,
    sample: &Sample<'_>,
    code: &mut impl CodeMap,
) -> bool {
    let left_over =
        *not_seen_since_exec && sample.in_kernel && code.unwind_info(ip) == UnwindInfo::Unmapped;
    *not_seen_since_exec &= left_over;
    left_over
}

/// Unwinds the copied stack. For `fresh` see [`crate::convert::process_tree::Process::not_seen_since_exec`].
pub(crate) fn by_tables(
    not_seen_since_exec: &mut bool,
    sample: &Sample<'_>,
    code: &mut impl CodeMap,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
    visitor: &mut impl FrameVisitor,
) -> Mark {
    let Some(registers) = Registers::from_sample(sample.registers()) else {
        // Without user registers there is no user code: the kernel works for itself.
        return if sample.in_kernel { Mark::None } else { Mark::Unread };
    };
    let (Ok(ip), Ok(sp)) = (registers.get(arch::IP), registers.get(arch::SP)) else {
        return Mark::Unread;
    };
    if is_left_over(not_seen_since_exec, ip, sample, code) {
        return Mark::None;
    }
    if sample.compat {
        addresses.push(FrameAddress { value: ip, returns: false });
        return Mark::Table;
    }
    let stack = StackCopy::new(sp, sample.stack, sample.extra_stack.unwrap_or_default().pieces);
    let mark = unwind::unwind((registers, false), &stack, code, depth, addresses, visitor);
    visitor.end(stack.read_range());
    mark
}

/// Takes the user part of the kernel's call chain. Frame pointers do not tell whether the end
/// of the chain is the end of the stack, so the last frame's table is asked.
pub(crate) fn by_chain(
    not_seen_since_exec: &mut bool,
    sample: &Sample<'_>,
    code: &mut impl CodeMap,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
) -> Mark {
    let leaf = context(sample, CONTEXT_USER).next();
    if leaf.is_some_and(|ip| is_left_over(not_seen_since_exec, ip, sample, code)) {
        return Mark::None;
    }
    for value in context(sample, CONTEXT_USER) {
        if addresses.len() == depth {
            return Mark::Depth;
        }
        addresses.push(FrameAddress { value, returns: !addresses.is_empty() });
    }
    let Some(last) = addresses.last() else {
        return if sample.in_kernel { Mark::None } else { Mark::Unread };
    };
    match code.unwind_info(last.inside()) {
        UnwindInfo::Entry => Mark::None,
        UnwindInfo::Rule(row) if row.is_end_of_stack() => Mark::None,
        UnwindInfo::NoTable if code.analyze(*last) == AnalyzedRule::ThreadStart => Mark::None,
        UnwindInfo::Unmapped => Mark::Mapping,
        _ => Mark::Frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};
    use std::rc::Rc;

    /// Everything below 0x9000 is mapped; the root is from 0x3000, and a thread begins at 0x4005.
    struct Program;

    impl CodeMap for Program {
        fn unwind_info(&mut self, address: u64) -> UnwindInfo {
            let saved = if address >= 0x3000 {
                RegisterRule::Undefined
            } else {
                RegisterRule::AtCfaOffset(-8)
            };
            let row = UnwindRule {
                cfa: Cfa::Register(arch::SP, 8),
                return_address: saved,
                registers: [].into(),
                signal: false,
            };
            match address {
                0x4000..0x5000 => UnwindInfo::NoTable,
                0..0x9000 => UnwindInfo::Rule(Rc::new(row)),
                _ => UnwindInfo::Unmapped,
            }
        }

        fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
            if address.value == 0x4005 { AnalyzedRule::ThreadStart } else { AnalyzedRule::Unknown }
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn sample<'a>(chain: &'a [u8], registers: &'a [u8], in_kernel: bool) -> Sample<'a> {
        Sample {
            ip: 0x1000,
            in_kernel,
            period: 1,
            chain,
            registers,
            compat: false,
            ..Sample::default()
        }
    }

    fn chain(entries: &[u64], depth: usize) -> (usize, Mark) {
        let mut addresses = Vec::new();
        let chain = bytes(entries);
        let mark =
            by_chain(&mut false, &sample(&chain, &[], false), &mut Program, depth, &mut addresses);
        (addresses.len(), mark)
    }

    #[test]
    fn a_chain_is_split_by_its_marks() {
        let chain = bytes(&[CONTEXT_KERNEL, 1, 2, CONTEXT_USER, 3, 4, perf::PERF_CONTEXT_GUEST, 5]);
        let sample = sample(&chain, &[], true);
        assert_eq!(context(&sample, CONTEXT_KERNEL).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(context(&sample, CONTEXT_USER).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(context(&sample, perf::PERF_CONTEXT_HV).count(), 0);
    }

    #[test]
    fn a_chain_is_complete_only_if_its_end_is_known_to_be_one() {
        assert_eq!(chain(&[CONTEXT_USER, 0x1000, 0x3005], 9), (2, Mark::None));
        assert_eq!(chain(&[CONTEXT_USER, 0x1000, 0x2005], 9), (2, Mark::Frame));
        assert_eq!(chain(&[CONTEXT_USER, 0x1000, 0xa000], 9), (2, Mark::Mapping));
        assert_eq!(chain(&[CONTEXT_USER, 0x1000, 0x4005], 9), (2, Mark::None));
        assert_eq!(chain(&[CONTEXT_USER, 0x1000, 0x4006], 9), (2, Mark::Frame));
        assert_eq!(chain(&[CONTEXT_USER, 0x1000, 0x3005], 1), (1, Mark::Depth));
        assert_eq!(chain(&[], 9), (0, Mark::Unread));
    }

    #[test]
    fn registers_from_before_an_exec_are_no_stack() {
        let mut words = [0; arch::COUNT];
        words[8] = 0xa000; // ip, in what is not mapped any more
        let registers = bytes(&words);
        let mut addresses = Vec::new();
        let mut not_seen_since_exec = true;
        let mut mark = |not_seen_since_exec: &mut bool, kernel| {
            by_tables(
                not_seen_since_exec,
                &sample(&[], &registers, kernel),
                &mut Program,
                9,
                &mut addresses,
                &mut (),
            )
        };
        assert_eq!(mark(&mut not_seen_since_exec, true), Mark::None);
        assert!(not_seen_since_exec);
        assert_eq!(mark(&mut not_seen_since_exec, false), Mark::Mapping);
        assert!(!not_seen_since_exec, "it has run");
        assert_eq!(mark(&mut not_seen_since_exec, true), Mark::Mapping);
        assert!(addresses.is_empty());
    }

    #[test]
    fn a_sample_without_user_registers_is_the_kernels_own() {
        let mut addresses = Vec::new();
        let mut mark = |kernel| {
            by_tables(
                &mut false,
                &sample(&[], &[], kernel),
                &mut Program,
                9,
                &mut addresses,
                &mut (),
            )
        };
        assert_eq!((mark(true), mark(false)), (Mark::None, Mark::Unread));
    }
}
