//! Facts about processor architectures for unwinding: registers, return addresses, signal frames,
//! procedure linkage tables, and the analysis of machine code. Nothing outside of this folder names a
//! register or an instruction.
//!
//! All architectures are compiled: stacks can be unwound on another machine than the one that recorded
//! them. The names of that on which the program runs are here, and its [`Architecture`] is [`Native`].

pub mod aarch64;
mod agreement;
pub mod architecture;
pub mod code_bytes;
pub mod machine;
pub mod plt;
pub mod rule;
pub mod stack;
pub mod x86_64;

pub use architecture::Architecture;
pub use machine::Machine;
pub use plt::Plt;
pub use stack::{RETURN_ADDRESS_BELOW_CFA, WORD, return_address_slot};

#[cfg(target_arch = "aarch64")]
pub use aarch64::{
    Aarch64 as Native, CALL_SAVED, COUNT, FP, IP, MASK, NAMES, NUMBERS, PRESERVED, SP,
};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    CALL_SAVED, COUNT, FP, IP, MASK, NAMES, NUMBERS, PRESERVED, SP, X86_64 as Native,
};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("nprof-unwind supports x86-64 and aarch64; add a folder to src/arch");
