//! The place of a probe that counts the calls of a function. Pure.

/// The instruction of a function at which a probe counts its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: u64,
    /// True if a count takes many times as long as at most other places.
    pub(crate) is_slow: bool,
}

/// The reason why a function has no place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The bytes are not instructions.
    NotCode,
    /// A jump of the function leads to its entry: a loop, or a call of itself.
    JumpToEntry,
    /// A computed jump may lead to the instructions of the first block that can be probed.
    ComputedJump,
    /// The kernel has no probes for the instructions of the first block.
    NotExecuted,
}

/// The jumps of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Jumps {
    /// True if all its bytes are instructions.
    pub(crate) is_code: bool,
    /// True if a jump leads to its entry.
    pub(crate) to_entry: bool,
    /// True if the target of a jump is computed.
    pub(crate) has_computed: bool,
}

/// An instruction with which a function may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) address: u64,
    /// The target of a direct jump. None for a return.
    pub(crate) target: Option<u64>,
}

/// A jump or call with a target in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) target: u64,
    pub(crate) is_call: bool,
}
