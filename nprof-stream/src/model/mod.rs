//! Reader state: the definitions of ids, the labels of calls, the rules of order; for writers, the assignment of ids.

pub mod assigned_ids;
pub(crate) mod code_table;
pub(crate) mod epoch_cache;
pub(crate) mod id_table;
pub mod labels;
mod names;
pub mod tables;
pub(crate) mod validate;
