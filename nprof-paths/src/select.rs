//! Which events and which paths are printed, and what is left out.

use nprof_report::profile::Sum;
use nprof_report::report::{Failure, RowLimits};
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

use crate::args::Args;
use crate::tree::call_tree::{At, Tree};

/// The events to print, as indices into the summary's: the one that was asked for, or all that
/// have samples; just the first one where only one fits.
///
/// # Errors
///
/// When there is no event of the name. While a stream is still being written it may yet come.
pub(crate) fn events(summary: &Summary, args: &Args) -> Result<Vec<usize>, Failure> {
    let all = named(summary, args);
    if let Some(name) = args.event.as_ref().filter(|_| all.is_empty() && !summary.live) {
        let names: Vec<String> =
            summary.events.iter().map(|event| escaped(&event.event.name)).collect();
        return Err(format!("no event {name:?} in the input: it has {}", names.join(", ")).into());
    }
    let has_samples = |&event: &usize| summary.events[event].sum.samples > 0;
    let mut events: Vec<usize> = all.into_iter().filter(has_samples).collect();
    if args.format.is_folded() {
        events.truncate(1);
    }
    Ok(events)
}

/// The events of the name that was asked for, or all.
fn named(summary: &Summary, args: &Args) -> Vec<usize> {
    let is_wanted = |event: usize| {
        let name = escaped(&summary.events[event].event.name);
        args.event.as_ref().is_none_or(|wanted| *wanted == name)
    };
    (0..summary.events.len()).filter(|&event| is_wanted(event)).collect()
}

/// What the user should know where there are more events than the format has room for.
pub(crate) fn note(summary: &Summary, args: &Args) -> Option<String> {
    let has_samples = |&event: &usize| summary.events[event].sum.samples > 0;
    let name = |event: usize| escaped(&summary.events[event].event.name);
    let events: Vec<usize> = named(summary, args).into_iter().filter(has_samples).collect();
    let (&first, others) = events.split_first().filter(|_| args.format.is_folded())?;
    let others: Vec<String> = others.iter().map(|&event| name(event)).collect();
    (!others.is_empty()).then(|| {
        let (first, others) = (name(first), others.join(", "));
        format!("only event {first} is shown: --event NAME chooses from {others}")
    })
}

/// An event that is reported on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Index into the summary's events.
    pub(crate) event: usize,
    /// What 100 % is.
    pub(crate) whole: Sum,
    /// What the paths in the tree have.
    pub(crate) counted: Sum,
}

/// What there is of the events.
pub(crate) fn shown(tree: &Tree, events: &[usize], summary: &Summary, args: &Args) -> Vec<Shown> {
    let shown = |&event: &usize| {
        let counted = tree.total(event);
        let whole = if args.options.rebase { counted } else { summary.events[event].sum };
        Shown { event, whole, counted }
    };
    events.iter().map(shown).collect()
}

/// What is not printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) count: usize,
    pub(crate) sum: Sum,
}

impl Hidden {
    pub(crate) fn add(&mut self, sum: Sum) {
        self.count += 1;
        self.sum.add(sum);
    }
}

/// The paths of one event.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) shown: Shown,
    /// The leaves of what is printed, in order.
    pub(crate) paths: Vec<At>,
    /// What `--min-percent` dropped.
    pub(crate) dropped: Hidden,
    /// What is past the last path to print.
    pub(crate) more: Hidden,
}

/// The paths of the events, the most frequent first, equal ones by name.
pub(crate) fn paths(tree: &Tree, shown: &[Shown], choice: &RowLimits) -> Vec<Section> {
    shown.iter().map(|&shown| section(tree, shown, choice)).collect()
}

fn section(tree: &Tree, shown: Shown, choice: &RowLimits) -> Section {
    let mut dropped = Hidden::default();
    let mut paths = tree.leaves(shown.event);
    paths.retain(|&leaf| {
        let own = tree.nodes[leaf].own;
        let is_small = choice.is_small(own, shown.whole);
        if is_small {
            dropped.add(own);
        }
        !is_small
    });
    paths.sort_by(|&a, &b| descending(tree.nodes[a].own, tree.nodes[b].own));
    let mut more = Hidden::default();
    if let Some(count) = choice.rows.filter(|&count| count < paths.len()) {
        paths.drain(count..).for_each(|leaf| more.add(tree.nodes[leaf].own));
    }
    Section { shown, paths, dropped, more }
}

/// The larger sum first.
pub(crate) fn descending(a: Sum, b: Sum) -> std::cmp::Ordering {
    (b.weight, b.samples).cmp(&(a.weight, a.samples))
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
    fn an_event_is_chosen_by_name_or_is_the_first_with_samples() {
        let summary = summary(&[("idle", 0), ("cycles", 5), ("faults", 3)]);
        let chosen = |of: &[&str]| events(&summary, &args(of)).unwrap();
        assert_eq!(chosen(&[]), [1, 2]);
        assert_eq!(chosen(&["--event", "faults", "--format", "folded"]), [2]);
        assert_eq!(chosen(&["--event", "idle", "--format", "folded"]), [0; 0]);
        assert_eq!(chosen(&["--format", "folded"]), [1]);
        assert!(note(&summary, &args(&["--format", "folded"])).unwrap().contains("faults"));
        assert_eq!(note(&summary, &args(&[])), None);
        let wrong = events(&summary, &args(&["--event", "nope"])).unwrap_err().to_string();
        assert!(wrong.contains("idle, cycles, faults"), "{wrong}");
        let live = Summary { live: true, ..summary };
        assert!(events(&live, &args(&["--event", "nope"])).unwrap().is_empty());
    }
}
