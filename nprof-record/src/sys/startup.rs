//! Saves the state with which this process was started, and restores it for the command.
//!
//! Before `main`, Rust ignores SIGPIPE and opens closed standard descriptors; later the recorder
//! resets SIGCHLD and ignores SIGXFSZ. The command must see the original state.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The signals ignored at start-up, as bits.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// The standard descriptors closed at start-up, as bits.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The signals with a saved disposition.
const SAVED_SIGNALS: [libc::c_int; 7] = [
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGXFSZ,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
];

/// Makes the loader call [`save`] before Rust's runtime changes the state.
// SAFETY: .init_array consists of pointers to C functions, which the loader calls once each with
// (argc, argv, envp); a function without parameters may ignore them in the C ABI.
#[used]
#[unsafe(link_section = ".init_array")]
static SAVE: extern "C" fn() = save;

/// Saves the state. Only makes syscalls and stores to statics: no runtime exists yet.
extern "C" fn save() {
    let mut ignored = 0;
    for signal in SAVED_SIGNALS {
        // SAFETY: sigaction consists of integers and a nullable function pointer, for which zero
        // bits are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: no action is set; the kernel writes one sigaction to a live variable.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        ignored |= u64::from(action.sa_sigaction == libc::SIG_IGN) << signal;
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    // SAFETY: takes and returns numbers.
    let is_closed = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
    let closed = (0..3).map(|fd| u8::from(is_closed(fd)) << fd).sum();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// True if a signal, one of [`SAVED_SIGNALS`], was ignored at start-up.
pub(super) fn was_ignored(signal: libc::c_int) -> bool {
    IGNORED.load(Ordering::Relaxed) >> signal & 1 != 0
}

/// True if a standard descriptor was closed at start-up.
pub(crate) fn was_closed(fd: libc::c_int) -> bool {
    CLOSED.load(Ordering::Relaxed) >> fd & 1 != 0
}

/// Restores the state in a child that is about to execute the command, and redirects its standard
/// output if requested. Only makes syscalls: it runs after fork(2).
pub(super) fn restore(output_to_error: bool) {
    for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGXFSZ] {
        let action = if was_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: sets a predefined disposition, no handler.
        unsafe { libc::signal(signal, action) };
    }
    if output_to_error {
        // SAFETY: takes numbers. The child executes or exits next: no owner of descriptor 1 uses
        // it.
        unsafe { libc::dup2(2, 1) };
    }
    for fd in (0..3).filter(|&fd| was_closed(fd) && !(output_to_error && fd == 1)) {
        // SAFETY: takes a number. The child executes or exits next: no owner of the descriptor uses
        // it.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_state_before_rust_changes_it() {
        // cargo and shells start tests with default dispositions and open descriptors.
        assert!(!was_ignored(libc::SIGPIPE) && !was_closed(2));
        // SAFETY: zero bits are a valid sigaction; no action is set, and the kernel writes one
        // sigaction to a live variable.
        let now = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
            action.sa_sigaction
        };
        assert_eq!(now, libc::SIG_IGN, "Rust ignores SIGPIPE; otherwise nothing needs saving");
    }
}
