//! What the input says of frames, which may have been named before, and what that is worth.

use std::rc::Rc;

use nprof_stream::{Location, Status};

use crate::names::location::Named;
use crate::stream::epoch_names::EpochNames;

/// Whether what the input says of a frame is worth more than what was found here.
pub(crate) fn is_better(theirs: Status, ours: &Named) -> bool {
    match ours.status {
        Status::Named => false,
        // Names of another build, which the user allowed.
        Status::Mismatch if !ours.lines.is_empty() => theirs == Status::Named,
        // It was looked up, and there is no name.
        Status::NoSymbol | Status::Stripped | Status::Anonymous => theirs == Status::Named,
        // It could not be looked up.
        _ => true,
    }
}

/// What the input says of a frame where that is better than what was found here.
pub(crate) fn better(theirs: Option<Rc<Named>>, ours: Rc<Named>) -> Rc<Named> {
    theirs.filter(|theirs| is_better(theirs.status, &ours)).unwrap_or(ours)
}

/// What the input says of a frame.
pub(crate) fn theirs(names: &EpochNames, location: &Location<'_>) -> Rc<Named> {
    let lines = location.lines.iter().map(|line| names.line(line)).collect();
    Rc::new(Named { status: location.status, lines, trouble: None })
}
