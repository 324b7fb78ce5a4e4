//! A stub of the procedure linkage table.

use nprof_object::ImageAddress;

/// A stub, which jumps to the address in a slot of the global offset table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PltStub {
    pub(super) start: ImageAddress,
    /// Its size in bytes.
    pub(super) size: u64,
    pub(super) slot: ImageAddress,
}
