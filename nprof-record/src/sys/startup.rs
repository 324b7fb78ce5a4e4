//! What this process was started with and does not have any more: Rust ignores SIGPIPE and opens
//! what is closed of the standard descriptors before `main`, and we need SIGCHLD. The command is
//! to have all of it as if it had been started in our place.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The signals that were ignored, by their bits.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// The standard descriptors that were closed, by their bits.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The signals it is looked for.
const LOOKED_FOR: [libc::c_int; 6] =
    [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Run by the loader, before Rust's own start. That is the only moment to see it.
// SAFETY: a section of pointers to C functions, each called once; this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// Makes nothing but system calls: it runs before everything else.
extern "C" fn remember() {
    let mut ignored = 0;
    for signal in LOOKED_FOR {
        // SAFETY: sigaction is made of integers, for which all zero bits are a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is set, and `action` is a live sigaction to write to.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        ignored |= u64::from(action.sa_sigaction == libc::SIG_IGN) << signal;
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    // SAFETY: takes and gives numbers.
    let is_closed = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1;
    let closed = (0..3).map(|fd| u8::from(is_closed(fd)) << fd).sum();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Whether a signal was ignored when we were started, one of [`LOOKED_FOR`].
pub(super) fn was_ignored(signal: libc::c_int) -> bool {
    IGNORED.load(Ordering::Relaxed) >> signal & 1 != 0
}

/// Whether a standard descriptor was closed when we were started.
pub(crate) fn was_closed(fd: libc::c_int) -> bool {
    CLOSED.load(Ordering::Relaxed) >> fd & 1 != 0
}

/// Makes it as it was, in a process that is about to execute the command; but for standard
/// output, where it goes to standard error. Makes nothing but system calls.
pub(super) fn give_back(output_to_error: bool) {
    for signal in [libc::SIGPIPE, libc::SIGCHLD] {
        let action = if was_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: no handler is set.
        unsafe { libc::signal(signal, action) };
    }
    if output_to_error {
        // SAFETY: takes numbers; nothing in this process owns the descriptor that is replaced.
        unsafe { libc::dup2(2, 1) };
    }
    for fd in (0..3).filter(|&fd| was_closed(fd) && !(output_to_error && fd == 1)) {
        // SAFETY: the same.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rust_changed_is_remembered() {
        // Of the tests' own process; cargo and shells start those with everything as usual.
        assert!(!was_ignored(libc::SIGPIPE) && !was_closed(2));
        // SAFETY: nothing is set, and `action` is a live sigaction to write to.
        let now = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
            action.sa_sigaction
        };
        assert_eq!(now, libc::SIG_IGN, "or it need not be remembered");
    }
}
