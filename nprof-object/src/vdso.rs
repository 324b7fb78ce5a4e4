//! The vDSO, which the kernel maps into every process: there is no file of it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use crate::maps::mappings;

/// The largest vDSO that is read, bytes. Those of Linux have a few pages.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the vDSO of this process from its memory: an ELF file. Returns None if there is none.
///
/// # Errors
///
/// If `/proc/self/maps` or `/proc/self/mem` cannot be read.
pub fn read_own() -> io::Result<Option<Vec<u8>>> {
    let maps = fs::read("/proc/self/maps")?;
    let Some(vdso) = mappings(&maps).find(|mapping| *mapping.path == *b"[vdso]") else {
        return Ok(None);
    };
    // Guards the allocation below.
    if vdso.size() == 0 || vdso.size() > MAX_BYTES {
        return Ok(None);
    }
    let mut bytes = vec![0; vdso.size() as usize];
    // Reading through /proc needs no unsafe code; the offset is the address.
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, vdso.start.0)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_vdso_is_an_elf_file() {
        let vdso = read_own().expect("own memory can be read");
        assert!(vdso.is_none_or(|bytes| bytes.starts_with(b"\x7fELF")));
    }
}
