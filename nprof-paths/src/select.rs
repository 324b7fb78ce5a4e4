//! Which events and which paths are printed, and what is left out.

use anyhow::bail;
use nprof_format::escape::escaped;
use nprof_format::profile::Sum;
use nprof_format::summary::Summary;

use crate::args::Choice;
use crate::tree::Tree;

/// The events to print.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Events {
    /// Indices into the summary's events.
    pub(crate) chosen: Vec<usize>,
    /// What the user should know about the choice.
    pub(crate) note: Option<String>,
}

/// The events of a name, or all that have samples; just the first one where `only_one` fits.
///
/// # Errors
///
/// When no event has the name.
pub(crate) fn events(
    summary: &Summary,
    name: Option<&str>,
    only_one: bool,
) -> anyhow::Result<Events> {
    let names: Vec<String> =
        summary.events.iter().map(|event| escaped(&event.event.name)).collect();
    let has_samples = |&event: &usize| summary.events[event].sum.samples > 0;
    if let Some(name) = name {
        if !names.iter().any(|other| other == name) {
            bail!("no event {name:?} in the input: it has {}", names.join(", "));
        }
        let chosen = (0..names.len()).filter(|&event| names[event] == name);
        return Ok(Events { chosen: chosen.filter(has_samples).collect(), note: None });
    }
    let mut chosen: Vec<usize> = (0..names.len()).filter(has_samples).collect();
    let mut note = None;
    if only_one && chosen.len() > 1 {
        let others: Vec<&str> = chosen[1..].iter().map(|&event| &names[event][..]).collect();
        let (first, others) = (&names[chosen[0]], others.join(", "));
        note = Some(format!("only event {first} is shown: --event NAME chooses from {others}"));
        chosen.truncate(1);
    }
    Ok(Events { chosen, note })
}

/// Paths that are not printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) paths: usize,
    pub(crate) sum: Sum,
}

impl Hidden {
    fn add(&mut self, sum: Sum) {
        self.paths += 1;
        self.sum.add(sum);
    }
}

/// The paths of one event.
#[derive(Debug)]
pub(crate) struct Section {
    /// Index into the summary's events.
    pub(crate) event: usize,
    /// The leaves of what is printed, in order.
    pub(crate) paths: Vec<usize>,
    /// What `--limit` and `--min-percent` dropped.
    pub(crate) dropped: Hidden,
    /// What is past the last path to print.
    pub(crate) more: Hidden,
}

/// The paths of the events, the most frequent first, equal ones by name.
pub(crate) fn paths(
    tree: &Tree,
    events: &[usize],
    summary: &Summary,
    choice: &Choice,
) -> Vec<Section> {
    let section = |&event: &usize| section(tree, event, summary.events[event].sum, choice);
    events.iter().map(section).collect()
}

fn section(tree: &Tree, event: usize, whole: Sum, choice: &Choice) -> Section {
    let mut dropped = Hidden::default();
    let mut paths = tree.in_order(event);
    paths.retain(|&leaf| {
        let own = tree.nodes[leaf].own;
        if own != Sum::default() && is_small(own, whole, choice) {
            dropped.add(own);
            return false;
        }
        own != Sum::default()
    });
    paths.sort_by(|&a, &b| descending(tree.nodes[a].own, tree.nodes[b].own));
    let mut more = Hidden::default();
    if let Some(count) = choice.paths.filter(|&count| count < paths.len()) {
        paths.drain(count..).for_each(|leaf| more.add(tree.nodes[leaf].own));
    }
    Section { event, paths, dropped, more }
}

/// The larger sum first.
pub(crate) fn descending(a: Sum, b: Sum) -> std::cmp::Ordering {
    (b.weight, b.samples).cmp(&(a.weight, a.samples))
}

/// Whether so little is left out.
pub(crate) fn is_small(sum: Sum, whole: Sum, choice: &Choice) -> bool {
    choice.limit.is_some_and(|limit| sum.samples <= limit)
        || percent(sum, whole) < choice.min_percent
}

/// A share of the event, per cent.
pub(crate) fn percent(part: Sum, whole: Sum) -> f64 {
    if whole.weight == 0 { 0.0 } else { 100.0 * part.weight as f64 / whole.weight as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_format::summary::EventSummary;

    fn summary(events: &[(&str, u64)]) -> Summary {
        let event = |&(name, samples): &(&str, u64)| {
            let mut event = EventSummary::default();
            event.event.name = name.into();
            event.sum.samples = samples;
            event
        };
        Summary { events: events.iter().map(event).collect(), ..Summary::default() }
    }

    #[test]
    fn an_event_is_chosen_by_name_or_is_the_first_with_samples() {
        let summary = summary(&[("idle", 0), ("cycles", 5), ("faults", 3)]);
        assert_eq!(events(&summary, None, false).unwrap().chosen, [1, 2]);
        assert_eq!(events(&summary, Some("faults"), true).unwrap().chosen, [2]);
        assert_eq!(events(&summary, Some("idle"), true).unwrap().chosen, [0; 0]);
        let first = events(&summary, None, true).unwrap();
        assert_eq!(first.chosen, [1]);
        assert!(first.note.is_some_and(|note| note.contains("faults")));
        let wrong = events(&summary, Some("nope"), true).unwrap_err().to_string();
        assert!(wrong.contains("idle, cycles, faults"), "{wrong}");
    }
}
