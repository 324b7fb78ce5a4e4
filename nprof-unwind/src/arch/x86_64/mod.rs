//! x86-64.

pub(crate) mod code_analysis;
mod code_state;
mod frames;
pub(crate) mod generated_code;
mod plt;
mod registers;

pub use frames::{
    FRAME_RECORD, FRAME_RECORD_RETURN_ADDRESS, PUSHED_RETURN_ADDRESS, SIGNAL_RETURN, SIGNAL_SAVED,
    SYSTEM_CALL, WORD, return_address_slot,
};
pub(crate) use generated_code::interpreter_cfa;
pub use plt::Plt;
pub use registers::{CALL_SAVED, COUNT, FP, IP, MASK, NAMES, NUMBERS, PRESERVED, SP};
