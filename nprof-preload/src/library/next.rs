//! The definitions that the program would use without this library.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::symbols;

/// Defines a function for each symbol that returns the next definition; None if no loaded object has one.
macro_rules! next {
    ($($name:ident($($argument:ty),* $(; $variadic:tt)?) -> $result:ty;)*) => {
        /// Finds all of them: a forked child must not search, since the dynamic linker's lock may be that of a
        /// thread that the child does not have, and a signal handler must not either.
        pub(super) fn find_all() {
            $(let _ = $name();)*
        }

        $(
            pub(super) fn $name() -> Option<unsafe extern "C" fn($($argument),* $(, $variadic)?) -> $result> {
                static ADDRESS: AtomicUsize = AtomicUsize::new(0);
                let mut address = ADDRESS.load(Ordering::Relaxed);
                if address == 0 {
                    const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    };
                    // A library that is loaded later may define it: nothing is remembered in that case.
                    address = symbols::next(NAME)?;
                    ADDRESS.store(address, Ordering::Relaxed);
                }
                // SAFETY: the C library's function has this type.
                Some(unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($argument),* $(, $variadic)?) -> $result>(address) })
            }
        )*
    };
}

type Pointer = *mut c_void;
type Text = *const c_char;

next! {
    calloc(usize, usize) -> Pointer;
    realloc(Pointer, usize) -> Pointer;
    aligned_alloc(usize, usize) -> Pointer;
    memalign(usize, usize) -> Pointer;
    posix_memalign(*mut Pointer, usize, usize) -> c_int;
    valloc(usize) -> Pointer;
    pvalloc(usize) -> Pointer;
    __errno_location() -> *mut c_int;
    fork() -> c_int;
    open(Text, c_int; ...) -> c_int;
    open64(Text, c_int; ...) -> c_int;
    __open_2(Text, c_int) -> c_int;
    __open64_2(Text, c_int) -> c_int;
    openat(c_int, Text, c_int; ...) -> c_int;
    openat64(c_int, Text, c_int; ...) -> c_int;
    __openat_2(c_int, Text, c_int) -> c_int;
    __openat64_2(c_int, Text, c_int) -> c_int;
    creat(Text, c_uint) -> c_int;
    creat64(Text, c_uint) -> c_int;
    shm_open(Text, c_int, c_uint) -> c_int;
    posix_openpt(c_int) -> c_int;
    memfd_create(Text, c_uint) -> c_int;
    fopen(Text, Text) -> Pointer;
    fopen64(Text, Text) -> Pointer;
    freopen(Text, Text, Pointer) -> Pointer;
    freopen64(Text, Text, Pointer) -> Pointer;
    tmpfile() -> Pointer;
    tmpfile64() -> Pointer;
    popen(Text, Text) -> Pointer;
    opendir(Text) -> Pointer;
    mkstemp(Text) -> c_int;
    mkstemp64(Text) -> c_int;
    mkostemp(Text, c_int) -> c_int;
    mkostemp64(Text, c_int) -> c_int;
    mkstemps(Text, c_int) -> c_int;
    mkstemps64(Text, c_int) -> c_int;
    mkostemps(Text, c_int, c_int) -> c_int;
    mkostemps64(Text, c_int, c_int) -> c_int;
    socket(c_int, c_int, c_int) -> c_int;
    socketpair(c_int, c_int, c_int, *mut c_int) -> c_int;
    accept(c_int, Pointer, Pointer) -> c_int;
    accept4(c_int, Pointer, Pointer, c_int) -> c_int;
    pipe(*mut c_int) -> c_int;
    pipe2(*mut c_int, c_int) -> c_int;
    dup(c_int) -> c_int;
    dup2(c_int, c_int) -> c_int;
    dup3(c_int, c_int, c_int) -> c_int;
    fcntl(c_int, c_int; ...) -> c_int;
    fcntl64(c_int, c_int; ...) -> c_int;
    epoll_create(c_int) -> c_int;
    epoll_create1(c_int) -> c_int;
    eventfd(c_uint, c_int) -> c_int;
    timerfd_create(c_int, c_int) -> c_int;
    signalfd(c_int, Pointer, c_int) -> c_int;
    inotify_init() -> c_int;
    inotify_init1(c_int) -> c_int;
    fanotify_init(c_uint, c_uint) -> c_int;
    pidfd_open(c_int, c_uint) -> c_int;
    mq_open(Text, c_int; ...) -> c_int;
    openpty(*mut c_int, *mut c_int, Pointer, Pointer, Pointer) -> c_int;
    recvmsg(c_int, Pointer, c_int) -> isize;
    recvmmsg(c_int, Pointer, c_uint, c_int, Pointer) -> c_int;
    close(c_int) -> c_int;
    mq_close(c_int) -> c_int;
    close_range(c_uint, c_uint, c_int) -> c_int;
    closefrom(c_int) -> ();
    fclose(Pointer) -> c_int;
    pclose(Pointer) -> c_int;
    closedir(Pointer) -> c_int;
    fileno(Pointer) -> c_int;
    dirfd(Pointer) -> c_int;
}
