//! Arguments that several tools have, to be included with `#[command(flatten)]`.

use std::path::{Path, PathBuf};

use clap::Args;

/// The streams to read.
#[derive(Clone, Debug, Default, Args)]
pub struct Inputs {
    /// Streams to read; `-` or none is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Inputs {
    /// Returns the streams in their order; None is standard input.
    pub fn operands(&self) -> Vec<Option<&Path>> {
        match &self.files[..] {
            // Like cat(1): without operands, read standard input.
            [] => vec![None],
            files => files.iter().map(|file| Some(file.as_path())).collect(),
        }
    }
}

/// The file to write.
#[derive(Clone, Debug, Default, Args)]
pub struct OutputFile {
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl OutputFile {
    /// Returns the path as the user gave it. None if there is none.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_deref()
    }
}

/// Tolerance of incomplete input.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct PartialOk {
    /// Exit with status 0 even if a stream is truncated or damaged
    #[arg(long)]
    pub partial_ok: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Tool {
        #[command(flatten)]
        inputs: Inputs,
        #[command(flatten)]
        output: OutputFile,
    }

    #[test]
    fn no_operand_is_standard_input() {
        let tool = Tool::parse_from(["tool", "-o", "x"]);
        assert_eq!(tool.inputs.operands(), [None]);
        assert_eq!(tool.output.path(), Some(Path::new("x")));
        let tool = Tool::parse_from(["tool", "a", "-"]);
        assert_eq!(tool.inputs.operands(), [Some(Path::new("a")), Some(Path::new("-"))]);
    }
}
