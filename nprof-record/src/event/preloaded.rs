//! The events of the preloaded library: allocations, descriptors, and calls of instrumented functions. Pure.

use nprof_stream::Measure;

use crate::event::definition;

/// An event of the preloaded library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PreloadedEvent {
    /// The allocation of a block.
    HeapAlloc,
    /// The release of a block, at the stack of its allocation.
    HeapFree,
    /// The blocks that a process has when it exits.
    HeapLive,
    /// The blocks that a process had when they were most.
    HeapPeak,
    /// The blocks that a process has now and then.
    HeapSnapshot,
    FdOpen,
    FdClose,
    /// The descriptors that a process has when it exits.
    FdLive,
    /// The call of a function that the compiler instrumented.
    Calls,
}

/// The objects of an event of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Heap,
    Descriptors,
    Calls,
}

/// Each event with its name.
const NAMES: [(PreloadedEvent, &str); 9] = [
    (PreloadedEvent::HeapAlloc, "heap.alloc"),
    (PreloadedEvent::HeapFree, "heap.free"),
    (PreloadedEvent::HeapLive, "heap.live"),
    (PreloadedEvent::HeapPeak, "heap.peak"),
    (PreloadedEvent::HeapSnapshot, "heap.snapshot"),
    (PreloadedEvent::FdOpen, "fd.open"),
    (PreloadedEvent::FdClose, "fd.close"),
    (PreloadedEvent::FdLive, "fd.live"),
    (PreloadedEvent::Calls, "calls"),
];

/// The names that stand for several events, with these.
pub(super) const GROUPS: [(&str, &[&str]); 2] = [
    ("heap", &["heap.alloc", "heap.free", "heap.live", "heap.peak"]),
    ("fd", &["fd.open", "fd.close", "fd.live"]),
];

impl PreloadedEvent {
    /// Returns all events.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(event, _)| event)
    }

    /// Returns the event with this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|(_, known)| *known == name).map(|(event, _)| event)
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        NAMES.into_iter().find(|(event, _)| *event == self).map_or("", |(_, name)| name)
    }

    /// Returns the objects of the event.
    pub(crate) fn subject(self) -> Subject {
        match self {
            Self::FdOpen | Self::FdClose | Self::FdLive => Subject::Descriptors,
            Self::Calls => Subject::Calls,
            _ => Subject::Heap,
        }
    }

    /// Returns the quantity of its weights.
    pub(crate) fn measure(self) -> Measure {
        match self.subject() {
            Subject::Heap => Measure::Bytes,
            Subject::Descriptors => Measure::Count,
            Subject::Calls => definition::calls_measure(),
        }
    }
}

/// Parses a number of bytes, with a suffix of powers of 1024: `512k`, `1m`. None for another form.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_suffixes() {
        assert_eq!(parse_bytes("512k"), Some(512 << 10));
        assert_eq!(parse_bytes("3M"), Some(3 << 20));
        assert_eq!(parse_bytes("1g"), Some(1 << 30));
        assert_eq!(parse_bytes("7"), Some(7));
        for text in ["", "k", "1x", "+1", "99999999999999999999", "99999999999g"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
