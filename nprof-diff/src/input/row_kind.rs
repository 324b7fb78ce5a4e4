//! `--by`: the kind of the rows. Pure.

use std::str::FromStr;

use nprof_report::key::Key;
use nprof_stream::labels::CallKey;

/// The kind of the rows, one of the keys that all reports share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Function and base name of its image.
    Function,
    /// Source file.
    File,
    /// Source file and line.
    Line,
    /// Base name of the image.
    Image,
    /// Name of the thread.
    Command,
    /// Call path: functions, outermost first.
    Path,
}

impl RowKind {
    /// Returns the row kind of a report key. None for keys that differ from run to run (process,
    /// address) or have their own option (event).
    fn of(key: Key) -> Option<Self> {
        match key {
            Key::Call(CallKey::Function) => Some(RowKind::Function),
            Key::Call(CallKey::File) => Some(RowKind::File),
            Key::Call(CallKey::Line) => Some(RowKind::Line),
            Key::Call(CallKey::Image) => Some(RowKind::Image),
            Key::Command => Some(RowKind::Command),
            Key::Path => Some(RowKind::Path),
            _ => None,
        }
    }

    /// Returns its name on the command line, which messages use for its rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RowKind::Function => "function",
            RowKind::File => "file",
            RowKind::Line => "line",
            RowKind::Image => "image",
            RowKind::Command => "command",
            RowKind::Path => "path",
        }
    }

    /// True if rows are named by symbolization.
    pub(crate) fn needs_symbols(self) -> bool {
        // The recorder knows the names of images and threads.
        !matches!(self, RowKind::Image | RowKind::Command)
    }

    /// True if a row is a function of an image, or a path of such functions.
    pub(crate) fn has_image(self) -> bool {
        matches!(self, RowKind::Function | RowKind::Path)
    }
}

impl FromStr for RowKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = Key::named_if(text, |key| RowKind::of(key).is_some())?;
        RowKind::of(key).ok_or_else(|| format!("unknown key {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_keys_that_are_equal_in_all_runs() {
        for kind in [
            RowKind::Function,
            RowKind::File,
            RowKind::Line,
            RowKind::Image,
            RowKind::Command,
            RowKind::Path,
        ] {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "address".parse::<RowKind>().unwrap_err();
        assert!(error.contains("function") && !error.contains("address,"), "{error}");
    }
}
