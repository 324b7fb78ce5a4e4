//! The progress of reading an input, on a terminal, if it takes longer than a second.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nprof_stream::escape::escaped;

/// Work that ends before this time shows nothing.
const SILENT: Duration = Duration::from_secs(1);

/// Most redraws of the progress per second.
const REDRAWS: u8 = 10;

/// A reader that shows the bytes read so far on standard error. Silent if that is no terminal.
#[derive(Debug)]
pub struct ProgressReader<R> {
    input: R,
    bar: ProgressBar,
    start: Instant,
    is_shown: bool,
}

impl<R> ProgressReader<R> {
    /// Creates a reader of an input with this name and, if known, this length in bytes.
    pub fn new(tool: &str, name: &str, length: Option<u64>, input: R) -> Self {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let template = match length {
            Some(_) => "{msg} {bytes} of {total_bytes}, {percent} %",
            None => "{msg} {bytes}",
        };
        // The templates are constants, so that the default is never used.
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(format!("{tool}: reading {}:", escaped(name.as_bytes())));
        Self { input, bar, start: Instant::now(), is_shown: false }
    }
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bar.inc(count as u64);
        if !self.is_shown && self.start.elapsed() > SILENT {
            // indicatif draws nothing if standard error is no terminal.
            self.is_shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS));
        }
        Ok(count)
    }
}

impl<R> Drop for ProgressReader<R> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
