//! Profiles that are read as a whole, since what their first sample needs comes last.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::io::Read;

use anyhow::bail;
use nprof_stream::RunId;
use rustc_hash::FxHasher;

/// Returns the bytes of an input, which is decompressed.
///
/// # Errors
///
/// If there are more than `max_bytes`, and if the input fails.
pub(super) fn read(input: impl Read, max_bytes: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        bail!("a profile of more than {max_bytes} bytes, decompressed, is not supported");
    }
    Ok(bytes)
}

/// Returns the run of the contents of a file: the same file is the same run.
pub(crate) fn run_of(bytes: &[u8]) -> RunId {
    RunId(BuildHasherDefault::<FxHasher>::default().hash_one(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_input_longer_than_the_bound() {
        assert_eq!(read(&b"abc"[..], 3).expect("an input of the bound"), b"abc");
        let error = read(&b"abcd"[..], 3).expect_err("an input over the bound");
        assert!(error.to_string().contains("more than 3 bytes"), "{error}");
    }
}
