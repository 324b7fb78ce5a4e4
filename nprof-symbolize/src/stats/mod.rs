//! Counts of lookup results per image, the summary of a run, and the debug packages to install.

pub(crate) mod debug_packages;
pub(crate) mod image_findings;
pub(crate) mod image_stats;
pub(crate) mod summary;
