//! Unpacks what is packed in ELF files, within bounds: compressed sections, and the small ELF
//! file in `.gnu_debugdata`. Pure over bytes.

use std::io::Read;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use object::elf;
use object::read::{CompressedData, CompressionFormat};

use crate::elf::headers::Compression;

/// The largest section once it is unpacked, bytes.
const SECTION: u64 = 1 << 31;

/// How many bytes deflate makes of one at most (RFC 1951: 258 of two bits).
const DEFLATE: u64 = 1032;

/// The largest file in `.gnu_debugdata` once it is unpacked, bytes. It holds nothing but symbols.
const DEBUG_DATA: u64 = 256 << 20;

/// The memory the xz decoder may take beside what it gives, KiB.
const DECODER: u32 = 128 << 10;

/// Unpacks a section.
///
/// # Errors
///
/// When it is not what its header says, or too large.
pub(crate) fn section(packed: &[u8], packing: Compression) -> anyhow::Result<Vec<u8>> {
    let (format, size, skip) = match packing {
        Compression::None => return Ok(packed.to_vec()),
        Compression::Elf { kind, size, skip } if kind == elf::ELFCOMPRESS_ZLIB.0 => {
            (CompressionFormat::Zlib, size, skip)
        }
        Compression::Elf { kind, size, skip } if kind == elf::ELFCOMPRESS_ZSTD.0 => {
            (CompressionFormat::Zstandard, size, skip)
        }
        Compression::Elf { kind, .. } => bail!("compressed in a way that is not known ({kind})"),
        Compression::Gnu => {
            let size = packed.strip_prefix(b"ZLIB").and_then(|rest| rest.first_chunk::<8>());
            let size = size.context("a compressed section without its header")?;
            (CompressionFormat::Zlib, u64::from_be_bytes(*size), 12)
        }
    };
    ensure!(size <= SECTION, "{size} bytes once unpacked: too large");
    let data = packed.get(usize::try_from(skip)?..).context("shorter than its header")?;
    let is_zlib = format == CompressionFormat::Zlib;
    let largest = (data.len() as u64 + 1) * DEFLATE;
    ensure!(!is_zlib || size <= largest, "{size} bytes once unpacked: more than it can hold");
    let packed = CompressedData { format, data, uncompressed_size: size };
    Ok(packed.decompress()?.into_owned())
}

/// Unpacks the ELF file in a section `.gnu_debugdata`.
///
/// # Errors
///
/// When it is not in the format of xz(1), or too large.
pub(crate) fn debug_data(packed: &[u8]) -> anyhow::Result<Rc<[u8]>> {
    xz(packed, DEBUG_DATA)
}

fn xz(packed: &[u8], limit: u64) -> anyhow::Result<Rc<[u8]>> {
    let decoder = lzma_rust2::XzReader::new_mem_limit(packed, false, DECODER);
    let mut bytes = Vec::new();
    decoder.take(limit + 1).read_to_end(&mut bytes).context("it is not as xz(1) packs")?;
    ensure!(bytes.len() as u64 <= limit, "more than {limit} bytes once unpacked: too large");
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_section_says_of_itself_is_not_believed() {
        let huge = Compression::Elf { kind: elf::ELFCOMPRESS_ZLIB.0, size: u64::MAX, skip: 0 };
        assert!(section(b"abc", huge).unwrap_err().to_string().contains("too large"));
        let lying = Compression::Elf { kind: elf::ELFCOMPRESS_ZLIB.0, size: 1 << 30, skip: 0 };
        assert!(section(b"abc", lying).unwrap_err().to_string().contains("can hold"));
        let beyond = Compression::Elf { kind: elf::ELFCOMPRESS_ZSTD.0, size: 1, skip: 9 };
        assert!(section(b"abc", beyond).is_err());
        let strange = Compression::Elf { kind: 77, size: 1, skip: 0 };
        assert!(section(b"abc", strange).unwrap_err().to_string().contains("not known (77)"));
        assert!(section(b"ZLIB\0\0", Compression::Gnu).is_err());
        assert_eq!(section(b"abc", Compression::None).unwrap(), b"abc");
    }

    #[test]
    fn what_is_not_xz_is_an_error() {
        assert!(debug_data(b"").is_err());
        assert!(debug_data(b"\xfd7zXZ\0\0\0").is_err());
        assert!(debug_data(&[0; 100]).is_err());
    }
}
