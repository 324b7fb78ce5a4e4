//! Source files on this machine.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use nprof_stream::escape::escaped;

/// The longest source file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// The longest line that is shown, in bytes.
const MAX_LINE_BYTES: usize = 500;

/// Returns the lines of a source file below one of these directories, escaped: at the path in the stream,
/// or at the end of it, the longest first. None if there is none with at least `last_line` lines: then it
/// is another version.
pub(crate) fn lines(directories: &[PathBuf], path: &str, last_line: u32) -> Option<Vec<String>> {
    let names: Vec<&std::ffi::OsStr> = Path::new(path)
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    // The compiler's directory rarely exists here: the end of the path is below the user's.
    for start in 0..names.len() {
        let end: PathBuf = names[start..].iter().collect();
        for directory in directories {
            let Some(text) = read(&directory.join(&end)) else { continue };
            let lines: Vec<String> = text.split(|&byte| byte == b'\n').map(shown).collect();
            // The stream has no checksum of the source: the number of lines is all there is to compare.
            if lines.len() >= last_line as usize {
                return Some(lines);
            }
        }
    }
    None
}

fn read(path: &Path) -> Option<Vec<u8>> {
    // A FIFO would block.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    let length = file.take(MAX_BYTES + 1).read_to_end(&mut text).ok()?;
    (length as u64 <= MAX_BYTES).then_some(text)
}

/// Returns a line as a terminal can show it.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line).replace('\t', "        ");
    let text = escaped(text.trim_end().as_bytes());
    match text.char_indices().nth(MAX_LINE_BYTES) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_found_at_the_end_of_its_path() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("src")).unwrap();
        std::fs::write(directory.path().join("src/a.c"), b"one\n\ttwo\x1b[31m\n").unwrap();
        let below = [directory.path().to_owned()];
        let found = lines(&below, "/build/x/src/a.c", 2).unwrap();
        assert_eq!(found[..2], ["one".to_owned(), "        two\\x1b[31m".to_owned()]);
        assert!(lines(&below, "/build/x/src/a.c", 9).is_none(), "another version");
        assert!(lines(&below, "/build/x/../../b.c", 1).is_none());
    }
}
