//! Questions to an abbreviation, which holds for all entries of its kind.

use gimli::Abbreviation;

/// True if an entry has children and says where they end. gcc writes DW_AT_sibling last.
pub(crate) fn has_sibling(abbreviation: &Abbreviation) -> bool {
    let last = || abbreviation.attributes().last().map(gimli::AttributeSpecification::name);
    abbreviation.has_children() && last() == Some(gimli::DW_AT_sibling)
}

/// True if an entry is a function with code, not a declaration or an abstract instance.
pub(crate) fn is_function_with_code(abbreviation: &Abbreviation) -> bool {
    abbreviation.tag() == gimli::DW_TAG_subprogram && has_addresses(abbreviation)
}

/// True if an entry has addresses.
pub(crate) fn has_addresses(abbreviation: &Abbreviation) -> bool {
    let mut attributes = abbreviation.attributes().iter();
    attributes
        .any(|attribute| matches!(attribute.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges))
}
