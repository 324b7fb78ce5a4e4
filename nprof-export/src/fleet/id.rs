//! Ids of frames and stacks that are equal on every host: hashes of their contents. Pure.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::model::{Frame, Profile};

/// Returns the id of some bytes: the first 8 bytes of their SHA-256, as a signed number, since some
/// engines have no unsigned ones.
fn id(bytes: &[u8]) -> i64 {
    let digest = Sha256::digest(bytes);
    let first = digest.first_chunk().copied().unwrap_or_default();
    i64::from_be_bytes(first)
}

/// Returns the id of a frame.
///
/// A build ID and an offset are a place in code on every host. Without a build ID, as for code that was
/// generated at run time, the same offset can be another function: the names of its calls are part of
/// the id.
pub(super) fn of_frame(profile: &Profile, frame: &Frame) -> i64 {
    let mut bytes = Vec::new();
    let mut add = |part: &[u8]| {
        // The length separates parts.
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    let image = frame.image.map(|image| &profile.images[image as usize]);
    let build_id = image.map_or("", |image| &image.build_id);
    add(image.map_or("", |image| image.kind).as_bytes());
    add(build_id.as_bytes());
    add(image.map_or("", |image| &image.name).as_bytes());
    add(&[u8::from(frame.return_address), u8::from(frame.is_kernel())]);
    add(&frame.offset.to_le_bytes());
    if build_id.is_empty() {
        add(image.map_or("", |image| &image.path).as_bytes());
        for call in &frame.calls {
            add(profile.functions[call.function as usize].name.as_bytes());
        }
    }
    id(&bytes)
}

/// Returns the id of the names of a frame: two hosts may find more inlined calls or none.
pub(super) fn of_names(profile: &Profile, frame: &Frame) -> i64 {
    let mut bytes = vec![u8::from(frame.is_named == Some(true))];
    for call in &frame.calls {
        let function = &profile.functions[call.function as usize];
        for part in [&function.name, &function.file] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes.extend_from_slice(&call.line.to_le_bytes());
    }
    id(&bytes)
}

/// Returns the id of a stack of these frames, leaf first.
pub(super) fn of_stack(frames: &[i64]) -> i64 {
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
    id(&bytes)
}

/// The most runs of which a name has digits: it stays below 255 bytes, the limit of most file systems.
const RUNS_IN_NAME: usize = 36;

/// The number of digits of a run in a name.
const DIGITS: usize = 6;

/// Returns a name for a file with the samples of these runs: a hash, and the last digits of each run, so that
/// later exports need not read the file to see that it has none of theirs.
pub(super) fn of_runs(runs: &BTreeSet<u64>) -> String {
    let bytes: Vec<u8> = runs.iter().flat_map(|run| run.to_le_bytes()).collect();
    let mut name = format!("{:016x}", id(&bytes));
    if runs.len() <= RUNS_IN_NAME {
        name.push('-');
        runs.iter().for_each(|&run| name.push_str(&digits(run)));
    }
    name
}

/// True if a file of this name may have one of the runs.
pub(super) fn may_have(name: &str, runs: &BTreeSet<u64>) -> bool {
    let Some(listed) = listed(name) else { return true };
    let is_listed = |run: u64| {
        let digits = digits(run);
        listed.chunks(DIGITS).any(|other| other == digits.as_bytes())
    };
    runs.iter().any(|&run| is_listed(run))
}

/// Returns the digits of the runs in a name. None if it has none, as the names of other programs, which may
/// have joined files.
fn listed(name: &str) -> Option<&[u8]> {
    let (hash, listed) = name.split_once('-')?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_ours = hash.len() == 16 && !listed.is_empty() && listed.len() % DIGITS == 0;
    (is_ours && hash.bytes().chain(listed.bytes()).all(is_digit)).then_some(listed.as_bytes())
}

fn digits(run: u64) -> String {
    format!("{:0DIGITS$x}", run & ((1 << (4 * DIGITS)) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_the_runs_that_a_file_may_have() {
        let runs = |runs: &[u64]| runs.iter().copied().collect::<BTreeSet<u64>>();
        let name = of_runs(&runs(&[0x12_3456_789a, 7]));
        assert_eq!(name[16..], *"-00000756789a");
        assert!(may_have(&name, &runs(&[9, 7])));
        assert!(may_have(&name, &runs(&[0x12_3456_789a])));
        assert!(!may_have(&name, &runs(&[9, 0x75678])));
        for other in
            ["part-00000", "compacted-2026-11-22", "0123456789abcdef-", "0123456789abcdef-00000g"]
        {
            assert!(may_have(other, &runs(&[9])), "{other}");
        }
        let many: BTreeSet<u64> = (0..=RUNS_IN_NAME as u64).collect();
        assert!(may_have(&of_runs(&many), &runs(&[1000])));
        assert!(of_runs(&(1..=RUNS_IN_NAME as u64).collect()).len() < 240);
    }
}
