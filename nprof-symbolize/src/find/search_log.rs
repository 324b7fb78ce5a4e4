//! What was tried for an image, a line each: what `--explain` prints.

use std::cell::RefCell;
use std::fmt::Display;
use std::path::Path;
use std::rc::Rc;

/// How many lines are kept of one image: a program may be made of thousands of split units.
const LINES: usize = 500;

/// The lines of one image. A clone adds to the same lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchLog(Rc<RefCell<Vec<String>>>);

impl SearchLog {
    /// Adds a line.
    pub(crate) fn note(&self, line: impl Into<String>) {
        let mut lines = self.0.borrow_mut();
        if lines.len() < LINES {
            lines.push(line.into());
        } else if lines.len() == LINES {
            lines.push("... and more".to_owned());
        }
    }

    /// Adds what came of trying a file.
    pub(crate) fn tried(&self, path: &Path, what: impl Display) {
        self.note(format!("{}: {what}", path.display()));
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// All lines, in their order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_lines_are_cut() {
        let trace = SearchLog::default();
        for i in 0..2 * LINES {
            trace.clone().note(i.to_string());
        }
        let lines = trace.lines();
        assert_eq!(lines.len(), LINES + 1);
        assert_eq!(lines[LINES], "... and more");
    }
}
