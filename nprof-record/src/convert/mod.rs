//! Kernel records in, stream records out: process tree, address spaces, stack resolution, dictionary.

pub(crate) mod address_space;
pub(crate) mod allocations;
pub(crate) mod calls;
pub(crate) mod converter;
pub(crate) mod counts;
pub(crate) mod deep_stacks;
pub mod dictionary;
pub(crate) mod frame_table;
mod generated_code;
pub(crate) mod process_code;
pub(crate) mod process_tree;
pub(crate) mod recent_stacks;
pub(crate) mod rule_cache;
pub(crate) mod sample_stack;
pub(crate) mod stack_cache;
pub(crate) mod stack_resolver;
pub(crate) mod switches;
pub(crate) mod value_events;
pub(crate) mod waits;
