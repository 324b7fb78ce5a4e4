//! A stream that is still being written: its samples of the last seconds and since its start.
//!
//! Samples stay sums by stack until their epoch ends, or until there are many: a frame can get its name
//! after its samples.

use std::io::Read;

use nprof_report::profile::{Context, GroupBy, GroupKey, Profile, Sum};
use nprof_report::rows::flat::Flat;
use nprof_report::time::TimeSplit;
use nprof_stream::{Reader, Record};

use crate::model::clock::Clock;
use crate::model::facts::Facts;
use crate::model::view::{Span, Table, View};
use crate::model::window::{Sums, Window};

/// The number of sums since the start after which they are added to rows by name: about 20 MB.
const MAX_SUMS: usize = 1 << 17;

/// The samples of a stream so far.
#[derive(Debug)]
pub struct Live {
    profile: Profile,
    /// Sums since the start that are in no rows yet.
    sums: Sums,
    /// The rows of each view, in the order of [`View::ALL`], without `sums`.
    rows: [Flat; View::ALL.len()],
    window: Window,
    clock: Clock,
    /// The length of earlier segments.
    earlier_ns: u64,
    /// The number of records so far.
    records: u64,
    has_ended: bool,
}

impl Live {
    /// Creates a model without samples, with a window of this length.
    pub fn new(window_ns: u64) -> Self {
        let window = Window::new(window_ns);
        let rows = View::ALL.map(View::flat);
        let mut group_by = GroupBy::default();
        rows.iter().for_each(|rows| group_by.add(rows.group_by()));
        group_by.time = TimeSplit { slice: window.slice_ns().try_into().ok(), span: None };
        Self {
            profile: Profile::new(group_by),
            sums: Sums::default(),
            rows,
            window,
            clock: Clock::default(),
            earlier_ns: 0,
            records: 0,
            has_ended: false,
        }
    }

    /// Begins a stream. Messages refer to it as `name`.
    pub fn begin(&mut self, name: &str) {
        self.settle();
        self.begin_segment();
        self.profile.begin(name);
    }

    /// Adds a record that arrived at `at_ns` by a clock of the caller.
    pub fn take(&mut self, record: &Record<'_>, at_ns: u64) {
        if matches!(record, Record::Head(_) | Record::Epoch(_)) {
            // The ids of all sums end here.
            self.settle();
        }
        // Borrowed apart: the profile passes sums on while it takes the record.
        let Self { profile, sums, window, .. } = self;
        profile.take(record, &mut |_, key, sum| add(sums, window, key, sum));
        self.records += 1;
        match record {
            Record::Head(_) => self.begin_segment(),
            // The window holds ids of the epoch that has ended.
            Record::Epoch(_) => self.window.restart(self.clock.now_ns()),
            Record::Sample(sample) => {
                let run = self.profile.summary.runs.get(self.profile.run());
                let start = run.and_then(|run| run.start).unwrap_or_default();
                self.clock.note(sample.time.saturating_sub(start), at_ns);
            }
            _ => {}
        }
    }

    /// Ends a stream, and notes the verdict of its reader.
    pub fn end<R: Read>(&mut self, reader: &Reader<R>) {
        let Self { profile, sums, window, .. } = self;
        profile.end(reader, &mut |_, key, sum| add(sums, window, key, sum));
    }

    /// Notes that no stream follows.
    pub fn finish(&mut self) {
        self.has_ended = true;
    }

    /// True if all streams have ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// True if all streams were complete.
    pub fn is_complete(&self) -> bool {
        self.profile.summary.is_complete()
    }

    /// Returns messages about the streams that were not complete.
    pub fn incomplete_inputs(&self) -> Vec<String> {
        self.profile.summary.incomplete_inputs.iter().map(ToString::to_string).collect()
    }

    /// Returns the number of records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// True if a table of this time may change without a record: time goes on.
    pub fn passes(&self, span: Span) -> bool {
        !self.has_ended
            && self.clock.now_ns() > 0
            && (span == Span::SinceStart || !self.window.is_empty())
    }

    /// Returns the facts on the recording.
    pub fn facts(&mut self) -> Facts {
        self.pass_sums();
        Facts::of(&self.profile.summary)
    }

    /// Returns a table at the time `at_ns` of the caller's clock.
    pub fn table(&mut self, view: View, span: Span, at_ns: u64) -> Table {
        // The last window of a recording stays.
        if !self.has_ended {
            self.clock.advance(at_ns);
        }
        self.pass_sums();
        let now_ns = self.clock.now_ns();
        self.window.drop_before(now_ns);
        let mut wholes = Vec::new();
        let (flat, length_ns) = match span {
            Span::Window => {
                // Few sums: naming them again costs less than keeping rows for each slice.
                let mut flat = view.flat();
                for (key, sum) in self.window.sums() {
                    count(&mut wholes, key.event, sum);
                    self.add_to(&mut flat, view, &GroupKey { slice: Some(0), ..*key }, sum);
                }
                (flat, self.window.length_ns(now_ns))
            }
            Span::SinceStart => {
                // A copy: the sums that are added to it may get other names.
                let mut flat = self.rows[view as usize].clone();
                self.sums.iter().for_each(|(key, &sum)| self.add_to(&mut flat, view, key, sum));
                wholes = self.profile.summary.events.iter().map(|event| event.sum).collect();
                (flat, self.earlier_ns.saturating_add(now_ns))
            }
        };
        Table { rows: flat.rows(true), wholes, length_ns }
    }

    fn begin_segment(&mut self) {
        // Times of another segment begin at 0 again.
        self.earlier_ns = self.earlier_ns.saturating_add(self.clock.now_ns());
        self.clock = Clock::default();
        self.window.restart(0);
    }

    /// Takes the sums that the profile has accumulated.
    fn pass_sums(&mut self) {
        let Self { profile, sums, window, .. } = self;
        profile.pass_sums(&mut |_, key, sum| add(sums, window, key, sum));
        // Their names are final from here on.
        if self.sums.len() > MAX_SUMS {
            self.add_to_rows();
        }
    }

    /// Adds all sums to rows by name, before their ids lose their meaning.
    fn settle(&mut self) {
        self.pass_sums();
        self.add_to_rows();
    }

    fn add_to_rows(&mut self) {
        let sums = std::mem::take(&mut self.sums);
        for view in View::ALL {
            // Taken out, since adding reads the tables of this model.
            let mut flat = std::mem::replace(&mut self.rows[view as usize], view.flat());
            sums.iter().for_each(|(key, &sum)| self.add_to(&mut flat, view, key, sum));
            self.rows[view as usize] = flat;
        }
    }

    /// Adds samples to the rows of a view.
    fn add_to(&self, flat: &mut Flat, view: View, key: &GroupKey, sum: Sum) {
        let summary = &self.profile.summary;
        if view.shows(&summary.events[key.event].event.measure) {
            flat.add(&Context { tables: self.profile.tables(), summary, blocks: None }, key, sum);
        }
    }
}

/// Adds samples to those since the start and to the window.
fn add(sums: &mut Sums, window: &mut Window, key: &GroupKey, sum: Sum) {
    window.add(key, sum);
    sums.entry(GroupKey { slice: Some(0), ..*key }).or_default().add(sum);
}

/// Adds samples to those of an event.
fn count(wholes: &mut Vec<Sum>, event: usize, sum: Sum) {
    if wholes.len() <= event {
        wholes.resize(event + 1, Sum::default());
    }
    wholes[event].add(sum);
}

#[cfg(test)]
mod tests;
