//! Samples to counts: keys, filters, time slices, runs, margins of error.

pub mod blocks;
pub mod filter;
pub mod group;
mod held;
pub mod join;
mod join_check;
pub mod key;
pub mod margin;
pub mod near_names;
mod omitted;
mod once_per_stack;
mod path_walk;
pub mod ratio;
mod run_losses;
mod runs;
pub mod sample_label;
mod stack_sums;
pub mod summary;
mod thread_time;
pub mod time;
pub(crate) mod unnamed;

pub use blocks::{BlockNumber, Blocks};
pub use group::{GroupKey, Sum};
pub use omitted::{FoldedSums, OmittedRows, ReportedEvent, add_bounds, raise_bound};
pub use once_per_stack::OncePerStack;
pub use path_walk::{PathBuilder, path_of};
pub use stack_sums::{Context, GroupBy, Profile};
pub use thread_time::ThreadTime;
