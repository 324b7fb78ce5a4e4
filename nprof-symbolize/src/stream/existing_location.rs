//! What the input says of frames, which may have been named before, and what that is worth.

use std::rc::Rc;

use nprof_stream::{Location, Status};

use crate::names::location::SymbolizedFrame;
use crate::stream::epoch_names::EpochNames;

/// Whether what the input says of a frame is worth more than what was found here.
pub(crate) fn is_existing_better(theirs: Status, ours: &SymbolizedFrame) -> bool {
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
pub(crate) fn prefer_existing(
    theirs: Option<Rc<SymbolizedFrame>>,
    ours: Rc<SymbolizedFrame>,
) -> Rc<SymbolizedFrame> {
    theirs.filter(|theirs| is_existing_better(theirs.status, &ours)).unwrap_or(ours)
}

/// What the input says of a frame.
pub(crate) fn existing_location(
    names: &EpochNames,
    location: &Location<'_>,
) -> Rc<SymbolizedFrame> {
    let lines = location.lines.iter().map(|line| names.line(line)).collect();
    Rc::new(SymbolizedFrame { status: location.status, lines, problem: None })
}
