//! The exported functions.
//!
//! They are written in assembly since they must capture the registers of their caller, and since an allocation that
//! is not recorded should cost three instructions, and a call six. Each has unwind information: exceptions of operator
//! new, the cancellation of threads and other profilers unwind through them.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::arch::{
    capture_and_call, check_and_free, count_and_allocate, count_call, note_and_load,
    resolve_and_jump, sample_and_return,
};
use super::thread::Thread;
use super::{calls, descriptors, memory, shadow, symbols};
use crate::protocol::Registers;

/// Defines functions with an implementation that gets the registers of the caller as one more argument, of a number.
macro_rules! captured {
    ($($name:ident, $number:tt, $implementation:path;)*) => {
        $(
            #[cfg_attr(preloaded, unsafe(no_mangle))]
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                capture_and_call!($number, $implementation)
            }
        )*
    };
}

captured! {
    calloc, 2, memory::calloc;
    realloc, 2, memory::realloc;
    reallocarray, 3, memory::reallocarray;
    aligned_alloc, 2, memory::aligned_alloc;
    memalign, 2, memory::memalign;
    posix_memalign, 3, memory::posix_memalign;
    valloc, 1, memory::valloc;
    pvalloc, 1, memory::pvalloc;
    fork, 0, memory::fork;
    open, 3, descriptors::open;
    open64, 3, descriptors::open64;
    __open_2, 2, descriptors::__open_2;
    __open64_2, 2, descriptors::__open64_2;
    openat, 4, descriptors::openat;
    openat64, 4, descriptors::openat64;
    __openat_2, 3, descriptors::__openat_2;
    __openat64_2, 3, descriptors::__openat64_2;
    creat, 2, descriptors::creat;
    creat64, 2, descriptors::creat64;
    shm_open, 3, descriptors::shm_open;
    posix_openpt, 1, descriptors::posix_openpt;
    memfd_create, 2, descriptors::memfd_create;
    fopen, 2, descriptors::fopen;
    fopen64, 2, descriptors::fopen64;
    freopen, 3, descriptors::freopen;
    freopen64, 3, descriptors::freopen64;
    tmpfile, 0, descriptors::tmpfile;
    tmpfile64, 0, descriptors::tmpfile64;
    popen, 2, descriptors::popen;
    opendir, 1, descriptors::opendir;
    mkstemp, 1, descriptors::mkstemp;
    mkstemp64, 1, descriptors::mkstemp64;
    mkostemp, 2, descriptors::mkostemp;
    mkostemp64, 2, descriptors::mkostemp64;
    mkstemps, 2, descriptors::mkstemps;
    mkstemps64, 2, descriptors::mkstemps64;
    mkostemps, 3, descriptors::mkostemps;
    mkostemps64, 3, descriptors::mkostemps64;
    socket, 3, descriptors::socket;
    socketpair, 4, descriptors::socketpair;
    accept, 3, descriptors::accept;
    accept4, 4, descriptors::accept4;
    pipe, 1, descriptors::pipe;
    pipe2, 2, descriptors::pipe2;
    dup, 1, descriptors::dup;
    dup2, 2, descriptors::dup2;
    dup3, 3, descriptors::dup3;
    fcntl, 3, descriptors::fcntl;
    fcntl64, 3, descriptors::fcntl64;
    epoll_create, 1, descriptors::epoll_create;
    epoll_create1, 1, descriptors::epoll_create1;
    eventfd, 2, descriptors::eventfd;
    timerfd_create, 2, descriptors::timerfd_create;
    signalfd, 3, descriptors::signalfd;
    inotify_init, 0, descriptors::inotify_init;
    inotify_init1, 1, descriptors::inotify_init1;
    fanotify_init, 2, descriptors::fanotify_init;
    pidfd_open, 2, descriptors::pidfd_open;
    mq_open, 4, descriptors::mq_open;
    openpty, 5, descriptors::openpty;
    recvmsg, 3, descriptors::recvmsg;
    recvmmsg, 5, descriptors::recvmmsg;
    close, 1, descriptors::close;
    mq_close, 1, descriptors::mq_close;
    close_range, 3, descriptors::close_range;
    closefrom, 1, descriptors::closefrom;
    fclose, 1, descriptors::fclose;
    pclose, 1, descriptors::pclose;
    closedir, 1, descriptors::closedir;
}

/// A function that the hooks call or jump to, changed when it is resolved.
pub(super) type Target = AtomicPtr<c_void>;

/// The next malloc.
static NEXT_MALLOC: Target = Target::new(resolve_malloc as *mut c_void);
/// The next free.
static NEXT_FREE: Target = Target::new(resolve_free as *mut c_void);
/// The next dlopen.
static NEXT_DLOPEN: Target = Target::new(resolve_dlopen as *mut c_void);

/// malloc(3). A failed allocation of less than the rest is counted, too: it ends the program, or is rare.
#[cfg_attr(preloaded, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn malloc() {
    count_and_allocate!(NEXT_MALLOC, sample)
}

/// The slow path of the allocation hooks, which jump to it.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn sample() {
    sample_and_return!(memory::allocated)
}

/// free(3).
#[cfg_attr(preloaded, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn free() {
    check_and_free!(shadow::TOP, memory::freed, NEXT_FREE)
}

/// dlopen(3).
#[cfg_attr(preloaded, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn dlopen() {
    note_and_load!(NEXT_DLOPEN, memory::bound_deeply)
}

#[unsafe(naked)]
unsafe extern "C" fn resolve_malloc() {
    resolve_and_jump!(find_malloc)
}

#[unsafe(naked)]
unsafe extern "C" fn resolve_free() {
    resolve_and_jump!(find_free)
}

#[unsafe(naked)]
unsafe extern "C" fn resolve_dlopen() {
    resolve_and_jump!(find_dlopen)
}

unsafe extern "C" fn find_malloc() -> *mut c_void {
    find(&NEXT_MALLOC, c"malloc")
}

unsafe extern "C" fn find_free() -> *mut c_void {
    find(&NEXT_FREE, c"free")
}

unsafe extern "C" fn find_dlopen() -> *mut c_void {
    find(&NEXT_DLOPEN, c"dlopen")
}

/// Defines the functions that compilers call at the entry of an instrumented function.
macro_rules! at_entry {
    ($($name:ident, $next:ident, $symbol:literal;)*) => {
        $(
            static $next: Target = Target::new(return_at_once as *mut c_void);

            #[cfg_attr(preloaded, unsafe(no_mangle))]
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                count_call!($next, entered, offset_of!(Thread, remaining_calls))
            }
        )*

        fn find_at_entry() {
            $(
                if let Some(address) = symbols::next($symbol) {
                    $next.store(address as *mut c_void, Ordering::Relaxed);
                }
            )*
            HAS_SEARCHED.store(true, Ordering::Relaxed);
        }
    };
}

// Those of the C library ignore the call, or count it for gprof(1).
at_entry! {
    mcount, NEXT_MCOUNT, c"mcount";
    _mcount, NEXT_UNDERSCORE_MCOUNT, c"_mcount";
    __fentry__, NEXT_FENTRY, c"__fentry__";
    __cyg_profile_func_enter, NEXT_CYG_PROFILE_FUNC_ENTER, c"__cyg_profile_func_enter";
}

/// True once the next definitions of these functions were searched.
static HAS_SEARCHED: AtomicBool = AtomicBool::new(false);

/// The slow path of the functions at entries.
unsafe extern "C" fn entered(registers: &Registers) {
    // A constructor of another library may call one before that of this library runs.
    if !HAS_SEARCHED.load(Ordering::Relaxed) {
        find_at_entry();
    }
    calls::called(registers);
}

/// The next definition where there is none. It changes no register, in which the function has its arguments.
#[unsafe(naked)]
unsafe extern "C" fn return_at_once() {
    core::arch::naked_asm!("ret")
}

/// Finds the next definitions of the functions in this file, for the reasons of `next::find_all`.
pub(super) fn find_all() {
    find_at_entry();
    // SAFETY: the functions have no arguments and no conditions.
    unsafe {
        find_malloc();
        find_free();
        find_dlopen();
    }
}

/// Returns the next definition of a function and remembers it; a function that returns null if there is none now.
fn find(target: &Target, name: &CStr) -> *mut c_void {
    let Some(address) = symbols::next(name) else { return return_null as *mut c_void };
    target.store(address as *mut c_void, Ordering::Relaxed);
    address as *mut c_void
}

/// The definition of a function that no loaded object has.
pub(super) unsafe extern "C" fn return_null() -> usize {
    0
}
