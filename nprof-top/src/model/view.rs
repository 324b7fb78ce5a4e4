//! The tables that can be shown.

use nprof_report::filter::Filter;
use nprof_report::key::{Key, SampleExtra};
use nprof_report::profile::Sum;
use nprof_report::rows::flat::{Flat, FlatRow};
use nprof_report::time::TimeSplit;
use nprof_stream::Measure;
use nprof_stream::labels::CallKey;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// Functions and their images.
    Functions,
    /// Threads and their processes.
    Threads,
    /// Waits by their causes: system call and object.
    Waits,
}

/// The time that a table covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// The last seconds.
    Window,
    /// All time since the first record.
    SinceStart,
}

/// The rows of a table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The rows, in no order.
    pub rows: Vec<FlatRow>,
    /// All samples of the time by event: 100 %.
    pub wholes: Vec<Sum>,
    /// The length of the time.
    pub length_ns: u64,
}

impl Table {
    /// Returns all samples of an event.
    pub fn whole(&self, event: usize) -> Sum {
        self.wholes.get(event).copied().unwrap_or_default()
    }
}

impl View {
    /// All views in the order of their keys.
    pub const ALL: [Self; 3] = [Self::Functions, Self::Threads, Self::Waits];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Threads => "threads",
            Self::Waits => "waits",
        }
    }

    /// Returns the columns that name its rows: those of the keys of nprof-flat that give the same rows.
    pub fn columns(self) -> Vec<Key> {
        match self {
            Self::Functions => [CallKey::Function, CallKey::ImageName].map(Key::Call).to_vec(),
            Self::Threads => vec![Key::Process, Key::Thread],
            Self::Waits => [SampleExtra::Call, SampleExtra::On].map(Key::Extra).to_vec(),
        }
    }

    /// True if it shows an event that measures this.
    pub fn shows(self, measure: &Measure) -> bool {
        // A thread that runs waits for nothing.
        self != Self::Waits || *measure == Measure::WaitTime
    }

    /// Returns sums for its rows.
    pub(crate) fn flat(self) -> Flat {
        Flat::new(self.columns(), TimeSplit::default(), Filter::default())
    }
}
