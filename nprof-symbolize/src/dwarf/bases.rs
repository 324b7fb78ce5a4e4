//! The offsets at which a unit's parts of other sections begin (DWARF 5, 7.3.2.2 and 7.26 to 7.29).

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
    /// Returns the bases that hold unless the unit's first entry has others. A split unit has some
    /// from its `skeleton`.
    pub(crate) fn of(data: &DwarfFile, head: UnitHead, skeleton: Option<Self>) -> Self {
        // DWARF 4 has these tables in GNU's form, without headers.
        let inherited = skeleton.unwrap_or_default();
        if !data.is_split() || head.encoding.version < 5 {
            return Self { str_offsets: 0, rnglists: 0, ..inherited };
        }
        // A .dwo file has one table in each section, and its entries begin after the header.
        let (str_offsets, rnglists) = match head.encoding.format {
            Format::Dwarf32 => (8, 12),
            Format::Dwarf64 => (16, 20),
        };
        Self { str_offsets, rnglists, ..inherited }
    }
}
