//! Source files on this machine, as far as they are those that were compiled.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use md5::{Digest, Md5};
use nprof_stream::Md5Sum;
use nprof_stream::escape::escaped;

/// The longest source file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// The longest line that is shown, in bytes.
const MAX_LINE_BYTES: usize = 500;

/// A source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its lines, escaped. None if there is no such file, or only another version.
    pub lines: Option<Vec<String>>,
    /// A statement on a version that is or may be another one than that of the code.
    pub mismatch: Option<String>,
}

/// Finds a source file below one of these directories: at the path in the stream, or at the end of it, the
/// longest first. A file with another MD5, or with fewer than `last_line` lines, is another version. If the
/// stream has no MD5, one that was modified after `recorded` may be one.
pub fn find(
    directories: &[PathBuf],
    path: &str,
    md5: Option<Md5Sum>,
    last_line: u32,
    recorded: Option<SystemTime>,
) -> Source {
    let names: Vec<&std::ffi::OsStr> = Path::new(path)
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let mut source = Source::default();
    // The compiler's directory rarely exists here: the end of the path is below the user's.
    for start in 0..names.len() {
        let end: PathBuf = names[start..].iter().collect();
        for directory in directories {
            let file = directory.join(&end);
            let Some((text, modified)) = read(&file) else { continue };
            let file = escaped(file.as_os_str().as_encoded_bytes());
            if md5.is_some_and(|compiled| !is_md5_of(&text, compiled)) {
                let message = format!(
                    "{file}: another version, not shown: its MD5 differs from that of the compiled file"
                );
                source.mismatch.get_or_insert(message);
                continue;
            }
            let lines: Vec<String> = text.split(|&byte| byte == b'\n').map(shown).collect();
            // Without an MD5, the number of lines and the time are all there is to compare.
            if lines.len() < last_line as usize {
                let count = lines.len();
                let message = format!(
                    "{file}: another version, not shown: it has {count} lines, the code line {last_line}"
                );
                source.mismatch.get_or_insert(message);
                continue;
            }
            let recorded = recorded.filter(|_| md5.is_none());
            let is_newer = recorded.zip(modified).is_some_and(|(then, modified)| modified > then);
            let message =
                || format!("{file}: modified after the recording; its lines may be others");
            return Source { lines: Some(lines), mismatch: is_newer.then(message) };
        }
    }
    source
}

/// True if this is the MD5 of a text.
fn is_md5_of(text: &[u8], mut md5: Md5Sum) -> bool {
    let found = Md5::digest(text);
    // GNU as (2.40) writes the number in a .file directive backwards.
    *found == md5 || {
        md5.reverse();
        *found == md5
    }
}

/// Reads a file. Returns its text, and the time at which it was modified.
fn read(path: &Path) -> Option<(Vec<u8>, Option<SystemTime>)> {
    let metadata = std::fs::metadata(path).ok()?;
    // A FIFO would block.
    if !metadata.is_file() {
        return None;
    }
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    let length = file.take(MAX_BYTES + 1).read_to_end(&mut text).ok()?;
    (length as u64 <= MAX_BYTES).then_some((text, metadata.modified().ok()))
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
        let found = find(&below, "/build/x/src/a.c", None, 2, None);
        let lines = found.lines.unwrap();
        assert_eq!(lines[..2], ["one".to_owned(), "        two\\x1b[31m".to_owned()]);
        assert_eq!(found.mismatch, None);
        assert_eq!(find(&below, "/build/x/../../b.c", None, 1, None), Source::default());
    }

    #[test]
    fn file_of_another_version_is_named() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.c"), b"one\ntwo\n").unwrap();
        let below = [directory.path().to_owned()];
        let short = find(&below, "/build/a.c", None, 9, None);
        assert!(short.lines.is_none() && short.mismatch.unwrap().contains("another version"));
        let newer = find(&below, "/build/a.c", None, 2, Some(SystemTime::UNIX_EPOCH));
        assert!(newer.lines.is_some() && newer.mismatch.unwrap().contains("after the recording"));
    }

    #[test]
    fn file_with_the_md5_of_the_compiled_one_is_preferred() {
        let directory = tempfile::tempdir().unwrap();
        let below = [directory.path().join("new"), directory.path().join("old")];
        for (directory, text) in below.iter().zip(["int a;\n", "int b;\n"]) {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("a.c"), text).unwrap();
        }
        let find = |md5| find(&below, "/build/a.c", Some(md5), 1, Some(SystemTime::UNIX_EPOCH));
        // echo 'int b;' | md5sum
        let compiled = 0x18e7_6d1b_5f92_749b_c998_a1a9_0e59_2d17_u128;
        for md5 in [compiled.to_be_bytes(), compiled.to_le_bytes()] {
            let found = find(md5);
            assert_eq!((found.lines.unwrap()[0].as_str(), found.mismatch), ("int b;", None));
        }
        let none = find((compiled + 1).to_be_bytes());
        let note = none.mismatch.unwrap();
        assert!(none.lines.is_none() && note.contains("new/a.c: another version"), "{note}");
    }
}
