//! What speaks against a comparison: what is refused, and what is warned of. Pure.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::input::event::ComparedEvent;
use crate::input::key::By;
use crate::input::side::{
    Side, difference_between, facts, input_name, is_unsymbolized, run_id, shared_run,
};

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
            input_name(recording)
        ),
        None => Ok(()),
    }
}

/// Refuses bounds and sizes in CPU time where that means nothing.
///
/// # Errors
///
/// When not CPU time was sampled, or on different processors, which take different times.
pub(crate) fn refuse_time(
    base: &Side,
    new: &Side,
    event: &ComparedEvent,
    asked: &str,
) -> Result<()> {
    if !event.measures_cpu_time() {
        bail!("{asked}: not CPU time was sampled, but {}: give a share (P%)", event.label());
    }
    let processors = |side| facts(side, |head| &head.cpu);
    match difference_between("processors differ", &processors(base), &processors(new)) {
        Some(how) => bail!("{asked}: {how}: their CPU times are no measure: give a share (P%)"),
        None => Ok(()),
    }
}

/// Refuses to decide on a run that is on both sides: it would find no difference, ever.
///
/// # Errors
///
/// Names the run.
pub(crate) fn refuse_shared(base: &Side, new: &Side) -> Result<()> {
    match shared_run(base, new) {
        Some(id) => bail!("run {id} is on both sides, which --fail-on could never fail on"),
        None => Ok(()),
    }
}
