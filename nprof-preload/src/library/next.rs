//! The definitions that the program would use without this library.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::symbols;

/// Defines a function for each symbol that returns the next definition; None if no loaded object has one.
macro_rules! next {
    ($($name:ident($($argument:ty),* $(; $variadic:tt)?) -> $result:ty;)*) => {
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

next! {
    calloc(usize, usize) -> Pointer;
    realloc(Pointer, usize) -> Pointer;
    reallocarray(Pointer, usize, usize) -> Pointer;
    aligned_alloc(usize, usize) -> Pointer;
    memalign(usize, usize) -> Pointer;
    posix_memalign(*mut Pointer, usize, usize) -> c_int;
    valloc(usize) -> Pointer;
    pvalloc(usize) -> Pointer;
    __errno_location() -> *mut c_int;
    fork() -> c_int;
}
