//! A tracefs that is mounted nowhere.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys::system::check;

/// Gets tracefs as a mount that is in no directory, read-only: it goes with the descriptor, and
/// nobody else sees it. fsopen(2) and fsmount(2), Linux 5.2. There is one tracefs for the whole
/// machine, and options given here would hold for everyone's mounts of it: none are.
///
/// # Errors
///
/// EPERM without CAP_SYS_ADMIN; ENODEV where the kernel has no tracefs; ENOSYS on older kernels.
pub(crate) fn detached_tracefs() -> io::Result<OwnedFd> {
    // From include/uapi/linux/mount.h; libc does not have them all.
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const MOUNT_ATTR_RDONLY: libc::c_uint = 1;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: the name is a live string with a NUL at its end.
    let context = descriptor(unsafe {
        libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC)
    })?;
    // SAFETY: this command takes neither a key nor a value.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    };
    check(created as libc::c_int)?;
    // SAFETY: takes and gives numbers.
    descriptor(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY)
    })
}

/// A descriptor a system call has just made.
fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(result as libc::c_int)?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
