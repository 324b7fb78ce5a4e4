//! The rare records: `@nprof`, `@step`, `@event`, `@epoch`, `@end`, `@run`, `@run_end`, `@naming`.
//!
//! Each is a list of `key=value` pairs, encoded alike in text and binary, so that strings(1) shows
//! them and a minor version can add a key. A known key that is absent has its default; unknown
//! keys are kept, after the known ones, in their order.

use rustc_hash::FxHashSet;

use crate::record::error::Malformed;
use crate::record::escape::{push_escaped, unescape_in_place};
use crate::record::extras::is_key;
use crate::record::ids::EventId;
use crate::record::limits::{self, clip};
use crate::record::measure::Measure;
use crate::record::number::{decimal, hexadecimal, push_decimal};

/// Pairs of a key that this version has no field for, and its value.
pub type Pairs = Vec<(String, Vec<u8>)>;

/// A record that consists of pairs.
pub(crate) trait PairRecord: Sized {
    /// Appends the pairs.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes all pairs of a record.
    fn read(text: &[u8]) -> Result<Self, Malformed>;
}

/// The value of a pair: its encoding, and the values that are left out.
trait Value: Default {
    /// True if a record without it is malformed.
    const IS_REQUIRED: bool = false;
    fn encode(&self, out: &mut Vec<u8>);
    fn read(text: Vec<u8>) -> Option<Self>;
    /// True if the pair is left out.
    fn is_absent(&self) -> bool;
}

impl Value for u64 {
    const IS_REQUIRED: bool = true;
    fn encode(&self, out: &mut Vec<u8>) {
        push_decimal(out, *self);
    }
    fn read(text: Vec<u8>) -> Option<Self> {
        decimal(&text)
    }
    fn is_absent(&self) -> bool {
        false
    }
}

impl Value for Option<u64> {
    fn encode(&self, out: &mut Vec<u8>) {
        push_decimal(out, self.unwrap_or_default());
    }
    fn read(text: Vec<u8>) -> Option<Self> {
        decimal(&text).map(Some)
    }
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl Value for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        push_escaped(out, &clip(self));
    }
    fn read(text: Vec<u8>) -> Option<Self> {
        Some(text)
    }
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Value for EventId {
    const IS_REQUIRED: bool = true;
    fn encode(&self, out: &mut Vec<u8>) {
        push_decimal(out, u64::from(self.0));
    }
    fn read(text: Vec<u8>) -> Option<Self> {
        let id = decimal(&text).and_then(|id| u32::try_from(id).ok());
        // 0 means none: no record defines it.
        id.filter(|id| (1..=limits::ID).contains(id)).map(Self)
    }
    fn is_absent(&self) -> bool {
        false
    }
}

impl Value for Measure {
    fn encode(&self, out: &mut Vec<u8>) {
        push_escaped(out, &clip(self.word()));
    }
    fn read(text: Vec<u8>) -> Option<Self> {
        // An empty value is an absent one, as of all keys of text.
        Some(if text.is_empty() { Self::default() } else { Self::from_word(&text) })
    }
    fn is_absent(&self) -> bool {
        *self == Self::default()
    }
}

/// The identity of a run: 64 random bits, equal in every stream that was filtered from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Value for RunId {
    const IS_REQUIRED: bool = true;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.to_string().as_bytes());
    }
    fn read(text: Vec<u8>) -> Option<Self> {
        hexadecimal(&text).map(Self)
    }
    fn is_absent(&self) -> bool {
        false
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            /// Pairs that a later minor version added.
            pub more: Pairs,
        }

        impl $name {
            /// The keys that this version knows, in the order in which they are written.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($field),)*];
        }

        impl PairRecord for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let start = out.len();
                $(if !self.$field.is_absent() {
                    push_key(out, start, stringify!($field));
                    self.$field.encode(out);
                })*
                for (key, value) in &self.more {
                    push_key(out, start, key);
                    push_escaped(out, &clip(value));
                }
            }

            fn read(text: &[u8]) -> Result<Self, Malformed> {
                let mut record = Self::default();
                let mut seen = FxHashSet::default();
                // `split` yields one empty field for an empty text, which has none.
                for field in text.split(|&b| b == b'\t').filter(|_| !text.is_empty()) {
                    let (key, value) = pair(field)?;
                    // A second value would replace the first without notice.
                    if !seen.insert(key) {
                        return Err(Malformed::Field("a key that is given once"));
                    }
                    match key {
                        $(stringify!($field) => {
                            record.$field = <$type>::read(value)
                                .ok_or(Malformed::Field(concat!("a value for ", stringify!($field))))?;
                        })*
                        // A key of a later minor version: a filter must keep it.
                        _ => record.more.push((key.to_owned(), value)),
                    }
                }
                $(if <$type>::IS_REQUIRED && !seen.contains(stringify!($field)) {
                    return Err(Malformed::Field(concat!("the key ", stringify!($field))));
                })*
                Ok(record)
            }
        }
    )*};
}

/// Passes the records of pairs to a macro, each as a struct with a field for every key: the one place
/// that lists them.
#[doc(hidden)]
#[macro_export]
macro_rules! with_pairs {
    ($callback:ident) => {
        $callback! {
            /// `@nprof`: begins a segment. The workload, the machine, the clock.
            Head {
                /// The identity of the run.
                run: RunId,
                /// The clock of all times in the segment, as clock_gettime(2) names it in lower case.
                clock: Vec<u8>,
                /// A reading of that clock, ns.
                time: Option<u64>,
                /// The time of day at that reading, ns since 1970-01-01 UTC.
                utc: Option<u64>,
                /// The host's name.
                host: Vec<u8>,
                /// The operating system and its release.
                os: Vec<u8>,
                /// The machine's architecture, as uname(2) says.
                arch: Vec<u8>,
                /// The model of the CPU.
                cpu: Vec<u8>,
                /// The number of CPUs that are online.
                cpus: Option<u64>,
                /// The page size, bytes.
                page: Option<u64>,
                /// The workload: a command line, `pid N`, or `system`.
                command: Vec<u8>,
                /// The service that the workload is a part of, as the user named it.
                service: Vec<u8>,
                /// The version of the service.
                service_version: Vec<u8>,
            }

            /// `@step`: a program that touched the stream.
            Step {
                /// Its name.
                tool: Vec<u8>,
                /// Its version.
                version: Vec<u8>,
                /// Its command line, words quoted for the shell.
                command: Vec<u8>,
                /// The options that decide on the names it gave, in words of its own: two programs of one
                /// name and version with equal options give a place the same name.
                naming_options: Vec<u8>,
            }

            /// `@naming`: the counts of named and unnamed frames of an image, and the reasons.
            Naming {
                /// The image's path, or its name in brackets.
                image: Vec<u8>,
                /// The word of its kind.
                kind: Vec<u8>,
                /// Its build ID in hexadecimal digits.
                build_id: Vec<u8>,
                /// The number of the segment's frames in it that have a name.
                named: u64,
                /// The number of those that have none.
                unnamed: u64,
                /// The frames without a name by status, such as `stripped 3, mismatch 1`.
                unnamed_by_status: Vec<u8>,
                /// The reason, for people.
                reason: Vec<u8>,
                /// The remedy for the user: a command where there is one.
                remedy: Vec<u8>,
            }

            /// `@event`: an event, as it was opened.
            Event {
                /// The event's id.
                id: EventId,
                /// The name of the opened event.
                name: Vec<u8>,
                /// The requested name, when it differs.
                requested: Vec<u8>,
                /// The unit of weights: `ns`, `cycles`, `count`, `bytes` or another word.
                unit: Vec<u8>,
                /// The measure of the weights; absent for `count`.
                measure: Measure,
                /// Events between two samples, when sampled by period; in the event's unit.
                period: Option<u64>,
                /// Samples per second requested from the kernel, when sampled by frequency.
                frequency: Option<u64>,
                /// `user`, `kernel` or `user+kernel`.
                scope: Vec<u8>,
                /// The method of stack capture: `dwarf`, `fp`, `none`.
                unwind: Vec<u8>,
                /// The reason, if another event was opened than requested.
                fallback: Vec<u8>,
                /// How waiting was measured: `bpf`. Empty for other events.
                capture: Vec<u8>,
                /// The share of the time in which it was recorded, as the length of its windows and that of
                /// the intervals that have one each, in ns: `10000000/100000000`. Empty for all of it.
                duty: Vec<u8>,
                /// The length of time slices, ns, for which the sum of the weights of a thread and a
                /// function at the leaf is exact. Absent if no sum is.
                exact_ns: Option<u64>,
                /// `yes` if weights and counts are estimates of another program, which has scaled up its
                /// samples. Empty otherwise.
                scaled: Vec<u8>,
                /// CPU time that recording adds to each unit of weight, ns, as it was measured. Absent if
                /// it is unknown, or not proportional to the weight.
                overhead_ns: Option<u64>,
            }

            /// `@epoch`: invalidates all ids.
            Epoch {
                /// The epoch's number in its segment; the first, which has no record, is 0.
                number: u64,
            }

            /// `@end`: ends the segment. Totals, the cost of the recorder, coverage.
            End {
                /// The reason: `exit`, `interrupt`, `duration`, `closed` or `error`.
                reason: Vec<u8>,
                /// The command's exit status as a shell would see it (128+N for signal N).
                status: Option<u64>,
                /// The time of the end, on the segment's clock.
                time: Option<u64>,
                /// The number of `S` records in the segment.
                samples: u64,
                /// The number of records between head and end that are not annotations (kinds 1 to 63).
                records: u64,
                /// The number of samples lost for a known cause, as far as known.
                lost: u64,
                /// The number of lost samples of processes that are not recorded, estimated.
                lost_others: Option<u64>,
                /// The number of lost records of processes and mappings.
                lost_records: Option<u64>,
                /// The number of processes of which heap, fd or calls events are missing: they did not load the
                /// library that records them, or bring an allocator of their own.
                unseen: Option<u64>,
                /// The number of samples older than one before them.
                late: Option<u64>,
                /// The number of samples with an incomplete stack.
                incomplete: Option<u64>,
                /// The number of samples with outer frames taken from an earlier sample of
                /// the same thread; such a stack counts as complete.
                stitched: Option<u64>,
                /// CPU time the profiled tasks used, counted exactly, ns.
                task_ns: Option<u64>,
                /// CPU time that the samples of the first event of CPU time represent, ns.
                sampled_ns: Option<u64>,
                /// The recorded part of the lives of all tasks, ns: the sum over their `times`.
                wall_ns: Option<u64>,
                /// The time that the tasks waited for a CPU, counted exactly, ns.
                runnable_ns: Option<u64>,
                /// The time that the tasks waited for anything else, counted exactly, ns.
                blocked_ns: Option<u64>,
                /// CPU time the recorder itself used, ns.
                recorder_ns: Option<u64>,
                /// The recorder's peak memory, bytes.
                recorder_bytes: Option<u64>,
            }
        }
    };
}

with_pairs!(records);

/// `@run_end`: the end of a run that was merged into a segment, as its producer wrote it. Its time
/// is on the run's own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// The run.
    pub run: RunId,
    /// Its end.
    pub end: End,
}

impl PairRecord for RunEnd {
    fn encode(&self, out: &mut Vec<u8>) {
        push_key(out, out.len(), "run");
        self.run.encode(out);
        // An end is never without keys.
        out.push(b'\t');
        self.end.encode(out);
    }

    fn read(text: &[u8]) -> Result<Self, Malformed> {
        let mut end = End::read(text)?;
        // `End` does not know this key and keeps it with the unknown ones.
        let at = end.more.iter().position(|(key, _)| key == "run");
        let value = at.map(|at| end.more.remove(at).1);
        let run = value.and_then(RunId::read).ok_or(Malformed::Field("a value for run"))?;
        Ok(Self { run, end })
    }
}

fn push_key(out: &mut Vec<u8>, start: usize, key: &str) {
    if out.len() > start {
        out.push(b'\t');
    }
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
}

fn pair(field: &[u8]) -> Result<(&str, Vec<u8>), Malformed> {
    let at = memchr::memchr(b'=', field).ok_or(Malformed::Field("key=value"))?;
    let (key, value) = (&field[..at], &field[at + 1..]);
    let key = std::str::from_utf8(key).ok().filter(|key| is_key(key.as_bytes()));
    let key = key.ok_or(Malformed::Field("a key of a-z, 0-9, _ and ."))?;
    let mut value = value.to_vec();
    let length = unescape_in_place(&mut value).ok_or(Malformed::Field("an escaped value"))?.len();
    value.truncate(length);
    if length > limits::STRING {
        return Err(Malformed::Limit(limits::STRING));
    }
    Ok((key, value))
}
