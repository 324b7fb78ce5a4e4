//! Which event the sides are compared by. Pure.
//!
//! Shares of different events are shares of different things: an event is the same only if name,
//! unit and scope are. Its rate may differ.

use anyhow::{Result, bail};
use nprof_report::summary::{EventSummary, Summary};
use nprof_stream::escape::escaped;
use nprof_stream::{Event, Measure};

use crate::input::run_counts::{RunCounts, StreamCounts};
use crate::input::side::{Side, saturating_sum};

/// An event that was counted on both sides, or on the one that has samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparedEvent(Event);

impl ComparedEvent {
    /// Whether its weights are CPU time, ns.
    pub(crate) fn measures_cpu_time(&self) -> bool {
        self.0.measure == Measure::CpuTime
    }

    /// Its name, as opened, and its scope.
    pub(crate) fn label(&self) -> String {
        label(&self.0)
    }

    /// Its name alone, as opened.
    pub(crate) fn name(&self) -> String {
        escaped(&self.0.name)
    }

    /// The unit of its weights.
    pub(crate) fn unit(&self) -> String {
        escaped(&self.0.unit)
    }

    /// Its number in a recording.
    pub(crate) fn index(&self, summary: &Summary) -> Option<usize> {
        summary.events.iter().position(|other| is_same(&self.0, &other.event))
    }

    /// What a recording knows of it.
    pub(crate) fn summary<'a>(&self, summary: &'a Summary) -> Option<&'a EventSummary> {
        self.index(summary).map(|index| &summary.events[index])
    }
}

/// The runs of a side that have samples of the event; none without one.
pub(crate) fn counts<'a>(side: &'a Side, event: Option<&ComparedEvent>) -> Vec<&'a RunCounts> {
    let of_event = |recording: &'a StreamCounts| {
        let index = event.and_then(|event| event.index(&recording.summary));
        let of_event = move |((_, event), _): &(&(usize, usize), _)| Some(*event) == index;
        recording.counts.iter().filter(of_event).map(|(_, counts)| counts)
    };
    side.recordings.iter().flat_map(of_event).filter(|counts| counts.sum.samples > 0).collect()
}

/// How many samples of the event have an incomplete stack.
pub(crate) fn incomplete_stacks(side: &Side, event: Option<&ComparedEvent>) -> u64 {
    let events = side.summaries().filter_map(|summary| event?.summary(summary));
    saturating_sum(events.flat_map(|event| event.incomplete.values()))
}

fn is_same(one: &Event, other: &Event) -> bool {
    (&one.name, &one.unit, &one.scope) == (&other.name, &other.unit, &other.scope)
}

fn label(event: &Event) -> String {
    match (&event.scope[..], &event.unit[..]) {
        (b"", _) => escaped(&event.name),
        (scope, _) => format!("{} ({})", escaped(&event.name), escaped(scope)),
    }
}

/// Chooses the event: the one of this name, or the only one both sides have samples of. `None`
/// when neither side has samples.
///
/// # Errors
///
/// Says which events there are when none or several fit, or when a recording has samples, but
/// not of this event.
pub(crate) fn choose(base: &Side, new: &Side, name: Option<&str>) -> Result<Option<ComparedEvent>> {
    let base_events = sampled(base.summaries(), name);
    let new_events = sampled(new.summaries(), name);
    for (side, events) in [(base, &base_events), (new, &new_events)] {
        let all = sampled(side.summaries(), None);
        if let Some(name) = name.filter(|_| events.is_empty() && !all.is_empty()) {
            bail!("{}: no samples of {name}, only of {}", side.name, list(&all));
        }
    }
    let common: Vec<&Event> = match (&base_events[..], &new_events[..]) {
        ([], events) | (events, []) => events.to_vec(),
        (events, others) => {
            let in_both = |event: &&&Event| others.iter().any(|other| is_same(event, other));
            events.iter().filter(in_both).copied().collect()
        }
    };
    let chosen = match &common[..] {
        [event] => ComparedEvent((*event).clone()),
        [] if base_events.is_empty() => return Ok(None),
        [] => bail!(
            "base counted {}, new {}: shares of different events cannot be compared; record both with the same -e",
            list(&base_events),
            list(&new_events),
        ),
        several => bail!("several events were counted, {}: choose one with --event", list(several)),
    };
    for summary in base.summaries().chain(new.summaries()) {
        check(&chosen, summary)?;
    }
    Ok(Some(chosen))
}

/// Refuses a recording that has samples, but none of the event.
fn check(chosen: &ComparedEvent, summary: &Summary) -> Result<()> {
    let samples = chosen.summary(summary).map_or(0, |event| event.sum.samples);
    let others = sampled(std::iter::once(summary), None);
    if samples == 0 && !others.is_empty() {
        let input = summary.runs.first().map_or("", |run| &run.input);
        bail!("{input}: no samples of {}, only of {}", chosen.label(), list(&others));
    }
    Ok(())
}

/// The distinct events with samples, of this name if one is given.
fn sampled<'a>(summaries: impl Iterator<Item = &'a Summary>, name: Option<&str>) -> Vec<&'a Event> {
    let mut events: Vec<&Event> = Vec::new();
    for summary in summaries.flat_map(|summary| &summary.events) {
        let event = &summary.event;
        let asked = name.is_none_or(|name| name.as_bytes() == event.name);
        let known = events.iter().any(|other| is_same(other, event));
        if summary.sum.samples > 0 && asked && !known {
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
    use crate::input::key::{By, KeyTable};
    use crate::input::rename::Renames;

    /// A side of one recording per list of events, each event sampled once.
    fn side(name: &'static str, recordings: &[&[&str]]) -> Side {
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
            let renames = &mut Renames::default();
            StreamCounts::read("x", text.as_bytes(), By::Function, &mut keys, renames).unwrap()
        };
        Side { name, recordings: recordings.iter().map(&mut read).collect() }
    }

    fn choice(base: &[&[&str]], new: &[&[&str]], name: Option<&str>) -> String {
        match choose(&side("base", base), &side("new", new), name) {
            Ok(chosen) => chosen.map_or("none".to_owned(), |chosen| chosen.label()),
            Err(error) => format!("{error}"),
        }
    }

    #[test]
    fn the_event_both_have_is_chosen() {
        assert_eq!(choice(&[&["a"]], &[&["a"]], None), "a (user)");
        assert_eq!(choice(&[&["a", "b"]], &[&["b"]], None), "b (user)");
        assert_eq!(choice(&[&["a"], &[]], &[&[]], None), "a (user)");
        assert_eq!(choice(&[&["a", "b"]], &[&["a", "b"]], Some("b")), "b (user)");
        assert_eq!(choice(&[&[]], &[&[]], None), "none");
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let different = choice(&[&["cpu-clock"]], &[&["cycles"]], None);
        assert!(different.starts_with("base counted cpu-clock (user), new cycles (user):"));
        let several = choice(&[&["a", "b"]], &[&["a", "b"]], None);
        assert!(several.contains("a (user), b (user): choose one with --event"), "{several}");
        let mixed = choice(&[&["a"], &["b"]], &[&["a"]], None);
        assert_eq!(mixed, "x: no samples of a (user), only of b (user)");
        let asked = choice(&[&["a"]], &[&["a"]], Some("c"));
        assert_eq!(asked, "base: no samples of c, only of a (user)");
    }
}
