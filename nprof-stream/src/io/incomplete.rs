//! A stream that was read and is not complete: its verdict and damages, for messages.

use crate::io::reader::Reader;
use crate::io::verdict::{Damage, Verdict};
use crate::record::escape::escaped;
use crate::record::number::total;

/// A stream that was not complete.
#[derive(Clone, Debug)]
pub struct IncompleteInput {
    /// The stream, as the user named it.
    pub input: String,
    /// The verdict on it.
    pub verdict: Verdict,
    /// The places of damage.
    pub damages: Vec<Damage>,
}

impl IncompleteInput {
    /// Returns a reader's findings so far, in the stream called `name`.
    pub fn of<R: std::io::Read>(name: &str, reader: &Reader<R>) -> Self {
        Self {
            input: name.to_owned(),
            verdict: reader.verdict(),
            damages: reader.damages().to_vec(),
        }
    }
}

impl std::fmt::Display for IncompleteInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", escaped(self.input.as_bytes()), self.verdict)?;
        // A cut affects the verdict only; it has no place of damage.
        let Some(first) = self.damages.first() else {
            return write!(f, ": it has no end; all records before the cut were read");
        };
        match first.line {
            // Binary has no lines.
            0 => write!(f, ": byte {}: {}", first.offset, first.what)?,
            line => write!(f, ": line {line}: {}", first.what)?,
        }
        if self.damages.len() > 1 {
            write!(f, ", and {} more like this", self.damages.len() - 1)?;
        }
        if self.damages.iter().any(|damage| damage.samples.is_some()) {
            // Damage of unknown size adds nothing: the sum is a lower bound.
            let samples = total(self.damages.iter().filter_map(|damage| damage.samples));
            write!(f, "; {samples} samples are missing")?;
        }
        Ok(())
    }
}
