//! Signals while the recorder runs: its end is the end of the recording, not of nprof.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Keeps this process alive until it is dropped: an interrupt of the terminal reaches the recorder as
/// well, and other requests to end are passed on to it.
pub(super) struct Forwarding {
    handle: Handle,
    /// True if signals have their usual effect again.
    has_ended: Arc<AtomicBool>,
}

impl Forwarding {
    /// Begins to pass signals on to a child.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(super) fn to(child: &Child) -> io::Result<Self> {
        // A descriptor of the process: its number may belong to another one after its end.
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let has_ended = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::clone(&has_ended))?;
        }
        let mut signals = Signals::new(SIGNALS)?;
        let handle = signals.handle();
        thread::spawn(move || {
            for signal in &mut signals {
                // The terminal sends SIGINT to the recorder, too, which a second one would kill.
                let passed = match signal {
                    SIGTERM => Signal::TERM,
                    SIGHUP => Signal::HUP,
                    _ => continue,
                };
                // It may have ended.
                let _ = pidfd_send_signal(&process, passed);
            }
        });
        Ok(Self { handle, has_ended })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.handle.close();
    }
}
