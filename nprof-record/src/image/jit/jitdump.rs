//! The dump of run-time code a process writes for profilers, `jit-PID.dump`, as
//! tools/perf/Documentation/jitdump-specification.txt of the kernel's source describes it: a
//! header, then records with the time they were made. Code loaded and code moved are read; the
//! machine code, lines and unwind tables are passed over. Pure over its bytes.

/// The bytes of the header that are of use.
const HEADER: usize = 40;

/// The bytes every record begins with: what it is, its size, its time.
const PREFIX: usize = 16;

/// The bytes of a record of loaded code before its name.
const LOAD: usize = PREFIX + 40;

/// The bytes of a record of moved code.
const MOVE: usize = PREFIX + 48;

/// The most that is looked at of a record, its name included: a piece that is not the end of the
/// file must be longer, so that the beginning of a record fits into it.
pub(crate) const FRONT_MAX: usize = 1 << 17;

/// `JiTD`, in the byte order of the machine.
const MAGIC: u32 = 0x4a69_5444;

/// The flag of a header whose times are of the processor's own clock.
const ARCH_TIME: u64 = 1;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;

/// What a dump tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JitRecord<'a> {
    /// A function was made.
    Load { start: u64, size: u64, name: &'a [u8] },
    /// One was moved.
    Move { from: u64, to: u64, size: u64 },
}

/// Where reading a dump stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JitdumpReader {
    /// Before its header.
    #[default]
    New,
    /// Among its records, and whether their times are those of the monotonic clock.
    Records { has_times: bool },
    /// It is not what it should be: nothing of it is read any more.
    Bad,
}

impl JitdumpReader {
    /// Reads the records of a piece of the file, of which `available` bytes are there from the
    /// beginning of the piece on. Gives each with its time, if it has one, and how many bytes
    /// were used up, which may be more than the piece has. What is not written to its end yet is
    /// left.
    pub(crate) fn read(
        &mut self,
        piece: &[u8],
        available: u64,
        mut take: impl FnMut(Option<u64>, JitRecord<'_>),
    ) -> u64 {
        let mut used = 0;
        while let Some(rest) = usize::try_from(used).ok().and_then(|used| piece.get(used..)) {
            let size = match *self {
                Self::New => self.read_header(rest),
                Self::Records { has_times } => {
                    let size = word(rest, 4).map(u64::from);
                    let front = size.map(|size| size.min(FRONT_MAX as u64) as usize);
                    let is_whole = size.is_none_or(|size| size <= available - used);
                    match front.filter(|_| is_whole).and_then(|front| rest.get(..front)) {
                        Some(record) if record.len() >= PREFIX => {
                            if let Some(told) = told(record) {
                                take(long(record, 8).filter(|_| has_times), told);
                            }
                            size
                        }
                        // Not even as long as what it begins with: nothing can be found behind it.
                        Some(_) => {
                            *self = Self::Bad;
                            None
                        }
                        None => None,
                    }
                }
                Self::Bad => None,
            };
            let Some(size) = size.filter(|&size| size <= available - used) else { break };
            used += size;
        }
        used
    }

    /// The size of the header that stands in front, if it is all there.
    fn read_header(&mut self, bytes: &[u8]) -> Option<u64> {
        let header = bytes.get(..HEADER)?;
        let size = word(header, 8)?;
        if word(header, 0) != Some(MAGIC) || (size as usize) < HEADER {
            *self = Self::Bad;
            return None;
        }
        let has_times = long(header, 32)? & ARCH_TIME == 0;
        *self = Self::Records { has_times };
        Some(u64::from(size))
    }
}

/// What the front of a record tells; `None` when it is of another kind, or too short for its own.
fn told(record: &[u8]) -> Option<JitRecord<'_>> {
    match word(record, 0)? {
        CODE_LOAD => {
            let name = record.get(LOAD..)?;
            let length = memchr::memchr(0, name).unwrap_or(name.len());
            let (start, size) = (long(record, PREFIX + 16)?, long(record, PREFIX + 24)?);
            Some(JitRecord::Load { start, size, name: &name[..length] })
        }
        CODE_MOVE => {
            let fields = record.get(..MOVE)?;
            let [from, to, size] = [16, 24, 32].map(|at| long(fields, PREFIX + at));
            Some(JitRecord::Move { from: from?, to: to?, size: size? })
        }
        _ => None,
    }
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
        let words = [magic, 1, HEADER as u32, 62, 0, 7, 0, 0, flags as u32, 0];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn record(kind: u32, time: u64, longs: &[u64], rest: &[u8]) -> Vec<u8> {
        let size = PREFIX + longs.len() * 8 + rest.len();
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

    /// All that is told, by pieces of a file as they would be read, `step` bytes more each time.
    fn all(file: &[u8], step: usize) -> (Vec<String>, JitdumpReader) {
        let (mut dump, mut told, mut at) = (JitdumpReader::default(), Vec::new(), 0);
        for end in (step..=file.len() + step).step_by(step).map(|end| end.min(file.len())) {
            if let Some(piece) = file.get(at..end) {
                let used = dump.read(piece, piece.len() as u64, |time, item| {
                    told.push(match item {
                        JitRecord::Load { start, size, name } => {
                            format!("{time:?} {start:x} {size} {}", String::from_utf8_lossy(name))
                        }
                        JitRecord::Move { from, to, size } => {
                            format!("{time:?} {from:x} {to:x} {size}")
                        }
                    });
                });
                assert!(used <= piece.len() as u64);
                at += used as usize;
            }
        }
        (told, dump)
    }

    #[test]
    fn code_is_loaded_and_moved_in_time_however_the_file_grows() {
        let file = dump();
        for step in [1, 7, 64, file.len()] {
            let (told, dump) = all(&file, step);
            assert_eq!(told, ["Some(10) 1000 4 f", "Some(20) 1000 2000 4"]);
            assert_eq!(dump, JitdumpReader::Records { has_times: true });
        }
    }

    #[test]
    fn times_of_another_clock_are_no_times() {
        let file = [header(MAGIC, ARCH_TIME), load(10, 0x1000, "f", 4)].concat();
        assert_eq!(all(&file, file.len()).0, ["None 1000 4 f"]);
    }

    #[test]
    fn code_is_passed_over_without_being_read() {
        let file = [header(MAGIC, 0), load(10, 0x1000, "f", 1 << 20)].concat();
        let mut names = 0;
        let front = &file[..HEADER + FRONT_MAX];
        let used = JitdumpReader::default().read(front, file.len() as u64, |_, _| names += 1);
        assert_eq!((used, names), (file.len() as u64, 1));
        let used = JitdumpReader::default().read(front, file.len() as u64 - 1, |_, _| names += 1);
        assert_eq!((used, names), (HEADER as u64, 1));
    }

    #[test]
    fn what_is_no_dump_is_left_alone() {
        for bad in [header(MAGIC.swap_bytes(), 0), header(0, 0), vec![0; 99], vec![0xff; 99]] {
            assert_eq!(all(&bad, bad.len()), (vec![], JitdumpReader::Bad));
        }
        let sizes = |size: u32| {
            let mut record = load(10, 1, "f", 1);
            record[4..8].copy_from_slice(&size.to_ne_bytes());
            [header(MAGIC, 0), record].concat()
        };
        for size in [0, 1, 15] {
            assert_eq!(all(&sizes(size), 7), (vec![], JitdumpReader::Bad), "{size}");
        }
        for (size, told) in [(16, 0), (55, 0), (56, 1), (u32::MAX, 0)] {
            let file = sizes(size);
            assert_eq!(all(&file, file.len()).0.len(), told, "{size}");
        }
    }

    #[test]
    fn no_cut_and_no_wild_byte_panics_or_loops() {
        let file = dump();
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut wild = file.clone();
                wild[at] = value;
                all(&wild, 9);
                all(&wild, wild.len());
            }
        }
    }
}
