//! Merges two arbitrary streams, one in each encoding. The first 0xff divides them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nprof_format::merge::merge;
use nprof_stream::{Encoding, Reader, Record, Step, Verdict, Writer};
use nprof_stream_fuzz::block;

fuzz_target!(|data: &[u8]| {
    let middle = data.iter().position(|&byte| byte == 0xff).unwrap_or(data.len());
    let (lines, payload) = data.split_at(middle);
    let text = [b"@nprof\t1.1\trun=0x7\ttime=3\tutc=70\n", lines].concat();
    let mut binary = block(0, b"\x01\x15run=0x8\ttime=5\tutc=90");
    binary.extend_from_slice(&block(1, payload.get(1..).unwrap_or_default()));
    let Some(merged) = merged(&[&text, &binary]) else { return };
    let (lines, samples, verdict) = read(&merged);
    assert_eq!(verdict, Verdict::Complete);
    assert_eq!(samples, read(&text).1 + read(&binary).1);
    let again = merged_again(&merged);
    assert_eq!(read(&again).0, lines);
});

/// Returns the merged streams. None if the merge is refused.
fn merged(inputs: &[&[u8]]) -> Option<Vec<u8>> {
    let inputs = inputs.iter().map(|&input| (String::new(), input)).collect();
    let mut writer = Writer::new(Vec::new(), Encoding::Binary);
    merge(inputs, &Step::default(), &mut writer).ok()?;
    Some(writer.finish().expect("memory does not fail"))
}

fn merged_again(stream: &[u8]) -> Vec<u8> {
    merged(&[stream]).expect("our own stream is merged")
}

/// Returns the records of a stream as text, the number of its samples, and the verdict.
fn read(stream: &[u8]) -> (Vec<String>, u64, Verdict) {
    let mut reader = Reader::new(stream);
    let (mut lines, mut samples, mut inside) = (Vec::new(), 0, false);
    while let Some(record) = reader.next().expect("it was read before") {
        inside = inside && !matches!(record, Record::End(_)) || matches!(record, Record::Head(_));
        samples += u64::from(inside && matches!(record, Record::Sample(_)));
        let mut line = Writer::new(Vec::new(), Encoding::Text);
        line.write(&record).expect("memory does not fail");
        let line = line.finish().expect("memory does not fail");
        lines.push(String::from_utf8(line).expect("text is UTF-8"));
    }
    (lines, samples, reader.verdict())
}
