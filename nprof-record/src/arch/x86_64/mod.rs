//! x86-64.

pub(crate) mod code_analysis;
mod code_state;
mod cpu;
mod frames;
pub(crate) mod generated_code;
mod plt;
pub(crate) mod pt_regs;
mod registers;

pub(crate) use cpu::{BREAKPOINTS, MODEL_KEY};
pub use frames::{
    FRAME_RECORD, FRAME_RECORD_RETURN_ADDRESS, PUSHED_RETURN_ADDRESS, SIGNAL_RETURN, SIGNAL_SAVED,
    SYSTEM_CALL, WORD, return_address_slot,
};
pub(crate) use generated_code::interpreter_cfa;
pub use plt::Plt;
pub(crate) use registers::{CALL_SAVED, NAMES};
pub use registers::{COUNT, FP, IP, MASK, NUMBERS, PRESERVED, SP};
