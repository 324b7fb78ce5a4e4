//! Links to the files with the rest of the debug information: `.gnu_debuglink`, `.gnu_debugaltlink`
//! (written by dwz(1)), and `.debug_sup` (DWARF 5, section 7.3.6). Pure over bytes.

use object::Endianness;

/// A link to the debug file: `.gnu_debuglink`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebugLink {
    /// The file's name, without a directory.
    pub(crate) name: Vec<u8>,
    /// The CRC-32 of the whole file.
    pub(crate) crc: u32,
}

/// A link to the supplementary file, which several files share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SupplementaryLink {
    /// Its path, absolute or relative to the directory of the linking file.
    pub(crate) path: Vec<u8>,
    /// Its identity: its build ID, or the checksum in its own `.debug_sup`.
    pub(crate) id: Vec<u8>,
}

/// A section `.debug_sup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebugSup {
    /// True if this file is the supplementary one itself.
    pub(crate) is_supplementary: bool,
    /// The supplementary file; the path is empty in that file itself.
    pub(crate) link: SupplementaryLink,
}

/// Parses `.gnu_debuglink`: a name, a zero byte, padding to 4 bytes, a CRC.
pub(crate) fn debug_link(endian: Endianness, link: &[u8]) -> Option<DebugLink> {
    let (name, _) = string(link)?;
    let at = (name.len() + 1).next_multiple_of(4);
    let crc = link.get(at..)?.first_chunk()?;
    let crc = match endian {
        Endianness::Little => u32::from_le_bytes(*crc),
        Endianness::Big => u32::from_be_bytes(*crc),
    };
    // A path could make the reader open any file of the system.
    let is_name = !name.is_empty() && !name.contains(&b'/');
    is_name.then(|| DebugLink { name: name.to_vec(), crc })
}

/// Parses `.gnu_debugaltlink`: a path, a zero byte, a build ID.
pub(crate) fn alt_link(link: &[u8]) -> Option<SupplementaryLink> {
    let (path, id) = string(link)?;
    // A path without an ID could be any file.
    let is_whole = !path.is_empty() && (1..=nprof_stream::limits::BUILD_ID).contains(&id.len());
    is_whole.then(|| SupplementaryLink { path: path.to_vec(), id: id.to_vec() })
}

/// Parses `.debug_sup`: the version (5), a flag for the supplementary file itself, a path, the length
/// of a checksum, the checksum.
pub(crate) fn debug_sup(endian: Endianness, section: &[u8]) -> Option<DebugSup> {
    let (version, rest) = section.split_first_chunk()?;
    let version = match endian {
        Endianness::Little => u16::from_le_bytes(*version),
        Endianness::Big => u16::from_be_bytes(*version),
    };
    let (&is_supplementary, rest) = rest.split_first().filter(|_| version == 5)?;
    let (path, rest) = string(rest)?;
    // The length is in LEB128; that of every known checksum fits one byte.
    let (&length, id) = rest.split_first()?;
    let id = id.get(..usize::from(length)).filter(|id| (1..=64).contains(&id.len()))?;
    let link = SupplementaryLink { path: path.to_vec(), id: id.to_vec() };
    Some(DebugSup { is_supplementary: is_supplementary != 0, link })
}

/// Splits bytes at the first zero, which is left out.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_link_has_a_name_and_a_crc() {
        let link = debug_link(Endianness::Little, b"a.debug\0\x01\x02\x03\x04");
        assert_eq!(link, Some(DebugLink { name: b"a.debug".to_vec(), crc: 0x0403_0201 }));
        let link = debug_link(Endianness::Little, b"ab.debug\0\0\0\0\x01\x02\x03\x04");
        assert_eq!(link.map(|link| link.crc), Some(0x0403_0201));
        for wrong in
            [&b""[..], b"a.debug", b"a.debug\0\x01\x02\x03", b"../x\0\0\0\0\x01\x02\x03\x04"]
        {
            assert_eq!(debug_link(Endianness::Little, wrong), None);
        }
    }

    #[test]
    fn alt_link_has_a_path_and_a_build_id() {
        let link = alt_link(b"../x.debug\0\x01\x02").unwrap();
        assert_eq!((&link.path[..], &link.id[..]), (&b"../x.debug"[..], &[1, 2][..]));
        for wrong in [&b""[..], b"path", b"path\0", b"\0\x01\x02"] {
            assert_eq!(alt_link(wrong), None);
        }
        assert_eq!(alt_link(&[b"path\0", &[7; 65][..]].concat()), None);
    }

    #[test]
    fn debug_sup_has_a_path_and_a_checksum() {
        let whole = b"\x05\0\0x.sup\0\x02\xaa\xbb";
        let sup = debug_sup(Endianness::Little, whole).unwrap();
        assert!(!sup.is_supplementary);
        assert_eq!((&sup.link.path[..], &sup.link.id[..]), (&b"x.sup"[..], &[0xaa, 0xbb][..]));
        let own = debug_sup(Endianness::Big, b"\0\x05\x01\0\x01\xaa").unwrap();
        assert!(own.is_supplementary && own.link.path.is_empty());
        for length in 0..whole.len() {
            assert_eq!(debug_sup(Endianness::Little, &whole[..length]), None);
        }
        assert_eq!(debug_sup(Endianness::Little, b"\x04\0\0x\0\x01a"), None, "another version");
    }
}
