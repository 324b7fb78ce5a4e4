//! Reading what is still being written, and doing something at a steady pace meanwhile, also
//! while nothing comes.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// How many chunks wait to be taken.
const AHEAD: usize = 4;

/// A reader that calls `tick` whenever `every` has passed. The call comes from within
/// [`Read::read`], so never amidst the work of whoever reads. An error of `tick` is one of the
/// reading.
#[derive(Debug)]
pub(crate) struct Ticking<F> {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    /// How much of the chunk was given away.
    at: usize,
    every: Duration,
    next: Instant,
    tick: F,
}

impl<F: FnMut() -> io::Result<()>> Ticking<F> {
    /// Begins to read `input` ahead, on a thread of its own.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub(crate) fn new(
        input: impl Read + Send + 'static,
        every: Duration,
        tick: F,
    ) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(AHEAD);
        thread::Builder::new().name("reader".to_owned()).spawn(move || pump(input, &sender))?;
        let next = Instant::now() + every;
        Ok(Self { chunks, chunk: Vec::new(), at: 0, every, next, tick })
    }

    fn tick_when_due(&mut self) -> io::Result<()> {
        if Instant::now() >= self.next {
            (self.tick)()?;
            // From now on, so that a slow tick does not call for the next one.
            self.next = Instant::now() + self.every;
        }
        Ok(())
    }
}

/// Hands on what is read, until it ends or nobody takes it any more.
fn pump(mut input: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let result = match input.read(&mut chunk) {
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

impl<F: FnMut() -> io::Result<()>> Read for Ticking<F> {
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
    fn nothing_is_lost_and_ticks_come_while_nothing_is_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        let (ticked, ticks) = sync_channel(1);
        let tick = || {
            let _ = ticked.try_send(());
            Ok(())
        };
        let mut ticking = Ticking::new(reader, Duration::from_millis(1), tick).unwrap();
        // The other end waits for ticks before it writes on.
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
    fn what_goes_wrong_with_a_tick_ends_the_reading() {
        let (reader, _writer) = io::pipe().unwrap();
        let tick = || Err(io::ErrorKind::BrokenPipe.into());
        let mut ticking = Ticking::new(reader, Duration::from_millis(1), tick).unwrap();
        assert_eq!(ticking.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
