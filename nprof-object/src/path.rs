//! Paths of mapped files as the kernel writes them, in records of perf and in `/proc/PID/maps`.

/// The suffix that the kernel gives to the path of an unlinked file (d_path(9)).
const DELETED: &[u8] = b" (deleted)";

/// Returns the path without the suffix of an unlinked file.
pub fn without_deleted(path: &[u8]) -> &[u8] {
    split_deleted(path).0
}

/// Returns the path without the suffix of an unlinked file, and true if it had the suffix.
pub fn split_deleted(path: &[u8]) -> (&[u8], bool) {
    match path.strip_suffix(DELETED) {
        Some(path) => (path, true),
        None => (path, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_of_an_unlinked_file_is_removed_once() {
        assert_eq!(split_deleted(b"/bin/a (deleted)"), (&b"/bin/a"[..], true));
        assert_eq!(split_deleted(b"/bin/a"), (&b"/bin/a"[..], false));
        assert_eq!(without_deleted(b"/a (deleted) (deleted)"), b"/a (deleted)");
    }
}
