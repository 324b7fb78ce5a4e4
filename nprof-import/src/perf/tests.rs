//! Recordings built byte by byte: their meaning, and damage anywhere in them.

use std::io::Write;

use nprof_stream::{Encoding, Reader, Step, Verdict, Writer};
use proptest::prelude::*;

use super::compression::Decompressor;
use super::error::Error;
use super::import::{Imported, import};
use crate::unwind::ImageFiles;

/// A recording as from a pipe.
pub(super) struct Recording(pub(super) Vec<u8>);

/// The fields of samples: IP, TID, TIME, CPU, PERIOD, CALLCHAIN, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 128 | 256 | 32 | 1 << 16;

impl Recording {
    fn new() -> Self {
        let mut recording = Self::without_events();
        recording.attribute(1, 0, 7);
        recording
    }

    pub(super) fn without_events() -> Self {
        let mut recording = Self(Vec::new());
        recording.0.extend(b"PERFILE2");
        recording.0.extend(16_u64.to_le_bytes());
        recording
    }

    pub(super) fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend((body.len() as u16 + 8).to_le_bytes());
        self.0.extend(body);
    }

    /// Adds an event with a frequency of 997 Hz and records that state their id.
    fn attribute(&mut self, kind: u32, config: u64, id: u64) {
        self.attribute_with(kind, id, &[(8, config), (24, SAMPLE_TYPE)]);
    }

    /// Adds an event with these words of its attributes.
    pub(super) fn attribute_with(&mut self, kind: u32, id: u64, words: &[(usize, u64)]) {
        let mut body = vec![0; 128];
        let flags = 1_u64 << 10 | 1 << 18;
        for &(at, value) in [(16, 997), (40, flags)].iter().chain(words) {
            body[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        body[..4].copy_from_slice(&kind.to_le_bytes());
        body[4..8].copy_from_slice(&128_u32.to_le_bytes());
        body.extend(id.to_le_bytes());
        self.record(64, 0, &body);
    }

    /// Adds an event record, with the identification at its end.
    fn event(&mut self, kind: u32, misc: u16, time: u64, words: &[u32], text: &[u8]) {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(text);
        // Strings end with NUL, and are padded.
        body.resize((body.len() / 8 + 1) * 8, 0);
        body.extend([7_u32, 7].iter().flat_map(|word| word.to_le_bytes()));
        body.extend([time, 0, 7].iter().flat_map(|word| word.to_le_bytes()));
        self.record(kind, misc, &body);
    }

    pub(super) fn mmap(&mut self, pid: u32, start: u32, length: u32, offset: u32, path: &[u8]) {
        self.mmap_of_inode(0, [pid, start, length, offset], path);
    }

    /// Adds a mapping: process, start, length, offset.
    fn mmap_of_inode(&mut self, inode: u32, [pid, start, length, offset]: [u32; 4], path: &[u8]) {
        let mut words = vec![pid, pid, start, 0, length, 0, offset, 0];
        // Device, inode and generation; PROT_READ and PROT_EXEC.
        words.extend([0, 0, inode, 0, 0, 0, 5, 2]);
        self.event(10, 2, 1, &words, path);
    }

    fn sample(&mut self, time: u64, pid: u32, period: u64, chain: &[u64]) {
        let ip = chain.iter().find(|&&address| address < 1 << 63).copied().unwrap_or(0);
        let mut body: Vec<u8> = [7, ip].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        body.extend([pid, pid].iter().flat_map(|word| word.to_le_bytes()));
        body.extend([time, 3, period, chain.len() as u64].iter().flat_map(|w| w.to_le_bytes()));
        body.extend(chain.iter().flat_map(|word| word.to_le_bytes()));
        self.record(9, 2, &body);
    }

    fn round(&mut self) {
        self.record(68, 0, &[]);
    }
}

const USER: u64 = -512_i64 as u64;

/// Returns a recording of a process with two samples out of order, a child, and lost samples.
fn recording() -> Recording {
    let mut recording = Recording::new();
    recording.event(3, 0, 1, &[7, 7], b"prog\nname");
    recording.mmap(7, 0x1000, 0x1000, 0x200, b"/bin/prog");
    recording.mmap(7, 0x8000, 0x1000, 0, b"//anon");
    recording.round();
    recording.sample(30, 7, 1000, &[USER, 0x1010, 0x1020]);
    recording.sample(20, 7, 2000, &[USER, 0x8010, 0x1020, 0x5]);
    recording.event(7, 0, 35, &[9, 7, 9, 7, 35, 0], b"");
    recording.event(2, 0, 36, &[7, 0, 5, 0], b"");
    recording.sample(40, 9, 3000, &[USER, 0x1010]);
    recording.round();
    recording
}

/// Imports a recording as text.
fn imported(bytes: &[u8]) -> Result<(Imported, String), Error> {
    let mut out = Vec::new();
    let writer = Writer::new(&mut out as &mut dyn Write, Encoding::Text);
    let (imported, writer) = import(bytes, None, ImageFiles::default(), Step::default(), writer)?;
    drop(writer);
    Ok((imported, String::from_utf8(out).expect("text is UTF-8")))
}

#[test]
fn records_become_a_stream_in_order_of_time() {
    let (imported, text) = imported(&recording().0).expect("it is valid");
    assert!(imported.incomplete.is_none());
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('@')).collect();
    let expected = [
        "T\t1\t1\t7\t7\t0\tprog\\nname\texe=/bin/prog",
        "F\t1\t0\t0x5\tu,ra",
        "I\t1\telf\t-\t/bin/prog",
        "F\t2\t1\t0x220\tu,ra",
        "I\t2\tanon\t-\t[anon]",
        "F\t3\t2\t0x8010\tu",
        "N\t1\t0\t1\t2\t3",
        "S\t20\t1\t1\t3\t3\t2000\t1",
        "F\t4\t1\t0x210\tu",
        "N\t4\t0\t2\t4",
        "S\t30\t1\t1\t3\t5\t1000\t1",
        "L\t36\t0\t-\t0\t5\tring",
        "T\t2\t35\t9\t9\t1\tprog\\nname\texe=/bin/prog",
        "N\t6\t0\t4",
        "S\t40\t1\t2\t3\t6\t3000\t1",
    ];
    assert_eq!(lines, expected);
    assert!(text.contains("name=cpu-clock\tunit=ns\tmeasure=cpu-time\tfrequency=997"), "{text}");
    assert!(text.contains("@end\ttime=40\tsamples=3\trecords=16\tlost=5"), "{text}");
}

#[test]
fn executed_file_is_the_first_one_that_is_mapped() {
    // PERF_RECORD_MISC_COMM_EXEC.
    let exec = 1 << 13;
    let mut recording = Recording::new();
    recording.event(3, exec, 1, &[7, 7], b"sh");
    recording.mmap(7, 0x1000, 0x1000, 0, b"/bin/sh");
    recording.sample(5, 7, 1, &[USER, 0x1010]);
    recording.event(3, exec, 6, &[7, 7], b"prog");
    recording.round();
    let mapping = [&[7, 7, 0x1000, 0, 0x1000, 0, 0, 0][..], &[0; 6], &[5, 2]].concat();
    recording.event(10, 2, 7, &mapping, b"/bin/prog");
    recording.event(10, 2, 7, &mapping, b"/lib/ld.so");
    // Another process, of which the first sample precedes the mapping.
    recording.event(3, exec, 8, &[8, 8], b"late");
    recording.sample(9, 8, 1, &[USER, 0x1010]);
    recording.event(10, 2, 10, &[&[8, 8][..], &mapping[2..]].concat(), b"/bin/late");
    // A sample precedes the mapping of a process with samples.
    recording.event(3, exec, 11, &[8, 8], b"next");
    recording.sample(12, 8, 1, &[USER, 0x1010]);
    recording.event(10, 2, 13, &[&[8, 8][..], &mapping[2..]].concat(), b"/bin/next");
    // The exec of a file that was not mapped.
    recording.event(3, exec, 14, &[7, 7], b"none");
    recording.sample(15, 7, 1, &[USER, 0x1010]);
    // The same without a sample before the next exec.
    recording.event(3, exec, 16, &[7, 7], b"short");
    recording.event(3, exec, 17, &[7, 7], b"last");
    recording.event(10, 2, 18, &mapping, b"/bin/last");
    let (_, text) = imported(&recording.0).expect("it is valid");
    let lines: Vec<&str> =
        text.lines().filter(|line| line.starts_with("T\t") || line.starts_with("X\t")).collect();
    let expected = [
        "T\t1\t1\t7\t7\t0\tsh\texe=/bin/sh",
        "X\t6\t1\texec\tprog\texe=/bin/prog",
        "T\t2\t8\t8\t8\t0\tlate\texe=/bin/late",
        "X\t11\t2\texec\tnext\texe=/bin/next",
        "X\t14\t1\texec\tnone",
        "X\t16\t1\texec\tshort",
        "X\t17\t1\texec\tlast\texe=/bin/last",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn deep_chain_is_marked_as_incomplete() {
    let mut recording = Recording::new();
    recording.sample(5, 7, 1, &vec![0x10; 127]);
    let (_, text) = imported(&recording.0).expect("it is valid");
    assert!(text.contains("\tu,max-depth\n") && text.contains("incomplete=1"), "{text}");
}

#[test]
fn cut_off_recording_is_imported_up_to_the_cut() {
    let whole = recording().0;
    let (imported, text) = imported(&whole[..whole.len() - 12]).expect("it has records");
    let error = imported.incomplete.expect("it is cut off").to_string();
    assert_eq!(error, format!("byte {}: the file ends within a record", whole.len() - 12));
    // The last sample is lost, and there is no end.
    assert_eq!(text.matches("\nS\t").count(), 2);
    assert!(!text.contains("@end"));
}

#[test]
fn wrong_size_of_a_record_is_reported_with_its_place() {
    let mut damaged = recording();
    let offset = damaged.0.len();
    damaged.0.extend([9, 0, 0, 0, 0, 0, 7, 0]);
    let (imported, _) = imported(&damaged.0).expect("it has records");
    let error = imported.incomplete.expect("it is damaged").to_string();
    assert_eq!(error, format!("byte {offset}: the size of a record is wrong"));
}

#[test]
fn input_without_records_is_refused() {
    for (bytes, message) in [
        (&b"PERFILE2"[..], "byte 8: the file ends within the header"),
        (b"2ELIFREP\0\0\0\0\0\0\0\x10", "big-endian"),
        (b"PERFILE2\x10\0\0\0\0\0\0\0", "it has no records"),
        (b"PERFILE2\x11\0\0\0\0\0\0\0", "byte 8: the size of the header is wrong"),
    ] {
        let error = imported(bytes).expect_err("it has no records").to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn child_has_the_memory_of_its_parent_unless_perf_made_it_up() {
    let mut recording = Recording::new();
    recording.mmap(7, 0x1000, 0x1000, 0, b"/bin/prog");
    for (pid, misc) in [(8, 0), (9, 1 << 13)] {
        // An exit of a thread of this id was lost.
        recording.sample(5, pid, 1, &[USER, 0x1]);
        recording.event(7, misc, 6, &[pid, 7, pid, 7, 6, 0], b"");
        recording.sample(7, pid, 1, &[USER, 0x1010]);
    }
    let (_, text) = imported(&recording.0).expect("it is valid");
    let frames: Vec<&str> =
        text.lines().filter(|line| line.contains("0x10\t") || line.contains("0x1010\t")).collect();
    assert_eq!(frames, ["F\t2\t1\t0x10\tu", "F\t3\t0\t0x1010\tu"]);
}

#[test]
fn mapping_of_the_kernel_needs_no_protection() {
    let mut recording = Recording::new();
    // As perf record --buildid-mmap has it: no protection, a build ID of 20 bytes.
    let mut words = vec![u32::MAX, 0, 0x1000, 0, 0x1000, 0, 0x1000, 0];
    words.extend([20, 1, 2, 3, 4, 5, 0, 0]);
    recording.event(10, 1 | 1 << 14, 1, &words, b"[kernel.kallsyms]_text");
    recording.sample(5, 7, 1, &[-128_i64 as u64, 0x1010]);
    let (_, text) = imported(&recording.0).expect("it is valid");
    assert!(
        text.contains("\tkernel\t0100000002000000030000000400000005000000\t[kernel]\t"),
        "{text}"
    );
}

#[test]
fn samples_after_an_exit_are_of_the_thread_until_its_id_is_used_again() {
    let mut recording = Recording::new();
    recording.mmap(7, 0x1000, 0x1000, 0, b"/bin/prog");
    let exit = |recording: &mut Recording, tid: u32, time: u64| {
        recording.event(4, 0, time, &[tid, 7, tid, 7, time as u32, 0], b"");
    };
    // Fork and name.
    recording.event(7, 0, 2, &[8, 7, 8, 7, 2, 0], b"");
    recording.event(3, 0, 3, &[8, 8], b"first");
    exit(&mut recording, 8, 4);
    recording.sample(5, 8, 1, &[USER, 0x1010]);
    // Another thread, of which the fork was lost.
    recording.event(3, 0, 6, &[8, 8], b"second");
    recording.sample(7, 8, 1, &[USER, 0x1010]);
    exit(&mut recording, 8, 8);
    exit(&mut recording, 7, 2_000_000_000);
    recording.sample(2_000_000_001, 8, 1, &[USER, 0x1010]);
    let (_, text) = imported(&recording.0).expect("it is valid");
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("T\t").and_then(|line| line.split('\t').nth(5)))
        .collect();
    assert_eq!(names, ["first", "second", ":8"], "{text}");
}

#[test]
fn lists_of_ids_share_a_bound() {
    let mut bytes = b"PERFILE2".to_vec();
    // Two attributes of 144 bytes after the header; no records, types and features.
    for word in [104, 144, 104, 2 * 144, 104 + 2 * 144, 0, 0, 0, 0, 0, 0, 0_u64] {
        bytes.extend(word.to_le_bytes());
    }
    for size in [8, 64_u64 << 20] {
        bytes.extend([0; 128]);
        bytes.extend([0, size].iter().flat_map(|word| word.to_le_bytes()));
    }
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&bytes).expect("it can be written");
    let writer = Writer::new(Vec::new(), Encoding::Text);
    let error = import(&*bytes, Some(&file), ImageFiles::default(), Step::default(), writer)
        .expect_err("it is damaged");
    assert!(error.to_string().contains("the ids of events are too large"), "{error}");
}

#[test]
fn damaged_compression_takes_bounded_memory() {
    // A frame with a window of 1 KiB (RFC 8878, section 3.1.1) and blocks that repeat a byte 1024 times.
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0];
    let header = (1024_u32 << 3 | 1 << 1).to_le_bytes();
    let block = [header[0], header[1], header[2], 7];
    let mut decompressor = Decompressor::new();
    assert!(decompressor.add(&bytes).is_some());
    bytes.clear();
    (0..16_000).for_each(|_| bytes.extend(block));
    let refused = (0..8).position(|_| decompressor.add(&bytes).is_none());
    assert_eq!(refused, Some(4));
}

proptest! {
    #[test]
    fn damage_never_panics_and_the_stream_stays_valid(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = recording().0;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()).max(17));
        if let Ok((imported, text)) = imported(&bytes) {
            let mut reader = Reader::new(text.as_bytes());
            while reader.next().expect("a stream").is_some() {}
            let complete = imported.incomplete.is_none();
            let expected = if complete { Verdict::Complete } else { Verdict::Truncated };
            prop_assert_eq!(reader.verdict(), expected);
        }
    }
}

#[test]
fn file_that_replaced_another_at_its_path_is_another_image() {
    let mut recording = Recording::new();
    for (pid, inode) in [(7, 5), (8, 6), (9, 5)] {
        recording.event(3, 0, 1, &[pid, pid], b"prog");
        recording.mmap_of_inode(inode, [pid, 0x1000, 0x1000, 0], b"/bin/prog");
    }
    recording.round();
    for pid in [7, 8, 9] {
        recording.sample(u64::from(pid), pid, 1, &[USER, 0x1010]);
    }
    let (_, text) = imported(&recording.0).expect("it is valid");
    let frames: Vec<&str> =
        text.lines().filter(|line| line.starts_with("I\t") || line.starts_with("F\t")).collect();
    let expected = [
        "I\t1\telf\t-\t/bin/prog",
        "F\t1\t1\t0x10\tu",
        "I\t2\telf\t-\t/bin/prog",
        "F\t2\t2\t0x10\tu",
    ];
    assert_eq!(frames, expected);
}
