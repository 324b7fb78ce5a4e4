//! What a row of the table is: keys as the user names them, and the columns they stand for.

use clap::ValueEnum;
use nprof_format::labels::CallKey;

/// A key of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Key {
    /// Function and image; the place in the image where there is no name
    Function,
    /// Image, by path
    Image,
    /// Source file
    File,
    /// Source file and line
    Line,
    /// Place in the image
    Address,
    /// Thread: pid/tid and name
    Thread,
    /// Process: pid and name of its first thread
    Process,
    /// The name the thread had when it was sampled
    Command,
    /// CPU
    Cpu,
    /// Event only (events are always kept apart)
    Event,
}

/// What names a row: one column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// A property of a call on the stack.
    Call(CallKey),
    /// `pid/tid name`.
    Thread,
    /// `pid name`.
    Process,
    /// The thread's name.
    Command,
    /// The CPU's number.
    Cpu,
}

impl Column {
    /// The column's name: what stands above it, and the key in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Column::Call(CallKey::Function) => "function",
            Column::Call(CallKey::Image | CallKey::ImageName) => "image",
            Column::Call(CallKey::File) => "file",
            Column::Call(CallKey::Line) => "line",
            Column::Call(CallKey::Address) => "address",
            Column::Thread => "thread",
            Column::Process => "process",
            Column::Command => "command",
            Column::Cpu => "cpu",
        }
    }
}

/// The columns of keys, in the order of the keys, each once. A function comes with the base name
/// of its image, unless the image is a key itself.
pub(crate) fn columns(keys: &[Key]) -> Vec<Column> {
    let mut columns = Vec::new();
    for key in keys {
        let column = match key {
            Key::Function => Column::Call(CallKey::Function),
            Key::Image => Column::Call(CallKey::Image),
            Key::File => Column::Call(CallKey::File),
            Key::Line => Column::Call(CallKey::Line),
            Key::Address => Column::Call(CallKey::Address),
            Key::Thread => Column::Thread,
            Key::Process => Column::Process,
            Key::Command => Column::Command,
            Key::Cpu => Column::Cpu,
            Key::Event => continue,
        };
        if columns.contains(&column) {
            continue;
        }
        columns.push(column);
        if *key == Key::Function && !keys.contains(&Key::Image) {
            columns.push(Column::Call(CallKey::ImageName));
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &[Key]) -> Vec<&'static str> {
        columns(keys).into_iter().map(Column::name).collect()
    }

    #[test]
    fn every_column_stands_once() {
        assert_eq!(names(&[Key::Function]), ["function", "image"]);
        assert_eq!(names(&[Key::Function, Key::Line]), ["function", "image", "line"]);
        assert_eq!(
            names(&[Key::Image, Key::Thread, Key::Function, Key::Thread]),
            ["image", "thread", "function"]
        );
        assert_eq!(names(&[Key::Event]), [""; 0]);
    }
}
