//! Where the parts of other sections begin that belong to a unit.

use gimli::Format;

use super::debug_file::{DwarfFile, UnitHead};

/// The offsets in other sections that a unit's indexes and offsets count from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bases {
    /// In `.debug_str_offsets`.
    pub(crate) str_offsets: u64,
    /// In `.debug_addr`.
    pub(crate) addresses: u64,
    /// In `.debug_rnglists`.
    pub(crate) rnglists: u64,
    /// In `.debug_ranges`, for units that were split off.
    pub(crate) ranges: u64,
}

impl Bases {
    /// What counts where the unit's first entry does not say otherwise; a split unit has some
    /// from its `skeleton`.
    pub(crate) fn of(data: &DwarfFile, head: UnitHead, skeleton: Option<Self>) -> Self {
        let inherited = skeleton.unwrap_or_default();
        if !data.is_split() || head.encoding.version < 5 {
            return Self { str_offsets: 0, rnglists: 0, ..inherited };
        }
        // Behind the header of the section's only part.
        let (str_offsets, rnglists) = match head.encoding.format {
            Format::Dwarf32 => (8, 12),
            Format::Dwarf64 => (16, 20),
        };
        Self { str_offsets, rnglists, ..inherited }
    }
}
