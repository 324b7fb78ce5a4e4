//! The records of a ring after their header, as words. Pure.
//!
//! The library writes the words with the `WORDS` constants of this file, the recorder reads them with
//! [`Record::parse`], which accepts any bytes.

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Fills the end of the data area; no content.
    Padding = 1,
    /// A sampled block was allocated.
    Allocated = 2,
    /// A sampled block is about to be freed.
    Freed = 3,
    /// The last `Freed` of this thread and pointer did not happen: realloc(3) failed.
    Kept = 4,
    /// A descriptor was opened.
    Opened = 5,
    /// A descriptor was closed.
    Closed = 6,
    /// A block was allocated at a known stack, with the period 1.
    Repeated = 7,
    /// Its hook was left by longjmp(3) before it was complete; no content.
    Abandoned = 8,
    /// An instrumented function was called.
    Called = 9,
    /// An instrumented function was called at a known stack; every call is recorded.
    CalledAgain = 10,
    /// A sampled block was allocated at a known stack, with a longer period.
    RepeatedSample = 11,
}

impl Kind {
    /// All kinds in the order of their numbers.
    const ALL: [Self; 11] = [
        Self::Padding,
        Self::Allocated,
        Self::Freed,
        Self::Kept,
        Self::Opened,
        Self::Closed,
        Self::Repeated,
        Self::Abandoned,
        Self::Called,
        Self::CalledAgain,
        Self::RepeatedSample,
    ];

    /// Returns the kind with a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get((number as usize).wrapping_sub(1)).copied()
    }
}

/// The function that opened a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Origin {
    /// A file: open(2), openat(2), creat(2), fopen(3), opendir(3), with the name; openpty(3).
    File = 1,
    /// socket(2), socketpair(2).
    Socket = 2,
    /// accept(2), accept4(2).
    Accept = 3,
    /// pipe(2), pipe2(2), popen(3).
    Pipe = 4,
    /// dup(2), dup2(2), dup3(2), fcntl(2) with F_DUPFD; the name of the record is the number of the original.
    Duplicate = 5,
    /// epoll_create(2), epoll_create1(2).
    Epoll = 6,
    /// eventfd(2).
    Event = 7,
    /// timerfd_create(2).
    Timer = 8,
    /// signalfd(2).
    Signal = 9,
    /// inotify_init(2), inotify_init1(2).
    Inotify = 10,
    /// memfd_create(2); the record has the name.
    Memory = 11,
    /// recvmsg(2), recvmmsg(2): another process sent the descriptor.
    Received = 12,
    /// A temporary file: mkstemp(3) and its variants, with the name; tmpfile(3).
    Temporary = 13,
    /// fanotify_init(2).
    Fanotify = 14,
    /// pidfd_open(2).
    Process = 15,
    /// mq_open(3); the record has the name.
    Queue = 16,
}

impl Origin {
    /// Returns the origin with a number.
    pub fn from_number(number: u32) -> Option<Self> {
        use Origin::*;
        [
            File, Socket, Accept, Pipe, Duplicate, Epoll, Event, Timer, Signal, Inotify, Memory,
            Received, Temporary, Fanotify, Process, Queue,
        ]
        .into_iter()
        .find(|&origin| origin as u32 == number)
    }
}

/// The registers that unwinding needs, as the caller of the hooked function finds them after the return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Registers {
    /// The return address of the hooked function: the call is before it.
    pub ip: u64,
    /// The stack pointer after the return.
    pub sp: u64,
    /// The frame pointer: rbp; on arm64 x29.
    pub fp: u64,
    /// The others that functions preserve: rbx, r12 to r15; on arm64 x19 to x28, and a word of zeros.
    pub saved: [u64; SAVED],
}

/// The words of [`Registers::saved`]: all registers have an even number, as the stack pointer of arm64 must have.
const SAVED: usize = if cfg!(target_arch = "aarch64") { 11 } else { 5 };

impl Registers {
    /// The number of words of the registers in a record.
    pub const WORDS: usize = 3 + SAVED;

    /// Returns the registers as the words of a record.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[..3].copy_from_slice(&[self.ip, self.sp, self.fp]);
        words[3..].copy_from_slice(&self.saved);
        words
    }
}

/// The registers and the stack at a call of a hooked function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture<'a> {
    /// The registers.
    pub registers: Registers,
    /// The bytes of the stack from `registers.sp` up: to the top of the stack or to the limit in the settings.
    pub stack: &'a [u8],
}

/// A sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated<'a> {
    /// The address of the block.
    pub pointer: u64,
    /// The size that the program asked for.
    pub size: u64,
    /// The bytes that the sample represents: the size if that is at least the period, else `count * period`.
    pub weight: u64,
    /// The number of periods that the sample represents; its expectation is `size / period`.
    pub count: u32,
    /// The period with which the block was sampled.
    pub period: u64,
    /// The caller of the allocation function.
    pub capture: Capture<'a>,
}

impl Allocated<'_> {
    /// The words before the stack: time, thread and count, pointer, size, weight, period, stack size, unused,
    /// registers. An even number, so that the copy of the stack is aligned to 16 bytes.
    pub const WORDS: usize = 8 + Registers::WORDS;
}

/// A sampled block that was allocated at a known stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated {
    /// The address of the block.
    pub pointer: u64,
    /// The size that the program asked for.
    pub size: u64,
    /// As [`Allocated::weight`].
    pub weight: u64,
    /// As [`Allocated::count`].
    pub count: u32,
    /// [`super::StackMemo::number`].
    pub stack: u32,
}

impl Repeated {
    /// The words with the period 1: time, thread and stack, pointer, size.
    pub const WORDS: usize = 4;
    /// The words with a longer period: the same, weight, count.
    pub const SAMPLED_WORDS: usize = Self::WORDS + 2;
}

/// A sampled call of a function that the compiler instrumented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called<'a> {
    /// The number of calls that the sample represents: the period with which it was chosen.
    pub weight: u64,
    /// The function, at its call of the hook.
    pub capture: Capture<'a>,
}

impl Called<'_> {
    /// The words before the stack: time, thread, weight, stack size, registers. An even number, as for [`Allocated`].
    pub const WORDS: usize = 4 + Registers::WORDS;
}

/// A call at a known stack, with the period 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalledAgain {
    /// [`super::StackMemo::number`].
    pub stack: u32,
}

impl CalledAgain {
    /// The words: time, thread and stack.
    pub const WORDS: usize = 2;
}

/// An opened descriptor. It ends the former use of the same number, if the recorder has not seen it end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The descriptor.
    pub descriptor: i32,
    /// The function that opened it; None if this version does not know it.
    pub origin: Option<Origin>,
    /// The number of the inode of its file (fstat(2)); 0 if it is unknown. The number of the descriptor may be that of
    /// another file when the record is read.
    pub inode: u64,
    /// The name of the file, as passed, at most 256 bytes; for duplicates the number of the original.
    pub name: &'a [u8],
    /// The caller.
    pub capture: Capture<'a>,
}

impl Opened<'_> {
    /// The words before name and stack: time, thread and descriptor, origin and name size, stack size, inode,
    /// registers. The name is padded to words, the stack follows it.
    pub const WORDS: usize = 5 + Registers::WORDS;
    /// The most bytes of a name.
    pub const MAXIMUM_NAME_BYTES: usize = 256;
}

/// A closed range of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The first descriptor.
    pub first: u32,
    /// The last descriptor, often the same.
    pub last: u32,
}

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// A sampled block was allocated.
    Allocated(Allocated<'a>),
    /// A block was allocated at a known stack.
    Repeated(Repeated),
    /// A sampled block is about to be freed: its address.
    Freed(u64),
    /// The last `Freed` of this thread and address did not happen.
    Kept(u64),
    /// A descriptor was opened.
    Opened(Opened<'a>),
    /// Descriptors were closed, whether they were open or not.
    Closed(Descriptor),
    /// A sampled function was called.
    Called(Called<'a>),
    /// A function was called at a known stack.
    CalledAgain(CalledAgain),
}

/// A record: when, by which thread, and its content.
///
/// The order of records in the ring is the order of causes: a block that another thread gets after a free is after
/// it in the ring. Times may be out of order by the time between a thread's reading of the clock and its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The time, CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The thread id in the process's own namespace.
    pub tid: u32,
    /// The content.
    pub content: Content<'a>,
}

impl<'a> Record<'a> {
    /// Returns the time of a record from the bytes after its header; None if there are too few.
    pub fn time_of(bytes: &[u8]) -> Option<u64> {
        bytes.first_chunk().copied().map(u64::from_ne_bytes)
    }

    /// Reads the bytes after a record's header; None for padding, unknown kinds and malformed records.
    pub fn parse(kind: u32, bytes: &'a [u8]) -> Option<Self> {
        let word = |index: usize| -> Option<u64> {
            let chunk = bytes.get(8 * index..8 * index + 8)?;
            Some(u64::from_ne_bytes(chunk.try_into().ok()?))
        };
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let capture = |registers: usize, stack: usize, stack_bytes: u64| -> Option<Capture<'a>> {
            let end = stack.checked_add(usize::try_from(stack_bytes).ok()?)?;
            let mut saved = [0; SAVED];
            for (index, saved) in saved.iter_mut().enumerate() {
                *saved = word(registers + 3 + index)?;
            }
            Some(Capture {
                registers: Registers {
                    ip: word(registers)?,
                    sp: word(registers + 1)?,
                    fp: word(registers + 2)?,
                    saved,
                },
                stack: bytes.get(stack..end)?,
            })
        };
        let content = match Kind::from_number(kind)? {
            Kind::Padding | Kind::Abandoned => return None,
            Kind::Allocated => Content::Allocated(Allocated {
                pointer: word(2)?,
                size: word(3)?,
                weight: word(4)?,
                count: high(word(1)?),
                period: word(5)?,
                capture: capture(8, 8 * Allocated::WORDS, word(6)?)?,
            }),
            Kind::Repeated => Content::Repeated(Repeated {
                pointer: word(2)?,
                size: word(3)?,
                weight: word(3)?,
                count: word(3)?.clamp(1, u64::from(u32::MAX)) as u32,
                stack: high(word(1)?),
            }),
            Kind::RepeatedSample => Content::Repeated(Repeated {
                pointer: word(2)?,
                size: word(3)?,
                weight: word(4)?,
                count: low(word(5)?),
                stack: high(word(1)?),
            }),
            Kind::Called => Content::Called(Called {
                weight: word(2)?,
                capture: capture(4, 8 * Called::WORDS, word(3)?)?,
            }),
            Kind::CalledAgain => Content::CalledAgain(CalledAgain { stack: high(word(1)?) }),
            Kind::Freed => Content::Freed(word(2)?),
            Kind::Kept => Content::Kept(word(2)?),
            Kind::Opened => {
                let name_bytes = high(word(2)?) as usize;
                if name_bytes > Opened::MAXIMUM_NAME_BYTES {
                    return None;
                }
                let name = 8 * Opened::WORDS;
                Content::Opened(Opened {
                    descriptor: high(word(1)?) as i32,
                    origin: Origin::from_number(low(word(2)?)),
                    inode: word(4)?,
                    name: bytes.get(name..name.checked_add(name_bytes)?)?,
                    capture: capture(5, name + name_bytes.next_multiple_of(8), word(3)?)?,
                })
            }
            Kind::Closed => {
                Content::Closed(Descriptor { first: low(word(2)?), last: high(word(2)?) })
            }
        };
        Some(Record { time_ns: Self::time_of(bytes)?, tid: low(word(1)?), content })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parse_accepts_any_bytes(kind in 0..13_u32, words in proptest::collection::vec(0..600_u64, 0..80)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if let Some(record) = Record::parse(kind, &bytes) {
                prop_assert_eq!(record.time_ns, words[0]);
            }
        }
    }

    #[test]
    fn kinds_are_found_by_their_numbers() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u32), Some(kind));
        }
        assert_eq!((Kind::from_number(0), Kind::from_number(12)), (None, None));
    }

    #[test]
    fn rejects_name_that_is_too_long() {
        for (name_bytes, valid) in [(256, true), (257, false)] {
            let mut words = [0_u64; Opened::WORDS + 40];
            words[2] = Origin::File as u64 | name_bytes << 32;
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(Record::parse(Kind::Opened as u32, &bytes).is_some(), valid, "{name_bytes}");
        }
    }

    #[test]
    fn rejects_stack_beyond_the_record() {
        let mut words = [0_u64; Allocated::WORDS + 2];
        let parse = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            Record::parse(Kind::Allocated as u32, &bytes).is_some()
        };
        for (stack_bytes, valid) in [(0, true), (16, true), (17, false), (u64::MAX, false)] {
            words[6] = stack_bytes;
            assert_eq!(parse(&words), valid, "{stack_bytes}");
        }
    }

    #[test]
    fn repeated_blocks_have_their_weight() {
        let words = [5, 6 | 7 << 32, 0x10, 100, 3000, 2].map(u64::to_ne_bytes).concat();
        let repeated = |kind: Kind, bytes: &[u8]| {
            let record = Record::parse(kind as u32, bytes).expect("a record");
            let Content::Repeated(repeated) = record.content else { panic!("{record:?}") };
            assert_eq!((repeated.pointer, repeated.size, repeated.stack), (0x10, 100, 7));
            (repeated.weight, repeated.count)
        };
        assert_eq!(repeated(Kind::Repeated, &words[..8 * Repeated::WORDS]), (100, 100));
        assert_eq!(repeated(Kind::RepeatedSample, &words), (3000, 2));
    }

    #[test]
    fn calls_have_their_weight_and_stack() {
        let mut words = [0_u64; Called::WORDS + 1];
        words[..4].copy_from_slice(&[5, 6, 7, 8]);
        words[4..7].copy_from_slice(&[0x10, 0x20, 0x30]);
        words[Called::WORDS] = 9;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let record = Record::parse(Kind::Called as u32, &bytes).expect("a record");
        let Content::Called(called) = record.content else { panic!("{record:?}") };
        let Registers { ip, sp, fp, .. } = called.capture.registers;
        assert_eq!((record.time_ns, record.tid, called.weight), (5, 6, 7));
        assert_eq!((ip, sp, fp), (0x10, 0x20, 0x30));
        assert_eq!(called.capture.stack, 9_u64.to_ne_bytes());
        let again = [5, 6 | 7 << 32].map(u64::to_ne_bytes).concat();
        let record = Record::parse(Kind::CalledAgain as u32, &again).expect("a record");
        assert_eq!((record.time_ns, record.tid), (5, 6));
        assert_eq!(record.content, Content::CalledAgain(CalledAgain { stack: 7 }));
    }
}
