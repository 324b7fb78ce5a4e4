//! Unwinds copies of user stacks, by the files of their images on this machine.

mod files;
mod process_code;
mod user_copy;

pub(crate) use files::{ImageFiles, Lacking};
pub(crate) use process_code::ProcessCode;
pub(crate) use user_copy::{UserCopy, machine_of};
