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

/// Returns a name for a file with the samples of these runs.
pub(super) fn of_runs(runs: &BTreeSet<u64>) -> String {
    let bytes: Vec<u8> = runs.iter().flat_map(|run| run.to_le_bytes()).collect();
    format!("{:016x}", id(&bytes))
}
