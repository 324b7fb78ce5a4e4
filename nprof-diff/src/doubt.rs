//! What speaks against a comparison: what is refused, and what is warned of. Pure.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use nprof_format::escape::escaped;
use nprof_format::summary::Run;
use nprof_format::{Head, RunId};

use crate::diff::{Diff, ENOUGH, Method};
use crate::event::Chosen;
use crate::key::By;
use crate::observed::Whole;
use crate::side::{Counts, Recording, Side};

/// Refuses sides that would make a report lie.
///
/// # Errors
///
/// Half of a run is no run to judge by, unless `partial_ok`; a run that is twice in a side would
/// pass for two that agree; of sides one of which has no names, everything would seem to have
/// come or gone.
pub(crate) fn refuse(base: &Side, new: &Side, by: By, partial_ok: bool) -> Result<()> {
    for side in [base, new] {
        let trouble = side.summaries().flat_map(|summary| &summary.troubles).next();
        if let Some(trouble) = trouble.filter(|_| !partial_ok) {
            bail!("{}: {trouble}; --partial-ok compares what is there", side.name);
        }
        let mut seen = BTreeSet::new();
        for run in side.runs() {
            let Some(id) = run_id(run) else { continue };
            if !seen.insert(id) {
                bail!("{}: {}: run {id} is there twice: it is one run", side.name, run.input);
            }
        }
    }
    let recordings = || base.recordings.iter().chain(&new.recordings);
    let unsymbolized = recordings().find(|recording| is_unsymbolized(recording));
    match unsymbolized.filter(|_| by.needs_symbols() && !recordings().all(is_unsymbolized)) {
        Some(recording) => bail!(
            "{}: not symbolized, as others are: pass it through nprof-symbolize",
            input(recording)
        ),
        None => Ok(()),
    }
}

fn run_id(run: &Run) -> Option<RunId> {
    run.head.as_ref().map(|head| head.run).filter(|run| run.0 != 0)
}

fn input(recording: &Recording) -> &str {
    recording.summary.runs.first().map_or("", |run| &run.input)
}

fn is_unsymbolized(recording: &Recording) -> bool {
    let any = |test: fn(&Counts) -> bool| recording.counts.values().any(test);
    any(|counts| counts.unsymbolized > 0) && !any(|counts| counts.symbolized > 0)
}

/// What the reader of the report must know, most important first.
pub(crate) fn warnings(
    base: &Side,
    new: &Side,
    event: Option<&Chosen>,
    by: By,
    diff: &Diff,
) -> Vec<String> {
    let mut warnings: Vec<String> =
        [(base, diff.base), (new, diff.new)].into_iter().filter_map(too_few).collect();
    if diff.method == Method::Newcombe {
        warnings.push(single_runs(diff));
    }
    for side in [base, new] {
        let troubles = side.summaries().flat_map(|summary| &summary.troubles);
        warnings.extend(troubles.map(|t| format!("{}: incomplete input: {t}", side.name)));
        warnings.extend(quality(side, event));
        warnings.extend(commands(side));
    }
    let mut recordings = base.recordings.iter().chain(&new.recordings);
    if by.needs_symbols() && recordings.all(is_unsymbolized) {
        warnings.push(
            "not symbolized, so that no function has a name: pass the streams through nprof-symbolize"
                .to_owned(),
        );
    }
    let ids = |side: &Side| side.runs().filter_map(run_id).collect::<BTreeSet<_>>();
    if let Some(id) = ids(base).intersection(&ids(new)).next() {
        warnings.push(format!("run {id} is on both sides"));
    }
    warnings.extend(circumstances(base, new));
    warnings.extend(event.and_then(|event| capture(base, new, event)));
    warnings.extend(stacks(base, new, event));
    warnings
}

fn too_few((side, whole): (&Side, Whole)) -> Option<String> {
    let samples = whole.sum.samples;
    (samples < ENOUGH).then(|| {
        format!(
            "{}: {samples} samples, {ENOUGH} at least are needed to decide: record for longer, or sample more often (-F)",
            side.name
        )
    })
}

fn capture(base: &Side, new: &Side, event: &Chosen) -> Option<String> {
    let unwind = |side: &Side| {
        let events = side.summaries().filter_map(|summary| event.summary(summary));
        events.map(|summary| escaped(&summary.event.unwind)).collect()
    };
    differ("stacks were captured differently", &unwind(base), &unwind(new))
}

fn stacks(base: &Side, new: &Side, event: Option<&Chosen>) -> Option<String> {
    let share = |side: &Side| {
        let events = side.summaries().filter_map(|summary| event?.summary(summary));
        let samples = sum(events.map(|event| &event.sum.samples));
        incomplete(side, event) as f64 / samples.max(1) as f64
    };
    let (base, new) = (100.0 * share(base), 100.0 * share(new));
    ((base - new).abs() > 5.0).then(|| {
        format!(
            "{base:.0} % of the stacks of base are incomplete, {new:.0} % of those of new: compare self, not total"
        )
    })
}

fn single_runs(diff: &Diff) -> String {
    let pooled = if diff.base.runs.max(diff.new.runs) > 1 {
        "one side has a single run, and the runs of the other were added up"
    } else {
        "single runs"
    };
    format!(
        "{pooled}: samples of one run are not independent and runs differ, so that the true uncertainty is larger than these intervals say: give several runs a side (--base FILE... --new FILE...)"
    )
}

/// Loss, and runs without samples.
fn quality(side: &Side, event: Option<&Chosen>) -> Vec<String> {
    let mut warnings = Vec::new();
    let lost = lost(side);
    let events = side.summaries().flat_map(|summary| &summary.events);
    let samples = sum(events.map(|event| &event.sum.samples));
    if lost > 0 && lost.saturating_mul(100) >= samples {
        warnings.push(format!("{}: {lost} samples were lost, {samples} are there", side.name));
    }
    for recording in &side.recordings {
        let Some(index) = event.and_then(|event| event.index(&recording.summary)) else { continue };
        for (number, run) in recording.summary.runs.iter().enumerate() {
            let counts = recording.counts.get(&(number, index));
            if counts.is_none_or(|counts| counts.sum.samples == 0) {
                warnings.push(format!(
                    "{}: {}: a run without samples is left out",
                    side.name, run.input
                ));
            }
        }
    }
    warnings
}

/// How many observations the streams of a side lost, of whatever event.
pub(crate) fn lost(side: &Side) -> u64 {
    let events = side.summaries().flat_map(|summary| &summary.events);
    sum(events.flat_map(|event| event.lost.values()))
}

/// How many samples of the event have an incomplete stack.
pub(crate) fn incomplete(side: &Side, event: Option<&Chosen>) -> u64 {
    let events = side.summaries().filter_map(|summary| event?.summary(summary));
    sum(events.flat_map(|event| event.incomplete.values()))
}

/// A sum of what a stream claims, which may be anything.
fn sum<'a>(counts: impl Iterator<Item = &'a u64>) -> u64 {
    counts.fold(0, |sum: u64, count| sum.saturating_add(*count))
}

/// Runs of a side are taken to be repetitions.
fn commands(side: &Side) -> Option<String> {
    let commands = facts(side, |head| &head.command);
    (commands.len() > 1).then(|| {
        format!(
            "{}: runs of {} different commands are taken to be repetitions of one",
            side.name,
            commands.len()
        )
    })
}

/// The distinct values of a fact over the runs of a side, unknown ones left out, escaped.
pub(crate) fn facts(side: &Side, fact: fn(&Head) -> &[u8]) -> BTreeSet<String> {
    let values = side.runs().filter_map(|run| run.head.as_ref()).map(fact);
    values.filter(|value| !value.is_empty()).map(escaped).collect()
}

fn circumstances(base: &Side, new: &Side) -> Vec<String> {
    let compare = |what, fact| differ(what, &facts(base, fact), &facts(new, fact));
    let differences = [
        compare("hosts differ", |head| &head.host),
        compare("processors differ", |head| &head.cpu),
        compare("kernels differ", |head| &head.os),
        compare("architectures differ", |head| &head.arch),
    ];
    differences.into_iter().flatten().collect()
}

fn differ(what: &str, base: &BTreeSet<String>, new: &BTreeSet<String>) -> Option<String> {
    let list = |values: &BTreeSet<String>| {
        values.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let known = !base.is_empty() && !new.is_empty();
    let several = base.union(new).count() > 1;
    (known && several).then(|| format!("{what}: base {}; new {}", list(base), list(new)))
}
