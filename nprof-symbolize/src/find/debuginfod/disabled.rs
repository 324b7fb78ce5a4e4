//! The absent client of a build without the cargo feature `debuginfod`.

use std::path::PathBuf;

use super::ArtifactKind;
use crate::find::SearchLog;

/// A client that cannot exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Debuginfod {}

impl Debuginfod {
    /// Fetches nothing.
    pub(crate) fn fetch(
        &self,
        _build_id: &[u8],
        _kind: ArtifactKind,
        _log: &SearchLog,
    ) -> Option<PathBuf> {
        match *self {}
    }
}
