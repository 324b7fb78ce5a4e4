//! The samples of streams, independent of their records and of every format. Pure.

mod image_counts;
mod interner;
mod profile;
mod program;
mod values;

pub(crate) use interner::Interner;
pub(crate) use profile::{
    CallSite, Category, Facts, Frame, Function, Image, Loss, Profile, Run, Sample, Stack, Thread,
};
pub(crate) use program::{Begun, Programs};
pub(crate) use values::{count_name, unit_name, value_name};
