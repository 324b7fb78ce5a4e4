//! Fetches files by build ID from debuginfod servers, if the user allows it. A build without the
//! cargo feature `debuginfod` has no HTTP client and fetches nothing.

mod artifact;
#[cfg(feature = "debuginfod")]
mod client;
#[cfg(not(feature = "debuginfod"))]
mod disabled;

pub(crate) use artifact::ArtifactKind;
#[cfg(feature = "debuginfod")]
pub(crate) use client::{Debuginfod, Settings};
#[cfg(not(feature = "debuginfod"))]
pub(crate) use disabled::Debuginfod;
