//! The blocks and descriptors that recorded processes have.

pub(crate) mod block;
mod block_table;
pub(crate) mod descriptors;
pub(crate) mod known_stacks;
pub(crate) mod live_set;
mod peak;
pub(crate) mod sizes;
pub(crate) mod state;
pub(crate) mod sums;
