//! Reduces the types of the kernel to those that programs use. Pure.
//!
//! The format is that of Documentation/bpf/btf.rst of Linux. A kernel has 150,000 types, and aya-obj
//! takes 0.1 s and 40 MiB to read them with all members.

/// The magic number at the start, in the byte order of this machine.
const MAGIC: u16 = 0xeb9f;

/// Bytes of the header up to the position of the strings, and of a type without its members.
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;

/// Kinds of types.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FORWARD: u32 = 7;
const FUNCTION: u32 = 12;

/// Returns the types of a kernel without the members of those that have a name which is not in `names`.
/// Functions that are not in it lose their names, too. The ids of types stay as they are. None if the
/// types cannot be read: they are truncated, or of a kind of a later kernel.
pub(super) fn reduced(types: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let header = types.get(..HEADER_BYTES)?;
    let (magic, header_bytes) = (word(header, 0)? as u16, word(header, 4)? as usize);
    if magic != MAGIC || header_bytes < HEADER_BYTES {
        return None;
    }
    let section = |at: usize| -> Option<&[u8]> {
        let start = header_bytes.checked_add(word(header, at)? as usize)?;
        types.get(start..)?.get(..word(header, at + 4)? as usize)
    };
    let (mut rest, strings) = (section(8)?, section(16)?);
    let mut kept = Vec::with_capacity(rest.len() / 2);
    while !rest.is_empty() {
        let (name, info) = (word(rest, 0)? as usize, word(rest, 4)?);
        let kind = info >> 24 & 0x1f;
        let size = TYPE_BYTES + member_bytes(kind, info as usize & 0xffff)?;
        let own = rest.get(..size)?;
        rest = &rest[size..];
        let is_kept = match kind {
            // A member may lie in a union or a structure without a name.
            STRUCT | UNION if name == 0 => true,
            STRUCT | FUNCTION => strings.get(name..).is_some_and(|text| begins_with(text, names)),
            _ => size == TYPE_BYTES || kind == 1,
        };
        if is_kept {
            kept.extend_from_slice(own);
        } else {
            for word in [0, FORWARD << 24, 0] {
                kept.extend_from_slice(&word.to_ne_bytes());
            }
        }
    }
    let mut reduced = Vec::with_capacity(HEADER_BYTES + kept.len() + strings.len());
    reduced.extend_from_slice(&header[..4]);
    let length = |section: &[u8]| u32::try_from(section.len()).ok();
    let (types, strings_bytes) = (length(&kept)?, length(strings)?);
    for word in [HEADER_BYTES as u32, 0, types, types, strings_bytes] {
        reduced.extend_from_slice(&word.to_ne_bytes());
    }
    reduced.extend_from_slice(&kept);
    reduced.extend_from_slice(strings);
    Some(reduced)
}

/// Returns the bytes of the members of a type. None if its kind is unknown.
fn member_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // An integer, a variable, and a tag of a declaration have one word.
        1 | 14 | 17 => 4,
        // An array has three.
        3 => 12,
        // Structures, unions, sections and enumerations of 64 bits.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumerations and the types of functions.
        6 | 13 => 8 * members,
        // Pointers, forward declarations, names, qualifiers, functions, floats and tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

/// True if a text begins with one of the names and their terminating NUL.
fn begins_with(text: &[u8], names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRINGS: &[u8] = b"\0int\0task\0pid\0other\0run\0walk\0";

    /// Returns types in their encoding.
    fn encoded(types: &[u32]) -> Vec<u8> {
        let bytes = 4 * types.len() as u32;
        let header = [0x1_eb9f, 24, 0, bytes, bytes, STRINGS.len() as u32];
        let words = header.iter().chain(types).flat_map(|word| word.to_ne_bytes());
        words.chain(STRINGS.iter().copied()).collect()
    }

    const INT: [u32; 4] = [1, 1 << 24, 4, 32];
    const TASK: [u32; 6] = [5, 4 << 24 | 1, 8, 10, 1, 32];
    const OTHER: [u32; 6] = [14, 4 << 24 | 1, 8, 10, 1, 0];
    const FORWARD_ONLY: [u32; 3] = [0, FORWARD << 24, 0];

    #[test]
    fn other_types_lose_their_members_and_keep_their_numbers() {
        let choice = [14, 6 << 24 | 2, 4, 1, 0, 5, 1];
        let (run, walk) = ([20, 12 << 24, 4], [24, 12 << 24, 4]);
        let unnamed = [0, 5 << 24 | 1, 4, 10, 1, 0];
        let all = [&INT[..], &OTHER, &TASK, &choice, &unnamed, &run, &walk].concat();
        let reduced = reduced(&encoded(&all), &["task", "walk"]).expect("it is complete");
        let expected =
            [&INT[..], &FORWARD_ONLY, &TASK, &FORWARD_ONLY, &unnamed, &FORWARD_ONLY, &walk]
                .concat();
        assert_eq!(reduced, encoded(&expected));
    }

    #[test]
    fn whole_names_are_compared() {
        let reduced = |names: &[&str]| reduced(&encoded(&TASK), names).expect("it is complete");
        assert_eq!(reduced(&["tas"]), encoded(&FORWARD_ONLY));
        assert_eq!(reduced(&["tasks"]), encoded(&FORWARD_ONLY));
        assert_eq!(reduced(&["x", "task"]), encoded(&TASK));
    }

    #[test]
    fn truncated_and_unknown_types_are_refused() {
        let whole = encoded(&[&INT[..], &TASK].concat());
        for length in 0..whole.len() {
            assert_eq!(reduced(&whole[..length], &["task"]), None, "{length}");
        }
        assert_eq!(reduced(&encoded(&[1, 31 << 24, 0]), &["task"]), None);
        assert_eq!(reduced(&encoded(&TASK[..5]), &["task"]), None);
        let mut other_order = whole;
        other_order.swap(0, 1);
        assert_eq!(reduced(&other_order, &["task"]), None);
    }
}
