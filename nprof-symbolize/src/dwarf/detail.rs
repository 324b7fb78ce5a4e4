//! The detail that lookups need, and with it the parts of a file that are read. Pure.

/// The detail of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Inlined calls, not only the functions they were inlined into.
    pub(crate) inlines: bool,
    /// Source files and lines.
    pub(crate) lines: bool,
    /// True if debug information names functions that no symbol table has. For inlined calls and
    /// lines it is read in any case.
    pub(crate) debug: bool,
}

impl Detail {
    /// True if a symbol table has all the detail.
    pub(crate) fn is_symbols_only(self) -> bool {
        !self.inlines && !self.lines
    }

    /// True if debug information is read. A function alone needs none if it has a symbol.
    pub(crate) fn reads_debug_info(self, has_symbols: bool) -> bool {
        !self.is_symbols_only() || (self.debug && !has_symbols)
    }
}
