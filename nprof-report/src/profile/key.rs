//! The keys by which reports group and filter samples and calls.
//!
//! Some keys are properties of a sample, and so the same for its whole stack (event, run, process,
//! thread, command, CPU, time slice); the others are properties of a call on the stack.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::str::FromStr;

use nprof_cli::time::interval;
use nprof_stream::labels::{CallKey, OTHER, UNKNOWN};
use nprof_stream::tables::{NameId, Tables};
use nprof_stream::{Extras, NO_CPU, TaskId};

use crate::profile::group::GroupKey;
use crate::profile::stack_sums::Context;
use crate::profile::time::TimeSplit;

/// A property of samples or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The event, by name.
    Event,
    /// The run: its number in the order of reading, and its command.
    Run,
    /// The process: pid, and name of its first thread.
    Process,
    /// The thread: pid/tid and name.
    Thread,
    /// The name the thread had when it was sampled.
    Command,
    /// The CPU.
    Cpu,
    /// The time slice, by its beginning in seconds since the beginning of the run.
    Slice,
    /// An extra of the sample.
    Extra(SampleExtra),
    /// The call path: functions, outermost first.
    Path,
    /// A property of a call.
    Call(CallKey),
}

/// An extra of samples that reports group by; of samples of waiting, the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleExtra {
    /// The system call, or another reason for which the thread left the CPU.
    Call,
    /// The state of the waiting thread, a letter as in ps(1).
    State,
    /// The object waited for: a descriptor with its file or peer, or a futex.
    On,
}

impl SampleExtra {
    /// All of them, by their indices.
    pub const ALL: [Self; 3] = [Self::Call, Self::State, Self::On];

    /// Returns its index in [`SampleExtra::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns its key in the stream, which is also its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::State => "state",
            Self::On => "on",
        }
    }
}

/// The label of a sample without the extra.
const ABSENT: &[u8] = b"-";

/// The keys by their names in options.
const NAMED: [(&str, Key); 16] = [
    ("event", Key::Event),
    ("run", Key::Run),
    ("process", Key::Process),
    ("thread", Key::Thread),
    ("command", Key::Command),
    ("cpu", Key::Cpu),
    ("slice", Key::Slice),
    ("call", Key::Extra(SampleExtra::Call)),
    ("state", Key::Extra(SampleExtra::State)),
    ("on", Key::Extra(SampleExtra::On)),
    ("path", Key::Path),
    ("image", Key::Call(CallKey::Image)),
    ("function", Key::Call(CallKey::Function)),
    ("file", Key::Call(CallKey::File)),
    ("line", Key::Call(CallKey::Line)),
    ("address", Key::Call(CallKey::Address)),
];

impl Key {
    /// Returns the key of a name; any but [`Key::Path`].
    ///
    /// # Errors
    ///
    /// A message with all names, if there is no such key.
    pub fn named(name: &str) -> Result<Self, String> {
        Self::named_if(name, |key| key != Key::Path)
    }

    /// Returns the key of a name, if `is_allowed` accepts it.
    ///
    /// # Errors
    ///
    /// A message with the allowed names, if it is not.
    pub fn named_if(name: &str, is_allowed: fn(Key) -> bool) -> Result<Self, String> {
        let mut allowed = NAMED.iter().filter(|(_, key)| is_allowed(*key));
        let found = allowed.clone().find(|(other, _)| *other == name);
        found.map(|&(_, key)| key).ok_or_else(|| {
            let names: Vec<&str> = allowed.by_ref().map(|(name, _)| *name).collect();
            format!("unknown key {name:?}; the keys are {}", names.join(", "))
        })
    }

    /// Returns its name, which is also the title of its column.
    pub fn name(self) -> &'static str {
        // Tables show images by their base names; the user's name for both is `image`.
        let same = |other: Key| {
            other == self
                || matches!(self, Key::Call(CallKey::ImageName))
                    && other == Key::Call(CallKey::Image)
        };
        NAMED.iter().find(|(_, key)| same(*key)).map_or("", |(name, _)| name)
    }
}

/// A key with the length of the time slices, as in `--by slice=100ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// The key.
    pub key: Key,
    /// The length of a slice in nanoseconds; for slices only.
    pub slice: Option<NonZeroU64>,
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            None => (text, None),
            Some((name, value)) => (name, Some(value)),
        };
        let key = Key::named(name)?;
        let slice = match (key, value) {
            (Key::Slice, None) => {
                return Err("slice needs a length, such as slice=1s or slice=100ms".to_owned());
            }
            (Key::Slice, Some(length)) => NonZeroU64::new(interval(length)?.as_nanos() as u64),
            (_, None) => None,
            (_, Some(_)) => return Err(format!("{name} has no value")),
        };
        Ok(Self { key, slice })
    }
}

/// Returns the label of a sample under a key that is a property of samples; empty for other keys.
pub fn sample_label(context: &Context<'_>, group: &GroupKey, key: Key, time: TimeSplit) -> Vec<u8> {
    let tables = context.tables;
    match key {
        Key::Event => context
            .summary
            .events
            .get(group.event)
            .map_or(UNKNOWN.into(), |event| event.event.name.clone()),
        Key::Run => run(context, group.run),
        Key::Process => process(tables, group.task),
        Key::Thread => thread(tables, group),
        Key::Command => command(tables, group),
        Key::Cpu if group.cpu == NO_CPU => UNKNOWN.into(),
        Key::Cpu => group.cpu.to_string().into_bytes(),
        Key::Extra(extra) => extra_of(tables, group, extra),
        Key::Slice => group.slice.map_or(UNKNOWN.into(), |slice| time.label(slice).into_bytes()),
        // Properties of calls: a sample has many calls.
        Key::Path | Key::Call(_) => Vec::new(),
    }
}

fn extra_of(tables: &Tables, group: &GroupKey, extra: SampleExtra) -> Vec<u8> {
    let Some(id) = group.extras else {
        return ABSENT.into();
    };
    match Extras::from_encoded(tables.names.get(id)) {
        Some(extras) => extras.get(extra.name()).map_or(ABSENT.into(), Cow::into_owned),
        // There were too many different extras.
        None => OTHER.into(),
    }
}

fn run(context: &Context<'_>, run: usize) -> Vec<u8> {
    let head = context.summary.runs.get(run).and_then(|run| run.head.as_ref());
    // From 1, as in the heading.
    let mut name = format!("{} ", run + 1).into_bytes();
    name.extend_from_slice(head.map_or(UNKNOWN, |head| &head.command));
    name
}

fn comm(tables: &Tables, comm: NameId) -> &[u8] {
    match tables.names.get(comm) {
        b"" => UNKNOWN,
        name => name,
    }
}

/// Returns the label of an undefined task: it is lost, or beyond the memory of the tables.
fn undefined(tables: &Tables) -> Vec<u8> {
    if tables.has_omissions() { OTHER.into() } else { UNKNOWN.into() }
}

fn command(tables: &Tables, group: &GroupKey) -> Vec<u8> {
    match tables.task(group.task) {
        None => undefined(tables),
        // The name at the time of the samples, which exec can change.
        Some(_) => comm(tables, group.comm).to_vec(),
    }
}

fn thread(tables: &Tables, group: &GroupKey) -> Vec<u8> {
    let Some(task) = tables.task(group.task) else {
        return undefined(tables);
    };
    let mut name = format!("{}/{} ", task.pid, task.tid).into_bytes();
    name.extend_from_slice(comm(tables, group.comm));
    name
}

/// Returns pid and name of a process: the latest name of its first thread, as ps(1) shows it.
fn process(tables: &Tables, id: TaskId) -> Vec<u8> {
    let Some(task) = tables.task(id) else {
        return undefined(tables);
    };
    // The parent of a thread is the first thread of its process; that of a process is another one.
    let parent = tables.task(task.parent).filter(|parent| parent.pid == task.pid);
    let first = if task.pid == task.tid { task } else { parent.unwrap_or(task) };
    let mut name = format!("{} ", task.pid).into_bytes();
    name.extend_from_slice(comm(tables, first.comm));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for (name, key) in NAMED {
            assert_eq!(Key::named_if(name, |_| true), Ok(key));
            assert_eq!(key.name(), name);
        }
        assert_eq!(Key::Call(CallKey::ImageName).name(), "image");
        assert!(Key::named("colour").unwrap_err().contains("function"));
        assert!(!Key::named("path").unwrap_err().contains("path,"));
    }

    #[test]
    fn only_slice_takes_a_length() {
        let by: By = "slice=100ms".parse().unwrap();
        assert_eq!((by.key, by.slice), (Key::Slice, NonZeroU64::new(100_000_000)));
        for wrong in ["slice", "slice=0s", "slice=x", "cpu=1", "functions", ""] {
            assert!(wrong.parse::<By>().is_err(), "{wrong}");
        }
    }
}
