//! Chooses the event that the sides are compared by. Pure.
//!
//! Shares of different events are not comparable: two events are the same only if name, unit and
//! scope are equal. Their sampling rates may differ.

use anyhow::{Result, bail};
use nprof_report::summary::{EventSummary, Summary};
use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::{Event, Measure};

use crate::input::run_counts::RunCounts;
use crate::input::side::Side;

/// The unit of the weights that are compared as they are, not only as shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AmountUnit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Occurrences of the event.
    Count,
}

impl AmountUnit {
    /// Returns its quantity, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            AmountUnit::Ns => "time",
            AmountUnit::Bytes => "bytes",
            AmountUnit::Count => "counts",
        }
    }

    /// Returns the spelling of sizes in it, for messages.
    pub(crate) fn sizes(self) -> &'static str {
        match self {
            AmountUnit::Ns => "a time, such as 20ms",
            AmountUnit::Bytes => "bytes, such as 1MiB",
            AmountUnit::Count => "a number, such as 1000",
        }
    }

    /// Returns the word for it in the names of columns that only events with this unit have. None for times,
    /// which have columns in all reports.
    pub(crate) fn column(self) -> Option<&'static str> {
        match self {
            AmountUnit::Ns => None,
            AmountUnit::Bytes => Some("bytes"),
            AmountUnit::Count => Some("count"),
        }
    }
}

/// The measure of an event whose samples are calls of the function at their leaf.
const CALLS: &[u8] = b"calls";

/// An event with samples on both sides, or on the only side that has samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparedEvent(Event);

impl ComparedEvent {
    /// Returns the unit in which its weights are compared. None if only shares are.
    pub(crate) fn amount_unit(&self) -> Option<AmountUnit> {
        match &self.0.measure {
            measure if measure.is_time() => Some(AmountUnit::Ns),
            Measure::Bytes => Some(AmountUnit::Bytes),
            Measure::Count | Measure::Cycles => Some(AmountUnit::Count),
            _ if self.counts_calls() => Some(AmountUnit::Count),
            // A measure of a later version.
            _ => None,
        }
    }

    /// True if another processor has other weights for the same work.
    pub(crate) fn depends_on_processor(&self) -> bool {
        self.0.measure.is_time() || self.0.measure == Measure::Cycles
    }

    /// Returns the quantity of its weights, for people.
    pub(crate) fn quantity(&self) -> String {
        match &self.0.measure {
            Measure::CpuTime => "CPU time".to_owned(),
            Measure::WaitTime => "waiting".to_owned(),
            Measure::WallTime => "wall time".to_owned(),
            _ if self.amount_unit() == Some(AmountUnit::Count) => self.name(),
            _ => self.unit(),
        }
    }

    /// True if its samples are calls of the function at their leaf.
    pub(crate) fn counts_calls(&self) -> bool {
        self.0.measure.word() == CALLS
    }

    /// True if its weights are counts, and only its stacks were sampled.
    pub(crate) fn is_counted(&self) -> bool {
        self.0.exact_ns.is_some()
    }

    /// Returns its name, as opened, with its scope.
    pub(crate) fn label(&self) -> String {
        label(&self.0)
    }

    /// Returns its name, as opened.
    pub(crate) fn name(&self) -> String {
        escaped(&self.0.name)
    }

    /// Returns the unit of its weights.
    pub(crate) fn unit(&self) -> String {
        escaped(&self.0.unit)
    }

    /// Returns its index in a stream's summary. None if the stream does not have it.
    pub(crate) fn index(&self, summary: &Summary) -> Option<usize> {
        summary.events.iter().position(|other| is_same(&self.0, &other.event))
    }

    /// Returns its summary of a stream. None if the stream does not have it.
    pub(crate) fn summary<'a>(&self, summary: &'a Summary) -> Option<&'a EventSummary> {
        self.index(summary).map(|index| &summary.events[index])
    }

    /// Returns its summaries of the streams of a side that have it.
    pub(crate) fn summaries<'a>(&self, side: &'a Side) -> impl Iterator<Item = &'a EventSummary> {
        side.summaries().filter_map(|summary| self.summary(summary))
    }
}

/// Returns the runs of a side that have samples of the event; none without an event.
pub(crate) fn runs<'a>(side: &'a Side, event: Option<&ComparedEvent>) -> Vec<&'a RunCounts> {
    let mut runs = Vec::new();
    for stream in &side.streams {
        let Some(index) = event.and_then(|event| event.index(&stream.summary)) else { continue };
        let counts = stream.counts.iter().filter(|((_, event), _)| *event == index);
        // A run without samples has no shares; the report warns about it.
        runs.extend(counts.map(|(_, counts)| counts).filter(|counts| counts.sum.samples > 0));
    }
    runs
}

/// The runs of a side that have samples of two events, with the counts of each.
#[derive(Debug, Default)]
pub(crate) struct PairedRuns<'a> {
    pub(crate) event: Vec<&'a RunCounts>,
    pub(crate) per: Vec<&'a RunCounts>,
}

/// Returns the runs of a side that have samples of both events.
pub(crate) fn paired_runs<'a>(
    side: &'a Side,
    event: &ComparedEvent,
    per: &ComparedEvent,
) -> PairedRuns<'a> {
    let mut paired = PairedRuns::default();
    for stream in &side.streams {
        let summary = &stream.summary;
        let (Some(event), Some(per)) = (event.index(summary), per.index(summary)) else { continue };
        for run in 0..summary.runs.len() {
            let counts = [event, per].map(|event| stream.counts.get(&(run, event)));
            let [Some(of_event), Some(of_per)] = counts else { continue };
            if of_event.sum.samples > 0 && of_per.sum.samples > 0 {
                paired.event.push(of_event);
                paired.per.push(of_per);
            }
        }
    }
    paired
}

/// Returns the number of samples of the event with an incomplete stack.
pub(crate) fn incomplete_stacks(side: &Side, event: Option<&ComparedEvent>) -> u64 {
    let Some(event) = event else { return 0 };
    total(event.summaries(side).map(EventSummary::incomplete_samples))
}

fn is_same(one: &Event, other: &Event) -> bool {
    (&one.name, &one.unit, &one.scope) == (&other.name, &other.unit, &other.scope)
}

fn label(event: &Event) -> String {
    if event.scope.is_empty() {
        escaped(&event.name)
    } else {
        format!("{} ({})", escaped(&event.name), escaped(&event.scope))
    }
}

/// Chooses the event: the one of this name, or the only one with samples on both sides except `per`.
/// None if neither side has samples.
///
/// # Errors
///
/// Lists the events if none or several fit, or if a stream has samples, but not of this event.
pub(crate) fn choose(
    base: &Side,
    new: &Side,
    name: Option<&str>,
    per: Option<&str>,
) -> Result<Option<ComparedEvent>> {
    let mut base_events = sampled(base.summaries(), name);
    let mut new_events = sampled(new.summaries(), name);
    if let (None, Some(per)) = (name, per) {
        base_events.retain(|event| event.name != per.as_bytes());
        new_events.retain(|event| event.name != per.as_bytes());
    }
    for (side, events) in [(base, &base_events), (new, &new_events)] {
        let all = sampled(side.summaries(), None);
        // A side without any samples is undecided, not an error.
        if let Some(name) = name.filter(|_| events.is_empty() && !all.is_empty()) {
            bail!("{}: no samples of {name}, only of {}", side.name, list(&all));
        }
    }
    let common = common(&base_events, &new_events);
    let chosen = match &common[..] {
        [event] => ComparedEvent((*event).clone()),
        // The events of a side without samples are those of the other: neither side has any.
        [] if base_events.is_empty() => return Ok(None),
        [] => bail!(
            "base has {}, new has {}; shares of different events are not comparable, record both sides with the same -e",
            list(&base_events),
            list(&new_events),
        ),
        several => bail!("several events have samples, {}; choose one with --event", list(several)),
    };
    for summary in base.summaries().chain(new.summaries()) {
        refuse_other_events(&chosen, summary)?;
    }
    Ok(Some(chosen))
}

/// Returns the events of both sides; of one side if the other has none, which is a side of runs
/// without samples.
fn common<'a>(base: &[&'a Event], new: &[&'a Event]) -> Vec<&'a Event> {
    match (base, new) {
        ([], events) | (events, []) => events.to_vec(),
        (events, others) => {
            let is_in_both = |event: &&&Event| others.iter().any(|other| is_same(event, other));
            events.iter().filter(is_in_both).copied().collect()
        }
    }
}

/// Refuses a stream that has samples, but none of the event: its runs would silently be left out.
fn refuse_other_events(chosen: &ComparedEvent, summary: &Summary) -> Result<()> {
    let samples = chosen.summary(summary).map_or(0, |event| event.sum.samples);
    let others = sampled(std::iter::once(summary), None);
    if samples == 0 && !others.is_empty() {
        let input = summary.runs.first().map_or("", |run| &run.input);
        bail!("{input}: no samples of {}, only of {}", chosen.label(), list(&others));
    }
    Ok(())
}

/// Returns the distinct events with samples; only those of a name if one is given.
fn sampled<'a>(summaries: impl Iterator<Item = &'a Summary>, name: Option<&str>) -> Vec<&'a Event> {
    let mut events: Vec<&Event> = Vec::new();
    for summary in summaries.flat_map(|summary| &summary.events) {
        let event = &summary.event;
        let is_requested = name.is_none_or(|name| name.as_bytes() == event.name);
        // Each stream declares its events, so the same one comes once per stream.
        let is_known = events.iter().any(|other| is_same(other, event));
        if summary.sum.samples > 0 && is_requested && !is_known {
            events.push(event);
        }
    }
    events
}

fn list(events: &[&Event]) -> String {
    events.iter().map(|event| label(event)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::fold::Budget;
    use crate::input::key::KeyTable;
    use crate::input::row_kind::RowKind;
    use crate::input::run_counts::StreamCounts;

    /// A side with one stream per list of events, each event sampled once.
    fn side(name: &'static str, streams: &[&[&str]]) -> Side {
        let mut keys = KeyTable::default();
        let mut read = |events: &&[&str]| {
            let mut text = "@nprof\t1.1\trun=0x1\n".to_owned();
            for (i, event) in events.iter().enumerate() {
                let id = i + 1;
                text.push_str(&format!(
                    "@event\tid={id}\tname={event}\tunit=ns\tmeasure=cpu-time\tscope=user\n"
                ));
                text.push_str(&format!("S\t{id}\t{id}\t0\t0\t0\t10\t1\n"));
            }
            StreamCounts::of(text.as_bytes(), RowKind::Function, Budget::default(), &mut keys)
        };
        Side { name, streams: streams.iter().map(&mut read).collect() }
    }

    fn choice(base: &[&[&str]], new: &[&[&str]], name: Option<&str>) -> String {
        match choose(&side("base", base), &side("new", new), name, None) {
            Ok(chosen) => chosen.map_or("none".to_owned(), |chosen| chosen.label()),
            Err(error) => format!("{error}"),
        }
    }

    #[test]
    fn chooses_event_of_both_sides() {
        assert_eq!(choice(&[&["a"]], &[&["a"]], None), "a (user)");
        assert_eq!(choice(&[&["a", "b"]], &[&["b"]], None), "b (user)");
        assert_eq!(choice(&[&["a"], &[]], &[&[]], None), "a (user)");
        assert_eq!(choice(&[&["a", "b"]], &[&["a", "b"]], Some("b")), "b (user)");
        assert_eq!(choice(&[&[]], &[&[]], None), "none");
    }

    #[test]
    fn rejects_missing_and_ambiguous_events_by_name() {
        let different = choice(&[&["cpu-clock"]], &[&["cycles"]], None);
        assert!(different.starts_with("base has cpu-clock (user), new has cycles (user);"));
        let several = choice(&[&["a", "b"]], &[&["a", "b"]], None);
        assert!(several.contains("a (user), b (user); choose one with --event"), "{several}");
        let mixed = choice(&[&["a"], &["b"]], &[&["a"]], None);
        assert_eq!(mixed, "x: no samples of a (user), only of b (user)");
        let asked = choice(&[&["a"]], &[&["a"]], Some("c"));
        assert_eq!(asked, "base: no samples of c, only of a (user)");
    }
}
