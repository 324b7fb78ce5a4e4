//! The heading of a report: the recorded runs, their samples, and their losses.

use std::collections::BTreeMap;
use std::time::Duration;

use nprof_cli::time;
use nprof_stream::escape::escaped;
use nprof_stream::labels::OTHER;
use nprof_stream::number::total;
use nprof_stream::{Cause, End, Event, Head, IncompleteInput, Lost, Mark, Measure, Step};

use crate::profile::group::{GroupKey, Sum};
use crate::profile::held::{self, DefinedEvent};
use crate::profile::join;
use crate::profile::margin::Confidence;
use crate::profile::thread_time::ThreadTime;
use crate::profile::unnamed::{self, Remedies, Unnamed};

/// The message about lost records of processes and mappings, after their number.
pub const LOST_RECORDS: &str =
    "of processes and mappings were lost, so frames may be wrong and processes missing";

/// The message about epochs with too many definitions.
pub const OMISSIONS: &str = "the stream defines more stacks, names, tasks or events at once than a report \
                             keeps in memory; the later ones are (other)";

/// The most events; a PMU has some hundreds. Samples of others are of one event `(other)`.
const MAX_EVENTS: usize = 4096;

/// One segment of the input.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The stream that contains it, as the user named it.
    pub input: String,
    /// The command and the machine. None if damage destroyed it.
    pub head: Option<Head>,
    /// The programs that wrote or filtered it.
    pub steps: Vec<Step>,
    /// The totals of its producer. None in a truncated segment.
    pub end: Option<End>,
    /// Number of samples read.
    pub samples: u64,
    /// Its beginning on the clock of the samples; the time of its first sample if the head has none.
    /// Set when it is first needed.
    pub start: Option<u64>,
}

impl Run {
    /// Creates a run before its first record.
    pub fn new(input: &str) -> Self {
        Self { input: input.to_owned(), ..Self::default() }
    }
}

/// One event, over all runs that recorded it.
#[derive(Clone, Debug, Default)]
pub struct EventSummary {
    /// The event, as the first run with it opened it.
    pub event: Event,
    /// The recorded events that were added into this one. Empty if it was recorded itself.
    pub parts: Vec<Event>,
    /// Its samples.
    pub sum: Sum,
    /// Lost samples by cause.
    pub lost: BTreeMap<Cause, u64>,
    /// Lost samples of processes that were not recorded; if there are any, `lost` is an estimate.
    pub lost_others: u64,
    /// Samples with an incomplete stack, by mark.
    pub incomplete: BTreeMap<Mark, u64>,
    /// Its samples in code without names.
    pub unnamed: Unnamed,
    /// The CPU time that recording it takes.
    pub overhead: Overhead,
}

/// The CPU time that recording adds to each unit of an event's weight, as each run has measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    sum_ns: u64,
    runs: u64,
}

impl Overhead {
    /// Adds the time that a run has measured.
    pub(crate) fn note(&mut self, event: &Event) {
        // A run by an older recorder has measured none.
        if let Some(ns) = event.overhead_ns {
            self.add(Self { sum_ns: ns, runs: 1 });
        }
    }

    fn add(&mut self, other: Self) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.runs = self.runs.saturating_add(other.runs);
    }

    /// Returns its mean in ns. 0 if no run has measured it.
    pub fn mean_ns(self) -> u64 {
        self.sum_ns.checked_div(self.runs).unwrap_or(0)
    }
}

impl EventSummary {
    /// True if any program that runs for long enough has samples of it.
    fn has_time_on_cpu(&self) -> bool {
        matches!(self.event.measure, Measure::CpuTime | Measure::Cycles)
    }

    /// Adds the samples of another run.
    fn add(&mut self, other: &EventSummary) {
        self.sum.add(other.sum);
        for (&cause, &lost) in &other.lost {
            let sum = self.lost.entry(cause).or_default();
            *sum = sum.saturating_add(lost);
        }
        self.lost_others = self.lost_others.saturating_add(other.lost_others);
        for (&mark, &samples) in &other.incomplete {
            let sum = self.incomplete.entry(mark).or_default();
            *sum = sum.saturating_add(samples);
        }
        self.unnamed.append(&other.unnamed);
        self.overhead.add(other.overhead);
    }

    /// Returns the windows in which it was recorded, as the end of a clause. Empty if it was all the time.
    pub fn windows(&self) -> String {
        let duty = &self.event.duty;
        if duty.is_empty() {
            return String::new();
        }
        let times: Option<Vec<u64>> = duty
            .split(|byte| *byte == b'/')
            .map(|it| str::from_utf8(it).ok()?.parse().ok())
            .collect();
        match times.as_deref() {
            Some(&[length, interval]) => {
                let [length, interval] =
                    [length, interval].map(|ns| time::rounded(Duration::from_nanos(ns)));
                format!(", in windows of {length} in each {interval}")
            }
            // Of a later version, or of another program.
            _ => format!(", in windows of {}", escaped(duty)),
        }
    }

    /// Returns its name for people, with the events that were added into it: `wall = cpu-clock +
    /// blocked`. Escaped.
    pub fn definition(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for part in self.parts.iter().map(|part| escaped(&part.name)) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        let name = escaped(&self.event.name);
        if parts.is_empty() { name } else { format!("{name} = {}", parts.join(" + ")) }
    }

    /// Returns the number of samples with an incomplete stack.
    pub fn incomplete_samples(&self) -> u64 {
        total(self.incomplete.values().copied())
    }

    /// Returns the number of lost samples.
    pub fn lost_samples(&self) -> u64 {
        total(self.lost.values().copied())
    }

    /// True if the shares of its samples have margins of error: their counts are numbers of observations.
    pub fn has_margins(&self) -> bool {
        self.event.scaled.is_empty()
    }

    /// True if each occurrence of the event was recorded: its shares are exact.
    pub fn is_complete(&self) -> bool {
        let Event { period, frequency, exact_ns, .. } = self.event;
        // A call counter samples some of the calls that it counts.
        let has_each = period == Some(1) && frequency.is_none() && exact_ns.is_none();
        has_each && self.event.duty.is_empty() && self.lost_samples() == 0
    }

    /// Returns the margin of error of the share of `part` in `whole`, as a fraction: 0 if each occurrence of
    /// the event was recorded. None if shares have no margins.
    pub fn margin(&self, confidence: Confidence, part: Sum, whole: Sum) -> Option<f64> {
        let margin = || if self.is_complete() { 0.0 } else { confidence.margin(part, whole) };
        self.has_margins().then(margin)
    }

    /// Returns the largest margin of error of any share of these samples with 95 % confidence,
    /// also if `--confidence` differs, as a fraction: 0.98 / sqrt(n) (nprofile thesis, section on accuracy).
    /// For samples of unequal weight, the margin of a share of 50 %. 1 without samples. 0 if each occurrence of
    /// the event was recorded. None if shares have no margins.
    pub fn maximum_margin(&self) -> Option<f64> {
        if !self.has_margins() {
            return None;
        }
        if self.is_complete() {
            return Some(0.0);
        }
        // A share of 50 % has this margin with any weights. A smaller share of heavier samples can have
        // a larger one, since only few samples may make it up.
        let samples = self.sum.samples_of_equal_weight();
        Some(if samples == 0.0 { 1.0 } else { (0.98 / samples.sqrt()).min(1.0) })
    }
}

/// True if both are one event, recorded in different runs.
fn is_same(one: &Event, other: &Event) -> bool {
    (&one.name, &one.unit, &one.measure, &one.scope, &one.scaled)
        == (&other.name, &other.unit, &other.measure, &other.scope, &other.scaled)
}

/// A summary of the streams that a report was computed from.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// All segments in the order of the input.
    pub runs: Vec<Run>,
    /// All distinct events: name, unit, measure and scope. Runs that recorded the same event share one.
    pub events: Vec<EventSummary>,
    /// Lost records of processes and mappings. They are no samples, but explain wrong frames and
    /// missing processes.
    pub lost_records: u64,
    /// True if an epoch has more definitions than fit into memory: their samples are in `(other)`.
    pub has_omissions: bool,
    /// The incomplete streams.
    pub incomplete_inputs: Vec<IncompleteInput>,
    /// True if any frame has a location, with names or with the reason for their absence.
    pub symbolized: bool,
    /// The steps that name code without names.
    pub remedies: Remedies,
    /// True while the stream is still being read.
    pub live: bool,
    /// The time since the report began to read a live stream.
    pub watched: Option<Duration>,
}

impl Summary {
    /// Appends the runs of another summary, and adds its events. Returns their indices in `events`.
    pub(crate) fn append(&mut self, other: Summary) -> Vec<usize> {
        self.runs.extend(other.runs);
        self.lost_records = self.lost_records.saturating_add(other.lost_records);
        self.incomplete_inputs.extend(other.incomplete_inputs);
        self.symbolized |= other.symbolized;
        self.has_omissions |= other.has_omissions;
        self.remedies.append(other.remedies);
        let mut indices = Vec::with_capacity(other.events.len());
        for event in other.events {
            let index = match &event.parts[..] {
                [] => self.event(&event.event),
                parts => self.joined_event(&event.event.name, parts),
            };
            self.events[index].add(&event);
            indices.push(index);
        }
        indices
    }

    /// Returns the index in `events` of an event, which is added if no earlier run recorded it.
    pub(crate) fn event(&mut self, event: &Event) -> usize {
        let same = |other: &EventSummary| other.parts.is_empty() && is_same(&other.event, event);
        // Ids differ between streams; runs of one event are merged by its properties.
        if let Some(index) = self.events.iter().position(same) {
            return index;
        }
        if self.events.len() >= MAX_EVENTS {
            self.has_omissions = true;
            return self.stand_in(OTHER);
        }
        self.events.push(EventSummary { event: event.clone(), ..EventSummary::default() });
        self.events.len() - 1
    }

    /// Returns the index in `events` of a stand-in for other events.
    fn stand_in(&mut self, name: &[u8]) -> usize {
        let event = Event { name: name.to_vec(), ..Event::default() };
        self.events.iter().rposition(|other| other.event == event).unwrap_or_else(|| {
            self.events.push(EventSummary { event, ..EventSummary::default() });
            self.events.len() - 1
        })
    }

    /// Returns the index in `events` of the sum of events, to which these parts are added.
    pub(crate) fn joined_event(&mut self, name: &[u8], parts: &[Event]) -> usize {
        let is_named = |other: &EventSummary| !other.parts.is_empty() && other.event.name == name;
        let index = self.events.iter().position(is_named).unwrap_or_else(|| {
            self.events.push(EventSummary::default());
            self.events.len() - 1
        });
        let joined = &mut self.events[index];
        for part in parts {
            if !joined.parts.iter().any(|other| is_same(other, part)) {
                joined.parts.push(part.clone());
            }
        }
        joined.event = join::sum_of(name, &joined.parts);
        index
    }

    /// Returns the names of all recorded events, each once, escaped.
    pub fn recorded_events(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for event in &self.events {
            let recorded = if event.parts.is_empty() {
                std::slice::from_ref(&event.event)
            } else {
                &event.parts[..]
            };
            for name in recorded.iter().map(|event| escaped(&event.name)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Returns the index in `events` of the stand-in for events that damage destroyed.
    pub(crate) fn undefined_event(&mut self) -> usize {
        self.stand_in(b"[damaged]")
    }

    /// Adds the samples of a group, of which the stacks have this mark.
    pub(crate) fn count(&mut self, group: &GroupKey, sum: Sum, mark: Mark) {
        let run = &mut self.runs[group.run];
        run.samples = run.samples.saturating_add(sum.samples);
        let event = &mut self.events[group.event];
        event.sum.add(sum);
        // Only incomplete stacks have a mark.
        if mark != Mark::None {
            let incomplete = event.incomplete.entry(mark).or_default();
            *incomplete = incomplete.saturating_add(sum.samples);
        }
    }

    /// Adds a loss. `event` is the index of the event that lost samples.
    pub(crate) fn note_lost(&mut self, event: usize, lost: &Lost<'_>) {
        self.lost_records = self.lost_records.saturating_add(lost.records());
        // Without a number of samples, only a loss of samples counts as a cause.
        if lost.count == 0 && lost.others() == 0 && lost.records() > 0 {
            return;
        }
        if let Some(event) = self.events.get_mut(event) {
            let count = event.lost.entry(lost.cause).or_default();
            *count = count.saturating_add(lost.count);
            event.lost_others = event.lost_others.saturating_add(lost.others());
        }
    }

    /// True if every stream was complete.
    pub fn is_complete(&self) -> bool {
        self.incomplete_inputs.is_empty()
    }

    /// Returns the number of samples of all events.
    pub fn samples(&self) -> u64 {
        total(self.events.iter().map(|event| event.sum.samples))
    }

    /// Returns a sentence on the absence of samples, by the CPU time that the runs used.
    fn no_samples(&self) -> String {
        let ends = self.runs.iter().map(|run| run.end.as_ref().and_then(|end| end.task_ns));
        let used_ns: Option<Vec<u64>> = ends.collect();
        let used_ns = used_ns.map(|used_ns| total(used_ns.into_iter()));
        let hertz = self.events.iter().find_map(|event| event.event.frequency);
        match (used_ns, hertz) {
            (Some(used_ns), Some(hertz)) => {
                let (used, time) = (used_ns as f64 / 1e9, self.cpu_time_name());
                // The probability of none is below 1 % from 4.6 expected samples on.
                if used * hertz as f64 > 4.6 {
                    format!("no samples in {used:.2} s of {time}: see the messages of nprof-record")
                } else {
                    format!(
                        "no samples in {used:.4} s of {time} at {hertz} Hz; waiting is not sampled"
                    )
                }
            }
            _ if self.events.is_empty() => "no samples".to_owned(),
            _ if self.events.iter().any(EventSummary::has_time_on_cpu) => {
                "no samples: run the program for longer, and on the recorded CPUs".to_owned()
            }
            _ => "no samples: the recorded events did not happen, or too seldom for a sample"
                .to_owned(),
        }
    }

    /// Returns the name of the CPU time that the runs used: of the mode that was sampled.
    pub(crate) fn cpu_time_name(&self) -> &'static str {
        let mut events = self.events.iter().map(|summary| &summary.event);
        match events.find(|event| event.measure == Measure::CpuTime).map(|event| &event.scope[..]) {
            Some(b"user") => "user CPU time",
            Some(b"kernel") => "kernel CPU time",
            _ => "CPU time",
        }
    }

    /// Returns a sentence on lost records of processes and mappings. None if there are none.
    pub fn lost_records_text(&self) -> Option<String> {
        let count = self.lost_records;
        (count > 0).then(|| format!("{count} {LOST_RECORDS}"))
    }

    /// Returns sentences on live blocks, the peak and open descriptors, if records that they are computed from were
    /// lost.
    pub fn doubtful(&self) -> Vec<String> {
        let mut defined = Vec::new();
        for summary in &self.events {
            let has_losses = summary.lost_samples() > 0;
            let own = summary.parts.is_empty().then_some(&summary.event);
            let recorded = own.into_iter().chain(&summary.parts);
            defined.extend(recorded.map(|event| DefinedEvent { event, has_losses }));
        }
        held::doubtful(&defined)
    }

    /// Returns the number of processes of which heap, fd or calls events are missing.
    pub fn unseen(&self) -> u64 {
        total(self.runs.iter().filter_map(|run| run.end.as_ref()?.unseen))
    }

    /// Returns the heading of a report for people, one fact per line, escaped for a terminal.
    pub fn heading(&self) -> Vec<String> {
        let mut lines = Vec::new();
        // A live run without a record has not lost its head: it has not arrived yet.
        let has_begun = |run: &Run| !self.live || run.head.is_some() || run.samples > 0;
        for (i, run) in self.runs.iter().enumerate().filter(|(_, run)| has_begun(run)) {
            let number = if self.runs.len() > 1 { format!(" {}", i + 1) } else { String::new() };
            lines.extend(run_lines(run, &number, self.live, self.cpu_time_name()));
        }
        for event in self.events.iter().filter(|event| event.sum.samples > 0) {
            lines.extend(event_lines(event));
            lines.extend(self.unnamed_lines(event));
        }
        lines.extend(self.thread_time().map(|time| time.line()));
        if self.live {
            let watched = self.watched.map(|time| format!(", for {:.1} s", time.as_secs_f64()));
            let watched = watched.unwrap_or_default();
            lines.push(format!("so far:  the stream is still being written{watched}"));
        }
        lines.extend(self.problems());
        lines
    }

    /// Returns the exact times of all threads. None if a run did not count them.
    pub fn thread_time(&self) -> Option<ThreadTime> {
        let waited = |name| waited(&self.events, name);
        let ends: Vec<Option<&End>> = self.runs.iter().map(|run| run.end.as_ref()).collect();
        let is_whole =
            |event: &EventSummary| matches!(&event.event.scope[..], b"" | b"user+kernel");
        let samples_all = self.events.iter().all(is_whole);
        let (runnable, blocked) = (waited(b"runnable"), waited(b"blocked"));
        ThreadTime::new(
            &ends,
            runnable,
            blocked,
            all_time(&self.events).filter(|_| samples_all),
            samples_all,
        )
    }

    /// Returns lines on the samples of an event in code without names; none if all have names.
    pub(crate) fn unnamed_lines(&self, event: &EventSummary) -> Vec<String> {
        let sentences = unnamed_sentences(std::iter::once((self, event))).into_iter();
        let labels = std::iter::once("names:   ").chain(std::iter::repeat("         "));
        labels.zip(sentences).map(|(label, sentence)| format!("{label}{sentence}")).collect()
    }

    /// Returns lines on facts without which a reader may misjudge the report.
    pub fn problems(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.lost_records_text().map(|text| format!("records: {text}")));
        lines.extend(self.doubtful().into_iter().map(|text| format!("lost:    {text}")));
        if let unseen @ 1.. = self.unseen() {
            let plural = if unseen == 1 { "" } else { "es" };
            lines.push(format!(
                "unseen:  {unseen} process{plural} without heap, fd or calls events, see the messages of nprof-record"
            ));
        }
        if self.has_omissions {
            lines.push(format!("omitted: {OMISSIONS}"));
        }
        if !self.live && self.samples() == 0 && self.is_complete() {
            lines.push(self.no_samples());
        }
        lines.extend(
            self.incomplete_inputs
                .iter()
                .map(|incomplete| format!("incomplete input: {incomplete}")),
        );
        lines
    }
}

/// Returns sentences on the samples of one event in code without names, over all of these streams: their
/// share with the images, then the remedy for the image with the most of it. Empty if there are few.
pub fn unnamed_sentences<'a>(
    streams: impl Iterator<Item = (&'a Summary, &'a EventSummary)>,
) -> Vec<String> {
    let (mut unnamed, mut all, mut remedies) = <(Unnamed, Sum, Remedies)>::default();
    // The message about a stream that was not symbolized says it for all of its frames.
    for (summary, event) in streams.filter(|(summary, _)| summary.symbolized) {
        unnamed.append(&event.unnamed);
        all.add(event.sum);
        remedies.append(summary.remedies.clone());
    }
    unnamed::sentences(&unnamed, all, &remedies)
}

/// Returns the weight of the samples of a sum of the CPU time and both kinds of waiting. None without one.
fn all_time(events: &[EventSummary]) -> Option<u64> {
    let is_cpu = |part: &Event| part.measure == Measure::CpuTime;
    let has_all = |event: &&EventSummary| {
        let has = |name: &[u8]| event.parts.iter().any(|part| part.name == name);
        has(b"runnable") && has(b"blocked") && event.parts.iter().any(is_cpu)
    };
    events.iter().find(has_all).map(|event| event.sum.weight)
}

/// Returns the weight of the samples of an event of waiting. None if it was not recorded, or added into
/// another event.
fn waited(events: &[EventSummary], name: &[u8]) -> Option<u64> {
    let is_named = |event: &&EventSummary| {
        event.parts.is_empty()
            && event.event.name == name
            && event.event.measure == Measure::WaitTime
    };
    let mut found = events.iter().filter(is_named).peekable();
    found.peek()?;
    Some(total(found.map(|event| event.sum.weight)))
}

/// Returns the lines about one run. `number` identifies it as `--by run` does.
fn run_lines(run: &Run, number: &str, live: bool, cpu_time: &str) -> Vec<String> {
    let Some(head) = &run.head else {
        return vec![format!("{}: the head of the stream is lost", escaped(run.input.as_bytes()))];
    };
    let mut facts = Vec::new();
    let end = run.end.as_ref();
    if let (Some(from), Some(to)) = (head.time, end.and_then(|end| end.time)) {
        facts.push(format!("{:.2} s", to.saturating_sub(from) as f64 / 1e9));
    }
    if end.is_none() && !live {
        facts.push("end unknown".to_owned());
    }
    // A recorder that was killed wrote no end, so its totals are unknown.
    let task_ns = end.and_then(|end| end.task_ns);
    if let Some(task_ns) = task_ns {
        facts.push(format!("{:.2} s of {cpu_time}", task_ns as f64 / 1e9));
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
    let mut name = summary.definition();
    // The kernel adjusts the period to reach a frequency, so only one of them is constant.
    if let Some(hertz) = event.frequency {
        name.push_str(&format!(" at {hertz} Hz"));
    } else if let Some(period) = event.period {
        name.push_str(&format!(" every {period} {}", escaped(&event.unit)));
    }
    if !event.scope.is_empty() {
        name.push_str(&format!(", {}", escaped(&event.scope)));
    }
    name.push_str(&summary.windows());
    let mut lines = vec![format!("event:   {name}")];
    if !event.fallback.is_empty() {
        // The default event, CPU cycles, is replaced where there is no counter, as in many virtual machines;
        // waiting is measured in another way without BPF.
        let is_default = event.measure == Measure::CpuTime;
        let how = if is_default { "in place of the default, CPU cycles" } else { "in another way" };
        lines.push(format!("         {how} ({})", escaped(&event.fallback)));
    }
    let samples = summary.sum.samples;
    lines.push(format!(
        "samples: {samples}, lost {}, with incomplete stack {}",
        lost_text(summary.lost_samples(), summary.lost_others),
        by_cause(summary.incomplete_samples(), &summary.incomplete),
    ));
    let Some(margin) = summary.maximum_margin().map(|margin| 100.0 * margin) else {
        lines.push("margin:  unknown: the samples are estimates of another program".to_owned());
        return lines;
    };
    if summary.is_complete() {
        lines.push("margin:  none: each occurrence was recorded".to_owned());
    } else if summary.sum.is_uniform() {
        lines.push(format!(
            "margin:  a share is at most {margin:.2} points off, with 95 % confidence"
        ));
    } else {
        lines.push(format!(
            "margin:  a share of 50 % is at most {margin:.2} points off, with 95 % confidence"
        ));
        lines.push(format!(
            "         (samples weigh differently; they say as much as {:.0} of equal weight)",
            summary.sum.samples_of_equal_weight()
        ));
    }
    lines
}

/// Returns a number of lost samples for people. `others` are lost samples of processes that were not
/// recorded: the kernel reports only the sum of both, so the recorder has estimated the parts.
pub fn lost_text(lost: u64, others: u64) -> String {
    if others == 0 {
        return lost.to_string();
    }
    format!("{lost} (estimated; without {others} of other processes)")
}

/// Returns a total with its parts by mark in parentheses.
fn by_cause(total: u64, causes: &BTreeMap<Mark, u64>) -> String {
    if total == 0 {
        return "0".to_owned();
    }
    let parts: Vec<String> = causes.iter().map(|(mark, count)| format!("{mark} {count}")).collect();
    format!("{total} ({})", parts.join(", "))
}
