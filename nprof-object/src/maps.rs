//! The text of `/proc/PID/maps` (proc(5)): a line is `START-END PERMISSIONS OFFSET DEVICE INODE   PATH`.

use std::borrow::Cow;

use crate::address::{FileOffset, RuntimeAddress};

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// The address of its first byte.
    pub start: RuntimeAddress,
    /// The address after its last byte.
    pub end: RuntimeAddress,
    /// Its permissions: `r`, `w`, `x` or `-`, then `p` (private) or `s` (shared).
    pub permissions: &'a [u8],
    /// The file offset of its first byte.
    pub offset: FileOffset,
    /// The device of the file, major and minor number.
    pub device: (u32, u32),
    /// The inode of the file; 0 if there is none.
    pub inode: u64,
    /// The path as the process sees it, ` (deleted)` at the end of an unlinked file's; a name in
    /// brackets, such as `[vdso]`; or empty for anonymous memory.
    pub path: Cow<'a, [u8]>,
}

impl<'a> Mapping<'a> {
    /// Parses a line without its newline. None if it is malformed, or ends before it begins.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let (start, end) = next_field(&mut rest)?.split_once('-')?;
        let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
        let permissions = next_field(&mut rest)?.as_bytes();
        let offset = FileOffset(hexadecimal(next_field(&mut rest)?)?);
        let (major, minor) = next_field(&mut rest)?.split_once(':')?;
        // Both numbers are hexadecimal (fs/proc/task_mmu.c, show_vma_header_prefix).
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = next_field(&mut rest)?.parse().ok()?;
        let (start, end) = (RuntimeAddress(start), RuntimeAddress(end));
        // No mapping ends before it begins: such a line is not from the kernel.
        end.offset_from(start)?;
        Some(Self { start, end, permissions, offset, device, inode, path: unescaped(rest) })
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.end.0 - self.start.0
    }

    /// True if its memory may be executed.
    pub fn is_executable(&self) -> bool {
        self.permissions.get(2) == Some(&b'x')
    }

    /// Returns the name of its file in `/proc/PID/map_files`, where addresses have no leading zeros.
    pub fn map_files_name(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }
}

/// Returns the mappings of a text. Malformed lines are left out.
pub fn mappings(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(Mapping::parse)
}

/// Returns a path with its newlines, which the kernel writes as `\012`. It escapes nothing else
/// (show_map_vma() in fs/proc/task_mmu.c), so a path with these four characters is changed, too.
fn unescaped(path: &[u8]) -> Cow<'_, [u8]> {
    const NEWLINE: &[u8] = b"\\012";
    if !path.contains(&b'\\') {
        return Cow::Borrowed(path);
    }
    let mut found = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            found.push(b'\n');
            rest = after;
        } else {
            found.push(first);
            rest = after;
        }
    }
    Cow::Owned(found)
}

/// Takes the next field and the blanks after it.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
    let (field, after) = rest.split_at(length);
    // The path is padded to a column; a path itself never begins with a blank.
    *rest = after.trim_ascii_start();
    std::str::from_utf8(field).ok().filter(|field| !field.is_empty())
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"000055d0-000055e0 r--p 00000000 fe:01 99     /bin/x\n\
        55e0-55f0 r-xp 00001000 fe:01 99         /bin/a b (deleted)\n\
        7f00-7f10 rwxp 00000000 00:00 0 \n\
        7ffd-7fff r-xp 00000000 00:00 0          [vdso]\n\
        wild\n55e0-5 r-xp 0 0:0 0\n";

    #[test]
    fn mappings_are_parsed_and_malformed_lines_left_out() {
        let found: Vec<_> = mappings(TEXT).collect();
        let paths: Vec<_> = found.iter().map(|mapping| &*mapping.path).collect();
        assert_eq!(paths, [&b"/bin/x"[..], b"/bin/a b (deleted)", b"", b"[vdso]"]);
        let second = &found[1];
        assert_eq!((second.start.0, second.size(), second.offset.0), (0x55e0, 0x10, 0x1000));
        assert_eq!((second.device, second.inode), ((0xfe, 1), 99));
        assert!(second.is_executable() && !found[0].is_executable());
    }

    #[test]
    fn escaped_newline_in_path_is_decoded() {
        let path = |text: &[u8]| {
            let line = [b"55e0-55f0 r-xp 0 fe:01 99   ", text].concat();
            Mapping::parse(&line).expect("a mapping").path.into_owned()
        };
        assert_eq!(path(b"/a\\012b\\012"), b"/a\nb\n");
        assert_eq!(path(b"/a\\040\\\\01"), b"/a\\040\\\\01", "no other escapes exist");
    }

    #[test]
    fn map_files_name_has_no_leading_zeros() {
        let first = mappings(TEXT).next().expect("a mapping");
        assert_eq!(first.map_files_name(), "55d0-55e0");
    }

    #[test]
    fn own_mappings_include_own_program() {
        let text = std::fs::read("/proc/self/maps").expect("maps");
        let exe = std::env::current_exe().expect("a path");
        let path = exe.as_os_str().as_encoded_bytes();
        assert!(mappings(&text).any(|mapping| *mapping.path == *path && mapping.is_executable()));
    }
}
