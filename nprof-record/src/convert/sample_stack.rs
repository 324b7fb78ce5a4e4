//! Which addresses the stack of a sample has: unwound from its copy, or as the kernel walked it.

use nprof_stream::Mark;
use perf_event_open_sys::bindings as perf;

use crate::arch;
use crate::perf::record::Sample;
use crate::unwind::stack_copy::Stack;
use crate::unwind::{self, Address, Code, Followed, Look, Passage, Registers};

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
fn is_left_over(fresh: &mut bool, ip: u64, sample: &Sample<'_>, code: &mut impl Code) -> bool {
    let left_over = *fresh && sample.in_kernel && code.look(ip) == Look::Unmapped;
    *fresh &= left_over;
    left_over
}

/// Unwinds the copied stack. For `fresh` see [`crate::convert::process_tree::Process::fresh`].
pub(crate) fn by_tables(
    fresh: &mut bool,
    sample: &Sample<'_>,
    code: &mut impl Code,
    depth: usize,
    addresses: &mut Vec<Address>,
    passage: &mut impl Passage,
) -> Mark {
    let Some(registers) = Registers::from_sample(sample.registers()) else {
        // Without user registers there is no user code: the kernel works for itself.
        return if sample.in_kernel { Mark::None } else { Mark::Unread };
    };
    let (Ok(ip), Ok(sp)) = (registers.get(arch::IP), registers.get(arch::SP)) else {
        return Mark::Unread;
    };
    if is_left_over(fresh, ip, sample, code) {
        return Mark::None;
    }
    if sample.compat {
        addresses.push(Address { value: ip, returns: false });
        return Mark::Table;
    }
    let stack = Stack::new(sp, sample.stack, sample.extension.unwrap_or_default().pieces);
    let mark = unwind::unwind((registers, false), &stack, code, depth, addresses, passage);
    passage.end(stack.seen());
    mark
}

/// Takes the user part of the kernel's call chain. Frame pointers do not tell whether the end
/// of the chain is the end of the stack, so the last frame's table is asked.
pub(crate) fn by_chain(
    fresh: &mut bool,
    sample: &Sample<'_>,
    code: &mut impl Code,
    depth: usize,
    addresses: &mut Vec<Address>,
) -> Mark {
    let leaf = context(sample, CONTEXT_USER).next();
    if leaf.is_some_and(|ip| is_left_over(fresh, ip, sample, code)) {
        return Mark::None;
    }
    for value in context(sample, CONTEXT_USER) {
        if addresses.len() == depth {
            return Mark::Depth;
        }
        addresses.push(Address { value, returns: !addresses.is_empty() });
    }
    let Some(last) = addresses.last() else {
        return if sample.in_kernel { Mark::None } else { Mark::Unread };
    };
    match code.look(last.inside()) {
        Look::Entry => Mark::None,
        Look::Row(row) if row.is_root() => Mark::None,
        Look::NoTable if code.follow(*last) == Followed::Base => Mark::None,
        Look::Unmapped => Mark::Mapping,
        _ => Mark::Frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::rule::{Cfa, Row, Saved};
    use std::rc::Rc;

    /// Everything below 0x9000 is mapped; the root is from 0x3000, and a thread begins at 0x4005.
    struct Program;

    impl Code for Program {
        fn look(&mut self, address: u64) -> Look {
            let saved = if address >= 0x3000 { Saved::Undefined } else { Saved::At(-8) };
            let row = Row {
                cfa: Cfa::Register(arch::SP, 8),
                return_address: saved,
                registers: [].into(),
                signal: false,
            };
            match address {
                0x4000..0x5000 => Look::NoTable,
                0..0x9000 => Look::Row(Rc::new(row)),
                _ => Look::Unmapped,
            }
        }

        fn follow(&mut self, address: Address) -> Followed {
            if address.value == 0x4005 { Followed::Base } else { Followed::Nothing }
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
        let mut fresh = true;
        let mut mark = |fresh: &mut bool, kernel| {
            by_tables(
                fresh,
                &sample(&[], &registers, kernel),
                &mut Program,
                9,
                &mut addresses,
                &mut (),
            )
        };
        assert_eq!(mark(&mut fresh, true), Mark::None);
        assert!(fresh);
        assert_eq!(mark(&mut fresh, false), Mark::Mapping);
        assert!(!fresh, "it has run");
        assert_eq!(mark(&mut fresh, true), Mark::Mapping);
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
