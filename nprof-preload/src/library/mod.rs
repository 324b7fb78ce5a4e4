//! The code in the program: hooks, sampling, the writer of the ring.
//!
//! Rules: no allocation, no lock, no unwinding, no function of the C library besides those that a hook forwards to
//! and a few that only read. All of it may run in a signal handler, in a constructor, and in a thread that is about
//! to end.

mod arch;
mod calls;
mod choice;
mod clock;
mod descriptors;
mod errno;
mod hooks;
#[cfg(preloaded)]
mod intrinsics;
mod known;
mod memory;
mod next;
mod operators;
#[cfg(preloaded)]
mod panic;
mod process;
mod shadow;
mod stack;
mod start;
mod symbols;
mod sys;
mod thread;
mod unfinished;
mod writer;
