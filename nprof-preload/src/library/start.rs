//! Connects before the program's own code runs.
#![allow(unsafe_code)]

use super::{clock, hooks, next, operators, process, stack, thread};

/// The dynamic linker calls the functions of this section when the library is initialized.
#[cfg_attr(preloaded, used, unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: unsafe extern "C" fn() = start;

/// Finds the next definitions, and connects, so that the recorder knows of every process that has loaded the library.
unsafe extern "C" fn start() {
    hooks::find_all();
    next::find_all();
    operators::find_all();
    // They search as well, at their first call.
    clock::now_ns();
    stack::main_stack_top();
    let _ = process::ring(thread::current());
}
