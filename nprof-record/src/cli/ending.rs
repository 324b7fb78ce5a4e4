//! The end of a run: its summary, warnings and exit status.

use std::io;

use nprof_stream::escape::escaped;

use crate::cli::invocation::Invocation;
use crate::cli::message::{FAILURE, print_message};
use crate::image::kept_images::KeptSummary;
use crate::session::recording::Outcome;
use crate::session::workload::Workload;

impl Invocation<'_> {
    /// Prints the reason why the command was not executed; returns the exit status.
    pub(crate) fn not_executed(&self, error: &io::Error) -> u8 {
        let name = escaped(self.args.command[0].as_encoded_bytes());
        let is_missing = error.raw_os_error() == Some(libc::ENOENT);
        let why = if is_missing { "command not found".to_owned() } else { error.to_string() };
        print_message(&format!("{name}: {why}"));
        if is_missing { 127 } else { 126 }
    }

    /// Prints the summary and warnings; returns the exit status.
    pub(crate) fn finish(
        &self,
        workload: &Workload,
        recorded: anyhow::Result<Outcome>,
        pid: u32,
    ) -> u8 {
        let status = workload.status();
        // A failure of the command takes precedence over ours.
        let failed = if status == 0 { FAILURE } else { status };
        let outcome = match recorded {
            Ok(outcome) => outcome,
            Err(error) => {
                print_message(&format!("{error:#}"));
                return failed;
            }
        };
        let was_written = match outcome.error {
            None => true,
            // The reader has seen enough, as in `| head`: no failure.
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return status,
            Some(error) => {
                print_message(&format!("cannot write the stream: {error}; it is truncated"));
                false
            }
        };
        let kept = outcome.kept.iter().flat_map(KeptSummary::warnings);
        for line in outcome.summary.warnings().into_iter().chain(kept) {
            print_message(&line);
        }
        if !self.args.quiet {
            for line in outcome.summary.remarks() {
                print_message(&line);
            }
            let name = self.destination.chosen_name(pid);
            let mut into = name.map_or_else(String::new, |name| format!("; wrote {name}"));
            if let Some(kept) = &outcome.kept {
                into = format!("{into}; {}", kept.line());
            }
            print_message(&format!("{}{into}", outcome.summary.line()));
        }
        if was_written { status } else { failed }
    }
}
