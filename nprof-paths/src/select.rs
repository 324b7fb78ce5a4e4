//! Selects events by the command line.

use nprof_report::profile::ReportedEvent;
use nprof_report::ratio::Per;
use nprof_report::report::Failure;
use nprof_report::summary::Summary;

use crate::args::Args;
use crate::tree::call_tree::Tree;

/// Returns the events to report, as indices into the summary's events: the named one, or all that
/// have samples; only the first of them if the format has room for one event.
///
/// # Errors
///
/// Fails if no event has the name. While a stream is still being written the event may yet come.
pub(crate) fn events(summary: &Summary, args: &Args) -> Result<Vec<usize>, Failure> {
    let named = named_events(summary, args);
    // A live stream may define the event in a later record.
    if let Some(name) = args.event.as_ref().filter(|_| named.is_empty() && !summary.live) {
        let names: Vec<String> =
            (0..summary.events.len()).map(|event| summary.event_name(event)).collect();
        return Err(format!("no event {name:?} in the input; it has {}", names.join(", ")).into());
    }
    // An event that never fired would be an empty table.
    let mut events = with_samples(summary, named);
    if args.format.is_stacks() {
        events.truncate(1);
    }
    Ok(events)
}

/// Returns the event that the others are divided by. None without one, or if it may yet come.
///
/// # Errors
///
/// Fails if no event has the name.
pub(crate) fn per(summary: &Summary, args: &Args) -> Result<Option<Per>, Failure> {
    match args.per.as_deref() {
        Some(name) => Ok(Per::named(summary, name)?),
        None => Ok(None),
    }
}

/// Returns the events with the name on the command line, or all except the divisor.
fn named_events(summary: &Summary, args: &Args) -> Vec<usize> {
    let is_reported = |&event: &usize| {
        let name = Some(summary.event_name(event));
        // The divisor divided by itself is 1.
        if args.event.is_some() { args.event == name } else { args.per != name }
    };
    (0..summary.events.len()).filter(is_reported).collect()
}

fn with_samples(summary: &Summary, mut events: Vec<usize>) -> Vec<usize> {
    events.retain(|&event| summary.events[event].sum.samples > 0);
    events
}

/// Returns a message that lists the events for which the format has no room. None if there are
/// none.
pub(crate) fn note(summary: &Summary, args: &Args) -> Option<String> {
    if !args.format.is_stacks() {
        return None;
    }
    let events = with_samples(summary, named_events(summary, args));
    // No message if nothing is left out.
    let (&first, others) = events.split_first().filter(|(_, others)| !others.is_empty())?;
    let others: Vec<String> = others.iter().map(|&event| summary.event_name(event)).collect();
    let (first, others) = (summary.event_name(first), others.join(", "));
    Some(format!("only event {first} is shown; --event NAME selects one of {others}"))
}

/// Returns the sums of the events to report.
pub(crate) fn reported_events(
    tree: &Tree,
    events: &[usize],
    summary: &Summary,
    args: &Args,
) -> Vec<ReportedEvent> {
    let mut reported = Vec::with_capacity(events.len());
    for &event in events {
        let counted = tree.total(event);
        let whole = if args.options.rebase { counted } else { summary.events[event].sum };
        reported.push(ReportedEvent { event, whole, counted });
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use nprof_report::summary::EventSummary;

    fn summary(events: &[(&str, u64)]) -> Summary {
        let event = |&(name, samples): &(&str, u64)| {
            let mut event = EventSummary::default();
            event.event.name = name.into();
            event.sum.samples = samples;
            event
        };
        Summary { events: events.iter().map(event).collect(), ..Summary::default() }
    }

    fn args(args: &[&str]) -> Args {
        Args::try_parse_from(["nprof-paths"].iter().chain(args)).unwrap()
    }

    #[test]
    fn selects_the_named_event_or_those_with_samples() {
        let summary = summary(&[("idle", 0), ("cycles", 5), ("faults", 3)]);
        let selected = |words: &[&str]| events(&summary, &args(words)).unwrap();
        assert_eq!(selected(&[]), [1, 2]);
        assert_eq!(selected(&["--event", "faults", "--format", "folded"]), [2]);
        assert_eq!(selected(&["--event", "idle", "--format", "folded"]), [0; 0]);
        assert_eq!(selected(&["--format", "folded"]), [1]);
        assert!(note(&summary, &args(&["--format", "folded"])).unwrap().contains("faults"));
        assert_eq!(note(&summary, &args(&[])), None);
        let error = events(&summary, &args(&["--event", "nope"])).unwrap_err().to_string();
        assert!(error.contains("idle, cycles, faults"), "{error}");
        let live = Summary { live: true, ..summary };
        assert!(events(&live, &args(&["--event", "nope"])).unwrap().is_empty());
    }
}
