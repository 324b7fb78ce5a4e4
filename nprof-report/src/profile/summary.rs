//! What a report says above its table: what was recorded, how much, and what is missing.

use std::collections::BTreeMap;

use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::{Cause, End, Event, Head, Lost, Mark, Step, Trouble};

use crate::profile::cell::{Cell, Sum};

/// One segment that was read.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The stream it was in, as the user named it.
    pub input: String,
    /// What ran, where; `None` when it was lost to damage.
    pub head: Option<Head>,
    /// Which programs touched it.
    pub steps: Vec<Step>,
    /// The totals its producer wrote; `None` in a truncated segment.
    pub end: Option<End>,
    /// How many observations were read.
    pub samples: u64,
    /// When it began, on the clock of the samples; with its first sample where its head does not
    /// tell. Known once somebody asked.
    pub start: Option<u64>,
}

impl Run {
    /// A run of which nothing has been read.
    pub fn new(input: &str) -> Self {
        Self { input: input.to_owned(), ..Self::default() }
    }
}

/// What was counted, over all runs that counted the same.
#[derive(Clone, Debug, Default)]
pub struct EventSummary {
    /// The event, as the first run that has it opened it.
    pub event: Event,
    /// How much was observed.
    pub sum: Sum,
    /// How many observations were lost, by cause.
    pub lost: BTreeMap<Cause, u64>,
    /// How many samples have an incomplete stack, by what is wrong with it.
    pub incomplete: BTreeMap<Mark, u64>,
}

impl EventSummary {
    /// How many samples have an incomplete stack.
    pub fn incomplete_samples(&self) -> u64 {
        total(self.incomplete.values().copied())
    }

    /// How many observations were lost.
    pub fn lost_samples(&self) -> u64 {
        total(self.lost.values().copied())
    }

    /// The largest margin of error a share of these samples can have, with 95 % confidence:
    /// 0.98 / sqrt(n), as a fraction (nprofile, section on accuracy). 1 when there are none.
    pub fn maximum_margin(&self) -> f64 {
        if self.sum.samples == 0 { 1.0 } else { (0.98 / (self.sum.samples as f64).sqrt()).min(1.0) }
    }
}

/// What is known of the streams a report was made from.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Every segment, in the order it was read.
    pub runs: Vec<Run>,
    /// Every distinct event: name, unit and scope. Runs that counted the same share one.
    pub events: Vec<EventSummary>,
    /// The streams that were not complete.
    pub troubles: Vec<Trouble>,
    /// Whether any frame has been given a name, or a reason why it has none.
    pub symbolized: bool,
    /// Whether there is more to come: the stream is still being read.
    pub live: bool,
}

impl Summary {
    /// The index in `events` of an event that runs may have in common.
    pub(crate) fn event(&mut self, event: &Event) -> usize {
        let same = |other: &EventSummary| {
            (&other.event.name, &other.event.unit, &other.event.scope)
                == (&event.name, &event.unit, &event.scope)
        };
        if let Some(index) = self.events.iter().position(same) {
            return index;
        }
        self.events.push(EventSummary { event: event.clone(), ..EventSummary::default() });
        self.events.len() - 1
    }

    /// The index in `events` of the event whose record was lost to damage.
    pub(crate) fn undefined_event(&mut self) -> usize {
        self.event(&Event { name: b"[damaged]".to_vec(), ..Event::default() })
    }

    /// Counts what fell on a cell whose stack has this mark.
    pub(crate) fn count(&mut self, cell: &Cell, sum: Sum, mark: Mark) {
        let run = &mut self.runs[cell.run];
        run.samples = run.samples.saturating_add(sum.samples);
        let event = &mut self.events[cell.event];
        event.sum.add(sum);
        if mark != Mark::None {
            let incomplete = event.incomplete.entry(mark).or_default();
            *incomplete = incomplete.saturating_add(sum.samples);
        }
    }

    pub(crate) fn note_lost(&mut self, event: usize, lost: &Lost<'_>) {
        if let Some(event) = self.events.get_mut(event) {
            let count = event.lost.entry(lost.cause).or_default();
            *count = count.saturating_add(lost.count);
        }
    }

    /// Whether every stream was complete.
    pub fn is_complete(&self) -> bool {
        self.troubles.is_empty()
    }

    /// How many samples were read, of all events.
    pub fn samples(&self) -> u64 {
        total(self.events.iter().map(|event| event.sum.samples))
    }

    /// The heading of a report for people: facts, one a line, safe for a terminal.
    pub fn heading(&self) -> Vec<String> {
        let mut lines = Vec::new();
        // What nothing has been read of yet has lost nothing either.
        let has_begun = |run: &Run| !self.live || run.head.is_some() || run.samples > 0;
        for (i, run) in self.runs.iter().enumerate().filter(|(_, run)| has_begun(run)) {
            let number = if self.runs.len() > 1 { format!(" {}", i + 1) } else { String::new() };
            lines.extend(run_lines(run, &number));
        }
        for event in self.events.iter().filter(|event| event.sum.samples > 0) {
            lines.extend(event_lines(event));
        }
        if self.live {
            lines.push("so far:  the stream is still being written".to_owned());
        } else if self.samples() == 0 && self.is_complete() {
            lines.push("no samples: run it for longer, or sample more often (-F)".to_owned());
        }
        lines.extend(self.troubles.iter().map(|trouble| format!("incomplete input: {trouble}")));
        lines
    }
}

/// What ran, and how. `number` tells it from the others, as `--by run` does.
fn run_lines(run: &Run, number: &str) -> Vec<String> {
    let Some(head) = &run.head else {
        return vec![format!("{}: its head is lost", escaped(run.input.as_bytes()))];
    };
    let mut facts = Vec::new();
    let end = run.end.as_ref();
    if let (Some(from), Some(to)) = (head.time, end.and_then(|end| end.time)) {
        facts.push(format!("{:.2} s", to.saturating_sub(from) as f64 / 1e9));
    }
    if end.is_none() {
        facts.push("its end is not known".to_owned());
    }
    let task_ns = end.and_then(|end| end.task_ns);
    if let Some(task_ns) = task_ns {
        facts.push(format!("{:.2} s of CPU time", task_ns as f64 / 1e9));
    }
    let sampled_ns = end.and_then(|end| end.sampled_ns);
    if let (Some(sampled), Some(task)) = (sampled_ns, task_ns.filter(|&ns| ns > 0)) {
        facts.push(format!("coverage {:.1} %", 100.0 * sampled as f64 / task as f64));
    }
    if !head.host.is_empty() {
        facts.push(format!("on {}", escaped(&head.host)));
    }
    let mut lines = vec![format!("command{number}: {}", escaped(&head.command))];
    if !facts.is_empty() {
        lines.push(format!("ran:     {}", facts.join(", ")));
    }
    lines
}

fn event_lines(summary: &EventSummary) -> Vec<String> {
    let event = &summary.event;
    let mut name = escaped(&event.name);
    if let Some(hertz) = event.frequency {
        name.push_str(&format!(" at {hertz} Hz"));
    } else if let Some(period) = event.period {
        name.push_str(&format!(" every {period} {}", escaped(&event.unit)));
    }
    if !event.scope.is_empty() {
        name.push_str(&format!(", {}", escaped(&event.scope)));
    }
    let mut lines = vec![format!("event:   {name}")];
    if !event.fallback.is_empty() {
        let (asked, why) = (escaped(&event.asked), escaped(&event.fallback));
        lines.push(format!("         in place of {asked}: {why}"));
    }
    let samples = summary.sum.samples;
    lines.push(format!(
        "samples: {samples}, lost {}, with incomplete stack {}",
        summary.lost_samples(),
        by_cause(summary.incomplete_samples(), &summary.incomplete),
    ));
    let margin = 100.0 * summary.maximum_margin();
    lines.push(format!("margin:  a share is at most {margin:.2} points off, with 95 % confidence"));
    lines
}

/// A number, and what it is made of.
fn by_cause(total: u64, causes: &BTreeMap<Mark, u64>) -> String {
    if total == 0 {
        return "0".to_owned();
    }
    let parts: Vec<String> = causes.iter().map(|(mark, count)| format!("{mark} {count}")).collect();
    format!("{total} ({})", parts.join(", "))
}
