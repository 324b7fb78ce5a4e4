//! The address of a frame.

use nprof_object::RuntimeAddress;

/// The address at which a frame was executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameAddress {
    /// The instruction that was about to run: of the leaf, or of a frame that a signal interrupted.
    Instruction(RuntimeAddress),
    /// The address after a call.
    Return(RuntimeAddress),
}

impl FrameAddress {
    /// Returns the address itself.
    #[inline]
    pub fn value(self) -> RuntimeAddress {
        match self {
            Self::Instruction(address) | Self::Return(address) => address,
        }
    }

    /// True if it is a return address.
    #[inline]
    pub fn is_return(self) -> bool {
        matches!(self, Self::Return(_))
    }

    /// Returns the address to look up: for a return address one byte before it, inside the call. A
    /// call may be the last instruction of its function, then the next function starts at the
    /// return address.
    #[inline]
    pub fn address_for_lookup(self) -> RuntimeAddress {
        match self {
            Self::Instruction(address) => address,
            Self::Return(address) => address.wrapping_sub(1),
        }
    }
}
