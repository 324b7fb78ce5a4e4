//! The array shared with the BPF program.
//!
//! Words shared with the program, in groups of [`GROUP`]. First one for each thread, that of its
//! id modulo [`HINT_SLOTS`], which it may lose to another; it tells what is needed of its stack:
//! 1. up to where, its *top*, without the lowest [`TOP_SHIFT`] bits, above [`THREAD_BITS`] bits of
//!    the thread's id; 0 when nothing of it is wanted;
//! 2. from where on, and
//! 3. up to where nothing is needed, the *hole*: some functions have a frame of half a megabyte.
//!
//! Then one for each CPU: how many bytes of parts the program wrote, how many were read, and how
//! many parts were lost for want of room.
//!
//! The program reads these words while they change. What it copies tells its address, so that
//! the worst that can come of that is too little or too much of it.

/// How many words there are for threads, a power of two.
pub(crate) const HINT_SLOTS: usize = 1 << 14;

/// The words of a group.
pub(crate) const GROUP: usize = 4;

/// The bits of a thread's id: PID_MAX_LIMIT of include/linux/threads.h.
pub(crate) const THREAD_BITS: u32 = 22;

/// The lowest bits of a top that are not told. With 64 - 22 above, this reaches 47 bits far: all
/// of user memory.
pub(crate) const TOP_SHIFT: u32 = 5;

/// How many words are shared, with those of CPUs up to this number.
pub(crate) fn word_count(last_cpu: u32) -> usize {
    GROUP * (HINT_SLOTS + last_cpu as usize + 1)
}

/// The word with the bytes of parts that were read of a CPU's.
pub(crate) fn read_word(cpu: u32) -> usize {
    GROUP * (HINT_SLOTS + cpu as usize) + 1
}

/// The word with the number of parts of a CPU's that were lost.
pub(crate) fn lost_word(cpu: u32) -> usize {
    GROUP * (HINT_SLOTS + cpu as usize) + 2
}
