//! Looks up addresses in images, which are opened on demand and cached within a memory bound.

pub(crate) mod background;
pub(crate) mod image_cache;
pub(crate) mod image_catalog;
pub(crate) mod parallel;
pub(crate) mod reuse;
