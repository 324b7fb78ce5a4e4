//! Samples to counts: keys, filters, time slices, runs, margins of error.

pub mod cell;
pub mod filter;
pub mod key;
pub mod margin;
mod runs;
mod stack_sums;
pub mod summary;
pub mod time;

pub use cell::{Cell, Sum};
pub use stack_sums::{Context, Profile, Split};
