//! The text of `/proc/modules`: a line is `NAME SIZE USERS USED_BY STATE BASE`, such as
//! `ext4 1048576 1 - Live 0xffffffffc0200000`.

use crate::address::RuntimeAddress;

/// A loaded module of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The bytes of all its memory, which need not be in one piece (Linux 6.4).
    pub size: u64,
    /// The address of its text; 0 if it is hidden (`kernel.kptr_restrict`).
    pub base: RuntimeAddress,
}

impl<'a> Module<'a> {
    /// Parses a line without its newline. None if it is malformed.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let size = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        // Skips the users, their names and the state.
        let base = std::str::from_utf8(fields.nth(3)?.strip_prefix(b"0x")?).ok()?;
        let base = RuntimeAddress(u64::from_str_radix(base, 16).ok()?);
        Some(Self { name, size, base })
    }
}

/// Returns the modules of a text. Malformed lines are left out.
pub fn modules(text: &[u8]) -> impl Iterator<Item = Module<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(Module::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_name_size_and_base() {
        let text = b"first 65536 2 second, Live 0xffffffffc0000000\n\
                     hidden 4096 0 - Live 0x0000000000000000 (OE)\nbroken\n\n";
        let found: Vec<_> = modules(text).collect();
        let base = RuntimeAddress(0xffff_ffff_c000_0000);
        assert_eq!(found[0], Module { name: b"first", size: 65536, base });
        assert_eq!(found[1], Module { name: b"hidden", size: 4096, base: RuntimeAddress(0) });
        assert_eq!(found.len(), 2);
    }
}
