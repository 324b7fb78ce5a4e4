//! An image of the input, and how naming its frames went.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_stream::Status;

use super::image_findings::ImageFindings;
use crate::dwarf::DwarfError;
use crate::find::{Failure, RecordedImage};

/// How many kinds of trouble are told of one image.
const TROUBLES: usize = 10;

/// How many frames ended how.
pub(crate) type StatusCounts = BTreeMap<Status, u64>;

/// An image.
pub(crate) struct ImageStats {
    /// What the stream says of it.
    pub(crate) recorded: RecordedImage,
    /// What was found out of it, if it was opened.
    pub(crate) findings: ImageFindings,
    /// What was wrong with its debug information, each thing once.
    pub(crate) problems: Vec<Rc<str>>,
    /// How many of its frames ended how, in all segments that are over.
    pub(crate) totals: StatusCounts,
    /// What is known of it in this segment.
    pub(crate) segment: SegmentStats,
    /// Whether a place whose line the input does not tell may have one here, if that was asked.
    pub(crate) may_add_lines: Option<bool>,
}

/// What is known of an image in the segment at hand.
#[derive(Default)]
pub(crate) struct SegmentStats {
    /// How many of its frames ended how.
    pub(crate) counts: StatusCounts,
    /// What was wrong where these are.
    pub(crate) told: Vec<Rc<str>>,
    /// Whether some of these were looked up.
    pub(crate) is_looked_up: bool,
}

impl ImageStats {
    /// Nothing is known of it yet.
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

    /// The one copy that is kept of a trouble; `None` when there are too many.
    pub(crate) fn problem(&mut self, fault: &DwarfError) -> Option<Rc<str>> {
        let problem = fault.to_string();
        if let Some(known) = self.problems.iter().find(|known| ***known == *problem) {
            return Some(Rc::clone(known));
        }
        if self.problems.len() == TROUBLES {
            return None;
        }
        self.problems.push(problem.into());
        self.problems.last().cloned()
    }

    /// Why it could not be opened.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.findings.failure.as_ref()
    }

    /// Counts a frame, by how its naming went and what was wrong there.
    pub(crate) fn count(&mut self, status: Status, problem: Option<&Rc<str>>) {
        let SegmentStats { counts, told, .. } = &mut self.segment;
        *counts.entry(status).or_default() += 1;
        told.extend(problem.filter(|new| !told.contains(new)).cloned());
    }

    /// A frame that was counted is counted as something else.
    pub(crate) fn uncount(&mut self, status: Status) {
        let counts = &mut self.segment.counts;
        let count = counts.entry(status).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&status);
        }
    }
}
