//! Saves the state with which this process was started, and restores it for the command.
//!
//! Before `main`, Rust ignores SIGPIPE and opens closed standard descriptors; later the recorder
//! resets SIGCHLD and ignores SIGXFSZ, and the C library handles its two internal signals once a thread
//! starts. The command must see the original state.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The signals ignored at start-up, as bits.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// The standard descriptors closed at start-up, as bits.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The signals that glibc and musl use to cancel threads and to change the ids of all threads. Their
/// functions refuse to read or set the disposition of these.
const LIBRARY_SIGNALS: [libc::c_int; 2] = [32, 33];

/// The signals that programs use for requests of their own, beside SIGUSR1: sudo(8) and timeout(1) pass them
/// on, too.
pub(crate) const FOR_COMMAND: [i32; 2] = [libc::SIGUSR2, libc::SIGALRM];

/// The signals with a saved disposition.
const SAVED_SIGNALS: [libc::c_int; 11] = [
    LIBRARY_SIGNALS[0],
    LIBRARY_SIGNALS[1],
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGXFSZ,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    FOR_COMMAND[0],
    FOR_COMMAND[1],
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
        let mut action = KernelAction::default();
        action.swap(signal, false);
        ignored |= u64::from(action.0[0] == libc::SIG_IGN) << signal;
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    // SAFETY: takes and returns numbers.
    let is_closed = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
    let closed = (0..3).map(|fd| u8::from(is_closed(fd)) << fd).sum();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// The kernel's `struct sigaction` (include/linux/signal_types.h), with room to spare. Its first word is
/// the handler, except on MIPS.
#[derive(Default)]
struct KernelAction([usize; 8]);

impl KernelAction {
    /// Sets the action of a signal if requested, and reads the one it had.
    fn swap(&mut self, signal: libc::c_int, set: bool) {
        let new = if set { self.0.as_ptr() } else { std::ptr::null() };
        // SAFETY: the kernel reads and writes at most one action, which is smaller than the array,
        // for a set of 8 bytes. An action that is set has a predefined disposition and no handler.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, new, self.0.as_mut_ptr(), 8_usize);
        }
    }
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
    ignore_again(&LIBRARY_SIGNALS);
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

/// Ignores signals that were ignored at start-up: execve(2) resets handlers to the default.
fn ignore_again(signals: &[libc::c_int]) {
    for &signal in signals.iter().filter(|&&signal| was_ignored(signal)) {
        KernelAction([libc::SIG_IGN, 0, 0, 0, 0, 0, 0, 0]).swap(signal, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_of_the_library_are_ignored_again() {
        let signal = LIBRARY_SIGNALS[1];
        let mut before = KernelAction::default();
        before.swap(signal, false);
        let saved = IGNORED.fetch_or(1 << signal, Ordering::Relaxed);
        ignore_again(&LIBRARY_SIGNALS);
        let mut now = KernelAction(before.0);
        // Reads the action that ignore_again has set, and restores the one before.
        now.swap(signal, true);
        IGNORED.store(saved, Ordering::Relaxed);
        assert_eq!(now.0[0], libc::SIG_IGN);
        assert_ne!(before.0[0], libc::SIG_IGN, "cargo and shells do not ignore it");
    }

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
