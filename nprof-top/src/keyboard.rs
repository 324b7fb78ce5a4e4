//! The keys of the terminal, and its hang-up.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The number of events that may wait.
const WAITING: usize = 64;

/// The keyboard of the terminal.
///
/// A thread reads it: crossterm does not return while the terminal has hung up, nor between the bytes of a key.
#[derive(Debug)]
pub(crate) struct Keyboard {
    events: Receiver<io::Result<Event>>,
    /// The terminal of the keys. None if it is standard input.
    terminal: Option<File>,
}

impl Keyboard {
    /// Begins to read keys: from standard input, or from /dev/tty where standard input is no terminal.
    ///
    /// # Errors
    ///
    /// If there is no terminal, or no thread.
    pub(crate) fn open() -> io::Result<Self> {
        // crossterm chooses in the same way, and opens a file of its own.
        let terminal = if io::stdin().is_terminal() { None } else { Some(File::open("/dev/tty")?) };
        let (sender, events) = sync_channel(WAITING);
        thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
            loop {
                let event = event::read();
                let is_last = event.is_err();
                if sender.send(event).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Self { events, terminal })
    }

    /// Waits for the next key or change of the size. None if there is none in this time.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be read.
    pub(crate) fn next(&self, wait: Duration) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(wait) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// True if the terminal of the keys or of the screen has hung up.
    pub(crate) fn is_hung_up(&self) -> bool {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let keys = self.terminal.as_ref().map_or(stdin.as_fd(), AsFd::as_fd);
        let screen = stdout.as_fd();
        let mut files = [&keys, &screen].map(|file| PollFd::new(file, PollFlags::empty()));
        let end = PollFlags::HUP | PollFlags::ERR;
        // Does not wait.
        poll(&mut files, Some(&Timespec::default())).is_ok()
            && files.iter().any(|file| file.revents().intersects(end))
    }
}
