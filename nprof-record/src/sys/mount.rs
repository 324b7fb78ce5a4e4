//! Opens a tracefs that is mounted nowhere.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys::system::check;

/// Opens tracefs as a read-only detached mount with fsopen(2) and fsmount(2) (Linux 5.2). It is
/// visible only through the descriptor and disappears with it.
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
    // No options: all mounts share one tracefs, and options would change the mounts of others.
    // SAFETY: the name is a live string with a terminating NUL, which the kernel only reads.
    let context = descriptor(unsafe {
        libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC)
    })?;
    // SAFETY: the descriptor is open, and this command ignores key and value.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    };
    check(created as libc::c_int)?;
    // SAFETY: the descriptor is open, and the call takes no pointers.
    descriptor(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY)
    })
}

/// Takes ownership of a descriptor that a syscall has just returned.
fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(result as libc::c_int)?;
    // SAFETY: the callers pass the result of a syscall that creates a descriptor; nothing else owns
    // it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
