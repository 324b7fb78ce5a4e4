//! Names of functions and files: demangled, shortened and interned.

pub(crate) mod demangle;
pub(crate) mod interner;
pub(crate) mod location;
mod shorten;
