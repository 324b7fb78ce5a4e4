//! aarch64.

mod cpu;
pub(crate) mod pt_regs;

pub(crate) use cpu::{BREAKPOINTS, MODEL_KEY};
