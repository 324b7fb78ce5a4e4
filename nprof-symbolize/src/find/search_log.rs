//! The search for the files of an image, a line for each step. `--explain` prints it.

use std::cell::RefCell;
use std::fmt::Display;
use std::path::Path;
use std::rc::Rc;

/// The number of lines that are kept for one image: a program may have thousands of split units.
const MAX_LINES: usize = 500;

/// The lines about one image. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchLog(Rc<RefCell<Vec<String>>>);

impl SearchLog {
    /// Adds a line.
    pub(crate) fn note(&self, line: impl Into<String>) {
        let mut lines = self.0.borrow_mut();
        if lines.len() < MAX_LINES {
            lines.push(line.into());
        } else if lines.len() == MAX_LINES {
            lines.push("... and more".to_owned());
        }
    }

    /// Adds the result of trying a file.
    pub(crate) fn tried(&self, path: &Path, result: impl Display) {
        self.note(format!("{}: {result}", path.display()));
    }

    /// Returns the number of lines.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns all lines, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_cut_at_its_limit() {
        let log = SearchLog::default();
        for i in 0..2 * MAX_LINES {
            log.clone().note(i.to_string());
        }
        let lines = log.lines();
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert_eq!(lines[MAX_LINES], "... and more");
    }
}
