//! The keys by which reports group and filter samples and calls.
//!
//! Some keys are properties of a sample, and so the same for its whole stack (event, run, process,
//! thread, command, CPU, time slice); the others are properties of a call on the stack.

use std::num::NonZeroU64;
use std::str::FromStr;

use nprof_cli::time::interval;
use nprof_stream::labels::CallKey;

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

    /// Returns the value of a wait for a CPU that states none.
    pub(crate) fn of_preempted(self) -> Option<&'static [u8]> {
        match self {
            Self::Call => Some(b"preempted"),
            Self::State => Some(b"R"),
            Self::On => None,
        }
    }
}

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
