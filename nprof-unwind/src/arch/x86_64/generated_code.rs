//! Frames of code generated at run time, where its analysis yields no rule. Pure.
//!
//! Such a frame is found by the frame pointer, but only some generators keep it: V8, .NET and others
//! do, and so does the interpreter of HotSpot (OpenJDK), but not the code that HotSpot compiles. So
//! the code must show that its function sets the frame pointer.

use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, Register};
use nprof_object::ImageAddress;

use crate::arch::code_bytes::{CodeBytes, INSTRUCTION_MAX};
use crate::arch::rule::{Cfa, GeneratedFrame, RegisterRule, UnwindRule};
use crate::arch::stack::{FRAME_RECORD, RETURN_ADDRESS_BELOW_CFA, WORD};
use crate::arch::x86_64::code_state::{SymbolicState, decode};
use crate::arch::x86_64::registers::{FP, PRESERVED, SP};

/// The code before an address that is searched for the start of its function.
const PROLOGUE_SEARCH_BYTES: u64 = 8192;

/// The code around an address that is searched for uses of the frame pointer, and how many show that
/// it is one: V8's baseline code calls a function that sets it.
const USE_SEARCH_BYTES: u64 = 1024;
const USES_MIN: usize = 2;

/// The code around an address that is searched for the start and an end of its method.
const METHOD_SEARCH_BYTES: u64 = 16384;

/// The code of a builtin of V8 before it has set the frame pointer.
const ENTRY_BYTES: usize = 128;

/// The largest frame of a method that is expected.
const FRAME_MAX_BYTES: u32 = 1 << 20;

/// The most instructions before a function sets the frame pointer.
const PROLOGUE_MAX: u32 = 12;

/// `mov %rsp,%rbp`, in both encodings.
const SET_FRAME_POINTER: [&[u8]; 2] = [&[0x48, 0x89, 0xe5], &[0x48, 0x8b, 0xec]];

/// `push %rbp`.
const PUSH_FRAME_POINTER: u8 = 0x55;

/// Generators fill the space between functions with int3 (V8) or hlt (HotSpot), and have data of
/// their own before a function, with zeros.
const PADDING: [(&[u8], usize); 2] = [(&[0xcc, 0xf4], 3), (&[0], 12)];

/// Instructions of HotSpot's interpreter that compiled code does not have: the jump to the next
/// bytecode, `jmp *(%r10,%rbx,8)`; loads and stores of the bytecode pointer, `mov %r13,-64(%rbp)`
/// (-56 before OpenJDK 9); the store of the stack pointer before it calls, `mov %r13,-16(%rbp)`.
const INTERPRETER: [[u8; 4]; 6] = [
    [0x41, 0xff, 0x24, 0xda],
    [0x4c, 0x89, 0x6d, 0xc0],
    [0x4c, 0x8b, 0x6d, 0xc0],
    [0x4c, 0x89, 0x6d, 0xc8],
    [0x4c, 0x8b, 0x6d, 0xc8],
    [0x4c, 0x89, 0x6d, 0xf0],
];

/// `mov -16(%rbp),%rsp`, or since OpenJDK 22 `mov -16(%rbp),%rcx; lea (%rbp,%rcx,8),%rsp`: the code
/// of HotSpot's interpreter to which methods return. The interpreter pushes its address and jumps to
/// the method, so that no call precedes it.
const INTERPRETER_RETURN: [&[u8]; 2] =
    [&[0x48, 0x8b, 0x65, 0xf0], &[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd, 0x00]];

/// Bytes of a frame below the frame pointer.
const INTERPRETER_FRAME_BYTES: u64 = 9 * WORD;

/// The most words of the locals of a method, and of its expressions and monitors.
const INTERPRETER_WORDS_MAX: u64 = 4096;

/// True if code is that of HotSpot's interpreter to which methods return.
pub(crate) fn is_interpreter_return(code: &[u8]) -> bool {
    INTERPRETER_RETURN.iter().any(|start| code.starts_with(start))
}

/// Returns the kind of the frames of generated code at an address.
pub(crate) fn generated_frame(program: &mut impl CodeBytes, at: ImageAddress) -> GeneratedFrame {
    let after = bytes_after(program, at, USE_SEARCH_BYTES);
    let before = bytes_before(program, at, PROLOGUE_SEARCH_BYTES);
    let end = padding_ends(&after).min().unwrap_or(after.len());
    let start = padding_ends(&before).max().unwrap_or(0);
    let (before, after) = (&before[start..], &after[..end]);
    let is_set_before = sets_frame_pointer(before);
    if !is_set_before && sets_frame_pointer(after) {
        return GeneratedFrame::Unknown;
    }
    let near = &before[before.len().saturating_sub(USE_SEARCH_BYTES as usize)..];
    let is_interpreter =
        |code: &[u8]| code.windows(4).any(|window| INTERPRETER.iter().any(|part| window == part));
    if is_interpreter(after) || is_interpreter(near) {
        return GeneratedFrame::Interpreter;
    }
    if is_set_before || count_uses(near) + count_uses(after) >= USES_MIN {
        return GeneratedFrame::FramePointer;
    }
    GeneratedFrame::Unknown
}

/// True if an address is in a function of V8's own, compiled before run time into a file, that sets the
/// frame pointer. int3 precedes such a function, and it uses the register of V8's roots (r13); compilers
/// of C also leave functions without a frame pointer after ones with it.
pub(crate) fn is_in_v8_builtin(program: &mut impl CodeBytes, at: ImageAddress) -> bool {
    let before = bytes_before(program, at, METHOD_SEARCH_BYTES);
    let start = before.windows(3).rposition(|window| window == [0xcc; 3]);
    let Some(function) = start.map(|start| &before[start + 3..]) else { return false };
    let entry = &function[..function.len().min(ENTRY_BYTES)];
    // `mov`, `cmp` or `push` of a word at a distance of more than 127 bytes from r13.
    let is_root = |code: &[u8]| {
        matches!(code, [0x49 | 0x4d, 0x8b | 0x39 | 0x3b, operands, ..] | [_, 0x41, 0xff, operands]
            if operands & 0xc7 == 0x85)
    };
    sets_frame_pointer(entry) && function.windows(4).any(is_root)
}

/// True if code contains `push %rbp; mov %rsp,%rbp`.
fn sets_frame_pointer(code: &[u8]) -> bool {
    let is_set = |code: &[u8]| SET_FRAME_POINTER.iter().any(|set| code[1..] == **set);
    code.windows(4).any(|code| code[0] == PUSH_FRAME_POINTER && is_set(code))
}

/// Returns the number of accesses to words below the frame pointer: `mov` between a register and
/// -8(%rbp) to -128(%rbp). In code that uses the register for something else it holds the address of
/// an object, of which the fields are above.
fn count_uses(code: &[u8]) -> usize {
    let is_use = |code: &&[u8]| {
        matches!(code[..], [0x48 | 0x4c, 0x89 | 0x8b, operands, distance]
            if operands & 0xc7 == 0x45 && distance >= 0x80 && distance.is_multiple_of(8))
    };
    code.windows(4).filter(is_use).count()
}

/// Returns the CFA of a frame of HotSpot's interpreter, by the frame pointer. None if the words there
/// are not those of such a frame.
///
/// A compiled caller's stack pointer is above the frame record: its arguments are copied to a place
/// below. The frame holds the true one (`interpreter_frame_sender_sp_offset` in
/// src/hotspot/cpu/x86/frame_x86.hpp).
pub(crate) fn interpreter_cfa(fp: u64, sp: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let word = |index: u64| read(fp.checked_sub(WORD * index)?);
    let sender = word(1)?;
    let least = fp.checked_add(FRAME_RECORD)?;
    let room = WORD * INTERPRETER_WORDS_MAX;
    if !(least..=least.saturating_add(room)).contains(&sender) || !sender.is_multiple_of(WORD) {
        return None;
    }
    // The function pushes one word after the other.
    if fp.saturating_sub(sp) < INTERPRETER_FRAME_BYTES {
        return Some(sender);
    }
    if word(3)? == 0 {
        return None;
    }
    // The word of the locals: since OpenJDK 9, and before. Then come the bytecode pointer and the
    // bottom of the expressions, below or at its own place. Since OpenJDK 21 both are words from the
    // frame pointer.
    let is_frame = |locals_word: u64| {
        let relative = |value: u64| {
            let words = value as i64;
            let is_count = words.unsigned_abs() <= INTERPRETER_WORDS_MAX;
            if is_count { fp.wrapping_add_signed(words * WORD as i64) } else { value }
        };
        let (locals, bottom) = (relative(word(locals_word)?), relative(word(locals_word + 2)?));
        let bottom_slot = fp.checked_sub(WORD * (locals_word + 2))?;
        let locals_end = locals.checked_add(WORD)?;
        // Arguments are aligned to 16 bytes.
        let is_right = (least..=least.saturating_add(room)).contains(&locals_end)
            && sender <= locals_end.saturating_add(2 * WORD)
            && locals_end <= sender.saturating_add(room)
            && bottom <= bottom_slot
            && bottom_slot - bottom <= room;
        is_right.then_some(())
    };
    [7, 6].into_iter().find_map(is_frame).map(|()| sender)
}

/// Returns the rule at an address of code that HotSpot compiled. None if the code around it does not
/// show the size of its frame.
///
/// Such a method moves the stack pointer only in its prologue and before it returns, both by the same
/// distance. It preserves the frame pointer alone, and may use it for something else.
pub(crate) fn rule_of_fixed_frame(
    program: &mut impl CodeBytes,
    at: ImageAddress,
) -> Option<UnwindRule> {
    let before = bytes_before(program, at, METHOD_SEARCH_BYTES);
    let start = padding_ends(&before).max().unwrap_or(0);
    let before = &before[start..];
    let (prologue, size) =
        (0..before.len()).rev().find_map(|at| Some((at, prologue(&before[at..])?)))?;
    let is_end = |code: &[u8]| (0..code.len()).any(|at| epilogue(&code[at..]) == Some(size));
    if !is_end(&before[prologue..]) {
        let after = bytes_after(program, at, METHOD_SEARCH_BYTES);
        let end = padding_ends(&after).min().unwrap_or(after.len());
        if !is_end(&after[..end]) {
            return None;
        }
    }
    let frame_record = FRAME_RECORD as i64;
    let mut registers = vec![(FP, RegisterRule::AtCfaOffset(-frame_record))];
    let others = PRESERVED.iter().filter(|&&register| register != FP);
    registers.extend(others.map(|&register| (register, RegisterRule::Undefined)));
    registers.sort_unstable_by_key(|&(register, _)| register);
    Some(UnwindRule {
        cfa: Cfa::Register(SP, i64::from(size).checked_add(frame_record)?),
        return_address: RETURN_ADDRESS_BELOW_CFA,
        registers: registers.into(),
        signal: false,
    })
}

/// Returns the bytes of a frame below the saved frame pointer, if code is such a prologue:
/// `push %rbp; sub $N,%rsp`, or `sub $N+8,%rsp; mov %rbp,N(%rsp)`.
fn prologue(code: &[u8]) -> Option<u32> {
    if let [PUSH_FRAME_POINTER, code @ ..] = code {
        return Some(immediate(code, [0x83, 0x81], 0xec)?.0);
    }
    let (size, rest) = immediate(code, [0x83, 0x81], 0xec)?;
    let slot = match rest {
        [0x48, 0x89, 0x6c, 0x24, slot, ..] => u32::from(*slot),
        [0x48, 0x89, 0xac, 0x24, rest @ ..] => u32::from_le_bytes(*rest.first_chunk()?),
        _ => return None,
    };
    (size.checked_sub(WORD as u32) == Some(slot)).then_some(slot)
}

/// Returns the same, if code is the start of an epilogue: `add $N,%rsp; pop %rbp`.
fn epilogue(code: &[u8]) -> Option<u32> {
    let (size, rest) = immediate(code, [0x83, 0x81], 0xc4)?;
    (*rest.first()? == 0x5d).then_some(size)
}

/// Returns the constant of a 64-bit instruction on the stack pointer, and the code after it.
fn immediate(code: &[u8], opcodes: [u8; 2], operand: u8) -> Option<(u32, &[u8])> {
    match code {
        [0x48, opcode, second, rest @ ..] if *second == operand && opcodes.contains(opcode) => {
            if *opcode == opcodes[0] {
                let (&size, rest) = rest.split_first()?;
                Some((u32::from(size), rest)).filter(|&(size, _)| size < 0x80)
            } else {
                let (size, rest) = rest.split_first_chunk()?;
                Some((u32::from_le_bytes(*size), rest)).filter(|&(size, _)| size < FRAME_MAX_BYTES)
            }
        }
        _ => None,
    }
}

/// Returns the rule of a function that has not set its frame pointer, but will, or is about to.
pub(crate) fn rule_in_prologue(
    program: &mut impl CodeBytes,
    start: ImageAddress,
) -> Option<UnwindRule> {
    let rule = |pushed: bool| UnwindRule {
        cfa: Cfa::Register(SP, if pushed { FRAME_RECORD as i64 } else { WORD as i64 }),
        return_address: RETURN_ADDRESS_BELOW_CFA,
        registers: if pushed {
            [(FP, RegisterRule::AtCfaOffset(-(FRAME_RECORD as i64)))].into()
        } else {
            [].into()
        },
        signal: false,
    };
    let sets = |code: &[u8]| SET_FRAME_POINTER.iter().any(|set| code.starts_with(set));
    let is_frame = |code: &[u8]| sets(code) || immediate(code, [0x83, 0x81], 0xec).is_some();
    let before = program.code(start.wrapping_sub(1));
    if before.length > 0 && before.bytes[0] == PUSH_FRAME_POINTER && is_frame(&before.bytes[1..]) {
        return Some(rule(true));
    }
    let mut factory = InstructionInfoFactory::new();
    let mut state = SymbolicState::new(false, true);
    let mut at = start;
    for _ in 0..PROLOGUE_MAX {
        let instruction = decode(&program.code(at), at)?;
        let next = ImageAddress(instruction.next_ip());
        let is_push =
            instruction.mnemonic() == Mnemonic::Push && instruction.op0_register() == Register::RBP;
        if is_push {
            let is_set = is_frame(&program.code(next).bytes) && state.is_as_at_start();
            return is_set.then(|| rule(false));
        }
        if state.is_as_at_start() && prologue(&program.code(at).bytes).is_some() {
            return Some(rule(false));
        }
        match instruction.flow_control() {
            FlowControl::Next => state.execute(&instruction, &mut factory),
            FlowControl::ConditionalBranch => {}
            _ => return None,
        }
        at = next;
    }
    None
}

/// Returns the ends of padding in code.
fn padding_ends(code: &[u8]) -> impl Iterator<Item = usize> + '_ {
    PADDING.iter().flat_map(move |&(bytes, least)| {
        let windows = code.windows(least).enumerate();
        let found =
            windows.filter(move |(_, window)| window.iter().all(|byte| bytes.contains(byte)));
        found.map(move |(at, _)| at + least)
    })
}

/// Returns the code from an address on, up to the first byte that cannot be read.
fn bytes_after(program: &mut impl CodeBytes, at: ImageAddress, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < length {
        let code = program.code(at.wrapping_add(bytes.len() as u64));
        if code.length == 0 {
            break;
        }
        bytes.extend(&code.bytes[..code.length]);
    }
    bytes
}

/// Returns the code before an address, back to the last byte that cannot be read.
fn bytes_before(program: &mut impl CodeBytes, at: ImageAddress, length: u64) -> Vec<u8> {
    let mut pieces = Vec::new();
    let pieces_max = length.min(at.0) / INSTRUCTION_MAX as u64;
    for piece in 1..=pieces_max {
        let code = program.code(at.wrapping_sub(piece * INSTRUCTION_MAX as u64));
        if code.length < INSTRUCTION_MAX {
            break;
        }
        pieces.push(code.bytes);
    }
    pieces.iter().rev().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::code_bytes::Bytes;
    use std::rc::Rc;

    /// Code at 0x100000.
    struct Code(Vec<u8>);

    const START: u64 = 0x10_0000;

    impl CodeBytes for Code {
        fn code(&mut self, address: ImageAddress) -> Bytes {
            let at = address.0.checked_sub(START).map_or(usize::MAX, |at| at as usize);
            let found = self.0.get(at..).unwrap_or_default();
            let length = found.len().min(INSTRUCTION_MAX);
            let mut code = Bytes { length, ..Bytes::default() };
            code.bytes[..length].copy_from_slice(&found[..length]);
            code
        }

        fn rule(&mut self, _address: ImageAddress) -> Option<Rc<UnwindRule>> {
            None
        }

        fn is_generated(&self) -> bool {
            true
        }
    }

    const PUSH_SUB_32: &[u8] = &[0x55, 0x48, 0x83, 0xec, 0x20];
    const SUB_40_STORE: &[u8] = &[0x48, 0x83, 0xec, 0x28, 0x48, 0x89, 0x6c, 0x24, 0x20];
    const ADD_32_POP: &[u8] = &[0x48, 0x83, 0xc4, 0x20, 0x5d];
    const ADD_48_POP: &[u8] = &[0x48, 0x83, 0xc4, 0x30, 0x5d];
    const SET: &[u8] = &[0x55, 0x48, 0x89, 0xe5];
    const HLT: &[u8] = &[0xf4; 4];
    const BODY: &[u8] = &[0x90; 40];
    const USE: &[u8] = &[0x48, 0x8b, 0x45, 0xe8];
    const FIELD: &[u8] = &[0x48, 0x8b, 0x45, 0x18];

    /// Returns the place between two parts of code, and the code.
    fn place(before: &[&[u8]], after: &[&[u8]]) -> (Code, ImageAddress) {
        // Other code, as far as a search reads it in pieces.
        let before = [&[0x90; 64], HLT, &before.concat()].concat();
        let at = ImageAddress(START + before.len() as u64);
        (Code([before, after.concat()].concat()), at)
    }

    fn size(before: &[&[u8]], after: &[&[u8]]) -> Option<i64> {
        let (mut code, at) = place(before, after);
        let rule = rule_of_fixed_frame(&mut code, at)?;
        let saved = rule.registers.iter().find(|(register, _)| *register == FP);
        assert_eq!(saved, Some(&(FP, RegisterRule::AtCfaOffset(-16))));
        let Cfa::Register(SP, distance) = rule.cfa else { panic!("{rule:?}") };
        Some(distance)
    }

    #[test]
    fn fixed_frame_has_the_size_of_prologue_and_epilogue() {
        assert_eq!(size(&[PUSH_SUB_32, BODY], &[BODY, ADD_32_POP]), Some(48));
        assert_eq!(size(&[SUB_40_STORE, BODY], &[BODY, ADD_32_POP]), Some(48));
        // An address after the last epilogue: the code of a rare path.
        assert_eq!(size(&[PUSH_SUB_32, BODY, ADD_32_POP, BODY], &[BODY]), Some(48));
        let long = [0x48, 0x81, 0xec, 0, 2, 0, 0];
        let end = [0x48, 0x81, 0xc4, 0, 2, 0, 0, 0x5d];
        assert_eq!(size(&[&[0x55], &long, BODY], &[&end]), Some(0x210));
    }

    #[test]
    fn frame_without_agreement_has_no_rule() {
        assert_eq!(size(&[PUSH_SUB_32, BODY], &[BODY, ADD_48_POP]), None);
        assert_eq!(size(&[PUSH_SUB_32, BODY], &[BODY]), None);
        assert_eq!(size(&[BODY], &[BODY, ADD_32_POP]), None);
        // Another method.
        assert_eq!(size(&[PUSH_SUB_32, BODY, HLT], &[BODY, ADD_32_POP]), None);
        assert_eq!(size(&[PUSH_SUB_32, BODY], &[HLT, ADD_32_POP]), None);
        assert_eq!(size(&[PUSH_SUB_32, BODY], &[&[0; 16], ADD_32_POP]), None);
        // The word that is stored is not the last of the frame.
        let other = [0x48, 0x83, 0xec, 0x38, 0x48, 0x89, 0x6c, 0x24, 0x20];
        assert_eq!(size(&[&other, BODY], &[ADD_32_POP]), None);
    }

    #[test]
    fn frame_pointer_counts_if_the_function_sets_or_uses_it() {
        let kind = |before: &[&[u8]], after: &[&[u8]]| {
            let (mut code, at) = place(before, after);
            generated_frame(&mut code, at)
        };
        assert_eq!(kind(&[SET, BODY], &[BODY]), GeneratedFrame::FramePointer);
        assert_eq!(kind(&[USE, BODY], &[USE]), GeneratedFrame::FramePointer);
        assert_eq!(kind(&[USE, BODY], &[BODY]), GeneratedFrame::Unknown);
        assert_eq!(kind(&[FIELD, BODY, FIELD], &[FIELD]), GeneratedFrame::Unknown);
        assert_eq!(kind(&[SET, BODY, HLT], &[BODY]), GeneratedFrame::Unknown, "another function");
        assert_eq!(kind(&[USE, USE, BODY], &[SET]), GeneratedFrame::Unknown, "not set yet");
        let dispatch = &[0x41, 0xff, 0x24, 0xda];
        assert_eq!(kind(&[SET, BODY], &[BODY, dispatch]), GeneratedFrame::Interpreter);
        assert_eq!(kind(&[BODY], &[BODY, HLT, dispatch]), GeneratedFrame::Unknown);
    }

    #[test]
    fn prologue_shows_the_return_address() {
        let cfa = |before: &[&[u8]], after: &[&[u8]]| {
            let (mut code, at) = place(before, after);
            Some(rule_in_prologue(&mut code, at)?.cfa)
        };
        let entry = Some(Cfa::Register(SP, 8));
        let jump = &[0x75, 0x05]; // jne
        assert_eq!(cfa(&[], &[SET]), entry);
        assert_eq!(cfa(&[], &[&[0x90], jump, SET]), entry);
        assert_eq!(cfa(&[], &[PUSH_SUB_32]), entry);
        assert_eq!(cfa(&[], &[SUB_40_STORE]), entry);
        assert_eq!(cfa(&[&SET[..1]], &[&SET[1..]]), Some(Cfa::Register(SP, 16)));
        assert_eq!(cfa(&[], &[&SET[..1], BODY]), None);
        assert_eq!(cfa(&[], &[&[0x53], SET]), None, "a push before it");
        assert_eq!(cfa(&[], &[BODY, SET]), None, "too far");
    }

    #[test]
    fn builtin_of_v8_is_a_function_after_int3_that_sets_the_frame_pointer() {
        let is_builtin = |before: &[&[u8]]| {
            let (mut code, at) = place(before, &[BODY]);
            is_in_v8_builtin(&mut code, at)
        };
        let root: &[u8] = &[0x49, 0x8b, 0x85, 0x98, 1, 0, 0]; // mov 0x198(%r13),%rax
        let int3: &[u8] = &[0xcc; 3];
        assert!(is_builtin(&[int3, SET, root, BODY]));
        assert!(!is_builtin(&[SET, root, BODY]), "no start");
        assert!(!is_builtin(&[int3, SET, BODY]), "no root");
        assert!(!is_builtin(&[int3, root, BODY]), "no frame pointer");
        assert!(!is_builtin(&[int3, SET, root, int3, BODY]), "another function");
        assert!(!is_builtin(&[int3, BODY, BODY, BODY, BODY, SET, root]), "too late");
    }

    /// The CFA of a frame with these words, the first at the frame pointer 0x10_1000, the others below.
    fn interpreted(sp: u64, words: [u64; 10]) -> Option<u64> {
        let read = |slot: u64| {
            words.get(usize::try_from(0x10_1000_u64.checked_sub(slot)? / 8).ok()?).copied()
        };
        interpreter_cfa(0x10_1000, sp, read)
    }

    #[test]
    fn interpreter_frame_holds_the_stack_pointer_of_its_caller() {
        const BOTTOM: u64 = 0x10_1000 - 9 * 8;
        let frame = [0x10_1200, 0x10_1030, 0, 0x7000, 5, 0, 6, 0x10_1028, 0x7100, BOTTOM];
        assert_eq!(interpreted(0x10_0f00, frame), Some(0x10_1030));
        let relative = [0x10_1200, 0x10_1030, 0, 0x7000, 5, 0, 6, 5, 0x7100, -9_i64 as u64];
        assert_eq!(interpreted(0x10_0f00, relative), Some(0x10_1030));
        // Before OpenJDK 9 there was a word less.
        let older = [0x10_1200, 0x10_1030, 0, 0x7000, 5, 6, 0x10_1028, 0x7100, BOTTOM + 8, 0];
        assert_eq!(interpreted(0x10_0f00, older), Some(0x10_1030));
        // The first words, before the others are pushed.
        assert_eq!(
            interpreted(0x10_0ff8, [0x10_1200, 0x10_1030, 0, 0, 0, 0, 0, 0, 0, 0]),
            Some(0x10_1030)
        );
        for (at, word) in [(1, 0x10_1008), (1, 0x10_1031), (3, 0), (7, 0x2000_0000), (9, 0x10_1000)]
        {
            let mut other = frame;
            other[at] = word;
            assert_eq!(interpreted(0x10_0f00, other), None, "{at} {word:x}");
        }
    }

    #[test]
    fn code_to_which_methods_return_is_recognized() {
        assert!(is_interpreter_return(&[0x48, 0x8b, 0x65, 0xf0, 0x48]));
        assert!(is_interpreter_return(&[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd, 0x00]));
        assert!(!is_interpreter_return(&[0x48, 0x8b, 0x4d, 0xf0, 0x48]));
    }
}
