//! Annotations already present in the input, and when to keep them. Pure.

use std::rc::Rc;

use nprof_stream::{Location, Record, Status, Step};

use crate::lookup::reuse::Reuse;
use crate::names::location::SymbolizedFrame;
use crate::stream::epoch_names::EpochNames;

/// The `@step` records of the current segment that describe its annotations.
#[derive(Debug)]
pub(crate) struct ExistingAnnotations {
    /// The step of this run.
    step: Step,
    origin: Origin,
}

/// The origin of the segment's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// No step of this tool so far.
    Unknown,
    /// This tool, with the version and the options of this run.
    SameOptions,
    /// Another version or other options, or records were lost.
    Different,
}

impl ExistingAnnotations {
    /// Starts with no record; `step` describes the names of this run.
    pub(crate) fn new(step: Step) -> Self {
        Self { step, origin: Origin::Unknown }
    }

    /// Notes a record.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(_) => self.origin = Origin::Unknown,
            Record::Step(step) if step.tool == self.step.tool => {
                let is_same = (&step.version, &step.naming_options)
                    == (&self.step.version, &self.step.naming_options);
                // A merged stream has several steps, and a frame may come from any of them.
                self.origin = match self.origin {
                    Origin::Unknown | Origin::SameOptions if is_same => Origin::SameOptions,
                    _ => Origin::Different,
                };
            }
            _ => {}
        }
    }

    /// Reuses no further annotation of the segment: after damage an id may mean something else.
    pub(crate) fn invalidate(&mut self) {
        self.origin = Origin::Different;
    }

    /// True if a lookup would give the segment's names again.
    pub(crate) fn is_same(&self) -> bool {
        self.origin == Origin::SameOptions
    }

    /// Returns how much of a location can be reused.
    pub(crate) fn reuse(&self, location: &Location<'_>) -> Reuse {
        let is_named = location.status == Status::Named && !location.lines.is_empty();
        if !self.is_same() || !is_named {
            return Reuse::No;
        }
        // Files come from debug information, which has all inlined calls, too.
        if location.lines.iter().any(|line| !line.file.is_none()) {
            Reuse::Full
        } else {
            Reuse::FunctionOnly
        }
    }
}

/// Returns a location of the input with interned names.
pub(crate) fn existing_location(
    names: &EpochNames,
    location: &Location<'_>,
) -> Rc<SymbolizedFrame> {
    let lines = location.lines.iter().map(|line| names.line(line)).collect();
    Rc::new(SymbolizedFrame { status: location.status, lines, problem: None })
}

/// True if a location of the input with the status `existing` is better than the result of a
/// lookup.
pub(crate) fn is_existing_better(existing: Status, found: &SymbolizedFrame) -> bool {
    match found.status {
        Status::Named => false,
        // Names of another build, which the user allowed.
        Status::Mismatch if !found.lines.is_empty() => existing == Status::Named,
        // The lookup succeeded, and there is no name.
        Status::NoSymbol | Status::Stripped | Status::Anonymous => existing == Status::Named,
        // The lookup was impossible here.
        _ => true,
    }
}

/// Returns the better of a location of the input and the result of a lookup.
pub(crate) fn prefer_existing(
    existing: Option<Rc<SymbolizedFrame>>,
    found: Rc<SymbolizedFrame>,
) -> Rc<SymbolizedFrame> {
    existing.filter(|existing| is_existing_better(existing.status, &found)).unwrap_or(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{Extras, FileId, FrameId, FunctionId, Line};

    fn step(tool: &str, version: &str, names: &str) -> Step {
        let [tool, version, naming_options] =
            [tool, version, names].map(|word| word.as_bytes().to_vec());
        Step { tool, version, naming_options, ..Step::default() }
    }

    fn reuse(steps: &[Step], status: Status, files: &[u32]) -> Reuse {
        let mut annotations = ExistingAnnotations::new(step("s", "1", "full"));
        annotations.note(&Record::Step(Box::new(step("s", "0", "of the segment before"))));
        annotations.note(&Record::Head(Box::default()));
        steps.iter().for_each(|step| annotations.note(&Record::Step(Box::new(step.clone()))));
        let line = |&file| Line { function: FunctionId(1), file: FileId(file), line: 0, column: 0 };
        let lines: Vec<Line> = files.iter().map(line).collect();
        let (frame, extras) = (FrameId(1), Extras::NONE);
        annotations.reuse(&Location { frame, status, lines: &lines, extras })
    }

    #[test]
    fn reuse_requires_the_same_options_in_all_steps() {
        let (ours, other) = (step("s", "1", "full"), step("r", "1", ""));
        for steps in [vec![], vec![other.clone()], vec![step("s", "2", "full")]] {
            assert_eq!(reuse(&steps, Status::Named, &[1]), Reuse::No, "{steps:?}");
        }
        let short = step("s", "1", "short");
        for steps in [[ours.clone(), short.clone()], [short, ours.clone()]] {
            assert_eq!(reuse(&steps, Status::Named, &[1]), Reuse::No, "{steps:?}");
        }
        assert_eq!(reuse(&[other, ours.clone(), ours.clone()], Status::Named, &[1]), Reuse::Full);
        let mut annotations = ExistingAnnotations::new(ours.clone());
        annotations.note(&Record::Step(Box::new(ours.clone())));
        assert!(annotations.is_same());
        annotations.invalidate();
        annotations.note(&Record::Step(Box::new(ours)));
        assert!(!annotations.is_same());
    }

    #[test]
    fn full_reuse_requires_a_file() {
        let steps = [step("s", "1", "full")];
        assert_eq!(reuse(&steps, Status::Named, &[0, 3]), Reuse::Full);
        assert_eq!(reuse(&steps, Status::Named, &[0]), Reuse::FunctionOnly);
        assert_eq!(reuse(&steps, Status::Mismatch, &[3]), Reuse::No);
        assert_eq!(reuse(&steps, Status::NoSymbol, &[]), Reuse::No);
        assert_eq!(reuse(&steps, Status::Named, &[]), Reuse::No, "named without a name");
    }
}
