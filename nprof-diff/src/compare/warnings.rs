//! Warnings: properties of the runs that make a comparison less reliable. Pure.

use std::collections::{BTreeMap, BTreeSet};

use nprof_report::summary::{LOST_RECORDS, OMISSIONS, Run, Summary};
use nprof_stream::escape::escaped;
use nprof_stream::number::total;

use crate::compare::comparison::Method;
use crate::compare::diff::{Diff, MIN_SAMPLES_PER_SIDE};
use crate::compare::observed::SideTotals;
use crate::input::event::{ComparedEvent, incomplete_stacks};
use crate::input::key::KeyTable;
use crate::input::row_kind::RowKind;
use crate::input::run_counts::StreamCounts;
use crate::input::side::{Side, difference_between, recorded_in_turn, shared_run};
use crate::stats::Estimate;

/// Returns the warnings about a comparison, most important first.
pub(crate) fn of_comparison(
    base: &Side,
    new: &Side,
    event: Option<&ComparedEvent>,
    row_kind: RowKind,
    diff: &Diff,
) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(too_few_samples(base, diff.base));
    warnings.extend(too_few_samples(new, diff.new));
    if diff.method == Method::Newcombe {
        warnings.push(single_runs(diff));
    }
    warnings.extend(of_side(base, event));
    warnings.extend(of_side(new, event));
    let mut streams = base.streams.iter().chain(&new.streams);
    // If only some of the streams are unsymbolized, they were refused already.
    if row_kind.needs_symbols() && streams.all(StreamCounts::is_unsymbolized) {
        warnings.push(
            "not symbolized, so functions have no names; run the streams through nprof-symbolize"
                .to_owned(),
        );
    }
    if let Some(id) = shared_run(base, new) {
        warnings.push(format!("run {id} is on both sides"));
    }
    warnings.extend(different_machines(base, new));
    warnings.extend(different_commands(base, new));
    warnings.extend(recording_order(base, new, diff));
    warnings.extend(event.and_then(|event| different_capture(base, new, event)));
    warnings.extend(incomplete_stack_shares(base, new, event));
    warnings
}

/// Returns the warnings about one side.
pub(crate) fn of_side(side: &Side, event: Option<&ComparedEvent>) -> Vec<String> {
    let incomplete = side.summaries().flat_map(|summary| &summary.incomplete_inputs);
    let mut warnings: Vec<String> =
        incomplete.map(|input| format!("{}: incomplete input: {input}", side.name)).collect();
    warnings.extend(losses(side));
    warnings.extend(lost_records(side));
    // Each sentence once, however many streams it holds for.
    let doubtful: BTreeSet<String> = side.summaries().flat_map(Summary::doubtful).collect();
    warnings.extend(doubtful.into_iter().map(|text| format!("{}: {text}", side.name)));
    if side.summaries().any(|summary| summary.has_omissions) {
        warnings.push(format!("{}: {OMISSIONS}", side.name));
    }
    warnings.extend(event.into_iter().flat_map(|event| empty_runs(side, event)));
    warnings.extend(several_commands(side));
    warnings.extend(failed_runs(side));
    warnings
}

fn too_few_samples(side: &Side, totals: SideTotals) -> Option<String> {
    let samples = totals.sum.samples;
    (samples < MIN_SAMPLES_PER_SIDE).then(|| {
        format!(
            "{}: only {samples} samples, at least {MIN_SAMPLES_PER_SIDE} are needed to decide; record for longer, or sample more often (-F)",
            side.name
        )
    })
}

fn single_runs(diff: &Diff) -> String {
    let cause = if diff.base.runs.max(diff.new.runs) > 1 {
        "one side has a single run, so the runs of the other are added up"
    } else {
        "single runs"
    };
    format!(
        "{cause}: the intervals assume independent samples and ignore differences between runs, so they are too narrow; give several runs per side (--base FILE... --new FILE...)"
    )
}

/// Warns if 1 % of the samples or more were lost.
fn losses(side: &Side) -> Option<String> {
    let lost = side.lost_samples();
    let events = side.summaries().flat_map(|summary| &summary.events);
    let samples = total(events.map(|event| event.sum.samples));
    (lost > 0 && lost.saturating_mul(100) >= samples)
        .then(|| format!("{}: {lost} samples were lost, {samples} recorded", side.name))
}

/// Warns if records of processes and mappings were lost: a side may lack processes that the other
/// has, whatever the number of lost samples.
fn lost_records(side: &Side) -> Option<String> {
    let lost = side.lost_records();
    (lost > 0).then(|| format!("{}: {lost} records {LOST_RECORDS}", side.name))
}

fn empty_runs(side: &Side, event: &ComparedEvent) -> Vec<String> {
    let mut warnings = Vec::new();
    for stream in &side.streams {
        let Some(index) = event.index(&stream.summary) else { continue };
        for (number, run) in stream.summary.runs.iter().enumerate() {
            let counts = stream.counts.get(&(number, index));
            if counts.is_none_or(|counts| counts.sum.samples == 0) {
                warnings
                    .push(format!("{}: {}: skipped a run without samples", side.name, run.input));
            }
        }
    }
    warnings
}

/// Warns if the runs of a side, which count as repetitions, had different commands.
fn several_commands(side: &Side) -> Option<String> {
    let commands = side.facts(|head| &head.command).len();
    (commands > 1).then(|| {
        format!("{}: runs of {commands} different commands count as repetitions", side.name)
    })
}

/// Warns if some runs of a side failed: they did other work than the successful ones. If all ended
/// with the same status, they are repetitions.
fn failed_runs(side: &Side) -> Option<String> {
    let statuses: BTreeSet<u64> = side.runs().filter_map(exit_status).collect();
    let failed: Vec<&Run> =
        side.runs().filter(|run| exit_status(run).is_some_and(|status| status != 0)).collect();
    let first = failed.first()?;
    (statuses.len() > 1).then(|| {
        format!(
            "{}: {} of {} runs failed (exit status not 0), the first is {}",
            side.name,
            failed.len(),
            side.runs().count(),
            first.input
        )
    })
}

fn exit_status(run: &Run) -> Option<u64> {
    run.end.as_ref().and_then(|end| end.status)
}

fn different_machines(base: &Side, new: &Side) -> Vec<String> {
    let differences = [
        difference_between(
            "hosts differ",
            &base.facts(|head| &head.host),
            &new.facts(|head| &head.host),
        ),
        difference_between(
            "processors differ",
            &base.facts(|head| &head.cpu),
            &new.facts(|head| &head.cpu),
        ),
        difference_between(
            "kernels differ",
            &base.facts(|head| &head.os),
            &new.facts(|head| &head.os),
        ),
        difference_between(
            "architectures differ",
            &base.facts(|head| &head.arch),
            &new.facts(|head| &head.arch),
        ),
    ];
    differences.into_iter().flatten().collect()
}

/// Warns if programs or arguments differ. Directories are ignored: two builds of a program usually
/// lie in different ones.
fn different_commands(base: &Side, new: &Side) -> Option<String> {
    let [base, new] = [base, new].map(|side| -> BTreeSet<String> {
        let commands = side.facts(|head| &head.command);
        commands.iter().map(|command| without_directory(command)).collect()
    });
    difference_between("commands differ", &base, &new)
}

/// Returns a command, quoted for a shell, without the directory of its first word. The other words may contain
/// slashes that matter.
fn without_directory(command: &str) -> String {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = command.find(|letter| {
        let is_end = letter == ' ' && !is_quoted && !is_escaped;
        is_quoted ^= letter == '\'' && !is_escaped;
        is_escaped = letter == '\\' && !is_quoted && !is_escaped;
        is_end
    });
    let (program, arguments) = command.split_at(end.unwrap_or(command.len()));
    let name = program.rsplit('/').next().unwrap_or(program);
    let quote = if program.starts_with('\'') && name.len() < program.len() { "'" } else { "" };
    format!("{quote}{name}{arguments}").trim_end().to_owned()
}

/// Warns if one side was recorded before the other: slow changes of the machine would appear as
/// changes of the program.
fn recording_order(base: &Side, new: &Side, diff: &Diff) -> Option<String> {
    let is_in_turn = recorded_in_turn(base, new)?;
    // Single runs cannot be interleaved.
    (!is_in_turn && diff.method == Method::Welch).then(|| {
        "all runs of one side were recorded before those of the other, so changes of the machine over time appear as changes of the program; record the sides in turn".to_owned()
    })
}

fn different_capture(base: &Side, new: &Side, event: &ComparedEvent) -> Option<String> {
    let [base, new] = [base, new].map(|side| -> BTreeSet<String> {
        event.summaries(side).map(|summary| escaped(&summary.event.unwind)).collect()
    });
    difference_between("stacks were captured differently", &base, &new)
}

/// The difference of the shares of incomplete stacks, in points, above which totals are not
/// comparable.
const MAX_INCOMPLETE_DIFFERENCE: f64 = 5.0;

fn incomplete_stack_shares(
    base: &Side,
    new: &Side,
    event: Option<&ComparedEvent>,
) -> Option<String> {
    let [base, new] = [base, new].map(|side| {
        let samples = event
            .map_or(0, |event| total(event.summaries(side).map(|summary| summary.sum.samples)));
        100.0 * incomplete_stacks(side, event) as f64 / samples.max(1) as f64
    });
    ((base - new).abs() > MAX_INCOMPLETE_DIFFERENCE).then(|| {
        format!(
            "{base:.0} % of the stacks of base are incomplete, {new:.0} % of those of new; compare self, not total"
        )
    })
}

/// The share of samples with a key on both sides, below which names have probably changed.
const MIN_COMMON_SHARE: f64 = 0.5;

/// The smallest share of an image on one side only that is reported.
const MIN_IMAGE_SHARE: f64 = 0.1;

/// Returns warnings if the sides have few keys in common, with the images that may have been
/// renamed.
pub(crate) fn of_unmatched_keys(diff: &Diff, keys: &KeyTable, row_kind: RowKind) -> Vec<String> {
    let shares = diff.rows.iter().map(|row| row.self_.share.estimate);
    let common: f64 = shares.map(|estimate| estimate.base.min(estimate.new)).sum();
    // Too few samples have their own warning, and have little in common by chance.
    if common >= MIN_COMMON_SHARE || !diff.has_enough_samples() {
        return Vec::new();
    }
    let name = row_kind.name();
    let mut warnings = vec![format!(
        "the sides have little in common: {:.0} % of the samples match by {name}",
        100.0 * common
    )];
    if row_kind.has_image() {
        warnings.extend(unmatched_images(diff, keys));
    }
    warnings
}

/// Returns a warning if there are large images on base only and on new only.
fn unmatched_images(diff: &Diff, keys: &KeyTable) -> Option<String> {
    let mut images: BTreeMap<&[u8], ImageShares> = BTreeMap::new();
    for row in &diff.rows {
        // By total: the code of an image may run only through the functions that it calls.
        let Estimate { base, new, .. } = row.total.share.estimate;
        let shares = images.entry(&keys.get(row.key).image).or_default();
        shares.base += base;
        shares.new += new;
    }
    // Functions without an image are under the empty name.
    images.remove(&b""[..]);
    let base_only = only_on_one_side(&images, |shares| (shares.base, shares.new));
    let new_only = only_on_one_side(&images, |shares| (shares.new, shares.base));
    let ([old, ..], [new, ..]) = (&base_only[..], &new_only[..]) else { return None };
    Some(format!(
        "only on base: {}; only on new: {}; functions are matched by name and image: if {old} and {new} are the same program, give --rename a file with the line image<TAB>{old}<TAB>{new}",
        base_only.join(", "),
        new_only.join(", "),
    ))
}

/// The shares of an image on both sides, summed over its rows.
#[derive(Clone, Copy, Debug, Default)]
struct ImageShares {
    base: f64,
    new: f64,
}

/// Returns the images with a large share on the first side and none on the second, the largest
/// first. `sides` returns the shares of an image on the first and the second side.
fn only_on_one_side(
    images: &BTreeMap<&[u8], ImageShares>,
    sides: fn(&ImageShares) -> (f64, f64),
) -> Vec<String> {
    let mut found = Vec::new();
    for (image, shares) in images {
        let (here, there) = sides(shares);
        if here >= MIN_IMAGE_SHARE && there == 0.0 {
            found.push((here, escaped(image)));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, image)| image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_a_quoted_program_is_left_out_with_both_quotes() {
        assert_eq!(without_directory("/ci/base/demo /in 7"), "demo /in 7");
        assert_eq!(without_directory("'./my prog' '/a b'"), "'my prog' '/a b'");
        assert_eq!(without_directory(r"'./it'\''s one' 2"), r"'it'\''s one' 2");
        assert_eq!(without_directory("'my prog' 2"), "'my prog' 2");
        assert_eq!(without_directory("./a"), "a");
        assert_eq!(without_directory(""), "");
    }
}
