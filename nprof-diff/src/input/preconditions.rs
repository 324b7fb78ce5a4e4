//! Refuses sides if their comparison would be wrong. Pure.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::input::event::{self, AmountUnit, ComparedEvent};
use crate::input::row_kind::RowKind;
use crate::input::run_counts::StreamCounts;
use crate::input::side::{Side, difference_between, recorded_in_turn, run_id, shared_run};

/// Refuses sides with incomplete streams, repeated runs, or names on some streams only.
///
/// # Errors
///
/// - an incomplete stream, unless `partial_ok`: part of a run is not comparable with whole runs;
/// - a run that is twice on a side: the copies would agree perfectly and hide the variance;
/// - symbolized and unsymbolized streams together: everything would be added or removed.
pub(crate) fn refuse(base: &Side, new: &Side, row_kind: RowKind, partial_ok: bool) -> Result<()> {
    for side in [base, new] {
        refuse_incomplete(side, partial_ok)?;
        refuse_repeated_runs(side)?;
    }
    let streams = || base.streams.iter().chain(&new.streams);
    let unsymbolized = streams().find(|stream| stream.is_unsymbolized());
    // Streams that are all unsymbolized can be compared, with a warning.
    let differs = !streams().all(StreamCounts::is_unsymbolized);
    if let Some(stream) = unsymbolized.filter(|_| differs && row_kind.needs_symbols()) {
        bail!(
            "{}: not symbolized, unlike other streams; run it through nprof-symbolize",
            stream.input()
        );
    }
    Ok(())
}

fn refuse_incomplete(side: &Side, partial_ok: bool) -> Result<()> {
    if partial_ok {
        return Ok(());
    }
    match side.summaries().flat_map(|summary| &summary.incomplete_inputs).next() {
        Some(incomplete) => {
            bail!("{}: {incomplete}; --partial-ok compares the rest", side.name)
        }
        None => Ok(()),
    }
}

fn refuse_repeated_runs(side: &Side) -> Result<()> {
    let mut seen = BTreeSet::new();
    for run in side.runs() {
        // A repetition of a run without id cannot be detected.
        let Some(id) = run_id(run) else { continue };
        if !seen.insert(id) {
            bail!("{}: {}: run {id} was already read; give each run once", side.name, run.input);
        }
    }
    Ok(())
}

/// Refuses single runs of an event whose samples are estimates of another program: one run does not show
/// their error.
///
/// # Errors
///
/// Names the side with fewer than two runs.
pub(crate) fn refuse_estimates(
    base: &Side,
    new: &Side,
    event: Option<&ComparedEvent>,
) -> Result<()> {
    let Some(event) = event else { return Ok(()) };
    // Without streams on the new side, runs of the base are compared with each other.
    for side in [base, new].into_iter().filter(|side| !side.streams.is_empty()) {
        let is_estimate = event.summaries(side).any(|summary| !summary.has_margins());
        if is_estimate && event::runs(side, Some(event)).len() < 2 {
            bail!(
                "{}: the samples of {} are estimates of another program, and one run does not show their \
                 error; give at least two runs",
                side.name,
                event.label()
            );
        }
    }
    Ok(())
}

/// Refuses an option in time, bytes or counts if these cannot be compared. `option` is its spelling.
///
/// # Errors
///
/// If the event does not measure this unit. For times and cycles also if the processors differ: the same work
/// takes different times on them.
pub(crate) fn refuse_amount(
    base: &Side,
    new: &Side,
    event: &ComparedEvent,
    unit: AmountUnit,
    option: &str,
) -> Result<()> {
    if event.amount_unit() != Some(unit) {
        let own = event.amount_unit().map(|unit| format!("{}, or ", unit.sizes()));
        let (unit, event, own) = (unit.name(), event.label(), own.unwrap_or_default());
        bail!("{option}: the event {event} does not measure {unit}; give {own}a share (P%)");
    }
    if !event.depends_on_processor() {
        return Ok(());
    }
    let [base, new] = [base, new].map(|side| side.facts(|head| &head.cpu));
    match difference_between("processors differ", &base, &new) {
        Some(difference) => {
            bail!(
                "{option}: {difference}; {} is not comparable, give a share (P%)",
                event.quantity()
            )
        }
        None => Ok(()),
    }
}

/// True if the sides were recorded in turn and on equal processors: the machine then had the same
/// speed for both.
pub(crate) fn times_are_comparable(base: &Side, new: &Side) -> bool {
    let [base_cpus, new_cpus] = [base, new].map(|side| side.facts(|head| &head.cpu));
    recorded_in_turn(base, new) == Some(true) && base_cpus == new_cpus
}

/// Refuses a gate on a run that is on both sides: it would never find a difference.
///
/// # Errors
///
/// Names the run.
pub(crate) fn refuse_shared(base: &Side, new: &Side) -> Result<()> {
    match shared_run(base, new) {
        Some(id) => bail!("run {id} is on both sides, so --fail-on would never fail"),
        None => Ok(()),
    }
}
