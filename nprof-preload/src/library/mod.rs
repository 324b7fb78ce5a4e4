//! The code in the program: hooks, sampling, the writer of the ring.

#[cfg(preloaded)]
mod panic;
