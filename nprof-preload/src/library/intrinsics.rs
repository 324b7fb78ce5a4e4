//! Functions that the compiler calls, without the C library: the library needs no symbol of another object, so
//! that a program without these functions still starts.

use core::arch::global_asm;

use super::arch::define_intrinsics;

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

define_intrinsics!(hidden);
