//! The exported functions.
//!
//! They are written in assembly since they must capture the registers of their caller, and since an allocation that
//! is not recorded should cost three instructions. Each has unwind information: exceptions of operator new, the
//! cancellation of threads and other profilers unwind through them.
#![allow(unsafe_code)]

use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{descriptors, memory, shadow, symbols};

/// The start of a function with an implementation that gets the registers of the caller as one more argument.
///
/// Pushes the registers in the order of `Registers`; the caller's stack pointer after the return is 8 above the
/// return address.
macro_rules! captured {
    ($($name:ident, $register:literal, $implementation:path;)*) => {
        $(
            #[cfg_attr(preloaded, unsafe(no_mangle))]
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                naked_asm!(
".cfi_startproc",
                    "push r15", ".cfi_adjust_cfa_offset 8",
                    "push r14", ".cfi_adjust_cfa_offset 8",
                    "push r13", ".cfi_adjust_cfa_offset 8",
                    "push r12", ".cfi_adjust_cfa_offset 8",
                    "push rbx", ".cfi_adjust_cfa_offset 8",
                    "push rbp", ".cfi_adjust_cfa_offset 8",
                    "lea r11, [rsp + 56]",
                    "push r11", ".cfi_adjust_cfa_offset 8",
                    "push qword ptr [rsp + 56]", ".cfi_adjust_cfa_offset 8",
                    concat!("mov ", $register, ", rsp"),
                    "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
                    "call {implementation}",
                    "add rsp, 72", ".cfi_adjust_cfa_offset -72",
                    "ret",
                    ".cfi_endproc",
                    implementation = sym $implementation,
                )
            }
        )*
    };
}

captured! {
    calloc, "rdx", memory::calloc;
    realloc, "rdx", memory::realloc;
    reallocarray, "rcx", memory::reallocarray;
    aligned_alloc, "rdx", memory::aligned_alloc;
    memalign, "rdx", memory::memalign;
    posix_memalign, "rcx", memory::posix_memalign;
    valloc, "rsi", memory::valloc;
    pvalloc, "rsi", memory::pvalloc;
    fork, "rdi", memory::fork;
    open, "rcx", descriptors::open;
    open64, "rcx", descriptors::open64;
    __open_2, "rdx", descriptors::__open_2;
    __open64_2, "rdx", descriptors::__open64_2;
    openat, "r8", descriptors::openat;
    openat64, "r8", descriptors::openat64;
    __openat_2, "rcx", descriptors::__openat_2;
    __openat64_2, "rcx", descriptors::__openat64_2;
    creat, "rdx", descriptors::creat;
    creat64, "rdx", descriptors::creat64;
    shm_open, "rcx", descriptors::shm_open;
    posix_openpt, "rsi", descriptors::posix_openpt;
    memfd_create, "rdx", descriptors::memfd_create;
    fopen, "rdx", descriptors::fopen;
    fopen64, "rdx", descriptors::fopen64;
    freopen, "rcx", descriptors::freopen;
    freopen64, "rcx", descriptors::freopen64;
    tmpfile, "rdi", descriptors::tmpfile;
    tmpfile64, "rdi", descriptors::tmpfile64;
    popen, "rdx", descriptors::popen;
    opendir, "rsi", descriptors::opendir;
    mkstemp, "rsi", descriptors::mkstemp;
    mkstemp64, "rsi", descriptors::mkstemp64;
    mkostemp, "rdx", descriptors::mkostemp;
    mkostemp64, "rdx", descriptors::mkostemp64;
    mkstemps, "rdx", descriptors::mkstemps;
    mkstemps64, "rdx", descriptors::mkstemps64;
    mkostemps, "rcx", descriptors::mkostemps;
    mkostemps64, "rcx", descriptors::mkostemps64;
    socket, "rcx", descriptors::socket;
    socketpair, "r8", descriptors::socketpair;
    accept, "rcx", descriptors::accept;
    accept4, "r8", descriptors::accept4;
    pipe, "rsi", descriptors::pipe;
    pipe2, "rdx", descriptors::pipe2;
    dup, "rsi", descriptors::dup;
    dup2, "rdx", descriptors::dup2;
    dup3, "rcx", descriptors::dup3;
    fcntl, "rcx", descriptors::fcntl;
    fcntl64, "rcx", descriptors::fcntl64;
    epoll_create, "rsi", descriptors::epoll_create;
    epoll_create1, "rsi", descriptors::epoll_create1;
    eventfd, "rdx", descriptors::eventfd;
    timerfd_create, "rdx", descriptors::timerfd_create;
    signalfd, "rcx", descriptors::signalfd;
    inotify_init, "rdi", descriptors::inotify_init;
    inotify_init1, "rsi", descriptors::inotify_init1;
    recvmsg, "rcx", descriptors::recvmsg;
    close, "rsi", descriptors::close;
    close_range, "rcx", descriptors::close_range;
    closefrom, "rsi", descriptors::closefrom;
    fclose, "rsi", descriptors::fclose;
    pclose, "rsi", descriptors::pclose;
    closedir, "rsi", descriptors::closedir;
}

/// A function that the hooks call or jump to, changed when it is resolved.
pub(super) type Target = AtomicPtr<c_void>;

/// The next malloc.
static NEXT_MALLOC: Target = Target::new(resolve_malloc as *mut c_void);
/// The next free.
static NEXT_FREE: Target = Target::new(resolve_free as *mut c_void);

/// malloc(3): subtracts the size from the first field of the thread's state, and jumps to the next definition if the
/// rest is positive. A failed allocation of less than the rest is counted, too: it ends the program, or is rare.
#[cfg_attr(preloaded, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn malloc() {
    naked_asm!(
    ".cfi_startproc",
        // The difference of such a size is wrong, and no block has it.
        "test rdi, rdi",
        "js 2f",
        "mov rax, qword ptr [rip + nprof_thread@GOTTPOFF]",
        "sub qword ptr fs:[rax], rdi",
        "jle 3f",
        "2: jmp qword ptr [rip + {next}]",
        // The next definition may call hooks, for which the state must be that before the call.
        "3: add qword ptr fs:[rax], rdi",
        "push rbx", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rbx, 0",
        "mov rbx, rdi",
        "call qword ptr [rip + {next}]",
        "mov rcx, qword ptr [rip + nprof_thread@GOTTPOFF]",
        "sub qword ptr fs:[rcx], rbx",
        "jle {sample}",
        "pop rbx", ".cfi_adjust_cfa_offset -8", ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        next = sym NEXT_MALLOC,
        sample = sym sample,
    )
}

/// The slow path of the allocation hooks: rax is the block, rbx the size, and the stack has the caller's rbx and the
/// return address. Returns to the caller of the hook.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn sample() {
    naked_asm!(
    ".cfi_startproc",
        ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rbx, 0",
        "mov rdi, rbx",
        "mov rbx, qword ptr [rsp]",
        "push r15", ".cfi_adjust_cfa_offset 8",
        "push r14", ".cfi_adjust_cfa_offset 8",
        "push r13", ".cfi_adjust_cfa_offset 8",
        "push r12", ".cfi_adjust_cfa_offset 8",
        "push rbx", ".cfi_adjust_cfa_offset 8",
        "push rbp", ".cfi_adjust_cfa_offset 8",
        "lea rcx, [rsp + 64]",
        "push rcx", ".cfi_adjust_cfa_offset 8",
        "push qword ptr [rsp + 64]", ".cfi_adjust_cfa_offset 8",
        "mov rdx, rsp",
        "push rax", ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
        "mov rsi, rax",
        "call {allocated}",
        "mov rax, qword ptr [rsp + 8]",
        "add rsp, 88", ".cfi_adjust_cfa_offset -88",
        "ret",
        ".cfi_endproc",
        allocated = sym memory::allocated,
    )
}

/// The body of a hook that frees its first argument: looks for its mark, and jumps to the next definition.
macro_rules! check_and_free {
    ($next:ident) => {
            naked_asm!(
".cfi_startproc",
                "mov rax, rdi",
                "shr rax, 30",
                "cmp rax, 0x20000",
                "jae 2f",
                "lea rcx, [rip + {top}]",
                "mov rcx, qword ptr [rcx + 8 * rax]",
                "test rcx, rcx",
                "je 2f",
                "mov eax, edi",
                "and eax, 0x3fffffff",
                "shr eax, 4",
                "mov r8d, eax",
                "shr r8d, 5",
                "mov ecx, dword ptr [rcx + 4 * r8]",
                "bt ecx, eax",
                "jc 3f",
                "2: jmp qword ptr [rip + {next}]",
                // The sized and aligned forms of operator delete have two more arguments.
                "3: push rdi", ".cfi_adjust_cfa_offset 8",
                "push rsi", ".cfi_adjust_cfa_offset 8",
                "push rdx", ".cfi_adjust_cfa_offset 8",
                "lea rsi, [rsp + 32]",
                "call {freed}",
                "pop rdx", ".cfi_adjust_cfa_offset -8",
                "pop rsi", ".cfi_adjust_cfa_offset -8",
                "pop rdi", ".cfi_adjust_cfa_offset -8",
                "jmp qword ptr [rip + {next}]",
                ".cfi_endproc",
                top = sym shadow::TOP,
                freed = sym memory::freed,
                next = sym $next,
            )
    };
}

/// free(3).
#[cfg_attr(preloaded, unsafe(no_mangle))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn free() {
    check_and_free!(NEXT_FREE)
}

/// The body of a function that saves the arguments of a hook, calls `$resolve`, and jumps to the address that it
/// returns.
macro_rules! resolve_and_jump {
    ($resolve:path) => {
        naked_asm!(
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "call {resolve}",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            resolve = sym $resolve,
        )
    };
}
pub(super) use {check_and_free, resolve_and_jump};

#[unsafe(naked)]
unsafe extern "C" fn resolve_malloc() {
    resolve_and_jump!(find_malloc)
}

#[unsafe(naked)]
unsafe extern "C" fn resolve_free() {
    resolve_and_jump!(find_free)
}

unsafe extern "C" fn find_malloc() -> *mut c_void {
    find(&NEXT_MALLOC, c"malloc")
}

unsafe extern "C" fn find_free() -> *mut c_void {
    find(&NEXT_FREE, c"free")
}

/// Finds the next definitions of malloc and free, for the reasons of `next::find_all`.
pub(super) fn find_all() {
    // SAFETY: the functions have no arguments and no conditions.
    unsafe {
        find_malloc();
        find_free();
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
