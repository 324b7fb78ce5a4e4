//! The types in the parameters of a function, spelled as demanglers spell them, so that a function
//! has one name where it was inlined and where it was not.

use std::cell::Cell;

use gimli::SectionId;

use super::error::{DwarfError, Result};
use super::scoped_name::scoped_name;
use super::unit::Reference;
use super::unit_cache::{FileKind, UnitCache, target};

/// The depth to which types are read: pointers to functions of pointers, and so on.
const DEPTH: usize = 16;

/// The number of types that are read for one list of parameters: a malformed type may contain
/// itself.
const TYPES: usize = 256;

/// The longest list of parameters, and the longest type, in bytes.
const LONGEST: usize = 4 << 10;

/// In place of a type that is too long or not known.
const UNKNOWN: &str = "...";

/// The entry of a type or of a parameter.
struct Entry {
    tag: gimli::DwTag,
    name: Vec<u8>,
    inner: Option<Reference>,
    /// True if the inner type is in a type unit (-fdebug-types-section), which is not searched.
    has_signature: bool,
    is_artificial: bool,
}

/// Returns the parameters of a function with parentheses, and the qualifier after them (`const`).
///
/// # Errors
///
/// When the entries are malformed.
pub(crate) fn parameters(units: &UnitCache, file: FileKind, entry: u64) -> Result<String> {
    let left = Cell::new(TYPES);
    let mut list = Vec::new();
    let mut suffix = "";
    for child in children(units, file, entry)? {
        let parameter = read(units, file, child)?;
        match parameter.tag {
            gimli::DW_TAG_formal_parameter if parameter.is_artificial => {
                // `this`: of a const function, a pointer to a const object.
                let object = parameter.inner.map(|inner| target(file, inner));
                let is_const = |(file, entry)| points_to_const(units, file, entry);
                if object.is_some_and(|at| is_const(at).unwrap_or(false)) {
                    suffix = " const";
                }
            }
            gimli::DW_TAG_formal_parameter if parameter.has_signature => {
                list.push(UNKNOWN.to_owned());
            }
            gimli::DW_TAG_formal_parameter => {
                let at = parameter.inner.map(|inner| target(file, inner));
                list.push(type_name(units, at, 0, &left)?);
            }
            gimli::DW_TAG_unspecified_parameters => list.push(UNKNOWN.to_owned()),
            _ => {}
        }
    }
    let list = list.join(", ");
    let list = if list.len() > LONGEST { UNKNOWN.to_owned() } else { list };
    Ok(format!("({list}){suffix}"))
}

/// Returns the name of a type; None is `void`, which has no entry. `left` is the number of types
/// that may still be read.
fn type_name(
    units: &UnitCache,
    at: Option<(FileKind, u64)>,
    depth: usize,
    left: &Cell<usize>,
) -> Result<String> {
    if depth >= DEPTH || left.get() == 0 {
        return Ok(UNKNOWN.to_owned());
    }
    left.set(left.get() - 1);
    let name = long_type_name(units, at, depth, left)?;
    Ok(if name.len() > LONGEST { UNKNOWN.to_owned() } else { name })
}

fn long_type_name(
    units: &UnitCache,
    at: Option<(FileKind, u64)>,
    depth: usize,
    left: &Cell<usize>,
) -> Result<String> {
    let Some((file, entry)) = at else { return Ok("void".to_owned()) };
    let this = read(units, file, entry)?;
    if this.has_signature {
        return Ok(UNKNOWN.to_owned());
    }
    let inner = this.inner.map(|inner| target(file, inner));
    let derived = |suffix: &str| -> Result<String> {
        let name = type_name(units, inner, depth + 1, left)?;
        // The declarator of a function type is inside of it: `void (*)(int)`.
        Ok(match name.split_once("(*") {
            Some((result, rest)) => format!("{result}(*{suffix}{rest}"),
            None => match name.split_once(" (") {
                Some((result, rest)) if is_function(units, inner) => {
                    format!("{result} ({suffix})({rest}")
                }
                _ => name + suffix,
            },
        })
    };
    match this.tag {
        gimli::DW_TAG_pointer_type => derived("*"),
        gimli::DW_TAG_reference_type => derived("&"),
        gimli::DW_TAG_rvalue_reference_type => derived("&&"),
        gimli::DW_TAG_const_type => derived(" const"),
        gimli::DW_TAG_volatile_type => derived(" volatile"),
        gimli::DW_TAG_restrict_type => type_name(units, inner, depth + 1, left),
        // Linkage names have the type itself (Itanium C++ ABI, 5.1.5), not its other names.
        gimli::DW_TAG_typedef => type_name(units, inner, depth + 1, left),
        gimli::DW_TAG_array_type => derived(" []"),
        gimli::DW_TAG_subroutine_type => {
            let result = type_name(units, inner, depth + 1, left)?;
            let mut list = Vec::new();
            // Each type takes one of `left`, so that more could not be read.
            for child in children(units, file, entry)?.into_iter().take(left.get()) {
                let parameter = read(units, file, child)?;
                let at = parameter.inner.map(|inner| target(file, inner));
                if parameter.tag == gimli::DW_TAG_formal_parameter {
                    list.push(type_name(units, at, depth + 1, left)?);
                }
            }
            Ok(format!("{result} ({})", list.join(", ")))
        }
        gimli::DW_TAG_base_type => Ok(base_name(&this.name)),
        gimli::DW_TAG_unspecified_type => Ok(String::from_utf8_lossy(&this.name).into_owned()),
        _ if this.name.is_empty() => Ok(UNKNOWN.to_owned()),
        _ => {
            let name = scoped_name(units, file, entry, &this.name)?;
            Ok(String::from_utf8_lossy(&name).into_owned())
        }
    }
}

fn is_function(units: &UnitCache, at: Option<(FileKind, u64)>) -> bool {
    let read = at.map(|(file, entry)| read(units, file, entry));
    matches!(read, Some(Ok(entry)) if entry.tag == gimli::DW_TAG_subroutine_type)
}

fn points_to_const(units: &UnitCache, mut file: FileKind, mut entry: u64) -> Result<bool> {
    // gcc makes `this` itself const: const pointer to const object.
    for _ in 0..2 {
        let pointer = read(units, file, entry)?;
        let Some(inner) = pointer.inner else { return Ok(false) };
        (file, entry) = target(file, inner);
        if pointer.tag == gimli::DW_TAG_pointer_type {
            return Ok(read(units, file, entry)?.tag == gimli::DW_TAG_const_type);
        }
    }
    Ok(false)
}

/// Returns the demanglers' name of a base type: `long`, where compilers write `long int`.
fn base_name(name: &[u8]) -> String {
    let name = match name {
        b"long int" => "long",
        b"long unsigned int" => "unsigned long",
        b"long long int" => "long long",
        b"long long unsigned int" => "unsigned long long",
        b"short int" => "short",
        b"short unsigned int" => "unsigned short",
        other => return String::from_utf8_lossy(other).into_owned(),
    };
    name.to_owned()
}

fn read(units: &UnitCache, file: FileKind, entry: u64) -> Result<Entry> {
    let unit = units.unit_of(file, entry)?;
    unit.unit.entry(entry, |tag, attributes| {
        let mut read = Entry {
            tag,
            name: Vec::new(),
            inner: None,
            has_signature: false,
            is_artificial: false,
        };
        for attribute in attributes {
            match attribute.name() {
                gimli::DW_AT_name => read.name = unit.unit.string(attribute.value())?,
                gimli::DW_AT_type => {
                    read.inner = unit.unit.reference(attribute.value());
                    read.has_signature = read.inner.is_none();
                }
                gimli::DW_AT_artificial => read.is_artificial = true,
                _ => {}
            }
        }
        Ok(read)
    })
}

/// Returns the parameters among the children of an entry.
fn children(units: &UnitCache, file: FileKind, entry: u64) -> Result<Vec<u64>> {
    /// The bytes that are searched for parameters, which compilers write first.
    const BYTES: u64 = 4 << 10;
    let unit = units.unit_of(file, entry)?;
    let info = unit.unit.data.section(SectionId::DebugInfo)?;
    let bytes = info.near(entry, (unit.unit.head.end - entry).min(BYTES))?;
    let abbreviations = unit.unit.abbreviations()?;
    let mut entries = unit.unit.walk(&bytes, &abbreviations);
    let mut children = Vec::new();
    while !entries.is_empty() {
        let (at, depth) = (entries.next_offset().0 as u64, entries.next_depth());
        let abbreviation = match entries.read_abbreviation() {
            Ok(Some(abbreviation)) => abbreviation,
            Ok(None) if depth > 1 => continue,
            // The end of the children, or of the bytes that were read.
            Ok(None) | Err(gimli::Error::UnexpectedEof(_)) => break,
            Err(error) => return Err(DwarfError::from(error)),
        };
        let is_parameter = matches!(
            abbreviation.tag(),
            gimli::DW_TAG_formal_parameter | gimli::DW_TAG_unspecified_parameters
        );
        if at > 0 && depth == 1 && is_parameter {
            children.push(entry + at);
        }
        let is_parent = at == 0 && abbreviation.has_children();
        // Local types and variables may come before the parameters.
        if (at == 0 && !is_parent) || entries.skip_attributes(abbreviation.attributes()).is_err() {
            break;
        }
    }
    Ok(children)
}
