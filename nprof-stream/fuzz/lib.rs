//! Shared by the fuzz targets: blocks around arbitrary payloads, seed streams, and properties of any
//! input.

use std::path::Path;

use nprof_stream::{Encoding, Reader, Record, Verdict, Writer};

/// Returns a block with valid checksums around `payload`, which a fuzzer would never find.
pub fn block(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut block = b"\x89NPF\r\n\x1a\n".to_vec();
    block.extend_from_slice(&[1, 1, 0, 0]);
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(&7u64.to_le_bytes());
    block.extend_from_slice(&sequence.to_le_bytes());
    block.extend_from_slice(&0u64.to_le_bytes());
    block.extend_from_slice(&81_230_000_000_000u64.to_le_bytes());
    let crc = crc32c::crc32c(&block);
    block.extend_from_slice(&crc.to_le_bytes());
    block.extend_from_slice(payload);
    let crc = crc32c::crc32c(&block);
    block.extend_from_slice(&crc.to_le_bytes());
    block
}

/// Converts a stream to another encoding. None if it is refused.
pub fn reencode(stream: &[u8], encoding: Encoding) -> Option<(Vec<u8>, Verdict)> {
    let mut reader = Reader::new(stream);
    let mut writer = Writer::new(Vec::new(), encoding);
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                writer.write(&record).expect("records that were read can be written")
            }
            Ok(None) => break,
            Err(_) => return None,
        }
    }
    let verdict = reader.verdict();
    Some((writer.finish().expect("memory does not fail"), verdict))
}

/// Asserts that the records of `stream` survive both encodings.
pub fn check(stream: &[u8]) {
    let Some((text, _)) = reencode(stream, Encoding::Text) else { return };
    if !text.starts_with(b"@nprof\t") {
        return;
    }
    let (binary, in_text) = reencode(&text, Encoding::Binary).expect("our own text is read");
    let (again, in_binary) = reencode(&binary, Encoding::Text).expect("our own binary is read");
    assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&again));
    assert_eq!(in_text, in_binary);
}

/// The contents of a stream.
pub struct Reading {
    /// Its records, each as its line.
    pub lines: Vec<Vec<u8>>,
    /// True if its verdict is complete.
    pub is_complete: bool,
}

/// Reads a stream. None if it is refused.
pub fn read(stream: &[u8]) -> Option<Reading> {
    let mut reader = Reader::new(stream);
    let mut lines = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                let mut line = Writer::new(Vec::new(), Encoding::Text);
                line.write(&record).expect("records that were read can be written");
                lines.push(line.finish().expect("memory does not fail"));
            }
            Ok(None) => break,
            Err(_) => return None,
        }
    }
    Some(Reading { lines, is_complete: reader.verdict() == Verdict::Complete })
}

/// Returns complete streams to damage: the example, and the conformance vectors sorted by name.
pub fn streams() -> Vec<Vec<u8>> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/vectors");
    let mut paths: Vec<_> = ["complete", "truncated", "damaged"]
        .iter()
        .flat_map(|verdict| std::fs::read_dir(vectors.join(verdict)).into_iter().flatten())
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "txt" || kind == "nprof"))
        .collect();
    paths.sort();
    let vectors = paths.iter().filter_map(|path| std::fs::read(path).ok());
    [example()].into_iter().chain(vectors).collect()
}

/// Returns a complete stream in binary with a few records per block.
pub fn example() -> Vec<u8> {
    let text = include_str!("example.txt");
    let mut reader = Reader::new(text.as_bytes());
    let mut writer = Writer::new(Vec::new(), Encoding::Binary);
    let mut count = 0;
    while let Ok(Some(record)) = reader.next() {
        writer.write(&record).expect("memory does not fail");
        count += 1;
        if count % 4 == 0 || matches!(record, Record::Head(_)) {
            writer.flush().expect("memory does not fail");
        }
    }
    writer.finish().expect("memory does not fail")
}
