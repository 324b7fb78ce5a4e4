//! What an ELF file says about itself: segments, sections, build ID, debug link. Pure over bytes.
//!
//! Nothing here trusts the file: what is out of its bounds is an error or is left out.

use anyhow::ensure;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{
    CompressionHeader, FileHeader, NoteIterator, ProgramHeader, SectionHeader,
};
use object::{Endianness, FileKind, ReadRef};

use crate::elf::debug_link::{DebugLink, debug_link};

/// The longest section of notes that is read, bytes.
const NOTES: u64 = 1 << 20;

/// The most program headers and the most sections that are read.
const HEADERS: u32 = 1 << 18;

/// The longest `.gnu_debuglink` that is read, bytes.
const LINK: u64 = 64 << 10;

/// The longest build ID, bytes; longer ones are none.
const BUILD_ID: usize = nprof_stream::limits::BUILD_ID;

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// How many bytes of the file it holds.
    pub(crate) size: u64,
    /// The image address of its first byte.
    pub(crate) address: u64,
    /// Whether it may be executed.
    pub(crate) executable: bool,
}

/// How a section's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all.
    None,
    /// By an ELF compression header (`SHF_COMPRESSED`) with its type and unpacked size; the
    /// packed bytes begin this many bytes into the section.
    Elf { kind: u32, size: u64, skip: u64 },
    /// In the older way of GNU: a section `.zdebug_*` that begins with `ZLIB` and a size.
    Gnu,
}

/// A section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its type, `SHT_*`.
    pub(crate) kind: u32,
    /// Whether it holds code.
    pub(crate) executable: bool,
    /// Whether it is one of a group, as the types of a unit that are in many others, too.
    pub(crate) grouped: bool,
    /// The image address of its first byte, 0 when it is not loaded.
    pub(crate) address: u64,
    /// Its size, bytes; of what is in the file where it has contents there.
    pub(crate) size: u64,
    /// Where its bytes are in the file; `None` when the file does not have them.
    pub(crate) offset: Option<u64>,
    /// The index of the section it refers to.
    pub(crate) link: usize,
    /// The size of one entry, bytes; 0 when it has none.
    pub(crate) entry_size: u64,
    /// How its bytes are packed.
    pub(crate) packing: Compression,
}

/// The headers of an ELF file.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    /// Whether addresses have 64 bits.
    pub(crate) is_64: bool,
    /// The order of bytes.
    pub(crate) endian: Endianness,
    /// The machine, `EM_*`.
    pub(crate) machine: u16,
    /// What is loaded, in the file's order.
    pub(crate) segments: Vec<Segment>,
    /// The sections, by their index.
    pub(crate) sections: Vec<Section>,
    /// The GNU build ID, empty when there is none.
    pub(crate) build_id: Vec<u8>,
    /// Where the debug information may be.
    pub(crate) debug_link: Option<DebugLink>,
}

impl Headers {
    /// Reads the headers of the ELF file in `data`.
    ///
    /// # Errors
    ///
    /// When it is no ELF file, or its headers lie outside of it or are far too many.
    pub(crate) fn read<'d, R: ReadRef<'d>>(data: R) -> anyhow::Result<Self> {
        match FileKind::parse(data)? {
            FileKind::Elf32 => read::<FileHeader32<Endianness>, R>(data, false),
            FileKind::Elf64 => read::<FileHeader64<Endianness>, R>(data, true),
            // An error of the same type as the others: parsing it as ELF says what is wrong.
            _ => read::<FileHeader64<Endianness>, R>(data, true),
        }
    }

    /// The image address of a file offset: of the executable segment that holds it, else of any.
    ///
    /// Segments may share a page of the file; the code's is the one that was executed.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let holds = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|at| at < s.size);
        let code = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = code.or_else(|| self.segments.iter().find(holds))?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    /// The file offset of an image address, the way [`Headers::address`] goes.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        let holds = |s: &&Segment| address.checked_sub(s.address).is_some_and(|at| at < s.size);
        let code = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = code.or_else(|| self.segments.iter().find(holds))?;
        Some(segment.offset.wrapping_add(address - segment.address))
    }

    /// The first section of a name that has bytes in the file, and is in no group if there is one
    /// that is not: beside its unit a `.dwo` file has groups of types (`-fdebug-types-section`).
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section> {
        let mut named = self.sections.iter().filter(|s| s.name == name && s.offset.is_some());
        let first = named.next()?;
        if !first.grouped { Some(first) } else { named.find(|s| !s.grouped).or(Some(first)) }
    }

    /// Whether the file has DWARF debug information.
    pub(crate) fn has_dwarf(&self) -> bool {
        let mut names = [&b".debug_info"[..], b".zdebug_info"].into_iter();
        names.any(|name| self.section(name).is_some_and(|section| section.size > 0))
    }

    /// How much DWARF debug information the file has, bytes, as it is packed in the file.
    pub(crate) fn dwarf_size(&self) -> u64 {
        let is_dwarf = |section: &&Section| {
            section.name.starts_with(b".debug_") || section.name.starts_with(b".zdebug_")
        };
        let sections = self.sections.iter().filter(|section| section.offset.is_some());
        sections.filter(is_dwarf).fold(0, |sum, section| sum.saturating_add(section.size))
    }

    /// Whether the file has a full symbol table.
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
    // A file may have holes, and claim to have any number of them.
    ensure!(header.phnum(endian, data)? <= HEADERS, "it claims too many program headers");
    let program_headers = header.program_headers(endian, data)?;
    let segments = program_headers.iter().filter(|p| p.p_type(endian) == elf::PT_LOAD);
    let segments = segments.map(|p| Segment {
        offset: p.p_offset(endian).into(),
        size: p.p_filesz(endian).into(),
        address: p.p_vaddr(endian).into(),
        executable: p.p_flags(endian).0 & elf::PF_X.0 != 0,
    });
    let segments = segments.collect();
    // A file without section headers is whole as far as running it goes.
    let table = match header.shnum(endian, data) {
        Ok(count) if count <= HEADERS => header.sections(endian, data).unwrap_or_default(),
        _ => Default::default(),
    };
    let mut headers = Headers {
        is_64,
        endian,
        machine: header.e_machine(endian).0,
        segments,
        sections: Vec::new(),
        build_id: Vec::new(),
        debug_link: None,
    };
    for section in table.iter() {
        let name = table.section_name(endian, section).unwrap_or_default();
        headers.sections.push(read_section::<Elf, R>(endian, data, section, name));
        let is_note = section.sh_type(endian) == elf::SHT_NOTE;
        if is_note && headers.build_id.is_empty() && section.sh_size(endian).into() <= NOTES {
            let notes = section.notes(endian, data).ok().flatten();
            headers.build_id = build_id::<Elf>(endian, notes).unwrap_or_default();
        }
        if name == b".gnu_debuglink" && section.sh_size(endian).into() <= LINK {
            headers.debug_link =
                section.data(endian, data).ok().and_then(|link| debug_link(endian, link));
        }
    }
    if headers.build_id.is_empty() {
        let notes = program_headers.iter().filter(|p| p.p_filesz(endian).into() <= NOTES);
        let notes = notes.filter_map(|p| p.notes(endian, data).ok().flatten());
        let found = notes.into_iter().find_map(|notes| build_id::<Elf>(endian, Some(notes)));
        headers.build_id = found.unwrap_or_default();
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
    let packing = match section.compression(endian, data) {
        Ok(Some((header, offset, _))) => Compression::Elf {
            kind: header.ch_type(endian).0,
            size: header.ch_size(endian).into(),
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
        packing,
    }
}

fn build_id<Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    notes: Option<NoteIterator<'_, Elf>>,
) -> Option<Vec<u8>> {
    let mut notes = notes?;
    while let Ok(Some(note)) = notes.next() {
        let is_build_id =
            note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
        if is_build_id && (1..=BUILD_ID).contains(&note.desc().len()) {
            return Some(note.desc().to_vec());
        }
    }
    None
}

/// The build ID in bare notes, as the kernel shows its own in `/sys/kernel/notes`.
pub(crate) fn build_id_of_notes(notes: &[u8]) -> Option<Vec<u8>> {
    let endian = if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little };
    let notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, notes).ok();
    build_id(endian, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(segments: &[(u64, u64, u64, bool)]) -> Headers {
        let segments = segments.iter().map(|&(offset, size, address, executable)| Segment {
            offset,
            size,
            address,
            executable,
        });
        Headers {
            is_64: true,
            endian: Endianness::Little,
            machine: elf::EM_X86_64.0,
            segments: segments.collect(),
            sections: Vec::new(),
            build_id: Vec::new(),
            debug_link: None,
        }
    }

    #[test]
    fn the_executable_segment_wins_where_segments_share_a_page() {
        let headers = headers(&[
            (0, 0x2000, 0x40_0000, false),
            (0x1000, 0x1000, 0x50_1000, true),
            (0x2000, 0x10, 0x60_2000, false),
        ]);
        assert_eq!(headers.address(0x1800), Some(0x50_1800));
        assert_eq!(headers.address(0x800), Some(0x40_0800));
        assert_eq!(headers.address(0x200f), Some(0x60_200f));
        assert_eq!(headers.address(0x2010), None);
    }

    #[test]
    fn no_prefix_of_an_elf_file_is_more_than_an_error() {
        let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let whole = Headers::read(&exe[..]).unwrap();
        assert!(whole.segments.iter().any(|segment| segment.executable));
        assert!(whole.has_symbols());
        for length in (0..0x400).chain([exe.len() / 2, exe.len() - 1]) {
            let _ = Headers::read(&exe[..length]);
        }
    }
}
