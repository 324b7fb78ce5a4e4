//! Whether the frames of the input were looked up before just as they would be now: then what is
//! said of them need not be looked up again. Pure.

use nprof_stream::{Location, Record, Status, Step};

use crate::lookup::reuse::Reuse;

/// What the steps of the segment at hand say of its names.
#[derive(Debug)]
pub(crate) struct ExistingAnnotations {
    ours: Step,
    is_same: Option<bool>,
}

impl ExistingAnnotations {
    /// Nothing was seen, and names would be given now as `ours` says.
    pub(crate) fn new(ours: Step) -> Self {
        Self { ours, is_same: None }
    }

    /// Takes note of a record.
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(_) => self.is_same = None,
            Record::Step(step) if step.tool == self.ours.tool => {
                // Names may be of any of the steps, as in a merged stream.
                let is_same = (&step.version, &step.naming_options)
                    == (&self.ours.version, &self.ours.naming_options);
                self.is_same = Some(is_same && self.is_same != Some(false));
            }
            _ => {}
        }
    }

    /// Some of the segment is lost: what names and ids mean in the rest of it is not sure.
    pub(crate) fn invalidate(&mut self) {
        self.is_same = Some(false);
    }

    /// Whether the names of the segment were given just as they would be now.
    pub(crate) fn is_same(&self) -> bool {
        self.is_same == Some(true)
    }

    /// What a location of the input is worth.
    pub(crate) fn worth(&self, location: &Location<'_>) -> Reuse {
        let is_named = location.status == Status::Named && !location.lines.is_empty();
        if !self.is_same() || !is_named {
            return Reuse::No;
        }
        // Files are told from debug information, and then with all the calls inlined there.
        match location.lines.iter().any(|line| !line.file.is_none()) {
            true => Reuse::Full,
            false => Reuse::FunctionOnly,
        }
    }
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

    fn worth(steps: &[Step], status: Status, files: &[u32]) -> Reuse {
        let mut earlier = ExistingAnnotations::new(step("s", "1", "full"));
        earlier.note(&Record::Step(Box::new(step("s", "0", "of the segment before"))));
        earlier.note(&Record::Head(Box::default()));
        steps.iter().for_each(|step| earlier.note(&Record::Step(Box::new(step.clone()))));
        let line = |&file| Line { function: FunctionId(1), file: FileId(file), line: 0, column: 0 };
        let lines: Vec<Line> = files.iter().map(line).collect();
        let (frame, extras) = (FrameId(1), Extras::NONE);
        earlier.worth(&Location { frame, status, lines: &lines, extras })
    }

    #[test]
    fn all_steps_must_have_given_such_names() {
        let (ours, other) = (step("s", "1", "full"), step("r", "1", ""));
        for steps in [vec![], vec![other.clone()], vec![step("s", "2", "full")]] {
            assert_eq!(worth(&steps, Status::Named, &[1]), Reuse::No, "{steps:?}");
        }
        let short = step("s", "1", "short");
        for steps in [[ours.clone(), short.clone()], [short, ours.clone()]] {
            assert_eq!(worth(&steps, Status::Named, &[1]), Reuse::No, "{steps:?}");
        }
        assert_eq!(worth(&[other, ours.clone(), ours.clone()], Status::Named, &[1]), Reuse::Full);
        let mut earlier = ExistingAnnotations::new(ours.clone());
        earlier.note(&Record::Step(Box::new(ours.clone())));
        assert!(earlier.is_same());
        earlier.invalidate();
        earlier.note(&Record::Step(Box::new(ours)));
        assert!(!earlier.is_same());
    }

    #[test]
    fn a_file_says_that_there_was_debug_information() {
        let steps = [step("s", "1", "full")];
        assert_eq!(worth(&steps, Status::Named, &[0, 3]), Reuse::Full);
        assert_eq!(worth(&steps, Status::Named, &[0]), Reuse::FunctionOnly);
        assert_eq!(worth(&steps, Status::Mismatch, &[3]), Reuse::No);
        assert_eq!(worth(&steps, Status::NoSymbol, &[]), Reuse::No);
        assert_eq!(worth(&steps, Status::Named, &[]), Reuse::No, "by what name?");
    }
}
