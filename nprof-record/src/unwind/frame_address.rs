//! The address of a frame.

/// An address on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAddress {
    pub value: u64,
    /// Whether it is a return address, so that the call lies just before it.
    pub returns: bool,
}

impl FrameAddress {
    /// An address inside of the instruction meant.
    pub fn inside(self) -> u64 {
        if self.returns { self.value.wrapping_sub(1) } else { self.value }
    }
}
