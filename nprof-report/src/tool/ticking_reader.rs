//! A reader of a growing stream that calls a function at a fixed interval, also while no input arrives.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// Chunks that are read ahead.
const AHEAD: usize = 4;

/// A reader that calls `tick` at the interval `every`. The call comes from within [`Read::read`], so it
/// never interrupts the processing of a record. Errors of `tick` are returned by `read`.
#[derive(Debug)]
pub(crate) struct TickingReader<F> {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were already returned.
    at: usize,
    every: Duration,
    next: Instant,
    tick: F,
}

impl<F: FnMut() -> io::Result<()>> TickingReader<F> {
    /// Starts a thread that reads `input` ahead.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created.
    pub(crate) fn new(
        input: impl Read + Send + 'static,
        every: Duration,
        tick: F,
    ) -> io::Result<Self> {
        // Bounded: a slow report must slow the recorder's pipe down instead of filling the memory.
        let (sender, chunks) = sync_channel(AHEAD);
        thread::Builder::new().name("reader".to_owned()).spawn(move || pump(input, &sender))?;
        let next = Instant::now() + every;
        Ok(Self { chunks, chunk: Vec::new(), at: 0, every, next, tick })
    }

    fn tick_when_due(&mut self) -> io::Result<()> {
        if Instant::now() >= self.next {
            (self.tick)()?;
            // Counts from the end of the tick: a tick slower than the interval must not starve reading.
            self.next = Instant::now() + self.every;
        }
        Ok(())
    }
}

/// Sends chunks until the input ends or the receiver is dropped.
fn pump(mut input: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let result = match input.read(&mut chunk) {
            // A signal handler ran (EINTR); the read can be repeated.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) => return,
            Ok(count) => {
                chunk.truncate(count);
                Ok(chunk)
            }
            Err(error) => Err(error),
        };
        let is_over = result.is_err();
        if sender.send(result).is_err() || is_over {
            return;
        }
    }
}

impl<F: FnMut() -> io::Result<()>> Read for TickingReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            self.tick_when_due()?;
            let left = self.next.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => {
                    self.chunk = chunk?;
                    self.at = 0;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The reading thread ended after its last chunk: end of input.
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len() - self.at);
        buffer[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_while_input_is_missing_and_all_input_arrives() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (ticked, ticks) = sync_channel(1);
        let tick = || {
            let _ = ticked.try_send(());
            Ok(())
        };
        let mut ticking = TickingReader::new(reader, Duration::from_millis(1), tick).unwrap();
        // The writer waits for a tick before each write.
        let other = thread::spawn(move || {
            for byte in 0..3 {
                ticks.recv().unwrap();
                io::Write::write_all(&mut writer, &[byte; 100_000]).unwrap();
            }
        });
        let mut bytes = Vec::new();
        ticking.read_to_end(&mut bytes).unwrap();
        other.join().unwrap();
        assert_eq!(bytes, [[0; 100_000], [1; 100_000], [2; 100_000]].concat());
    }

    #[test]
    fn error_of_a_tick_ends_reading() {
        let (reader, _writer) = io::pipe().unwrap();
        let tick = || Err(io::ErrorKind::BrokenPipe.into());
        let mut ticking = TickingReader::new(reader, Duration::from_millis(1), tick).unwrap();
        assert_eq!(ticking.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
