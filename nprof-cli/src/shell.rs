//! Quotes command lines for a shell, as the `command` of a step records them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Returns the words, quoted so that a shell reads them back unchanged, joined by spaces.
pub fn quoted(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<u8> {
    let words: Vec<Vec<u8>> =
        words.into_iter().map(|word| quote(word.as_ref().as_bytes())).collect();
    words.join(&b' ')
}

fn quote(word: &[u8]) -> Vec<u8> {
    // Bytes that no POSIX shell treats specially inside a word.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=+,./:@%".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let parts: Vec<&[u8]> = word.split(|&byte| byte == b'\'').collect();
    [b"'", &parts.join(&br"'\''"[..])[..], b"'"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_survive_a_shell() {
        let words = ["ls", "-l", "a b", "it's", "", "$x", "'"];
        assert_eq!(quoted(words), br"ls -l 'a b' 'it'\''s' '' '$x' ''\'''");
    }
}
