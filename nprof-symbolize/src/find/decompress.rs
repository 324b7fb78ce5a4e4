//! Decompresses parts of ELF files within bounds: sections, and the ELF file in `.gnu_debugdata`.
//! Pure over bytes.

use std::io::Read;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use object::elf;
use object::read::{CompressedData, CompressionFormat};

use crate::elf::headers::Compression;

/// The largest decompressed section.
const MAX_SECTION_BYTES: u64 = 1 << 31;

/// The most bytes that deflate encodes in one byte (RFC 1951: a match of 258 bytes takes two bits).
const MAX_DEFLATE_RATIO: u64 = 1032;

/// The largest decompressed file in `.gnu_debugdata`, which has symbols only.
const MAX_DEBUG_DATA_BYTES: u64 = 256 << 20;

/// The memory of the xz decoder besides its output. xz -9 needs 65 MiB.
const MAX_DECODER_KIB: u32 = 128 << 10;

/// Decompresses a section.
///
/// # Errors
///
/// If its header is wrong, or it is too large.
pub(crate) fn section(compressed: &[u8], compression: Compression) -> anyhow::Result<Vec<u8>> {
    let (format, size, skip) = match compression {
        Compression::None => return Ok(compressed.to_vec()),
        Compression::Elf { kind, size, skip } if kind == elf::ELFCOMPRESS_ZLIB.0 => {
            (CompressionFormat::Zlib, size, skip)
        }
        Compression::Elf { kind, size, skip } if kind == elf::ELFCOMPRESS_ZSTD.0 => {
            (CompressionFormat::Zstandard, size, skip)
        }
        Compression::Elf { kind, .. } => bail!("unknown compression ({kind})"),
        Compression::Gnu => {
            let size = compressed.strip_prefix(b"ZLIB").and_then(|rest| rest.first_chunk::<8>());
            let size = size.context("the header of the compressed section is missing")?;
            // 4 bytes of `ZLIB`, 8 bytes of the size in big-endian order.
            (CompressionFormat::Zlib, u64::from_be_bytes(*size), 12)
        }
    };
    ensure!(size <= MAX_SECTION_BYTES, "{size} bytes decompressed: too large");
    let data = compressed
        .get(usize::try_from(skip)?..)
        .context("the compressed section is shorter than its header")?;
    let is_zlib = format == CompressionFormat::Zlib;
    // A header with a false size would reserve that much memory.
    let largest = (data.len() as u64 + 1) * MAX_DEFLATE_RATIO;
    ensure!(!is_zlib || size <= largest, "{size} bytes decompressed: more than it can hold");
    let section = CompressedData { format, data, uncompressed_size: size };
    Ok(section.decompress()?.into_owned())
}

/// Decompresses the ELF file in a section `.gnu_debugdata`.
///
/// # Errors
///
/// If it is not in the format of xz(1), or too large.
pub(crate) fn debug_data(compressed: &[u8]) -> anyhow::Result<Rc<[u8]>> {
    xz(compressed, MAX_DEBUG_DATA_BYTES)
}

fn xz(compressed: &[u8], max_bytes: u64) -> anyhow::Result<Rc<[u8]>> {
    let decoder = lzma_rust2::XzReader::new_mem_limit(compressed, false, MAX_DECODER_KIB);
    let mut bytes = Vec::new();
    decoder
        .take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .context("it is not in the format of xz(1)")?;
    ensure!(bytes.len() as u64 <= max_bytes, "more than {max_bytes} bytes decompressed: too large");
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_section_headers_are_rejected() {
        let huge = Compression::Elf { kind: elf::ELFCOMPRESS_ZLIB.0, size: u64::MAX, skip: 0 };
        assert!(section(b"abc", huge).unwrap_err().to_string().contains("too large"));
        let lying = Compression::Elf { kind: elf::ELFCOMPRESS_ZLIB.0, size: 1 << 30, skip: 0 };
        assert!(section(b"abc", lying).unwrap_err().to_string().contains("can hold"));
        let beyond = Compression::Elf { kind: elf::ELFCOMPRESS_ZSTD.0, size: 1, skip: 9 };
        assert!(section(b"abc", beyond).is_err());
        let strange = Compression::Elf { kind: 77, size: 1, skip: 0 };
        assert!(
            section(b"abc", strange).unwrap_err().to_string().contains("unknown compression (77)")
        );
        assert!(section(b"ZLIB\0\0", Compression::Gnu).is_err());
        assert_eq!(section(b"abc", Compression::None).unwrap(), b"abc");
    }

    #[test]
    fn data_that_is_not_xz_is_an_error() {
        assert!(debug_data(b"").is_err());
        assert!(debug_data(b"\xfd7zXZ\0\0\0").is_err());
        assert!(debug_data(&[0; 100]).is_err());
    }
}
