//! What the reader of a report must know. Pure.

use std::collections::{BTreeMap, BTreeSet};

use nprof_report::summary::Run;
use nprof_stream::escape::escaped;

use crate::compare::comparison::Method;
use crate::compare::diff::{Diff, MIN_SAMPLES_PER_SIDE};
use crate::compare::observed::SideTotals;
use crate::compare::row::Row;
use crate::input::event::{ComparedEvent, incomplete_stacks};
use crate::input::key::{By, KeyTable};
use crate::input::side::{
    Side, difference_between, facts, is_unsymbolized, lost_samples, saturating_sum, shared_run,
};

/// What the reader of the report must know, most important first.
pub(crate) fn warnings(
    base: &Side,
    new: &Side,
    event: Option<&ComparedEvent>,
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
        warnings.extend(ends(side));
    }
    let mut recordings = base.recordings.iter().chain(&new.recordings);
    if by.needs_symbols() && recordings.all(is_unsymbolized) {
        warnings.push(
            "not symbolized, so that no function has a name: pass the streams through nprof-symbolize"
                .to_owned(),
        );
    }
    if let Some(id) = shared_run(base, new) {
        warnings.push(format!("run {id} is on both sides"));
    }
    warnings.extend(circumstances(base, new));
    warnings.extend(programs(base, new));
    warnings.extend(order(base, new, diff));
    warnings.extend(event.and_then(|event| capture(base, new, event)));
    warnings.extend(stacks(base, new, event));
    warnings
}

/// What the reader must know of the base alone.
pub(crate) fn warnings_of_one(base: &Side, event: Option<&ComparedEvent>) -> Vec<String> {
    let troubles = base.summaries().flat_map(|summary| &summary.troubles);
    let mut warnings: Vec<String> =
        troubles.map(|trouble| format!("{}: incomplete input: {trouble}", base.name)).collect();
    warnings.extend(quality(base, event));
    warnings.extend(commands(base));
    warnings.extend(ends(base));
    warnings
}

fn too_few((side, whole): (&Side, SideTotals)) -> Option<String> {
    let samples = whole.sum.samples;
    (samples < MIN_SAMPLES_PER_SIDE).then(|| {
        format!(
            "{}: {samples} samples, {MIN_SAMPLES_PER_SIDE} at least are needed to decide: record for longer, or sample more often (-F)",
            side.name
        )
    })
}

fn capture(base: &Side, new: &Side, event: &ComparedEvent) -> Option<String> {
    let unwind = |side: &Side| {
        let events = side.summaries().filter_map(|summary| event.summary(summary));
        events.map(|summary| escaped(&summary.event.unwind)).collect()
    };
    difference_between("stacks were captured differently", &unwind(base), &unwind(new))
}

fn stacks(base: &Side, new: &Side, event: Option<&ComparedEvent>) -> Option<String> {
    let share = |side: &Side| {
        let events = side.summaries().filter_map(|summary| event?.summary(summary));
        let samples = saturating_sum(events.map(|event| &event.sum.samples));
        incomplete_stacks(side, event) as f64 / samples.max(1) as f64
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
fn quality(side: &Side, event: Option<&ComparedEvent>) -> Vec<String> {
    let mut warnings = Vec::new();
    let lost = lost_samples(side);
    let events = side.summaries().flat_map(|summary| &summary.events);
    let samples = saturating_sum(events.map(|event| &event.sum.samples));
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

/// A run that failed did not do what the others did.
fn ends(side: &Side) -> Option<String> {
    let status = |run: &Run| run.end.as_ref().and_then(|end| end.status);
    let statuses: BTreeSet<u64> = side.runs().filter_map(status).collect();
    let failed = side.runs().filter(|run| status(run).is_some_and(|status| status != 0));
    let failed: Vec<&Run> = failed.collect();
    let first = failed.first()?;
    (statuses.len() > 1).then(|| {
        format!(
            "{}: {} of {} runs ended with another status than 0, the first of them {}",
            side.name,
            failed.len(),
            side.runs().count(),
            first.input
        )
    })
}

/// Whether the sides ran programs that are called otherwise, or the same with other arguments.
/// Where they lie may differ.
fn programs(base: &Side, new: &Side) -> Option<String> {
    let commands = |side: &Side| -> BTreeSet<String> {
        facts(side, |head| &head.command).iter().map(|command| without_directory(command)).collect()
    };
    difference_between("commands differ", &commands(base), &commands(new))
}

fn without_directory(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program} {arguments}").trim_end().to_owned()
}

/// Whether one side was recorded before the other: what the machine did in the meantime would
/// pass for a change.
fn order(base: &Side, new: &Side, diff: &Diff) -> Option<String> {
    let times = |side: &Side| -> Option<(u64, u64)> {
        let times = || side.runs().filter_map(|run| run.head.as_ref()?.utc);
        Some((times().min()?, times().max()?))
    };
    let ((base_first, base_last), (new_first, new_last)) = (times(base)?, times(new)?);
    let apart = base_last < new_first || new_last < base_first;
    (apart && diff.method == Method::Welch).then(|| {
        "all runs of one side were recorded before those of the other, so that what else the machine did in the meantime may pass for a change: record them in turn".to_owned()
    })
}

/// Shares of keys that both sides have, below which something is likely to be called otherwise.
const MIN_COMMON_SHARE: f64 = 0.5;

/// An image with this share is one to be told of.
const MIN_IMAGE_SHARE: f64 = 0.1;

/// Whether little or nothing of one side is on the other, and what is called otherwise.
pub(crate) fn unmatched(diff: &Diff, keys: &KeyTable, by: By) -> Vec<String> {
    let shares = |row: &Row| (row.own.share.estimate.base, row.own.share.estimate.new);
    let matched: f64 = diff.rows.iter().map(shares).map(|(base, new)| base.min(new)).sum();
    if matched >= MIN_COMMON_SHARE || !diff.is_decided() {
        return Vec::new();
    }
    let name = by.name();
    let mut warnings = vec![format!(
        "the sides have little in common: {:.0} % of the samples match by {name}",
        100.0 * matched
    )];
    let mut images: BTreeMap<&[u8], (f64, f64)> = BTreeMap::new();
    for row in diff.rows.iter().filter(|_| by.has_image()) {
        // Total, as an image may be there and do nothing itself.
        let crate::stats::Estimate { base, new, .. } = row.total.share.estimate;
        let image = images.entry(&keys.get(row.key).image).or_default();
        *image = (image.0 + base, image.1 + new);
    }
    let alone = |on: fn(&(f64, f64)) -> (f64, f64)| {
        let alone = images.iter().filter(|(image, shares)| {
            let (here, there) = on(shares);
            !image.is_empty() && here >= MIN_IMAGE_SHARE && there == 0.0
        });
        let mut alone: Vec<_> = alone.map(|(image, shares)| (on(shares).0, image)).collect();
        alone.sort_by(|a, b| b.0.total_cmp(&a.0));
        alone.into_iter().map(|(_, image)| escaped(image)).collect::<Vec<_>>()
    };
    let (base, new) = (alone(|shares| *shares), alone(|(base, new)| (*new, *base)));
    if let ([old, ..], [other, ..]) = (&base[..], &new[..]) {
        warnings.push(format!(
            "on base alone: {}, on new alone: {}: functions are matched by name and image; if {old} and {other} are one program, say so with --rename and the line image<TAB>{old}<TAB>{other}",
            base.join(", "),
            new.join(", "),
        ));
    }
    warnings
}

fn circumstances(base: &Side, new: &Side) -> Vec<String> {
    let compare = |what, fact| difference_between(what, &facts(base, fact), &facts(new, fact));
    let differences = [
        compare("hosts differ", |head| &head.host),
        compare("processors differ", |head| &head.cpu),
        compare("kernels differ", |head| &head.os),
        compare("architectures differ", |head| &head.arch),
    ];
    differences.into_iter().flatten().collect()
}
