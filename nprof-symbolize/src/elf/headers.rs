//! The headers of an ELF file: segments, sections, build ID, debug link. Pure over bytes.
//!
//! The file is not trusted: parts outside of its bounds are errors or are left out.

use anyhow::Context;
use nprof_object::Segments;
use nprof_object::elf::{build_id_of_section, build_id_of_segments};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{CompressionHeader, FileHeader, SectionHeader};
use object::{Endianness, FileKind, ReadRef};

use crate::elf::debug_link::{DebugLink, debug_link};

/// The longest section of notes that is read.
const MAX_NOTES_BYTES: u64 = 1 << 20;

/// The most program headers and the most sections that are read: a sparse file may claim any number.
/// Files compiled with one section per function have tens of thousands.
const MAX_HEADERS: u32 = 1 << 18;

/// The longest `.gnu_debuglink` that is read.
const MAX_LINK_BYTES: u64 = 64 << 10;

/// The compression of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Its bytes are not compressed.
    None,
    /// A compression header (`SHF_COMPRESSED`) states the type and the decompressed size; the
    /// compressed bytes begin `skip` bytes into the section.
    Elf { kind: u32, size: u64, skip: u64 },
    /// The older form of GNU: a section `.zdebug_*` that begins with `ZLIB` and a size.
    Gnu,
}

/// A section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its type, `SHT_*`.
    pub(crate) kind: u32,
    /// True if it has code.
    pub(crate) executable: bool,
    /// True if it is part of a section group, such as a type unit that many object files have.
    pub(crate) grouped: bool,
    /// The image address of its first byte, 0 if it is not loaded.
    pub(crate) address: u64,
    /// Its size in bytes; in the file, if it is compressed.
    pub(crate) size: u64,
    /// The file offset of its first byte. None if the file does not have its bytes.
    pub(crate) offset: Option<u64>,
    /// The index of the section that it refers to.
    pub(crate) link: usize,
    /// The size of one entry in bytes, 0 if it has none.
    pub(crate) entry_size: u64,
    /// Its compression.
    pub(crate) compression: Compression,
}

/// The headers of an ELF file.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    /// True if addresses have 64 bits.
    pub(crate) is_64: bool,
    /// The byte order.
    pub(crate) endian: Endianness,
    /// The machine, `EM_*`.
    pub(crate) machine: u16,
    /// The loaded segments.
    pub(crate) segments: Segments,
    /// The sections by index.
    pub(crate) sections: Vec<Section>,
    /// The GNU build ID, empty if there is none.
    pub(crate) build_id: Vec<u8>,
    /// The link to the file with the debug information.
    pub(crate) debug_link: Option<DebugLink>,
}

impl Headers {
    /// Reads the headers of the ELF file in `data`.
    ///
    /// # Errors
    ///
    /// If it is no ELF file, or its headers lie outside of it or are too many.
    pub(crate) fn read<'d, R: ReadRef<'d>>(data: R) -> anyhow::Result<Self> {
        match FileKind::parse(data)? {
            FileKind::Elf32 => read::<FileHeader32<Endianness>, R>(data, false),
            FileKind::Elf64 => read::<FileHeader64<Endianness>, R>(data, true),
            // Parsing it as ELF gives an error that states the difference.
            _ => read::<FileHeader64<Endianness>, R>(data, true),
        }
    }

    /// Returns the first section of a name with bytes in the file, preferably outside of groups: a
    /// `.dwo` file has groups of type units besides its own (`-fdebug-types-section`).
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section> {
        // A stripped debug file keeps headers of sections without bytes (SHT_NOBITS).
        let mut named = self.sections.iter().filter(|s| s.name == name && s.offset.is_some());
        let first = named.next()?;
        if !first.grouped { Some(first) } else { named.find(|s| !s.grouped).or(Some(first)) }
    }

    /// True if the file has DWARF debug information.
    pub(crate) fn has_dwarf(&self) -> bool {
        let mut names = [&b".debug_info"[..], b".zdebug_info"].into_iter();
        names.any(|name| self.section(name).is_some_and(|section| section.size > 0))
    }

    /// Returns the size of the DWARF debug information in the file, in bytes, as compressed there.
    pub(crate) fn dwarf_size(&self) -> u64 {
        let is_dwarf = |section: &&Section| {
            section.name.starts_with(b".debug_") || section.name.starts_with(b".zdebug_")
        };
        let sections = self.sections.iter().filter(|section| section.offset.is_some());
        sections.filter(is_dwarf).fold(0, |sum, section| sum.saturating_add(section.size))
    }

    /// True if the file has a full symbol table.
    pub(crate) fn has_symbols(&self) -> bool {
        self.sections.iter().any(|s| s.kind == elf::SHT_SYMTAB.0 && s.offset.is_some())
    }
}

fn read<'d, Elf, R>(data: R, is_64: bool) -> anyhow::Result<Headers>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let programs = nprof_object::elf::program_headers(header, endian, data, MAX_HEADERS)
        .context("it has too many or unreadable program headers")?;
    // A file without section headers can still be executed, and has segments and a build ID.
    let table = match header.shnum(endian, data) {
        Ok(count) if count <= MAX_HEADERS => header.sections(endian, data).unwrap_or_default(),
        _ => Default::default(),
    };
    let mut headers = Headers {
        is_64,
        endian,
        machine: header.e_machine(endian).0,
        segments: nprof_object::elf::segments(endian, programs),
        sections: Vec::new(),
        build_id: Vec::new(),
        debug_link: None,
    };
    for section in table.iter() {
        let name = table.section_name(endian, section).unwrap_or_default();
        headers.sections.push(read_section::<Elf, R>(endian, data, section, name));
        if section.sh_type(endian) == elf::SHT_NOTE && headers.build_id.is_empty() {
            let build_id = build_id_of_section(endian, section, data, MAX_NOTES_BYTES);
            headers.build_id = build_id.unwrap_or_default();
        }
        if name == b".gnu_debuglink" && section.sh_size(endian).into() <= MAX_LINK_BYTES {
            headers.debug_link =
                section.data(endian, data).ok().and_then(|link| debug_link(endian, link));
        }
    }
    // The vDSO and files without section headers have their notes in segments only.
    if headers.build_id.is_empty() {
        let build_id = build_id_of_segments(endian, programs, data, MAX_NOTES_BYTES);
        headers.build_id = build_id.unwrap_or_default();
    }
    Ok(headers)
}

fn read_section<'d, Elf, R>(
    endian: Endianness,
    data: R,
    section: &'d Elf::SectionHeader,
    name: &[u8],
) -> Section
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let compression = match section.compression(endian, data) {
        Ok(Some((header, offset, _))) => Compression::Elf {
            kind: header.ch_type(endian).0,
            size: header.ch_size(endian).into(),
            // `compression` returns the offset in the file.
            skip: offset.saturating_sub(section.sh_offset(endian).into()),
        },
        _ if name.starts_with(b".zdebug_") => Compression::Gnu,
        _ => Compression::None,
    };
    Section {
        name: name.to_vec(),
        kind: section.sh_type(endian).0,
        executable: section.sh_flags(endian).0 & elf::SHF_EXECINSTR.0 != 0,
        grouped: section.sh_flags(endian).0 & elf::SHF_GROUP.0 != 0,
        address: section.sh_addr(endian).into(),
        size: section.sh_size(endian).into(),
        offset: section.file_range(endian).map(|(offset, _)| offset),
        link: section.sh_link(endian) as usize,
        entry_size: section.sh_entsize(endian).into(),
        compression,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_file_is_an_error() {
        let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let whole = Headers::read(&exe[..]).unwrap();
        assert!(whole.segments.iter().any(|segment| segment.executable));
        assert!(whole.has_symbols());
        for length in (0..0x400).chain([exe.len() / 2, exe.len() - 1]) {
            let _ = Headers::read(&exe[..length]);
        }
    }
}
