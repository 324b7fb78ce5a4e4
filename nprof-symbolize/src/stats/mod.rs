//! Statistics of lookups per image, the summary of a run, and the commands that install debug symbols.

pub(crate) mod debug_packages;
pub(crate) mod image_findings;
pub(crate) mod image_stats;
pub(crate) mod self_samples;
pub(crate) mod summary;
