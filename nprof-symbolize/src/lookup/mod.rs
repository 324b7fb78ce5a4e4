//! Lookups: images by id, opened on demand, cached within a memory bound, and searched at once, in
//! parallel or in the background.

pub(crate) mod background;
pub(crate) mod code_store;
pub(crate) mod image_cache;
pub(crate) mod image_catalog;
pub(crate) mod lookup_key;
pub(crate) mod parallel;
pub(crate) mod reuse;
