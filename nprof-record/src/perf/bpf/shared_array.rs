//! The array shared with the BPF program.
//!
//! Its words lie in groups of [`GROUP`]. First come the hints, a group for each thread id modulo
//! [`HINT_SLOTS`]; another thread may overwrite it. They state the needed part of the stack:
//! 1. its end, the *top*, without the lowest [`TOP_SHIFT`] bits, above [`THREAD_BITS`] bits of the
//!    thread id; 0 to copy nothing;
//! 2. and 3. the first address of the *gap* that is not needed, and the one after its last: some
//!    functions have a frame of half a megabyte;
//! 4. not 0 to copy as much as is ever copied, across absent pages, of a stack with a top too far away;
//!    if the top is 0, to write no samples of the thread either.
//!
//! Then comes a group for each CPU: the bytes of chunks that the program wrote, the bytes that were
//! read, and the number of chunks that were lost because the ring was full. The programs for waiting
//! have an array of their own, with the most bytes in the ring as the third word.
//!
//! The program reads these words while they change. Every chunk states its address, so the worst
//! result is that it copies too little or too much. The fourth word is written before the first,
//! so that no sample of another thread with the same group is dropped.

/// Groups of hints, a power of two.
pub(crate) const HINT_SLOTS: usize = 1 << 14;

/// Words of a group.
pub(crate) const GROUP: usize = 4;

/// Bits of a thread id: PID_MAX_LIMIT of include/linux/threads.h.
pub(crate) const THREAD_BITS: u32 = 22;

/// The lowest bits of a top that are left out. With the 64 - 22 bits above the thread id, tops of
/// 48 bits fit: all of user memory but for programs that ask for higher addresses.
pub(crate) const TOP_SHIFT: u32 = 6;

/// Returns the number of words, with groups for CPUs up to `last_cpu`.
pub(crate) fn word_count(last_cpu: u32) -> usize {
    GROUP * (HINT_SLOTS + last_cpu as usize + 1)
}

/// Returns the index of the word that counts the bytes read of a CPU's chunks.
pub(crate) fn read_word(cpu: u32) -> usize {
    GROUP * (HINT_SLOTS + cpu as usize) + 1
}

/// Returns the index of the word that counts the lost chunks of a CPU.
pub(crate) fn lost_word(cpu: u32) -> usize {
    GROUP * (HINT_SLOTS + cpu as usize) + 2
}

/// Returns the index of the word with the room for chunks of a CPU, in the array of the programs for
/// waiting. They count no lost chunks.
pub(crate) fn room_word(cpu: u32) -> usize {
    lost_word(cpu)
}
