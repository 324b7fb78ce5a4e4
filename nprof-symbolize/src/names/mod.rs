//! Names of functions: demangled, shortened and interned.

pub(crate) mod demangle;
pub(crate) mod interner;
pub(crate) mod location;
pub(crate) mod shorten;
