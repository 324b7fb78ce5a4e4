//! The hooks of functions that open and close descriptors.
//!
//! Functions of the C library that open and close a descriptor between call and return, such as getaddrinfo(3), need
//! no hook. A descriptor that is closed without a hook is closed for the recorder when its number is opened again.
#![allow(unsafe_code)]
#![allow(non_snake_case)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::Ordering::Relaxed;

use super::process::Ring;
use super::thread::{self, Thread};
use super::writer::{self, Class};
use super::{clock, errno, next, process, stack, sys};
use crate::protocol::{Kind, Opened, Origin, Registers};

type Text = *const c_char;

/// Defines a hook that forwards its arguments and records the descriptor that the function returns.
macro_rules! opens {
    ($($name:ident($($argument:ident: $type:ty),*) $origin:ident $($text:ident)?;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name($($argument: $type,)* registers: &Registers) -> c_int {
                let Some(next) = next::$name() else { return missing() };
                // SAFETY: the caller vouches for the arguments.
                let descriptor = unsafe { next($($argument),*) };
                #[allow(unused_mut, unused_assignments)]
                let mut name: Text = core::ptr::null();
                $(name = $text;)?
                // SAFETY: the function has succeeded, so that the name is a string.
                unsafe { opened(descriptor, Origin::$origin, name, registers) };
                descriptor
            }
        )*
    };
}

opens! {
    open(path: Text, flags: c_int, mode: c_uint) File path;
    open64(path: Text, flags: c_int, mode: c_uint) File path;
    __open_2(path: Text, flags: c_int) File path;
    __open64_2(path: Text, flags: c_int) File path;
    openat(directory: c_int, path: Text, flags: c_int, mode: c_uint) File path;
    openat64(directory: c_int, path: Text, flags: c_int, mode: c_uint) File path;
    __openat_2(directory: c_int, path: Text, flags: c_int) File path;
    __openat64_2(directory: c_int, path: Text, flags: c_int) File path;
    creat(path: Text, mode: c_uint) File path;
    creat64(path: Text, mode: c_uint) File path;
    shm_open(path: Text, flags: c_int, mode: c_uint) Memory path;
    posix_openpt(flags: c_int) File;
    memfd_create(name: Text, flags: c_uint) Memory name;
    mkstemp(path: Text) Temporary path;
    mkstemp64(path: Text) Temporary path;
    mkostemp(path: Text, flags: c_int) Temporary path;
    mkostemp64(path: Text, flags: c_int) Temporary path;
    mkstemps(path: Text, suffix: c_int) Temporary path;
    mkstemps64(path: Text, suffix: c_int) Temporary path;
    mkostemps(path: Text, suffix: c_int, flags: c_int) Temporary path;
    mkostemps64(path: Text, suffix: c_int, flags: c_int) Temporary path;
    socket(family: c_int, kind: c_int, protocol: c_int) Socket;
    accept(socket: c_int, address: *mut c_void, length: *mut c_void) Accept;
    accept4(socket: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) Accept;
    epoll_create(size: c_int) Epoll;
    epoll_create1(flags: c_int) Epoll;
    eventfd(value: c_uint, flags: c_int) Event;
    timerfd_create(clock: c_int, flags: c_int) Timer;
    inotify_init() Inotify;
    inotify_init1(flags: c_int) Inotify;
    fanotify_init(flags: c_uint, file_flags: c_uint) Fanotify;
    pidfd_open(process: c_int, flags: c_uint) Process;
    mq_open(name: Text, flags: c_int, mode: c_uint, attributes: *mut c_void) Queue name;
}

/// Defines a hook that forwards its arguments and records the descriptor of the stream that the function returns.
macro_rules! opens_stream {
    ($($name:ident($($argument:ident: $type:ty),*) $origin:ident $number:ident $($text:ident)?;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name($($argument: $type,)* registers: &Registers) -> *mut c_void {
                let Some(next) = next::$name() else {
                    missing();
                    return core::ptr::null_mut();
                };
                // SAFETY: the caller vouches for the arguments.
                let stream = unsafe { next($($argument),*) };
                #[allow(unused_mut, unused_assignments)]
                let mut name: Text = core::ptr::null();
                $(name = $text;)?
                if !stream.is_null() && process::records_descriptors() {
                    // SAFETY: the stream is open, and the name is a string.
                    unsafe { opened(number(stream, next::$number()), Origin::$origin, name, registers) };
                }
                stream
            }
        )*
    };
}

opens_stream! {
    fopen(path: Text, mode: Text) File fileno path;
    fopen64(path: Text, mode: Text) File fileno path;
    tmpfile() Temporary fileno;
    tmpfile64() Temporary fileno;
    popen(command: Text, mode: Text) Pipe fileno command;
    opendir(path: Text) File dirfd path;
}

/// Defines a hook that records the descriptor of its stream as closed.
macro_rules! closes_stream {
    ($($name:ident $number:ident;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name(stream: *mut c_void, registers: &Registers) -> c_int {
                let Some(next) = next::$name() else { return missing() };
                if process::records_descriptors() && !stream.is_null() {
                    // SAFETY: the caller vouches for the stream.
                    let descriptor = unsafe { number(stream, next::$number()) };
                    closed_one(descriptor, registers);
                }
                // SAFETY: the caller vouches for the stream.
                unsafe { next(stream) }
            }
        )*
    };
}

closes_stream! {
    fclose fileno;
    pclose fileno;
    closedir dirfd;
}

/// Defines a hook of freopen(3).
macro_rules! reopens {
    ($($name:ident;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name(
                path: Text,
                mode: Text,
                stream: *mut c_void,
                registers: &Registers,
            ) -> *mut c_void {
                let Some(next) = next::$name() else {
                    missing();
                    return core::ptr::null_mut();
                };
                // SAFETY: the caller vouches for the arguments, and the result is an open stream.
                unsafe {
                    if process::records_descriptors() && !stream.is_null() {
                        closed_one(number(stream, next::fileno()), registers);
                    }
                    let reopened = next(path, mode, stream);
                    if !reopened.is_null() {
                        opened(number(reopened, next::fileno()), Origin::File, path, registers);
                    }
                    reopened
                }
            }
        )*
    };
}

reopens! {
    freopen;
    freopen64;
}

pub(super) unsafe extern "C" fn signalfd(
    descriptor: c_int,
    mask: *mut c_void,
    flags: c_int,
    registers: &Registers,
) -> c_int {
    let Some(next) = next::signalfd() else { return missing() };
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { next(descriptor, mask, flags) };
    // With a descriptor it only changes the mask.
    if descriptor == -1 {
        // SAFETY: no name.
        unsafe { opened(result, Origin::Signal, core::ptr::null(), registers) };
    }
    result
}

/// Defines a hook that fills an array of two descriptors.
macro_rules! opens_pair {
    ($($name:ident($($argument:ident),*; $pair:ident $(, $last:ident)?) $origin:ident;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name(
                $($argument: c_int,)*
                $pair: *mut c_int,
                $($last: c_int,)?
                registers: &Registers,
            ) -> c_int {
                let Some(next) = next::$name() else { return missing() };
                // SAFETY: the caller vouches for the arguments; after success the array is filled.
                unsafe {
                    let status = next($($argument,)* $pair $(, $last)?);
                    if status == 0 {
                        for descriptor in [*$pair, *$pair.add(1)] {
                            opened(descriptor, Origin::$origin, core::ptr::null(), registers);
                        }
                    }
                    status
                }
            }
        )*
    };
}

opens_pair! {
    socketpair(family, kind, protocol; pair) Socket;
    pipe(; pair) Pipe;
    pipe2(; pair, flags) Pipe;
}

pub(super) unsafe extern "C" fn openpty(
    first: *mut c_int,
    second: *mut c_int,
    name: *mut c_void,
    settings: *mut c_void,
    size: *mut c_void,
    registers: &Registers,
) -> c_int {
    let Some(next) = next::openpty() else { return missing() };
    // SAFETY: the caller vouches for the arguments; after success both descriptors are there.
    unsafe {
        let status = next(first, second, name, settings, size);
        if status == 0 {
            for descriptor in [*first, *second] {
                opened(descriptor, Origin::File, core::ptr::null(), registers);
            }
        }
        status
    }
}

pub(super) unsafe extern "C" fn dup(original: c_int, registers: &Registers) -> c_int {
    let Some(next) = next::dup() else { return missing() };
    // SAFETY: no pointers.
    let descriptor = unsafe { next(original) };
    duplicated(descriptor, original, registers);
    descriptor
}

pub(super) unsafe extern "C" fn dup2(
    original: c_int,
    wanted: c_int,
    registers: &Registers,
) -> c_int {
    let Some(next) = next::dup2() else { return missing() };
    // SAFETY: no pointers.
    let descriptor = unsafe { next(original, wanted) };
    if original != wanted {
        duplicated(descriptor, original, registers);
    }
    descriptor
}

pub(super) unsafe extern "C" fn dup3(
    original: c_int,
    wanted: c_int,
    flags: c_int,
    registers: &Registers,
) -> c_int {
    let Some(next) = next::dup3() else { return missing() };
    // SAFETY: no pointers.
    let descriptor = unsafe { next(original, wanted, flags) };
    duplicated(descriptor, original, registers);
    descriptor
}

/// Defines a hook of fcntl(2), of which two commands duplicate a descriptor.
macro_rules! controls {
    ($($name:ident;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name(
                original: c_int,
                command: c_int,
                argument: usize,
                registers: &Registers,
            ) -> c_int {
                const F_DUPFD: c_int = 0;
                const F_DUPFD_CLOEXEC: c_int = 1030;
                let Some(next) = next::$name() else { return missing() };
                // SAFETY: the caller vouches for the arguments. One that it has not passed is any value, which the
                // command does not use.
                let result = unsafe { next(original, command, argument) };
                if command == F_DUPFD || command == F_DUPFD_CLOEXEC {
                    duplicated(result, original, registers);
                }
                result
            }
        )*
    };
}

controls! {
    fcntl;
    fcntl64;
}

pub(super) unsafe extern "C" fn recvmsg(
    socket: c_int,
    message: *mut c_void,
    flags: c_int,
    registers: &Registers,
) -> isize {
    let Some(next) = next::recvmsg() else { return missing() as isize };
    // SAFETY: the caller vouches for the arguments; after success the message is filled.
    unsafe {
        let result = next(socket, message, flags);
        if result >= 0 && process::records_descriptors() {
            let [.., control, bytes, _] = *message.cast::<[usize; 7]>();
            received(control, bytes, registers);
        }
        result
    }
}

pub(super) unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut c_void,
    number: c_uint,
    flags: c_int,
    timeout: *mut c_void,
    registers: &Registers,
) -> c_int {
    let Some(next) = next::recvmmsg() else { return missing() };
    // SAFETY: the caller vouches for the arguments; after success as many messages as returned are filled: each of
    // them is a `struct mmsghdr`, a message with its length in a word of its own.
    unsafe {
        let result = next(socket, messages, number, flags, timeout);
        if result > 0 && process::records_descriptors() {
            for index in 0..result as usize {
                let [.., control, bytes, _, _] = *messages.cast::<[usize; 8]>().add(index);
                received(control, bytes, registers);
            }
        }
        result
    }
}

/// Records each descriptor in the control messages at an address.
unsafe fn received(control: usize, bytes: usize, registers: &Registers) {
    const HEADER_BYTES: usize = 16;
    const SOCKET_RIGHTS: [c_int; 2] = [1, 1];
    let (mut start, end) = (control, control.wrapping_add(bytes));
    while control != 0 && start + HEADER_BYTES <= end {
        // SAFETY: the kernel has filled the buffer up to `end` with messages: length, level and kind, data.
        unsafe {
            let length = *(start as *const usize);
            if length < HEADER_BYTES || length > end - start {
                return;
            }
            if *((start + 8) as *const [c_int; 2]) == SOCKET_RIGHTS {
                for offset in (HEADER_BYTES..length & !3).step_by(4) {
                    let descriptor = *((start + offset) as *const c_int);
                    opened(descriptor, Origin::Received, core::ptr::null(), registers);
                }
            }
            start += length.next_multiple_of(8);
        }
    }
}

/// Defines a hook that records its argument as closed.
macro_rules! closes {
    ($($name:ident;)*) => {
        $(
            pub(super) unsafe extern "C" fn $name(descriptor: c_int, registers: &Registers) -> c_int {
                let Some(next) = next::$name() else { return missing() };
                if process::records_descriptors() {
                    closed_one(descriptor, registers);
                }
                // SAFETY: no pointers.
                unsafe { next(descriptor) }
            }
        )*
    };
}

closes! {
    close;
    mq_close;
}

pub(super) unsafe extern "C" fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    registers: &Registers,
) -> c_int {
    const CLOSE_RANGE_UNSHARE: c_int = 2;
    let Some(next) = next::close_range() else { return missing() };
    // With CLOSE_RANGE_CLOEXEC it closes none, and it fails with other flags (close_range(2)).
    if flags & !CLOSE_RANGE_UNSHARE == 0 && first <= last && process::records_descriptors() {
        closed(first, last, registers);
    }
    // SAFETY: no pointers.
    unsafe { next(first, last, flags) }
}

pub(super) unsafe extern "C" fn closefrom(first: c_int, registers: &Registers) {
    let Some(next) = next::closefrom() else { return };
    if process::records_descriptors() {
        closed(u32::try_from(first).unwrap_or(0), u32::MAX, registers);
    }
    // SAFETY: no pointers.
    unsafe { next(first) }
}

/// Fails like a kernel without the function.
fn missing() -> c_int {
    errno::set(errno::ENOSYS);
    -1
}

/// Returns the descriptor of a stream; -1 if it has none. Keeps errno.
unsafe fn number(
    stream: *mut c_void,
    function: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
) -> c_int {
    let Some(function) = function else { return -1 };
    let before = errno::get();
    // SAFETY: the caller vouches for the stream.
    let descriptor = unsafe { function(stream) };
    errno::set(before);
    descriptor
}

/// Records a descriptor, unless opening it failed. A name that is not null must be a string.
unsafe fn opened(descriptor: c_int, origin: Origin, name: Text, registers: &Registers) {
    if descriptor < 0 || !process::records_descriptors() {
        return;
    }
    let mut bytes = [0; Opened::MAXIMUM_NAME_BYTES];
    let mut length = 0;
    // SAFETY: the name is not read after its zero byte.
    unsafe {
        while !name.is_null() && length < bytes.len() && *name.add(length) != 0 {
            bytes[length] = *name.add(length) as u8;
            length += 1;
        }
    }
    write_opened(descriptor, origin, &bytes[..length], registers);
}

/// Records a duplicate, with the number of the original as its name.
fn duplicated(descriptor: c_int, original: c_int, registers: &Registers) {
    if descriptor < 0 || !process::records_descriptors() {
        return;
    }
    let mut digits = [0; 10];
    let (mut start, mut rest) = (digits.len(), original);
    while start == digits.len() || (rest > 0 && start > 0) {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    write_opened(descriptor, Origin::Duplicate, &digits[start..], registers);
}

fn write_opened(descriptor: c_int, origin: Origin, name: &[u8], registers: &Registers) {
    let inode = sys::inode(descriptor);
    with_ring(|thread, ring| {
        let copy = stack::plan(thread, registers.sp as usize, ring.stack_bytes);
        let name_words = name.len().div_ceil(8);
        let content = 8 * (Opened::WORDS + name_words) + copy.bytes;
        // Before the reservation, as in `memory::record`.
        let time_ns = clock::now_ns();
        let slot = writer::reserve(thread, ring, registers.into(), content, Class::Ordinary)?;
        let mut start = Opened::WORDS;
        for chunk in name.chunks(8) {
            let mut word = [0; 8];
            for (byte, from) in word.iter_mut().zip(chunk) {
                *byte = *from;
            }
            slot.write(start, &[u64::from_ne_bytes(word)]);
            start += 1;
        }
        // SAFETY: the record was reserved with room for the copy.
        let bytes = unsafe { copy.make(slot.word(start)) };
        let tid = u64::from(thread.tid.load(Relaxed));
        slot.write(
            0,
            &[
                time_ns,
                tid | (descriptor as u64) << 32,
                origin as u64 | (name.len() as u64) << 32,
                bytes as u64,
                inode,
            ],
        );
        slot.write(5, &registers.words());
        slot.commit(Kind::Opened);
        Some(())
    });
}

fn closed_one(descriptor: c_int, registers: &Registers) {
    if let Ok(descriptor) = u32::try_from(descriptor) {
        closed(descriptor, descriptor, registers);
    }
}

/// Records the end of descriptors, before it happens: another thread may get the number at once.
fn closed(first: u32, last: u32, registers: &Registers) {
    with_ring(|thread, ring| {
        let time_ns = clock::now_ns();
        let slot = writer::reserve(thread, ring, registers.into(), 24, Class::Vital)?;
        let range = u64::from(first) | u64::from(last) << 32;
        slot.write(0, &[time_ns, u64::from(thread.tid.load(Relaxed)), range]);
        slot.commit(Kind::Closed);
        Some(())
    });
}

/// Calls a function that writes a record, and counts the record as lost if it returns None.
fn with_ring(write: impl FnOnce(&Thread, &Ring) -> Option<()>) {
    let thread = thread::current();
    thread.enter();
    if let Some(ring) = process::ring(thread) {
        if thread.ring.load(Relaxed) != ring.id {
            thread.begin(ring.id);
        }
        if write(thread, &ring).is_none() {
            ring.header().lost_others.fetch_add(1, Relaxed);
        }
    }
    thread.leave();
}
