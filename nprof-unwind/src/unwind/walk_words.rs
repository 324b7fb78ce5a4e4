//! The words of a stack on which a walk depends.

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch;
use crate::arch::rule::{AnalyzedRule, GeneratedFrame};
use crate::unwind::code_map::{CodeMap, UnwindInfo};
use crate::unwind::compact_rule::CompactRule;
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::frame_state::FrameState;
use crate::unwind::frame_visitor::FrameVisitor;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::{Segment, StackCopy, StackSegments};
use crate::unwind::walk::unwind;

/// The most frames found by frame pointers for which the place of the saved pointer is searched.
const FRAME_POINTERS_MAX: usize = 64;

/// The distance below a CFA at which functions save the frame pointer: six registers are pushed at most.
const SAVED_BYTES: u64 = 56;

/// What a walk depends on besides the instruction pointer and the stack pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkWords {
    /// Addresses and values, ascending.
    pub words: Vec<(u64, u64)>,
    /// True if it depends on the frame pointer.
    pub has_frame_pointer: bool,
}

/// The code of a process for a proof. Without a frame pointer that it needs, a walk searches the code of each
/// function for its caller, which takes milliseconds and proves nothing: this code has no result for these searches.
struct ProofCode<'a, C>(&'a mut C);

impl<C: CodeMap> CodeMap for ProofCode<'_, C> {
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo {
        self.0.unwind_info(address)
    }

    fn compact_rule(&mut self, address: FrameAddress) -> Option<CompactRule> {
        self.0.compact_rule(address)
    }

    fn analyze(&mut self, address: FrameAddress) -> AnalyzedRule {
        self.0.analyze(address)
    }

    fn is_generated(&self, address: RuntimeAddress) -> bool {
        self.0.is_generated(address)
    }

    fn generated_frame(&mut self, address: RuntimeAddress) -> GeneratedFrame {
        self.0.generated_frame(address)
    }

    fn is_after_call(&mut self, address: RuntimeAddress) -> Option<bool> {
        self.0.is_after_call(address)
    }
}

/// Notes the frames of a walk.
#[derive(Debug, Default)]
pub struct FrameNotes {
    /// The CFA of each frame, and the frame pointer of its caller.
    frames: Vec<(u64, Option<u64>)>,
}

impl FrameVisitor for FrameNotes {
    fn visit(&mut self, caller: &Registers, _frames: usize) -> bool {
        if let Ok(cfa) = caller.get(arch::SP) {
            self.frames.push((cfa, caller.get(arch::FP).ok()));
        }
        false
    }
}

impl WalkWords {
    /// Finds them for a complete walk of a stack, which led to `addresses` and `notes`. None if the walk
    /// depends on more than return addresses and frame pointers, or on more than `words_max` words.
    ///
    /// The result is proved by another walk, which can read nothing else: each of its steps follows from
    /// an unwind table and what it can read, and so does the same step of any walk with equal words.
    pub fn find(
        start: &FrameState,
        stack: &StackCopy<'_>,
        code: &mut impl CodeMap,
        addresses: &[FrameAddress],
        notes: &FrameNotes,
        words_max: usize,
    ) -> Option<Self> {
        let frames = &notes.frames;
        // All but the outermost were left by an unwind table. The proof of a walk with too many words takes
        // as long as that of any other, for each of its samples.
        if frames.len() + 1 != addresses.len() || frames.len() > words_max {
            return None;
        }
        let word = |address: u64| Some((address, stack.read(address).ok()?));
        let words: Option<Vec<_>> =
            frames.iter().map(|(cfa, _)| word(cfa.wrapping_sub(8))).collect();
        let mut found = Self { words: words?, has_frame_pointer: false };
        let mut reached = 0;
        for _ in 0..FRAME_POINTERS_MAX {
            let walked = found.walk(start, code, addresses)?;
            if walked == frames.len() {
                return Some(found);
            }
            // The frame that it could not leave is found by a frame pointer: that of its callee's rule.
            if walked < reached {
                return None;
            }
            reached = walked + 1;
            match saved_frame_pointer(start, stack, &frames[..walked]) {
                Some(_) if found.words.len() == words_max => return None,
                Some(saved) => {
                    let at = found.words.binary_search_by_key(&saved.0, |word| word.0).err()?;
                    found.words.insert(at, saved);
                }
                None if found.has_frame_pointer => return None,
                None => found.has_frame_pointer = true,
            }
        }
        None
    }

    /// Walks the stack by these words alone. Returns the number of frames that it left by unwind tables as
    /// the first walk did; None if it led elsewhere.
    fn walk(
        &self,
        start: &FrameState,
        code: &mut impl CodeMap,
        addresses: &[FrameAddress],
    ) -> Option<usize> {
        let mut registers = start.registers.pointers_only();
        if self.has_frame_pointer {
            registers.set(arch::FP, start.registers.get(arch::FP).ok()?);
        }
        let bytes: Vec<u8> = self.words.iter().flat_map(|(_, value)| value.to_le_bytes()).collect();
        let (first, rest) = bytes.split_at_checked(8)?;
        let places: Vec<_> = (0..)
            .step_by(8)
            .zip(&self.words[1..])
            .map(|(position, &(address, _))| Segment { address, position, length: 8 })
            .collect();
        let segments = StackSegments { bytes: rest, places: &places, gap: (0, 0) };
        let stack = StackCopy::with_segments(self.words[0].0, first, 8, segments);
        let (mut walked, mut notes) = (Vec::new(), FrameNotes::default());
        let frame = FrameState { registers, address: start.address };
        let code = &mut ProofCode(code);
        let mark = unwind(frame, &stack, code, addresses.len() + 1, &mut walked, &mut notes);
        let left = notes.frames.len();
        let is_whole = left + 1 == addresses.len() && mark == Mark::None && walked == addresses;
        let is_part = left + 1 < addresses.len() && walked.get(..=left) == addresses.get(..=left);
        (is_whole || is_part).then_some(left)
    }
}

/// Returns the word in which the frame pointer of the last of these frames' caller was saved; None if all of
/// them kept that of the start.
fn saved_frame_pointer(
    start: &FrameState,
    stack: &StackCopy<'_>,
    frames: &[(u64, Option<u64>)],
) -> Option<(u64, u64)> {
    let (_, wanted) = *frames.last()?;
    let wanted = wanted?;
    // The frame that restored it: further in, another value, or the same in the registers.
    let before = |at: usize| match at.checked_sub(1) {
        Some(inner) => frames[inner].1,
        None => start.registers.get(arch::FP).ok(),
    };
    let at = (0..frames.len()).rev().find(|&at| before(at) != Some(wanted))?;
    let cfa = frames[at].0;
    (16..=SAVED_BYTES)
        .step_by(8)
        .map(|distance| cfa.wrapping_sub(distance))
        .find(|&address| stack.read(address) == Ok(wanted))
        .map(|address| (address, wanted))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use nprof_object::RuntimeAddress;

    use super::*;
    use crate::arch::rule::{AnalyzedRule, Cfa, RegisterRule, UnwindRule};
    use crate::unwind::code_map::UnwindInfo;

    /// Functions at 0x1000 have a frame of 16 bytes, those at 0x2000 save the frame pointer and are found by
    /// it, those at 0x3000 save it and use it for a value, and the stack ends at 0x4000.
    struct Program;

    impl CodeMap for Program {
        fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
            let (cfa, saves) = match address {
                0x1000..0x2000 => (Cfa::Register(arch::SP, 16), false),
                0x2000..0x3000 => (Cfa::Register(arch::FP, 16), true),
                0x3000..0x4000 => (Cfa::Register(arch::SP, 24), true),
                _ => (Cfa::Register(arch::SP, 8), false),
            };
            let saved = [(arch::FP, RegisterRule::AtCfaOffset(-16))];
            let rule = UnwindRule {
                cfa,
                return_address: if address >= 0x4000 {
                    RegisterRule::Undefined
                } else {
                    arch::RETURN_ADDRESS_BELOW_CFA
                },
                registers: if saves { saved.into() } else { [].into() },
                signal: false,
            };
            UnwindInfo::Rule(Rc::new(rule))
        }

        fn analyze(&mut self, _address: FrameAddress) -> AnalyzedRule {
            AnalyzedRule::Unknown
        }
    }

    /// Finds the words of the stack at 0x8000, as distances in words.
    fn find(ip: u64, frame_pointer: u64, words: &[u64]) -> Option<(Vec<u64>, bool)> {
        find_at_most(ip, frame_pointer, words, 64)
    }

    fn find_at_most(
        ip: u64,
        frame_pointer: u64,
        words: &[u64],
        words_max: usize,
    ) -> Option<(Vec<u64>, bool)> {
        let mut registers = Registers::default();
        for (register, value) in [(arch::IP, ip), (arch::SP, 0x8000), (arch::FP, frame_pointer)] {
            registers.set(register, value);
        }
        let start = FrameState::calling(registers).expect("an address");
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let stack = StackCopy::new(0x8000, &bytes);
        let (mut addresses, mut notes) = (Vec::new(), FrameNotes::default());
        let mark = unwind(start, &stack, &mut Program, 99, &mut addresses, &mut notes);
        assert_eq!(mark, Mark::None);
        let found = WalkWords::find(&start, &stack, &mut Program, &addresses, &notes, words_max)?;
        let distances = found.words.iter().map(|(address, value)| {
            assert_eq!(stack.read(*address), Ok(*value));
            (address - 0x8000) / 8
        });
        Some((distances.collect(), found.has_frame_pointer))
    }

    #[test]
    fn frames_of_fixed_size_depend_on_return_addresses_alone() {
        // A frame pointer that is saved and not used does not matter.
        let words = [1, 0x3005, 2, 7, 0x1007, 3, 0x4001];
        assert_eq!(find(0x1009, 5, &words), Some((vec![1, 4, 6], false)));
    }

    #[test]
    fn frames_found_by_frame_pointers_depend_on_the_saved_ones() {
        // The leaf keeps it: the frame of its caller is found by the register.
        let words = [1, 0x2005, 9, 9, 0x8038, 0x1005, 8, 0x4001, 0, 0];
        assert_eq!(find(0x1009, 0x8020, &words), Some((vec![1, 5, 7], true)));
        // The frame after the next is found by what this one saved.
        let words = [1, 0x2005, 9, 9, 0x8030, 0x2007, 0x77, 0x4001];
        assert_eq!(find(0x1009, 0x8020, &words), Some((vec![1, 4, 5, 7], true)));
        // The register does not matter if a callee has saved another value.
        let words = [1, 0x8018, 0x2005, 0x77, 0x4001];
        assert_eq!(find(0x3009, 5, &words), Some((vec![1, 2, 4], false)));
    }

    #[test]
    fn walks_with_too_many_words_are_not_proved() {
        let words = [1, 0x3005, 2, 7, 0x1007, 3, 0x4001];
        assert!(find_at_most(0x1009, 5, &words, 3).is_some());
        assert_eq!(find_at_most(0x1009, 5, &words, 2), None);
        let words = [1, 0x2005, 9, 9, 0x8030, 0x2007, 0x77, 0x4001];
        assert!(find_at_most(0x1009, 0x8020, &words, 4).is_some());
        assert_eq!(
            find_at_most(0x1009, 0x8020, &words, 3),
            None,
            "a frame pointer is one too many"
        );
    }
}
