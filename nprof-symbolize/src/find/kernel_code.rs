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
const MAX_HEADER_BYTES: u64 = 1 << 20;

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
        let remedy = |error: io::Error| format!("{error}; it needs root and CONFIG_PROC_KCORE");
        let file = File::open(&self.path).map_err(|error| io::Error::other(remedy(error)))?;
        let headers = read_headers(&file)?;
        let address = self.base.0.wrapping_add(offset.0);
        let at = file_offset(&headers, address);
        let at = at.ok_or_else(|| io::Error::other(format!("no segment has {address:#x}")))?;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

impl CodeBytes for KernelCode {
    fn read(&self, offset: ImageOffset, length: u64) -> io::Result<Vec<u8>> {
        self.read_memory(offset, length).map_err(|error| {
            let path = self.path.display();
            io::Error::other(format!("{path}: {error}"))
        })
    }
}

/// Reads the start of an ELF file up to the end of its program headers.
fn read_headers(file: &File) -> io::Result<Vec<u8>> {
    let damaged = || io::Error::other("no ELF file of 64 bits with program headers");
    let mut start = [0; size_of::<FileHeader64<Endianness>>()];
    file.read_exact_at(&mut start, 0).map_err(|_| damaged())?;
    let header = FileHeader64::<Endianness>::parse(&start[..]).map_err(|_| damaged())?;
    let endian = header.endian().map_err(|_| damaged())?;
    let (at, count) = (header.e_phoff(endian), u64::from(header.e_phnum(endian)));
    let size = u64::from(header.e_phentsize(endian)).saturating_mul(count);
    let end = at.checked_add(size).filter(|&end| count > 0 && end <= MAX_HEADER_BYTES);
    let mut headers = vec![0; end.ok_or_else(damaged)? as usize];
    file.read_exact_at(&mut headers, 0).map_err(|_| damaged())?;
    Ok(headers)
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
            assert!(error.contains("kcore"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = code.read(ImageOffset(3), 4).unwrap_err().to_string();
        assert!(error.contains("root and CONFIG_PROC_KCORE"), "{error}");
    }

    #[test]
    fn damaged_memory_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kcore");
        let base = RuntimeAddress(0xffff_ffff_8100_0000);
        let code = KernelCode { path: path.clone(), base };
        let whole = memory(base.0, b"0123456789");
        let with = |at: usize, bytes: &[u8]| {
            let mut file = whole.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            file
        };
        let offset_of_headers = 32;
        for (file, reason) in [
            (whole[..40].to_vec(), "no ELF file"),
            (whole[..100].to_vec(), "no ELF file"),
            (with(4, &[1]), "no ELF file"),
            (with(offset_of_headers, &u64::MAX.to_le_bytes()), "no ELF file"),
            (with(offset_of_headers, &(1_u64 << 20).to_le_bytes()), "no ELF file"),
            // A segment of another type, and one without bytes.
            (with(64, &[4]), "no segment has 0xffffffff81000003"),
            (with(64 + 40, &[0; 8]), "no segment has 0xffffffff81000003"),
            (whole[..125].to_vec(), "fill whole buffer"),
        ] {
            std::fs::write(&path, file).unwrap();
            let error = code.read(ImageOffset(3), 4).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(code.read(ImageOffset(3), 4).unwrap(), b"3456");
    }
}
