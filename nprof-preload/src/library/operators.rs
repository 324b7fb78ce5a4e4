//! The operators new and delete of C++, and the functions of other allocators that free like delete.
//!
//! Those of libstdc++ and libc++ call malloc and free, which are hooked: the exported functions jump to them.
//! Allocators such as jemalloc define the operators themselves, and some of them call their malloc directly, others
//! through its hook. For an operator in the object of the next malloc, the hook counts blocks that no inner hook counts.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use super::arch::{allocate_and_count, check_and_free, jump, resolve_and_jump};
use super::hooks::{self, Target};
use super::{memory, shadow, symbols};

/// Defines the hooks of functions of one kind, and `$find`, which finds their next definitions. `$hook` is a macro
/// for the code of a hook, whose argument is the next definition; `$missing` takes the place of a missing one.
macro_rules! operators {
    ($find:ident, $hook:ident, $missing:path: $($name:ident)*) => {
        fn $find() {
            // SAFETY: the functions have no arguments and no conditions.
            unsafe { $($name::find();)* }
        }

        $(
            #[allow(non_snake_case)]
            mod $name {
                use super::*;

                static TARGET: Target = Target::new(resolve as *mut c_void);
                static NEXT: Target = Target::new($missing as *mut c_void);

                #[cfg_attr(preloaded, unsafe(no_mangle))]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    jump!(TARGET)
                }

                #[unsafe(naked)]
                unsafe extern "C" fn resolve() {
                    resolve_and_jump!(find)
                }

                pub(super) unsafe extern "C" fn find() -> *mut c_void {
                    choose(symbol!($name), &TARGET, &NEXT, hook as *mut c_void, $missing as *mut c_void)
                }

                #[unsafe(naked)]
                unsafe extern "C" fn hook() {
                    $hook!(NEXT)
                }
            }
        )*
    };
}

/// The code of the hook of an operator new.
macro_rules! new {
    ($next:ident) => {
        allocate_and_count!($next, hooks::sample)
    };
}

/// The code of the hook of an operator delete.
macro_rules! delete {
    ($next:ident) => {
        check_and_free!(shadow::TOP, memory::freed, $next)
    };
}

/// Returns the name of a symbol as a C string.
macro_rules! symbol {
    ($name:ident) => {
        const {
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes())
            {
                Ok(name) => name,
                Err(_) => panic!("a name without zero bytes"),
            }
        }
    };
}

/// Chooses the target of an exported function: the next definition, or `hook` before it if it is in the object of
/// the next malloc. `missing` if no object defines it now; a library that is loaded later may.
fn choose(
    name: &core::ffi::CStr,
    target: &Target,
    next: &Target,
    hook: *mut c_void,
    missing: *mut c_void,
) -> *mut c_void {
    let Some(address) = symbols::next(name) else { return missing };
    let allocator = symbols::next(c"malloc").unwrap_or(0);
    next.store(address as *mut c_void, Ordering::Relaxed);
    let chosen =
        if symbols::in_one_object(address, allocator) { hook } else { address as *mut c_void };
    // Release: a thread that jumps to the hook sees its next definition.
    target.store(chosen, Ordering::Release);
    chosen
}

/// Finds the next definitions of all operators that are loaded now, for the reasons of `next::find_all`.
pub(super) fn find_all() {
    find_new();
    find_delete();
}

operators! {
    find_new, new, hooks::return_null:
    _Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t
    _ZnwmSt11align_val_t _ZnamSt11align_val_t
    _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t
}

operators! {
    find_delete, delete, hooks::free:
    _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
    _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
    _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
    free_sized free_aligned_sized dallocx sdallocx
}
