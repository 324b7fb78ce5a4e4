//! The program that copies more of a stack: BPF, run in the kernel at each overflow of a sampling
//! event, with interrupts disabled, right before the sample is written. Pure.
//!
//! It writes to the ring of the sample, directly before it, by an event of its own: each record is a
//! [`crate::perf::stack_chunks::StackChunk`]. It leaves out the part that the kernel copies itself,
//! the parts that the hints exclude, and pages that are not in memory, at which the kernel's own copy
//! ends: a local array that was never used is such a page. The sample is written in any case, unless
//! the recorder has rejected its thread.

use crate::arch::pt_regs;
use crate::perf::bpf::assembler::{AluOp, Assembler, JumpIf, Label, Register};
use crate::perf::bpf::shared_array::{HINT_SLOTS, THREAD_BITS, TOP_SHIFT};
use crate::perf::stack_chunks::{AFTER_GAP, CHUNK_HEADER_BYTES};

use AluOp::{Add, And, Or, ShiftLeft, ShiftRight, Sub};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// The most bytes of one chunk. They are read into a buffer that stays in the processor's cache and
/// copied from there to the ring, so that memory is read only once.
const PART: i32 = 32 << 10;

/// Bytes of a page, the unit in which memory is mapped.
const PAGE: i32 = 4 << 10;

/// Helper functions, from include/uapi/linux/bpf.h.
const MAP_LOOKUP_ELEM: i32 = 1;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const GET_CURRENT_PID_TGID: i32 = 14;
const PERF_EVENT_OUTPUT: i32 = 25;
const TAIL_CALL: i32 = 12;
const PROBE_READ_USER: i32 = 112;
const GET_CURRENT_TASK_BTF: i32 = 158;
const TASK_PT_REGS: i32 = 175;

/// Offsets of variables below the end of the program's stack, which outlive calls. The first is a
/// map's key.
const KEY: i16 = -4;
const THREAD: i16 = -16;
const POINTER: i16 = -24;
const WRITTEN: i16 = -32;
const ROUNDS: i16 = -40;
const NEXT: i16 = -48;
const LAST: i16 = -56;
const ABSENT_MAX: i16 = -64;
const HINT: i16 = -72;
const WORD_READ: i16 = -80;

/// The offset of the count of lost chunks from [`WRITTEN`].
const LOST: i16 = 16;

/// Offsets in a CPU's buffer: the variables of the loop, then a chunk. They lie in a map because the
/// verifier takes a value from a map for any number. Of a value that it knows it makes a case of its
/// own in every iteration, and loading would take a tenth of a second.
const BUFFER_NEXT: i16 = 0;
const BUFFER_LAST: i16 = 8;
const BUFFER_UNIT: i16 = 16;
const BUFFER_ABSENT_LEFT: i16 = 24;
const BUFFER_ABSENT_MAX: i16 = 32;
const BUFFER_AT: i16 = 40;
const BUFFER_END: i16 = 48;
const BUFFER_PART: i16 = 56;

/// The header of a chunk, see [`crate::perf::stack_chunks::StackChunk::read`].
const PART_THREAD: i16 = BUFFER_PART;
const PART_POINTER: i16 = BUFFER_PART + 8;
const PART_START: i16 = BUFFER_PART + 16;
const PART_SIZE: i16 = BUFFER_PART + 24;
const PART_BYTES: i32 = BUFFER_PART as i32 + CHUNK_HEADER_BYTES as i32;

/// Bytes of a buffer.
pub(super) const BUFFER: u32 = (PART_BYTES + PART) as u32;

/// The bytes of a word.
const WORD: i32 = 8;

/// Bytes copied of stacks that are too deep to be copied whole: a frame watch may lie there.
const NEAR: i32 = 128 << 10;

/// Bytes copied of a stack with absent pages of which the top is unknown.
const NEAR_UNKNOWN: i32 = 64 << 10;

/// Absent pages in a row after which the stack is taken to have ended, if its top is unknown. Each
/// costs a page fault, about half a microsecond.
const ABSENT_MAX_UNKNOWN: i32 = 16;

/// The same if the recorder has requested this part of the stack: more pages than are ever copied.
const ABSENT_MAX_REQUESTED: i32 = 1 << 16;

/// Counted iterations of the loop in one run of the program that copies. The verifier follows each: 20
/// take 3 ms, 330 150 ms. The kernel allows 33 runs, which suffice for every page of the longest copy, and
/// for a failed read of each part.
const ROUNDS_PER_RUN: i32 = 10;

/// How the iterations of a loop are limited, as the verifier requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopLimit {
    /// By the kernel, since Linux 6.9. The verifier follows one iteration: a program takes 0.4 ms to load,
    /// with a count 1.6 ms.
    Kernel,
    /// By a count.
    Count,
}

/// The maps the program uses, as their descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    /// The array shared with the recorder, see [`crate::perf::bpf::shared_array`].
    pub(super) words: i32,
    /// A buffer for each CPU.
    pub(super) buffers: i32,
    /// The events that write chunks.
    pub(super) events: i32,
    /// The program that copies, see [`copier`].
    pub(super) programs: i32,
}

/// The settings of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramConfig {
    /// Bytes of a stack that the kernel copies.
    pub(super) copied: i32,
    /// The most bytes that the program copies beyond.
    pub(super) bound: i32,
    /// The most bytes of chunks in a ring, so that there is room for samples.
    pub(super) room: i32,
    /// True to copy the user stacks of samples in the kernel, too (Linux 5.15).
    pub(super) kernel: bool,
}

/// Returns the instructions of the program that events run. It selects the parts to copy, and goes on with
/// [`copier`], so that only one program has the loop.
pub(super) fn program(config: ProgramConfig, maps: Maps) -> Vec<u64> {
    let mut code = Assembler::default();
    let [out, rejected] = [(); 2].map(|()| code.label());
    code.set(R6, R1);
    hint(&mut code, maps, out, rejected);
    stack_pointer(&mut code, config.kernel, out);
    limits(&mut code, config, out);
    room(&mut code, config, maps, out);
    go_on(&mut code, maps);
    code.bind(out);
    code.set(R0, 1);
    code.exit();
    code.bind(rejected);
    code.set(R0, 0);
    code.exit();
    code.finish()
}

/// Returns the instructions of the program that copies, from where another run has stopped, by the
/// variables in the buffer.
pub(super) fn copier(maps: Maps, limit: LoopLimit) -> Vec<u64> {
    let mut code = Assembler::default();
    let out = code.label();
    code.set(R6, R1);
    code.call(GET_SMP_PROCESSOR_ID);
    code.set(R9, R0);
    written_group(&mut code, maps, out);
    buffer(&mut code, maps, out);
    copy(&mut code, maps, limit, out);
    code.bind(out);
    code.set(R0, 1);
    code.exit();
    code.finish()
}

/// Emits code that stores the thread id and the address of its hint, and jumps to `rejected` if the
/// recorder drops the samples of the thread.
fn hint(code: &mut Assembler, maps: Maps, out: Label, rejected: Label) {
    let accepted = code.label();
    code.call(GET_CURRENT_PID_TGID);
    code.set(R9, R0);
    code.compute(And, R9, (1 << THREAD_BITS) - 1);
    code.store(R10, THREAD, R9);
    code.set(R1, R9);
    code.compute(And, R1, HINT_SLOTS as i32 - 1);
    group(code, maps, out);
    code.store(R10, HINT, R0);
    code.load(R1, R0, 0);
    code.jump_when(R1, JumpIf::NotEqual, R9, accepted);
    code.load(R1, R0, 24);
    code.jump_when(R1, JumpIf::NotEqual, 0, rejected);
    code.bind(accepted);
}

/// Emits code that sets R7 to the user's stack pointer.
fn stack_pointer(code: &mut Assembler, kernel: bool, out: Label) {
    let found = code.label();
    let not_user = code.label();
    code.load(R2, R6, pt_regs::MODE);
    code.load(R7, R6, pt_regs::SP);
    code.set(R3, R2);
    code.compute(And, R3, pt_regs::MODE_MASK);
    code.jump_when(R3, JumpIf::NotEqual, pt_regs::MODE_USER, not_user);
    code.jump(found);
    code.bind(not_user);
    if kernel {
        code.call(GET_CURRENT_TASK_BTF);
        code.set(R1, R0);
        code.call(TASK_PT_REGS);
        code.load(R2, R0, pt_regs::MODE);
        code.load(R7, R0, pt_regs::SP);
        // A thread of the kernel has none.
        code.set(R3, R2);
        code.compute(And, R3, pt_regs::MODE_MASK);
        code.jump_when(R3, JumpIf::NotEqual, pt_regs::MODE_USER, out);
    } else {
        code.jump(out);
    }
    code.bind(found);
    code.jump_when(R2, JumpIf::Equal, pt_regs::MODE_COMPAT, out);
}

/// Emits code that sets R0 to the address of the group of shared words with the number in R1.
fn group(code: &mut Assembler, maps: Maps, out: Label) {
    code.store_half(R10, KEY, R1);
    lookup(code, maps.words, out);
}

/// Emits code that sets R0 to the address of the value in a map at [`KEY`].
fn lookup(code: &mut Assembler, map: i32, out: Label) {
    code.load_map(R1, map);
    code.set(R2, R10);
    code.compute(Add, R2, i32::from(KEY));
    code.call(MAP_LOOKUP_ELEM);
    code.jump_when(R0, JumpIf::Equal, 0, out);
}

/// Emits code that sets R7 to the first address to copy and R8 to the end, by the hints for the
/// thread; [`NEXT`] to the address after the gap, or 0, and [`LAST`] to the end of the second part.
/// Stores the stack pointer, and the number of absent pages in a row to skip.
fn limits(code: &mut Assembler, config: ProgramConfig, out: Label) {
    let [unknown, everything, whole, near, near_only, known] = [(); 6].map(|()| code.label());
    code.store(R10, POINTER, R7);
    code.load(R9, R10, THREAD);
    code.load(R0, R10, HINT);
    code.set(R1, 0);
    code.store(R10, NEXT, R1);
    code.store(R10, LAST, R1);
    code.load(R8, R0, 0);
    code.set(R2, R8);
    code.compute(And, R2, (1 << THREAD_BITS) - 1);
    code.jump_when(R2, JumpIf::NotEqual, R9, unknown);
    code.set(R1, ABSENT_MAX_REQUESTED);
    code.store(R10, ABSENT_MAX, R1);
    code.compute(ShiftRight, R8, THREAD_BITS as i32);
    code.compute(ShiftLeft, R8, TOP_SHIFT as i32);
    // The hint says to copy nothing.
    code.jump_when(R8, JumpIf::Equal, 0, out);
    // The stack pointer is above the top: the thread runs on another stack.
    code.jump_when(R7, JumpIf::NotBelow, R8, unknown);
    end_of_kernel_copy(code, config);
    code.load(R0, R10, HINT);
    code.set(R3, R9);
    code.set(R1, R8);
    code.jump_when(R3, JumpIf::NotBelow, R1, out);
    // Use the gap only if it ends between the kernel's copy and the top.
    code.load(R4, R0, 8);
    code.load(R5, R0, 16);
    code.jump_when(R3, JumpIf::NotBelow, R5, whole);
    code.jump_when(R4, JumpIf::NotBelow, R5, whole);
    code.jump_when(R5, JumpIf::Above, R1, whole);
    let inside = code.label();
    code.jump_when(R4, JumpIf::NotBelow, R3, inside);
    code.set(R4, R3);
    code.bind(inside);
    code.set(R2, R4);
    code.compute(Sub, R2, R3);
    code.compute(Add, R2, R1);
    code.compute(Sub, R2, R5);
    code.jump_when(R2, JumpIf::Above, config.bound, near);
    code.store(R10, NEXT, R5);
    code.store(R10, LAST, R1);
    code.set(R8, R4);
    code.jump(known);
    code.bind(whole);
    code.set(R8, R1);
    code.set(R2, R1);
    code.compute(Sub, R2, R3);
    code.jump_when(R2, JumpIf::Above, config.bound, near);
    code.jump(known);
    code.bind(near);
    code.load(R2, R0, 24);
    code.jump_when(R2, JumpIf::Equal, 0, near_only);
    code.jump(everything);
    code.bind(near_only);
    code.set(R1, ABSENT_MAX_UNKNOWN);
    code.store(R10, ABSENT_MAX, R1);
    code.set(R8, R3);
    code.compute(Add, R8, NEAR);
    code.jump(known);
    code.bind(unknown);
    code.set(R1, ABSENT_MAX_UNKNOWN);
    code.store(R10, ABSENT_MAX, R1);
    code.bind(everything);
    // From the stack pointer on, so that there is always a chunk, which names the thread.
    code.set(R3, R7);
    code.set(R8, R7);
    code.compute(Add, R8, config.copied - WORD + config.bound);
    code.bind(known);
    code.set(R7, R3);
}

/// Emits code that sets R9 to the address at which the kernel's copy of the stack from R7 to R8 will
/// end: at its first page that is not in memory, if there is one.
fn end_of_kernel_copy(code: &mut Assembler, config: ProgramConfig) {
    let [found, complete] = [(); 2].map(|()| code.label());
    code.set(R9, R7);
    code.compute(Or, R9, PAGE - 1);
    code.compute(Add, R9, 1);
    // The page of the stack pointer is not tested: the thread has just used it. A word of each other
    // page, about 40 ns.
    for _ in 0..config.copied / PAGE + 1 {
        code.set(R1, R7);
        code.compute(Add, R1, config.copied);
        code.jump_when(R9, JumpIf::NotBelow, R1, complete);
        code.jump_when(R9, JumpIf::NotBelow, R8, complete);
        code.set(R1, R10);
        code.compute(Add, R1, i32::from(WORD_READ));
        code.set(R2, WORD);
        code.set(R3, R9);
        code.call(PROBE_READ_USER);
        code.jump_when(R0, JumpIf::NotEqual, 0, found);
        code.compute(Add, R9, PAGE);
    }
    code.bind(complete);
    code.set(R9, R7);
    // One word of overlap: a word that begins in the kernel's copy and ends beyond it.
    code.compute(Add, R9, config.copied - WORD);
    code.bind(found);
}

/// Emits code that sets R9 to the CPU's buffer, if there is room in the ring. [`WRITTEN`] becomes the
/// address of the count of bytes written.
fn room(code: &mut Assembler, config: ProgramConfig, maps: Maps, out: Label) {
    code.call(GET_SMP_PROCESSOR_ID);
    code.set(R9, R0);
    written_group(code, maps, out);
    code.load(R1, R0, 0);
    code.load(R2, R0, 8);
    code.compute(Sub, R1, R2);
    code.jump_when(R1, JumpIf::Above, config.room, out);
    buffer(code, maps, out);
    // The thread and the stack pointer are the same in all parts.
    code.load(R1, R10, THREAD);
    code.store(R9, PART_THREAD, R1);
    code.load(R1, R10, POINTER);
    code.store(R9, PART_POINTER, R1);
    code.load(R1, R10, NEXT);
    code.store(R9, BUFFER_NEXT, R1);
    code.load(R1, R10, LAST);
    code.store(R9, BUFFER_LAST, R1);
    code.load(R1, R10, ABSENT_MAX);
    code.store(R9, BUFFER_ABSENT_MAX, R1);
    code.store(R9, BUFFER_ABSENT_LEFT, R1);
    code.store(R9, BUFFER_AT, R7);
    code.store(R9, BUFFER_END, R8);
    code.set(R1, PART - 1);
    code.store(R9, BUFFER_UNIT, R1);
}

/// Emits code that sets [`WRITTEN`] and R0 to the shared words of the CPU in R9.
fn written_group(code: &mut Assembler, maps: Maps, out: Label) {
    code.set(R1, R9);
    code.compute(Add, R1, HINT_SLOTS as i32);
    group(code, maps, out);
    code.store(R10, WRITTEN, R0);
}

/// Emits code that sets R9 from the number of the CPU to its buffer.
fn buffer(code: &mut Assembler, maps: Maps, out: Label) {
    code.store_half(R10, KEY, R9);
    lookup(code, maps.buffers, out);
    code.set(R9, R0);
}

/// Emits code that reads from R7 on into the buffer, up to a multiple of the unit or to R8. R0
/// becomes 0 on success, and the size of the chunk the bytes to read.
fn read(code: &mut Assembler, out: Label) {
    let whole = code.label();
    code.load(R1, R9, BUFFER_UNIT);
    code.set(R2, R7);
    code.compute(Or, R2, R1);
    code.compute(Add, R2, 1);
    code.jump_when(R8, JumpIf::NotBelow, R2, whole);
    code.set(R2, R8);
    code.bind(whole);
    code.compute(Sub, R2, R7);
    code.store(R9, PART_SIZE, R2);
    // Through the map, so that the verifier forgets the exact value.
    code.load(R2, R9, PART_SIZE);
    code.jump_when(R2, JumpIf::Above, PART, out);
    code.set(R1, R9);
    code.compute(Add, R1, PART_BYTES);
    code.set(R3, R7);
    code.call(PROBE_READ_USER);
}

/// Emits code that writes the chunk in the buffer. R0 becomes 0 on success.
fn write(code: &mut Assembler, maps: Maps, out: Label) {
    code.store(R9, PART_START, R7);
    code.load(R5, R9, PART_SIZE);
    code.jump_when(R5, JumpIf::Above, PART, out);
    code.compute(Add, R5, CHUNK_HEADER_BYTES as i32);
    code.set(R1, R6);
    code.load_map(R2, maps.events);
    // BPF_F_CURRENT_CPU, 32 bits set.
    code.set(R3, -1);
    code.compute(ShiftRight, R3, 32);
    code.set(R4, R9);
    code.compute(Add, R4, i32::from(BUFFER_PART));
    code.call(PERF_EVENT_OUTPUT);
}

/// Emits code that goes on with a run of [`copier`].
fn go_on(code: &mut Assembler, maps: Maps) {
    code.set(R1, R6);
    code.load_map(R2, maps.programs);
    code.set(R3, 0);
    // Returns only if it fails.
    code.call(TAIL_CALL);
}

/// Emits the loop that writes chunks from [`BUFFER_AT`] up to [`BUFFER_END`], and then from
/// [`BUFFER_NEXT`] on. An iteration reads a part, or a page of a part in which some are absent.
fn copy(code: &mut Assembler, maps: Maps, limit: LoopLimit, out: Label) {
    let [piece, next, next_run, more, got] = [(); 5].map(|()| code.label());
    let [absent, requested, advanced, written] = [(); 4].map(|()| code.label());
    if limit == LoopLimit::Count {
        code.set(R1, ROUNDS_PER_RUN);
        code.store(R10, ROUNDS, R1);
    }
    code.jump(next);
    code.bind(next_run);
    go_on(code, maps);
    code.jump(out);
    code.bind(piece);
    code.set(R1, PART - 1);
    code.store(R9, BUFFER_UNIT, R1);
    // Before Linux 6.7 the verifier refuses other instructions than jumps before the head of a loop.
    code.jump(next);
    code.bind(next);
    match limit {
        LoopLimit::Kernel => code.jump_at_limit(next_run),
        LoopLimit::Count => {
            code.load(R1, R10, ROUNDS);
            code.jump_when(R1, JumpIf::Equal, 0, next_run);
            code.compute(Sub, R1, 1);
            code.store(R10, ROUNDS, R1);
        }
    }
    code.load(R7, R9, BUFFER_AT);
    code.load(R8, R9, BUFFER_END);
    code.jump_when(R8, JumpIf::Above, R7, more);
    code.load(R1, R9, BUFFER_NEXT);
    code.jump_when(R1, JumpIf::Equal, 0, out);
    code.store(R9, BUFFER_AT, R1);
    code.load(R1, R9, BUFFER_LAST);
    code.store(R9, BUFFER_END, R1);
    code.set(R1, 0);
    code.store(R9, BUFFER_NEXT, R1);
    code.load(R1, R9, PART_THREAD);
    code.compute(Or, R1, AFTER_GAP as i32);
    code.store(R9, PART_THREAD, R1);
    code.jump(piece);
    code.bind(more);
    read(code, out);
    code.jump_when(R0, JumpIf::Equal, 0, got);
    // The end of the stack lies here, or a page that is not in memory: go on page by page.
    code.load(R1, R9, BUFFER_UNIT);
    code.jump_when(R1, JumpIf::Equal, PAGE - 1, absent);
    code.set(R1, PAGE - 1);
    code.store(R9, BUFFER_UNIT, R1);
    code.jump(next);
    code.bind(absent);
    code.load(R1, R9, BUFFER_ABSENT_LEFT);
    code.jump_when(R1, JumpIf::Equal, 0, out);
    code.compute(Sub, R1, 1);
    code.store(R9, BUFFER_ABSENT_LEFT, R1);
    // Libraries often lie above the stack of a thread. Of a thread without hints they would fill the
    // ring.
    code.load(R1, R9, BUFFER_ABSENT_MAX);
    code.jump_when(R1, JumpIf::NotEqual, ABSENT_MAX_UNKNOWN, requested);
    code.load(R1, R9, PART_POINTER);
    code.compute(Add, R1, NEAR_UNKNOWN);
    code.jump_when(R1, JumpIf::NotBelow, R8, requested);
    code.store(R9, BUFFER_END, R1);
    code.bind(requested);
    code.compute(Or, R7, PAGE - 1);
    code.compute(Add, R7, 1);
    code.jump(advanced);
    code.bind(got);
    write(code, maps, out);
    code.load(R1, R10, WRITTEN);
    code.jump_when(R0, JumpIf::Equal, 0, written);
    code.load(R3, R1, LOST);
    code.compute(Add, R3, 1);
    code.store(R1, LOST, R3);
    code.jump(out);
    code.bind(written);
    code.load(R2, R9, PART_SIZE);
    code.compute(Add, R7, R2);
    code.load(R3, R1, 0);
    code.compute(Add, R3, R2);
    code.compute(Add, R3, CHUNK_HEADER_BYTES as i32);
    code.store(R1, 0, R3);
    code.load(R1, R9, BUFFER_ABSENT_MAX);
    code.store(R9, BUFFER_ABSENT_LEFT, R1);
    code.bind(advanced);
    code.store(R9, BUFFER_AT, R7);
    // Whole parts again where one begins.
    code.set(R1, R7);
    code.compute(And, R1, PART - 1);
    code.jump_when(R1, JumpIf::Equal, 0, piece);
    code.jump(next);
}
