//! What is wanted of places, and so which parts of a file are read. Pure.

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Inlined calls, not only the functions they were inlined into.
    pub(crate) inlines: bool,
    /// LinkedFiles and lines.
    pub(crate) lines: bool,
    /// Whether debug information is read where symbols do not tell; where inlines or lines are
    /// asked for, it is.
    pub(crate) debug: bool,
}

impl Detail {
    /// Whether a symbol table is enough to answer.
    pub(crate) fn is_symbols_only(self) -> bool {
        !self.inlines && !self.lines
    }

    /// Whether debug information is read, which is not needed for functions alone where there are
    /// symbols.
    pub(crate) fn reads_debug_info(self, has_symbols: bool) -> bool {
        !self.is_symbols_only() || (self.debug && !has_symbols)
    }
}
