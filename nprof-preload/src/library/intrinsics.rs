//! Functions that the compiler calls, without the C library: the library needs no symbol of another object, so
//! that a program without these functions still starts.

use core::arch::global_asm;

/// Defines a function that is visible in this library only.
macro_rules! hidden {
    ($name:literal, $($line:literal),*) => {
        global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            ".cfi_startproc",
            $($line,)*
            ".cfi_endproc",
        );
    };
}

hidden!("memcpy", "mov rax, rdi", "mov rcx, rdx", "rep movsb", "ret");
hidden!("memset", "mov r8, rdi", "mov eax, esi", "mov rcx, rdx", "rep stosb", "mov rax, r8", "ret");
hidden!("bcmp", "xor eax, eax", "mov rcx, rdx", "cmp rcx, rcx", "repe cmpsb", "setne al", "ret");
hidden!(
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
hidden!("rust_eh_personality", "ud2");
