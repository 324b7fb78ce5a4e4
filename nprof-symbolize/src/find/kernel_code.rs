//! The code of the running kernel, as it is executed: `/proc/kcore`, an ELF file of the kernel's memory.
//! The file on disk differs from it: the kernel patches its code when it boots and while it runs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nprof_object::{FileOffset, ImageAddress, ImageOffset, RuntimeAddress, Segments};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::dwarf::Section;
use crate::image::code_bytes::CodeBytes;

/// The most bytes of headers that are read: the kernel has a segment for each range of memory.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// The memory of the kernel or of a module.
pub(crate) struct KernelCode {
    /// The file; `/proc/kcore` outside of tests.
    path: PathBuf,
    /// The address from which offsets count.
    base: RuntimeAddress,
}

impl KernelCode {
    /// Creates the code of an image at this address. Nothing is opened yet.
    pub(crate) fn at(base: RuntimeAddress) -> Self {
        Self { path: "/proc/kcore".into(), base }
    }

    fn read_memory(&self, offset: ImageOffset, length: u64) -> io::Result<Vec<u8>> {
        let file = File::open(&self.path)?;
        let mut headers = vec![0; MAX_HEADER_BYTES];
        let read = file.read_at(&mut headers, 0)?;
        let address = self.base.0.wrapping_add(offset.0);
        let at = file_offset(&headers[..read], address);
        let at = at.ok_or_else(|| io::Error::other("no segment has the address"))?;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

impl CodeBytes for KernelCode {
    fn read(&self, offset: ImageOffset, length: u64) -> io::Result<Vec<u8>> {
        self.read_memory(offset, length).map_err(|error| {
            let path = self.path.display();
            io::Error::other(format!("{path}: {error}; it needs root and CONFIG_PROC_KCORE"))
        })
    }
}

/// Returns the file offset of an address in an ELF file that begins with these bytes.
fn file_offset(headers: &[u8], address: u64) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(headers).ok()?;
    let endian = header.endian().ok()?;
    header.program_headers(endian, headers).ok()?.iter().find_map(|segment| {
        let at = address.checked_sub(segment.p_vaddr(endian))?;
        let is_within = segment.p_type(endian) == elf::PT_LOAD && at < segment.p_memsz(endian);
        segment.p_offset(endian).checked_add(at).filter(|_| is_within)
    })
}

/// The code of a kernel in its file.
pub(crate) struct KernelFile {
    /// The whole file.
    pub(crate) bytes: Section,
    /// Its segments.
    pub(crate) segments: Segments,
    /// The address from which offsets count.
    pub(crate) start: ImageAddress,
}

impl CodeBytes for KernelFile {
    fn read(&self, offset: ImageOffset, length: u64) -> io::Result<Vec<u8>> {
        let address = ImageAddress(self.start.0.wrapping_add(offset.0));
        let found = self.segments.file_offset(address);
        let (FileOffset(at), size) =
            found.ok_or_else(|| io::Error::other("the kernel's file has no code there"))?;
        self.bytes.read(at, length.min(size)).map(std::borrow::Cow::into_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of memory at `address`.
    fn memory(address: u64, bytes: &[u8]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        for half in [4_u16, 62] {
            file.extend_from_slice(&half.to_le_bytes());
        }
        file.extend_from_slice(&1_u32.to_le_bytes());
        for word in [0, 64_u64, 0] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&0_u32.to_le_bytes());
        for half in [64_u16, 56, 1, 0, 0, 0] {
            file.extend_from_slice(&half.to_le_bytes());
        }
        for word in [1_u32, 5] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        let length = bytes.len() as u64;
        for word in [120, address, 0, length, length, 1] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(bytes);
        file
    }

    #[test]
    fn memory_is_read_at_the_distance_from_the_base() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kcore");
        let base = RuntimeAddress(0xffff_ffff_8100_0000);
        std::fs::write(&path, memory(base.0, b"0123456789")).unwrap();
        let code = KernelCode { path: path.clone(), base };
        assert_eq!(code.read(ImageOffset(3), 4).unwrap(), b"3456");
        for (offset, length) in [(10, 1), (8, 4)] {
            let error = code.read(ImageOffset(offset), length).unwrap_err().to_string();
            assert!(error.contains("kcore") && error.contains("root"), "{error}");
        }
        std::fs::write(&path, b"\x7fELF").unwrap();
        assert!(code.read(ImageOffset(3), 4).is_err());
    }
}
