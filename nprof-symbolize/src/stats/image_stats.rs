//! An image of the input and the results of its lookups.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_stream::Status;

use crate::dwarf::DwarfError;
use crate::find::{Failure, RecordedImage};
use crate::stats::image_findings::ImageFindings;

/// The number of different problems that are kept for one image: a damaged file may have a new
/// one for every unit.
const MAX_PROBLEMS: usize = 10;

/// The number of frames with each status.
pub(crate) type StatusCounts = BTreeMap<Status, u64>;

/// An image and its results.
pub(crate) struct ImageStats {
    /// The image as the stream describes it.
    pub(crate) recorded: RecordedImage,
    /// Facts that opening it showed, if it was opened.
    pub(crate) findings: ImageFindings,
    /// The problems with its debug information, each once.
    pub(crate) problems: Vec<Rc<str>>,
    /// Its frames by status, in all finished segments.
    pub(crate) totals: StatusCounts,
    /// Its results in the current segment.
    pub(crate) segment: SegmentStats,
    /// True if a lookup may add a line to a frame with a function only. None until the first such
    /// frame.
    pub(crate) may_add_lines: Option<bool>,
}

/// The results of an image in the current segment.
#[derive(Default)]
pub(crate) struct SegmentStats {
    /// Its frames by status.
    pub(crate) counts: StatusCounts,
    /// The problems at these frames.
    pub(crate) problems: Vec<Rc<str>>,
    /// True if any of these frames was looked up, not only reused.
    pub(crate) is_looked_up: bool,
}

impl ImageStats {
    /// Creates an image without results.
    pub(crate) fn new(recorded: RecordedImage) -> Self {
        Self {
            recorded,
            findings: ImageFindings::default(),
            problems: Vec::new(),
            totals: StatusCounts::new(),
            segment: SegmentStats::default(),
            may_add_lines: None,
        }
    }

    /// Returns the shared text of a problem. None if there are too many.
    pub(crate) fn problem(&mut self, fault: &DwarfError) -> Option<Rc<str>> {
        let problem = fault.to_string();
        if let Some(known) = self.problems.iter().find(|known| ***known == *problem) {
            return Some(Rc::clone(known));
        }
        if self.problems.len() == MAX_PROBLEMS {
            return None;
        }
        self.problems.push(problem.into());
        self.problems.last().cloned()
    }

    /// Returns the reason it could not be opened, if it failed.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.findings.failure.as_ref()
    }

    /// Counts a frame by its status, and the problem there.
    pub(crate) fn count(&mut self, status: Status, problem: Option<&Rc<str>>) {
        let SegmentStats { counts, problems, .. } = &mut self.segment;
        *counts.entry(status).or_default() += 1;
        problems.extend(problem.filter(|new| !problems.contains(new)).cloned());
    }

    /// Takes back the count of a frame that gets another status.
    pub(crate) fn uncount(&mut self, status: Status) {
        let counts = &mut self.segment.counts;
        let count = counts.entry(status).or_default();
        *count = count.saturating_sub(1);
        // A segment reports an image if its counts are not empty.
        if *count == 0 {
            counts.remove(&status);
        }
    }
}
