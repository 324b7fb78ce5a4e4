//! Reads jitdump files, `jit-PID.dump` (tools/perf/Documentation/jitdump-specification.txt in the
//! kernel's source): a header, then records with times. Pure over its bytes.
//!
//! Records of loaded and moved code and their unwind tables are read. Lines are skipped, and machine code as
//! well: its place in the file is passed on.

use std::ops::Range;
use std::rc::Rc;

/// The bytes of the header that are read.
const HEADER_BYTES: usize = 40;

/// The bytes at the start of each record: kind, size, time.
const PREFIX_BYTES: usize = 16;

/// The bytes of a record of loaded code before its name.
const LOAD_BYTES: usize = PREFIX_BYTES + 40;

/// The bytes of a record of moved code.
const MOVE_BYTES: usize = PREFIX_BYTES + 48;

/// The bytes of a record of unwind tables before the tables.
const UNWINDING_BYTES: usize = PREFIX_BYTES + 24;

/// The most bytes of a record that are read, with its name or its tables. Chunks that do not end the
/// file must be at least this long.
pub(crate) const FRONT_MAX_BYTES: usize = 1 << 17;

/// `JiTD`, in the byte order of the machine.
const MAGIC: u32 = 0x4a69_5444;

/// The flag in the header for times of the processor's own clock (JITDUMP_FLAGS_ARCH_TIMESTAMP).
const ARCH_TIME: u64 = 1;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_UNWINDING: u32 = 4;

/// A record of a jitdump file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JitRecord<'a> {
    /// A function was generated (JIT_CODE_LOAD). `eh_frame` is its unwind table, if it has one, `code` the
    /// positions of its code in the file.
    Load { start: u64, size: u64, name: &'a [u8], eh_frame: Option<Rc<[u8]>>, code: Range<u64> },
    /// A function was moved (JIT_CODE_MOVE).
    Move { from: u64, to: u64, size: u64 },
}

/// The state of reading a jitdump file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum JitdumpReader {
    /// Before the header.
    #[default]
    Header,
    /// Among the records. `has_times`: their times are those of the monotonic clock. `eh_frame`: the
    /// unwind table of the function that follows. `position`: that of the next record in the file.
    Records { has_times: bool, eh_frame: Option<Rc<[u8]>>, position: u64 },
    /// The file is malformed and not read any more.
    Malformed,
}

impl JitdumpReader {
    /// Reads the records of a chunk, and passes each to `take` with its time, if it has one.
    ///
    /// `available` is the number of bytes from the start of the chunk to the end of the file.
    /// Returns the number of consumed bytes, which may exceed the chunk: the code of a record is
    /// skipped. Incomplete records are not consumed.
    pub(crate) fn read(
        &mut self,
        chunk: &[u8],
        available: u64,
        mut take: impl FnMut(Option<u64>, JitRecord<'_>),
    ) -> u64 {
        let mut used = 0;
        while let Some(rest) = usize::try_from(used).ok().and_then(|used| chunk.get(used..)) {
            let left = available - used;
            let size = match self {
                Self::Header => self.read_header(rest),
                Self::Records { .. } => self.read_record(rest, left, &mut take),
                Self::Malformed => None,
            };
            let Some(size) = size.filter(|&size| size <= left) else { break };
            used += size;
        }
        used
    }

    /// Reads the record at the start of `bytes`; `left` bytes of the file follow from there.
    /// Returns its size. None if it is incomplete or malformed.
    fn read_record(
        &mut self,
        bytes: &[u8],
        left: u64,
        take: &mut impl FnMut(Option<u64>, JitRecord<'_>),
    ) -> Option<u64> {
        let size = u64::from(word(bytes, 4)?);
        // The program is still writing this record.
        if size > left {
            return None;
        }
        // A long function has its code at the end, which is not needed.
        let record = bytes.get(..size.min(FRONT_MAX_BYTES as u64) as usize)?;
        if record.len() < PREFIX_BYTES {
            // Shorter than its own prefix: the next record cannot be found.
            *self = Self::Malformed;
            return None;
        }
        // Other kinds (lines, end) are skipped by their size.
        if let Self::Records { has_times, eh_frame, position } = self {
            match word(record, 0)? {
                CODE_UNWINDING => *eh_frame = parse_eh_frame(record),
                kind => {
                    if let Some(parsed) = parse(kind, record, eh_frame, *position..*position + size)
                    {
                        take(long(record, 8).filter(|_| *has_times), parsed);
                    }
                }
            }
            *position += size;
        }
        Some(size)
    }

    /// Reads the header at the start of `bytes`. Returns its size. None if it is incomplete or
    /// malformed.
    fn read_header(&mut self, bytes: &[u8]) -> Option<u64> {
        let header = bytes.get(..HEADER_BYTES)?;
        // The header may be longer than specified: it states its own size.
        let size = word(header, 8)?;
        if word(header, 0) != Some(MAGIC) || (size as usize) < HEADER_BYTES {
            *self = Self::Malformed;
            return None;
        }
        // Times of the processor's clock cannot be compared with those of samples.
        let has_times = long(header, 32)? & ARCH_TIME == 0;
        *self = Self::Records { has_times, eh_frame: None, position: u64::from(size) };
        Some(u64::from(size))
    }
}

/// Parses a record of this kind, which has these positions in the file. None if it is of another kind,
/// or too short. A function takes the unwind table that came before it.
fn parse<'a>(
    kind: u32,
    record: &'a [u8],
    eh_frame: &mut Option<Rc<[u8]>>,
    positions: Range<u64>,
) -> Option<JitRecord<'a>> {
    match kind {
        CODE_LOAD => {
            let name = record.get(LOAD_BYTES..)?;
            // The machine code follows the name and its NUL.
            let length = memchr::memchr(0, name).unwrap_or(name.len());
            let (start, size) =
                (long(record, PREFIX_BYTES + 16)?, long(record, PREFIX_BYTES + 24)?);
            let eh_frame = eh_frame.take();
            let code = positions.start + (LOAD_BYTES + length + 1) as u64;
            // A hostile record may state any size.
            let code = code..code.saturating_add(size).min(positions.end);
            Some(JitRecord::Load { start, size, name: &name[..length], eh_frame, code })
        }
        CODE_MOVE => {
            let fields = record.get(..MOVE_BYTES)?;
            let [from, to, size] = [16, 24, 32].map(|at| long(fields, PREFIX_BYTES + at));
            Some(JitRecord::Move { from: from?, to: to?, size: size? })
        }
        _ => None,
    }
}

/// Returns the `.eh_frame` of a record of unwind tables (JIT_CODE_UNWINDING_INFO), which ends with
/// an `.eh_frame_hdr`. None if it is malformed or empty: V8 writes an empty one for functions without
/// a table.
fn parse_eh_frame(record: &[u8]) -> Option<Rc<[u8]>> {
    let (size, header_size) = (long(record, PREFIX_BYTES)?, long(record, PREFIX_BYTES + 8)?);
    let size = usize::try_from(size.checked_sub(header_size)?).ok()?;
    let tables = record.get(UNWINDING_BYTES..)?.get(..size)?;
    (!tables.is_empty()).then(|| tables.into())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, flags: u64) -> Vec<u8> {
        let words = [magic, 1, HEADER_BYTES as u32, 62, 0, 7, 0, 0, flags as u32, 0];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn record(kind: u32, time: u64, longs: &[u64], rest: &[u8]) -> Vec<u8> {
        let size = PREFIX_BYTES + longs.len() * 8 + rest.len();
        let mut bytes: Vec<u8> =
            [kind, size as u32].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend([time].iter().chain(longs).flat_map(|long| long.to_ne_bytes()));
        bytes.extend(rest);
        bytes
    }

    fn load(time: u64, start: u64, name: &str, code: usize) -> Vec<u8> {
        let rest = [name.as_bytes(), b"\0", &vec![0xcc; code]].concat();
        record(CODE_LOAD, time, &[7, 0, start, code as u64, 1], &rest)
    }

    fn dump() -> Vec<u8> {
        let pid_and_time = record(3, 30, &[], b"");
        let moved = record(CODE_MOVE, 20, &[7, 0, 0x1000, 0x2000, 4, 1], b"");
        [header(MAGIC, 0), load(10, 0x1000, "f", 4), moved, pid_and_time].concat()
    }

    /// True if these are the bytes of code that [`load`] writes.
    fn is_code(bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| byte == 0xcc)
    }

    /// Reads a file in chunks as it grows by `step` bytes each time; returns the records as text.
    fn all(file: &[u8], step: usize) -> (Vec<String>, JitdumpReader) {
        let (mut dump, mut records, mut at) = (JitdumpReader::default(), Vec::new(), 0);
        for end in (step..=file.len() + step).step_by(step).map(|end| end.min(file.len())) {
            if let Some(chunk) = file.get(at..end) {
                let used = dump.read(chunk, chunk.len() as u64, |time, item| {
                    records.push(match item {
                        JitRecord::Load { start, size, name, eh_frame, .. } => {
                            let name = String::from_utf8_lossy(name);
                            let table = eh_frame.map(|table| format!(" {table:?}"));
                            format!("{time:?} {start:x} {size} {name}{}", table.unwrap_or_default())
                        }
                        JitRecord::Move { from, to, size } => {
                            format!("{time:?} {from:x} {to:x} {size}")
                        }
                    });
                });
                assert!(used <= chunk.len() as u64);
                at += used as usize;
            }
        }
        (records, dump)
    }

    #[test]
    fn reads_same_records_however_file_grows() {
        let file = dump();
        for step in [1, 7, 64, file.len()] {
            let (records, dump) = all(&file, step);
            assert_eq!(records, ["Some(10) 1000 4 f", "Some(20) 1000 2000 4"]);
            let position = file.len() as u64;
            assert_eq!(dump, JitdumpReader::Records { has_times: true, eh_frame: None, position });
        }
    }

    #[test]
    fn function_has_unwind_table_of_record_before_it() {
        // The sizes of both tables and of .eh_frame_hdr, then the tables.
        let tables = |sizes: [u64; 2]| {
            record(CODE_UNWINDING, 9, &[sizes[0], sizes[1], 0], &[1, 2, 3, 4, 5, 6, 7, 8])
        };
        let two = [load(10, 0x1000, "f", 4), load(11, 0x2000, "g", 4)].concat();
        for (sizes, table) in
            [([8, 3], " [1, 2, 3, 4, 5]"), ([8, 9], ""), ([9, 0], ""), ([4, 4], "")]
        {
            let file = [header(MAGIC, 0), tables(sizes), two.clone()].concat();
            for step in [7, file.len()] {
                let expected = [format!("Some(10) 1000 4 f{table}"), "Some(11) 2000 4 g".into()];
                assert_eq!(all(&file, step).0, expected, "{sizes:?}");
            }
        }
    }

    #[test]
    fn ignores_times_of_other_clock() {
        let file = [header(MAGIC, ARCH_TIME), load(10, 0x1000, "f", 4)].concat();
        assert_eq!(all(&file, file.len()).0, ["None 1000 4 f"]);
    }

    #[test]
    fn skips_machine_code_without_reading_it() {
        let file = [header(MAGIC, 0), load(10, 0x1000, "f", 1 << 20)].concat();
        let mut names = 0;
        let front = &file[..HEADER_BYTES + FRONT_MAX_BYTES];
        let used = JitdumpReader::default().read(front, file.len() as u64, |_, _| names += 1);
        assert_eq!((used, names), (file.len() as u64, 1));
        let used = JitdumpReader::default().read(front, file.len() as u64 - 1, |_, _| names += 1);
        assert_eq!((used, names), (HEADER_BYTES as u64, 1));
    }

    #[test]
    fn code_does_not_exceed_its_record() {
        for (stated, expected) in [(4, 4), (3, 3), (5, 4), (1 << 32, 4), (u64::MAX, 4)] {
            let mut record = load(10, 0x1000, "f", 4);
            let at = PREFIX_BYTES + 24;
            record[at..at + 8].copy_from_slice(&stated.to_ne_bytes());
            let file = [header(MAGIC, 0), record.clone(), record].concat();
            let (mut dump, mut codes) = (JitdumpReader::default(), Vec::new());
            dump.read(&file, file.len() as u64, |_, item| match item {
                JitRecord::Load { code, .. } => codes.push(code),
                JitRecord::Move { .. } => panic!("{item:?}"),
            });
            assert_eq!(codes.len(), 2);
            for code in codes {
                assert_eq!(code.end - code.start, expected, "{stated}");
                assert!(is_code(&file[code.start as usize..code.end as usize]));
            }
        }
    }

    #[test]
    fn malformed_file_is_not_read_further() {
        for malformed in [header(MAGIC.swap_bytes(), 0), header(0, 0), vec![0; 99], vec![0xff; 99]]
        {
            assert_eq!(all(&malformed, malformed.len()), (vec![], JitdumpReader::Malformed));
        }
        let sizes = |size: u32| {
            let mut record = load(10, 1, "f", 1);
            record[4..8].copy_from_slice(&size.to_ne_bytes());
            [header(MAGIC, 0), record].concat()
        };
        for size in [0, 1, 15] {
            assert_eq!(all(&sizes(size), 7), (vec![], JitdumpReader::Malformed), "{size}");
        }
        for (size, count) in [(16, 0), (55, 0), (56, 1), (u32::MAX, 0)] {
            let file = sizes(size);
            assert_eq!(all(&file, file.len()).0.len(), count, "{size}");
        }
    }

    #[test]
    fn truncated_and_corrupt_files_do_not_panic_or_loop() {
        let file = dump();
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut corrupt = file.clone();
                corrupt[at] = value;
                all(&corrupt, 9);
                all(&corrupt, corrupt.len());
            }
        }
    }
}
