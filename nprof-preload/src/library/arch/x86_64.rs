//! x86-64.
#![allow(unsafe_code)]

use core::arch::asm;

/// The bits of user addresses without hints of MAP_FIXED.
pub(in crate::library) const ADDRESS_BITS: u32 = 47;
/// The bits of a pointer that select a byte: all.
pub(in crate::library) const POINTER_BITS: u32 = 64;
/// The function of the vDSO for clock_gettime(2).
pub(in crate::library) const VDSO_CLOCK: &core::ffi::CStr = c"__vdso_clock_gettime";

/// Numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl).
pub(in crate::library) mod number {
    pub(in crate::library) const CLOSE: usize = 3;
    pub(in crate::library) const MMAP: usize = 9;
    pub(in crate::library) const MUNMAP: usize = 11;
    pub(in crate::library) const RT_SIGPROCMASK: usize = 14;
    pub(in crate::library) const MADVISE: usize = 28;
    pub(in crate::library) const FSTAT: usize = 5;
    pub(in crate::library) const GETPID: usize = 39;
    pub(in crate::library) const SOCKET: usize = 41;
    pub(in crate::library) const CONNECT: usize = 42;
    pub(in crate::library) const SENDMSG: usize = 46;
    pub(in crate::library) const SETSOCKOPT: usize = 54;
    pub(in crate::library) const GETSOCKOPT: usize = 55;
    pub(in crate::library) const FCNTL: usize = 72;
    pub(in crate::library) const FTRUNCATE: usize = 77;
    pub(in crate::library) const SIGALTSTACK: usize = 131;
    pub(in crate::library) const GETTID: usize = 186;
    pub(in crate::library) const FUTEX: usize = 202;
    pub(in crate::library) const CLOCK_GETTIME: usize = 228;
    pub(in crate::library) const PPOLL: usize = 271;
    pub(in crate::library) const PRLIMIT64: usize = 302;
    pub(in crate::library) const PROCESS_VM_READV: usize = 310;
    pub(in crate::library) const GETRANDOM: usize = 318;
    pub(in crate::library) const MEMFD_CREATE: usize = 319;
}

/// Makes a system call; returns its result, negative for an error.
///
/// # Safety
///
/// The arguments must be valid for the call.
pub(in crate::library) unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the x86-64 system call convention; the caller vouches for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Returns the address of `nprof_thread`, the state of the calling thread.
pub(in crate::library) fn thread_state() -> usize {
    let address;
    // SAFETY: the word at fs:0 is the address of the thread control block in the x86-64 TLS layout.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + nprof_thread@GOTTPOFF]",
            out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    address
}

/// Returns the address of the thread control block.
pub(in crate::library) fn control_block() -> usize {
    let address;
    // SAFETY: reads the word that the TLS layout of x86-64 defines.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) address, options(pure, readonly, nostack, preserves_flags));
    }
    address
}

/// Returns the address from which the descriptor of the thread with this control block has `bytes`: it begins with the
/// control block.
pub(in crate::library) fn descriptor_start(control_block: usize, _bytes: usize) -> usize {
    control_block
}

/// Returns the address of dl_iterate_phdr(3) from the global offset table; 0 without a definition.
pub(in crate::library) fn dl_iterate_phdr() -> usize {
    let address;
    // SAFETY: reads a word of the global offset table.
    unsafe {
        asm!("mov {}, qword ptr [rip + dl_iterate_phdr@GOTPCREL]", out(reg) address, options(pure, readonly, nostack));
    }
    address
}

/// Returns the processor's counter.
pub(in crate::library) fn counter() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction. A process that has forbidden it (PR_SET_TSC) cannot call the
    // vDSO's function either, which malloc(3) would have done before.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

/// Makes the processor fetch the cache line of an address, which will be written.
pub(in crate::library) fn expect_write(address: *mut u8) {
    // SAFETY: a hint: it reads and writes nothing, and never faults. Processors without it ignore it.
    unsafe { asm!("prefetchw byte ptr [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Copies bytes of any content.
///
/// # Safety
///
/// The source must be readable, and there must be room for it at `to`.
pub(in crate::library) unsafe fn copy(from: usize, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for both ranges.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Ends the process.
#[cfg(preloaded)]
pub(in crate::library) fn abort() -> ! {
    // SAFETY: the instruction is undefined: the kernel sends SIGILL.
    unsafe { asm!("ud2", options(noreturn)) }
}

#[cfg(preloaded)]
macro_rules! define_intrinsics {
    ($define:ident) => {
        $define!("memcpy", "mov rax, rdi", "mov rcx, rdx", "rep movsb", "ret");
        $define!(
            "memset",
            "mov r8, rdi",
            "mov eax, esi",
            "mov rcx, rdx",
            "rep stosb",
            "mov rax, r8",
            "ret"
        );
        $define!(
            "bcmp",
            "xor eax, eax",
            "mov rcx, rdx",
            "cmp rcx, rcx",
            "repe cmpsb",
            "setne al",
            "ret"
        );
        $define!(
            "strlen",
            "mov rax, rdi",
            "2: cmp byte ptr [rax], 0",
            "je 3f",
            "inc rax",
            "jmp 2b",
            "3: sub rax, rdi",
            "ret"
        );
        // The precompiled core crate refers to it, but nothing here unwinds.
        $define!("rust_eh_personality", "ud2");
    };
}
#[cfg(preloaded)]
pub(in crate::library) use define_intrinsics;

/// The register of an argument, from 0 on.
macro_rules! argument {
    (0) => {
        "rdi"
    };
    (1) => {
        "rsi"
    };
    (2) => {
        "rdx"
    };
    (3) => {
        "rcx"
    };
    (4) => {
        "r8"
    };
    (5) => {
        "r9"
    };
}
pub(in crate::library) use argument;

/// The code of a hook with an implementation that gets the registers of the caller as one more argument.
///
/// Pushes the registers in the order of `Registers`; the caller's stack pointer after the return is 8 above the
/// return address.
macro_rules! capture_and_call {
    ($number:tt, $implementation:path) => {
        core::arch::naked_asm!(
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
            concat!("mov ", $crate::library::arch::argument!($number), ", rsp"),
            "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
            "call {implementation}",
            "add rsp, 72", ".cfi_adjust_cfa_offset -72",
            "ret",
            ".cfi_endproc",
            implementation = sym $implementation,
        )
    };
}
pub(in crate::library) use capture_and_call;

/// The code of a hook that the compiler calls at the entry of a function: counts the call down in the field of the
/// thread's state at an offset, and jumps to the next definition.
///
/// The hook keeps all registers but r11: the function has its arguments in some of them, and before its prologue the
/// stack is not aligned as for a call. The slow path changes the lower halves of vector registers alone: code for
/// x86-64 without AVX keeps the others.
macro_rules! count_call {
    ($next:path, $called:path, $remaining:expr) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov r11, qword ptr [rip + nprof_thread@GOTTPOFF]",
            // Before the dynamic linker has relocated this library, it may call a resolver (IFUNC) in another one.
            "test r11, r11",
            "je 4f",
            "sub qword ptr fs:[r11 + {remaining}], 1",
            "jle 3f",
            "2: jmp qword ptr [rip + {next}]",
            "3: push r15", ".cfi_adjust_cfa_offset 8",
            "push r14", ".cfi_adjust_cfa_offset 8",
            "push r13", ".cfi_adjust_cfa_offset 8",
            "push r12", ".cfi_adjust_cfa_offset 8",
            "push rbx", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rbx, 0",
            "push rbp", ".cfi_adjust_cfa_offset 8",
            "lea r11, [rsp + 56]",
            "push r11", ".cfi_adjust_cfa_offset 8",
            "push qword ptr [rsp + 56]", ".cfi_adjust_cfa_offset 8",
            "mov rbx, rsp", ".cfi_def_cfa_register rbx",
            "push rax",
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "push r8",
            "push r9",
            "push r10",
            "sub rsp, 256",
            "and rsp, -16",
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
            "movaps xmmword ptr [rsp + 16 * \\number], xmm\\number",
            ".endr",
            "mov rdi, rbx",
            "call {called}",
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
            "movaps xmm\\number, xmmword ptr [rsp + 16 * \\number]",
            ".endr",
            "lea rsp, [rbx - 64]",
            "pop r10",
            "pop r9",
            "pop r8",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop rcx",
            "pop rax", ".cfi_def_cfa_register rsp",
            "mov rbx, qword ptr [rsp + 24]", ".cfi_restore rbx",
            "add rsp, 64", ".cfi_adjust_cfa_offset -64",
            "jmp 2b",
            "4: ret",
            ".cfi_endproc",
            remaining = const $remaining,
            next = sym $next,
            called = sym $called,
        )
    };
}
pub(in crate::library) use count_call;

/// malloc(3): subtracts the size from the first field of the thread's state, and jumps to the next definition if the
/// rest is positive.
macro_rules! count_and_allocate {
    ($next:path, $sample:path) => {
        core::arch::naked_asm!(
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
            next = sym $next,
            sample = sym $sample,
        )
    };
}
pub(in crate::library) use count_and_allocate;

/// The slow path of the allocation hooks: rax is the block, rbx the size, and the stack has the caller's rbx and the
/// return address. Returns to the caller of the hook.
macro_rules! sample_and_return {
    ($allocated:path) => {
        core::arch::naked_asm!(
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
            allocated = sym $allocated,
        )
    };
}
pub(in crate::library) use sample_and_return;

/// The code of a hook that allocates by `next`, with the size as first argument, and counts a block that no
/// inner hook has counted.
macro_rules! allocate_and_count {
    ($next:path, $sample:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rbx", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset rbx, 0",
            "push r12", ".cfi_adjust_cfa_offset 8", ".cfi_rel_offset r12, 0",
            "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
            "mov rbx, rdi",
            "mov rax, qword ptr [rip + nprof_thread@GOTTPOFF]",
            "mov r12, qword ptr fs:[rax]",
            "mov qword ptr fs:[rax + 8], 0",
            "call qword ptr [rip + {next}]",
            "add rsp, 8", ".cfi_adjust_cfa_offset -8",
            "mov rcx, qword ptr [rip + nprof_thread@GOTTPOFF]",
            "cmp r12, qword ptr fs:[rcx]",
            "pop r12", ".cfi_adjust_cfa_offset -8", ".cfi_restore r12",
            // An inner hook has subtracted the size, or recorded the block; so does a null pointer look.
            "jne 2f",
            "cmp rax, qword ptr fs:[rcx + 8]",
            "je 2f",
            "sub qword ptr fs:[rcx], rbx",
            "jle {sample}",
            "2: pop rbx", ".cfi_adjust_cfa_offset -8", ".cfi_restore rbx",
            "ret",
            ".cfi_endproc",
            next = sym $next,
            sample = sym $sample,
        )
    };
}
pub(in crate::library) use allocate_and_count;

/// The code of a hook that frees its first argument: looks for its mark, and jumps to the next definition.
macro_rules! check_and_free {
    ($top:path, $freed:path, $next:path) => {
        core::arch::naked_asm!(
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
            "shr eax, 3",
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
            top = sym $top,
            freed = sym $freed,
            next = sym $next,
        )
    };
}
pub(in crate::library) use check_and_free;

/// dlopen(3): calls `$noted` if the flags have RTLD_DEEPBIND, and jumps to the next definition, which finds the library
/// of its caller by the return address.
macro_rules! note_and_load {
    ($next:path, $noted:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "test esi, 8",
            "jne 3f",
            "2: jmp qword ptr [rip + {next}]",
            "3: push rdi", ".cfi_adjust_cfa_offset 8",
            "push rsi", ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
            "call {noted}",
            "add rsp, 8", ".cfi_adjust_cfa_offset -8",
            "pop rsi", ".cfi_adjust_cfa_offset -8",
            "pop rdi", ".cfi_adjust_cfa_offset -8",
            "jmp 2b",
            ".cfi_endproc",
            next = sym $next,
            noted = sym $noted,
        )
    };
}
pub(in crate::library) use note_and_load;

/// The code of a function that saves the arguments of a hook, calls `$resolve`, and jumps to the address that it
/// returns.
macro_rules! resolve_and_jump {
    ($resolve:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "push rdi", ".cfi_adjust_cfa_offset 8",
            "push rsi", ".cfi_adjust_cfa_offset 8",
            "push rdx", ".cfi_adjust_cfa_offset 8",
            "call {resolve}",
            "pop rdx", ".cfi_adjust_cfa_offset -8",
            "pop rsi", ".cfi_adjust_cfa_offset -8",
            "pop rdi", ".cfi_adjust_cfa_offset -8",
            "jmp rax",
            ".cfi_endproc",
            resolve = sym $resolve,
        )
    };
}
pub(in crate::library) use resolve_and_jump;

/// The code of a function that jumps to a target, which another thread may just have stored with release order.
macro_rules! jump {
    ($target:path) => {
        // The processor orders loads.
        core::arch::naked_asm!("jmp qword ptr [rip + {target}]", target = sym $target)
    };
}
pub(in crate::library) use jump;
