//! The blocks and descriptors that recorded processes have.

pub(crate) mod descriptors;
pub(crate) mod live_set;
pub(crate) mod state;
