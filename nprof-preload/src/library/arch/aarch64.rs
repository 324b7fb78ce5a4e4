//! 64-bit ARM.
//!
//! All hooks that call keep the caller's frame pointer and the return address in the two words below the caller's
//! stack pointer: `unfinished` looks for the return address there.
#![allow(unsafe_code)]

use core::arch::asm;

/// The bits of user addresses without hints of mmap(2), even of a kernel with addresses of 52 bits.
pub(in crate::library) const ADDRESS_BITS: u32 = 48;
/// The bits of a pointer that select a byte: the processor ignores the others, in which an allocator may keep a tag
/// (TBI, MTE).
pub(in crate::library) const POINTER_BITS: u32 = 56;
/// The function of the vDSO for clock_gettime(2).
pub(in crate::library) const VDSO_CLOCK: &core::ffi::CStr = c"__kernel_clock_gettime";

/// Numbers of system calls (include/uapi/asm-generic/unistd.h).
pub(in crate::library) mod number {
    pub(in crate::library) const FCNTL: usize = 25;
    pub(in crate::library) const FTRUNCATE: usize = 46;
    pub(in crate::library) const CLOSE: usize = 57;
    pub(in crate::library) const PPOLL: usize = 73;
    pub(in crate::library) const FUTEX: usize = 98;
    pub(in crate::library) const CLOCK_GETTIME: usize = 113;
    pub(in crate::library) const SIGALTSTACK: usize = 132;
    pub(in crate::library) const RT_SIGPROCMASK: usize = 135;
    pub(in crate::library) const FSTAT: usize = 80;
    pub(in crate::library) const GETPID: usize = 172;
    pub(in crate::library) const GETTID: usize = 178;
    pub(in crate::library) const SOCKET: usize = 198;
    pub(in crate::library) const CONNECT: usize = 203;
    pub(in crate::library) const SETSOCKOPT: usize = 208;
    pub(in crate::library) const GETSOCKOPT: usize = 209;
    pub(in crate::library) const SENDMSG: usize = 211;
    pub(in crate::library) const MUNMAP: usize = 215;
    pub(in crate::library) const MMAP: usize = 222;
    pub(in crate::library) const MADVISE: usize = 233;
    pub(in crate::library) const PRLIMIT64: usize = 261;
    pub(in crate::library) const PROCESS_VM_READV: usize = 270;
    pub(in crate::library) const GETRANDOM: usize = 278;
    pub(in crate::library) const MEMFD_CREATE: usize = 279;
}

/// Makes a system call; returns its result, negative for an error.
///
/// # Safety
///
/// The arguments must be valid for the call.
pub(in crate::library) unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the registers are those of the arm64 system call convention; the caller vouches for the arguments.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1], in("x2") arguments[2], in("x3") arguments[3],
            in("x4") arguments[4], in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}

/// Returns the address of `nprof_thread`, the state of the calling thread.
pub(in crate::library) fn thread_state() -> usize {
    let address;
    // SAFETY: reads the register and the word of the global offset table that the TLS layout of arm64 defines.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:nprof_thread",
            "ldr {1}, [{1}, :gottprel_lo12:nprof_thread]",
            "add {0}, {0}, {1}",
            out(reg) address,
            out(reg) _,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    address
}

/// Returns the address of the thread control block: the thread pointer. The blocks of both glibc and musl are below
/// it, at the top of the stack.
pub(in crate::library) fn control_block() -> usize {
    let address;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) address, options(pure, nomem, nostack, preserves_flags));
    }
    address
}

/// Returns the address from which the descriptor of the thread with this control block has `bytes`: it ends there.
pub(in crate::library) fn descriptor_start(control_block: usize, bytes: usize) -> usize {
    control_block - bytes
}

/// Returns the address of dl_iterate_phdr(3) from the global offset table; 0 without a definition.
pub(in crate::library) fn dl_iterate_phdr() -> usize {
    let address;
    // SAFETY: reads a word of the global offset table.
    unsafe {
        asm!(
            "adrp {0}, :got:dl_iterate_phdr",
            "ldr {0}, [{0}, :got_lo12:dl_iterate_phdr]",
            out(reg) address,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    address
}

/// None: the rate of the processor's counter differs from machine to machine by a factor of 1000.
pub(in crate::library) fn counter() -> Option<u64> {
    None
}

/// Makes the processor fetch the cache line of an address, which will be written.
pub(in crate::library) fn expect_write(address: *mut u8) {
    // SAFETY: a hint: it reads and writes nothing, and never faults.
    unsafe { asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags)) };
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
            "2: subs {bytes}, {bytes}, #16",
            "b.lo 3f",
            "ldp {first}, {second}, [{from}], #16",
            "stp {first}, {second}, [{to}], #16",
            "b 2b",
            "3: adds {bytes}, {bytes}, #16",
            "b.eq 5f",
            "4: ldrb {first:w}, [{from}], #1",
            "strb {first:w}, [{to}], #1",
            "subs {bytes}, {bytes}, #1",
            "b.ne 4b",
            "5:",
            bytes = inout(reg) bytes => _, from = inout(reg) from => _, to = inout(reg) to => _,
            first = out(reg) _, second = out(reg) _,
            options(nostack),
        );
    }
}

/// Ends the process.
#[cfg(preloaded)]
pub(in crate::library) fn abort() -> ! {
    // SAFETY: the instruction is undefined: the kernel sends SIGILL.
    unsafe { asm!("udf #0", options(noreturn)) }
}

#[cfg(preloaded)]
macro_rules! define_intrinsics {
    ($define:ident) => {
        $define!(
            "memcpy",
            "mov x3, x0",
            "2: subs x2, x2, #8",
            "b.lo 3f",
            "ldr x4, [x1], #8",
            "str x4, [x3], #8",
            "b 2b",
            "3: adds x2, x2, #8",
            "b.eq 5f",
            "4: ldrb w4, [x1], #1",
            "strb w4, [x3], #1",
            "subs x2, x2, #1",
            "b.ne 4b",
            "5: ret"
        );
        $define!(
            "memset",
            "mov x3, x0",
            "2: cbz x2, 3f",
            "strb w1, [x3], #1",
            "sub x2, x2, #1",
            "b 2b",
            "3: ret"
        );
        $define!(
            "bcmp",
            "mov x3, x0",
            "mov w0, #0",
            "2: cbz x2, 3f",
            "ldrb w4, [x3], #1",
            "ldrb w5, [x1], #1",
            "sub x2, x2, #1",
            "subs w0, w4, w5",
            "b.eq 2b",
            "3: ret"
        );
        $define!(
            "strlen",
            "mov x1, x0",
            "2: ldrb w2, [x1], #1",
            "cbnz w2, 2b",
            "sub x0, x1, x0",
            "sub x0, x0, #1",
            "ret"
        );
        // The precompiled core crate refers to it, but nothing here unwinds.
        $define!("rust_eh_personality", "udf #0");
    };
}
#[cfg(preloaded)]
pub(in crate::library) use define_intrinsics;

/// The register of an argument, from 0 on.
macro_rules! argument {
    ($number:tt) => {
        concat!("x", $number)
    };
}
pub(in crate::library) use argument;

/// Saves frame pointer and return address, and begins a frame.
macro_rules! enter {
    () => {
        "
            stp x29, x30, [sp, #-16]!
            .cfi_def_cfa_offset 16
            .cfi_offset x29, -16
            .cfi_offset x30, -8
            mov x29, sp
            .cfi_def_cfa x29, 16
        "
    };
}
pub(in crate::library) use enter;

/// Ends the frame of `enter`, with the stack pointer at its start.
macro_rules! leave {
    () => {
        "
            .cfi_def_cfa sp, 16
            ldp x29, x30, [sp], #16
            .cfi_def_cfa_offset 0
            .cfi_restore x29
            .cfi_restore x30
        "
    };
}
pub(in crate::library) use leave;

/// Sets x9 to the address of the thread's state; changes x10.
macro_rules! load_thread {
    () => {
        "
            mrs x9, tpidr_el0
            adrp x10, :gottprel:nprof_thread
            ldr x10, [x10, :gottprel_lo12:nprof_thread]
            add x9, x9, x10
        "
    };
}
pub(in crate::library) use load_thread;

/// Stores `Registers` at the stack pointer: those of the caller of a function that has begun with `enter`.
macro_rules! store_registers {
    () => {
        "
            ldp x9, x10, [x29]
            add x11, x29, #16
            stp x10, x11, [sp]
            stp x9, x19, [sp, #16]
            stp x20, x21, [sp, #32]
            stp x22, x23, [sp, #48]
            stp x24, x25, [sp, #64]
            stp x26, x27, [sp, #80]
            stp x28, xzr, [sp, #96]
        "
    };
}
pub(in crate::library) use store_registers;

/// The code of a hook with an implementation that gets the registers of the caller as one more argument.
macro_rules! capture_and_call {
    ($number:tt, $implementation:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::library::arch::enter!(),
            "sub sp, sp, #112",
            $crate::library::arch::store_registers!(),
            concat!("mov ", $crate::library::arch::argument!($number), ", sp"),
            "bl {implementation}",
            "add sp, sp, #112",
            $crate::library::arch::leave!(),
            "ret",
            ".cfi_endproc",
            implementation = sym $implementation,
        )
    };
}
pub(in crate::library) use capture_and_call;

/// The code of a hook that the compiler calls at the entry of a function, with two arguments at most, as it calls other
/// functions: counts the call down in the field of the thread's state at an offset, and jumps to the next definition.
macro_rules! count_call {
    ($next:path, $called:path, $remaining:expr) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::library::arch::load_thread!(),
            // Before the dynamic linker has relocated this library, it may call a resolver (IFUNC) in another one.
            "cbz x10, 4f",
            "ldr x11, [x9, #{remaining}]",
            "subs x11, x11, #1",
            "str x11, [x9, #{remaining}]",
            "b.le 3f",
            "2: adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            "3:",
            $crate::library::arch::enter!(),
            "stp x0, x1, [sp, #-16]!",
            "sub sp, sp, #112",
            $crate::library::arch::store_registers!(),
            "mov x0, sp",
            "bl {called}",
            "add sp, sp, #112",
            "ldp x0, x1, [sp], #16",
            $crate::library::arch::leave!(),
            "b 2b",
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
/// rest is positive. The counts of a signal handler between load and store are lost.
macro_rules! count_and_allocate {
    ($next:path, $sample:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            // The difference of such a size is wrong, and no block has it.
            "tbnz x0, #63, 2f",
            $crate::library::arch::load_thread!(),
            "ldr x11, [x9]",
            "subs x11, x11, x0",
            // The next definition may call hooks, for which the state must be that before the call.
            "b.le 3f",
            "str x11, [x9]",
            "2: adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            "3:",
            $crate::library::arch::enter!(),
            "str x19, [sp, #-16]!", ".cfi_offset x19, -32",
            "mov x19, x0",
            "adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "blr x16",
            $crate::library::arch::load_thread!(),
            "ldr x11, [x9]",
            "subs x11, x11, x19",
            "str x11, [x9]",
            "b.gt 4f",
            "b {sample}",
            "4: ldr x19, [sp], #16", ".cfi_restore x19",
            $crate::library::arch::leave!(),
            "ret",
            ".cfi_endproc",
            next = sym $next,
            sample = sym $sample,
        )
    };
}
pub(in crate::library) use count_and_allocate;

/// The slow path of the allocation hooks: x0 is the block, x19 the size, and the hook has begun with `enter` and has
/// pushed 16 bytes with the caller's x19. Returns to the caller of the hook.
macro_rules! sample_and_return {
    ($allocated:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            ".cfi_def_cfa x29, 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            ".cfi_offset x19, -32",
            "mov x1, x0",
            "mov x0, x19",
            "ldr x19, [sp]",
            "str x1, [sp, #8]",
            "sub sp, sp, #112",
            $crate::library::arch::store_registers!(),
            "mov x2, sp",
            "bl {allocated}",
            "ldr x0, [sp, #120]",
            "add sp, sp, #128",
            $crate::library::arch::leave!(),
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
            $crate::library::arch::enter!(),
            "stp x19, x20, [sp, #-16]!", ".cfi_offset x19, -32", ".cfi_offset x20, -24",
            "mov x19, x0",
            $crate::library::arch::load_thread!(),
            "ldr x20, [x9]",
            "str xzr, [x9, #8]",
            "adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "blr x16",
            $crate::library::arch::load_thread!(),
            "ldp x11, x12, [x9]",
            "cmp x11, x20",
            "ldr x20, [sp, #8]", ".cfi_restore x20",
            // An inner hook has subtracted the size, or recorded the block; so does a null pointer look.
            "b.ne 2f",
            "cmp x12, x0",
            "b.eq 2f",
            "subs x11, x11, x19",
            "str x11, [x9]",
            "b.gt 2f",
            "b {sample}",
            "2: ldr x19, [sp], #16", ".cfi_restore x19",
            $crate::library::arch::leave!(),
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
            "ubfx x9, x0, #30, #26",
            "cmp x9, #0x40, lsl #12",
            "b.hs 2f",
            "adrp x10, {top}",
            "add x10, x10, :lo12:{top}",
            "ldr x10, [x10, x9, lsl #3]",
            "cbz x10, 2f",
            "ubfx x11, x0, #8, #22",
            "ldr w10, [x10, x11, lsl #2]",
            "ubfx x11, x0, #3, #5",
            "lsr w10, w10, w11",
            "tbnz w10, #0, 3f",
            "2: adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            "3:",
            $crate::library::arch::enter!(),
            // The sized and aligned forms of operator delete have two more arguments.
            "stp x0, x1, [sp, #-32]!",
            "str x2, [sp, #16]",
            "add x1, x29, #16",
            "bl {freed}",
            "ldr x2, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            $crate::library::arch::leave!(),
            "b 2b",
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
            "tbnz w1, #3, 3f",
            "2: adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            "3:",
            $crate::library::arch::enter!(),
            "stp x0, x1, [sp, #-16]!",
            "bl {noted}",
            "ldp x0, x1, [sp], #16",
            $crate::library::arch::leave!(),
            "b 2b",
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
            $crate::library::arch::enter!(),
            "stp x0, x1, [sp, #-32]!",
            "str x2, [sp, #16]",
            "bl {resolve}",
            "mov x16, x0",
            "ldr x2, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            $crate::library::arch::leave!(),
            "br x16",
            ".cfi_endproc",
            resolve = sym $resolve,
        )
    };
}
pub(in crate::library) use resolve_and_jump;

/// The code of a function that jumps to a target, which another thread may just have stored with release order.
macro_rules! jump {
    ($target:path) => {
        core::arch::naked_asm!(
            "adrp x16, {target}",
            "add x16, x16, :lo12:{target}",
            "ldar x16, [x16]",
            "br x16",
            target = sym $target,
        )
    };
}
pub(in crate::library) use jump;
