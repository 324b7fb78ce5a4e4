//! What the recorder needs of an ELF file: its build ID, where its code stands, and its unwind
//! tables. Reads only those ranges, never maps the file: whoever truncates it later costs an
//! unwind table, not the recording.

use std::io::{Read, Seek};
use std::rc::Rc;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use crate::cfi::{Cfi, Table, Tables};
use crate::plt::Plt;

/// The most bytes of unwind tables read of one file.
const TABLES_MAX: u64 = 256 << 20;

/// How far behind the entry point its function reaches. It is hand-written and short.
const ENTRY_LENGTH: u64 = 64;

/// A segment of executable code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// An ELF file, as far as unwinding and identifying it goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elf {
    /// The GNU build ID; empty when there is none.
    pub(crate) build_id: Vec<u8>,
    entry: u64,
    code: Vec<Segment>,
}

impl Elf {
    /// Reads the headers; `None` when it is no ELF file that makes sense.
    pub(crate) fn read<R: Read + Seek>(cache: &ReadCache<R>) -> Option<Self> {
        match FileKind::parse(cache).ok()? {
            FileKind::Elf64 => read_headers::<FileHeader64<Endianness>, _>(cache),
            FileKind::Elf32 => read_headers::<FileHeader32<Endianness>, _>(cache),
            _ => None,
        }
    }

    /// The image address (as the file's own tables state addresses) of a file offset; `None`
    /// when no executable code stands there.
    ///
    /// Goes by the segment that holds the very byte. Linkers lay segments out so that their
    /// page-rounded ranges overlap in the file, and post-link optimizers add executable
    /// segments with other distances: no one distance is right for a whole mapping.
    pub(crate) fn image_address(&self, offset: u64) -> Option<u64> {
        let within = |segment: &&Segment| {
            offset.checked_sub(segment.offset).is_some_and(|at| at < segment.size)
        };
        let segment = self.code.iter().find(within)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Whether an image address lies in the function the program starts in.
    pub(crate) fn is_entry(&self, address: u64) -> bool {
        self.entry != 0 && address.checked_sub(self.entry).is_some_and(|at| at < ENTRY_LENGTH)
    }
}

fn read_headers<'data, H, R>(data: R) -> Option<Elf>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let programs = header.program_headers(endian, data).ok()?;
    let mut read = Elf { entry: header.e_entry(endian).into(), ..Elf::default() };
    for program in programs {
        let (offset, size) = program.file_range(endian);
        let is_code = program.p_flags(endian).0 & elf::PF_X.0 != 0;
        if program.p_type(endian) == elf::PT_LOAD && is_code {
            read.code.push(Segment { offset, size, address: program.p_vaddr(endian).into() });
        }
        let Ok(Some(mut notes)) = program.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            let is_id =
                note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
            if is_id && note.desc().len() <= nprof_format::limits::BUILD_ID {
                read.build_id = note.desc().to_vec();
            }
        }
    }
    Some(read)
}

/// Reads the unwind tables of a 64-bit file; `None` when it has none.
pub(crate) fn read_tables<R: Read + Seek>(cache: &ReadCache<R>) -> Option<Cfi> {
    let header = FileHeader64::<Endianness>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    if endian != Endianness::Little {
        return None;
    }
    let sections = header.sections(endian, cache).ok()?;
    let section = |name: &[u8]| read_section(&sections, endian, cache, name);
    let mut tables = Tables {
        text: section_address(&sections, endian, b".text"),
        got: section_address(&sections, endian, b".got"),
        eh_frame: section(b".eh_frame"),
        eh_frame_hdr: section(b".eh_frame_hdr"),
        debug_frame: None,
        plts: Vec::new(),
    };
    if tables.eh_frame.is_none() {
        (tables.eh_frame_hdr, tables.eh_frame) = tables_without_sections(header, endian, cache);
    }
    tables.debug_frame = section(b".debug_frame");
    for (name, has_header) in Plt::SECTIONS {
        if let Some((_, section)) = sections.section_by_name(endian, name) {
            let (address, size) = (section.sh_addr(endian), section.sh_size(endian));
            tables.plts.push(Plt { address, size, has_header });
        }
    }
    Cfi::new(tables)
}

fn section_address<'data, R: ReadRef<'data>>(
    sections: &SectionTable<'data, FileHeader64<Endianness>, R>,
    endian: Endianness,
    name: &[u8],
) -> u64 {
    sections.section_by_name(endian, name).map_or(0, |(_, section)| section.sh_addr(endian))
}

fn read_section<'data, R: ReadRef<'data>>(
    sections: &SectionTable<'data, FileHeader64<Endianness>, R>,
    endian: Endianness,
    data: R,
    name: &[u8],
) -> Option<Table> {
    let (_, section) = sections.section_by_name(endian, name)?;
    let size: u64 = section.sh_size(endian);
    if size == 0 || size > TABLES_MAX {
        return None;
    }
    let bytes: Rc<[u8]> = match section.compression(endian, data).ok()? {
        None => section.data(endian, data).ok()?.into(),
        Some((header, offset, size)) => {
            use object::read::elf::CompressionHeader;
            let uncompressed_size = header.ch_size(endian);
            if header.ch_type(endian) != elf::ELFCOMPRESS_ZLIB || uncompressed_size > TABLES_MAX {
                return None;
            }
            let format = object::CompressionFormat::Zlib;
            let data = data.read_bytes_at(offset, size).ok()?;
            let compressed = object::CompressedData { format, data, uncompressed_size };
            compressed.decompress().ok()?.as_ref().into()
        }
    };
    Some(Table { address: section.sh_addr(endian), bytes })
}

/// `.eh_frame_hdr` and `.eh_frame` of a file without section headers: the first is a segment of
/// its own, the second is taken to reach to the end of the segment that holds it.
fn tables_without_sections<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> (Option<Table>, Option<Table>) {
    let Ok(programs) = header.program_headers(endian, data) else { return (None, None) };
    let of = |wanted| programs.iter().find(|program| program.p_type(endian) == wanted);
    let Some(index) = of(elf::PT_GNU_EH_FRAME) else { return (None, None) };
    let Ok(bytes) = index.data(endian, data) else { return (None, None) };
    let index = Table { address: index.p_vaddr(endian), bytes: bytes.into() };
    let Some(address) = index.eh_frame_address() else { return (None, None) };
    let frames = programs.iter().find_map(|program| {
        let (offset, size) = program.file_range(endian);
        let at = address.checked_sub(program.p_vaddr(endian)).filter(|&at| at < size)?;
        let is_loaded = program.p_type(endian) == elf::PT_LOAD && size - at <= TABLES_MAX;
        let bytes =
            data.read_bytes_at(offset.checked_add(at)?, size - at).ok().filter(|_| is_loaded)?;
        Some(Table { address, bytes: bytes.into() })
    });
    (Some(index), frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a path")).expect("this program")
    }

    #[test]
    fn this_program_has_code_and_tables() {
        let cache = ReadCache::new(Cursor::new(own()));
        let elf = Elf::read(&cache).expect("an ELF file");
        let segment = elf.code[0];
        assert_eq!(elf.image_address(segment.offset + 5), Some(segment.address + 5));
        assert_eq!(elf.image_address(segment.offset + segment.size), None);
        assert!(elf.is_entry(elf.entry) && !elf.is_entry(elf.entry + ENTRY_LENGTH));
        let mut cfi = read_tables(&cache).expect("tables");
        assert!(cfi.row(elf.entry + 1).is_some());
        assert!(cfi.row(0).is_none());
    }

    #[test]
    fn each_executable_segment_has_its_own_distance() {
        let code = vec![
            Segment { offset: 0x1000, size: 0x900, address: 0x40_1000 },
            Segment { offset: 0x1900, size: 0x500, address: 0x80_0900 },
        ];
        let elf = Elf { code, ..Elf::default() };
        assert_eq!(elf.image_address(0x18ff), Some(0x40_18ff));
        assert_eq!(elf.image_address(0x1900), Some(0x80_0900));
        assert_eq!(elf.image_address(0xfff), None);
        assert_eq!(elf.image_address(0x1e00), None);
    }

    #[test]
    fn cut_and_wild_files_are_survived() {
        let whole = own();
        for length in [0, 1, 16, 63, 64, 100, 4096, whole.len() / 2] {
            let cache = ReadCache::new(Cursor::new(whole[..length].to_vec()));
            let _ = (Elf::read(&cache).is_some(), read_tables(&cache).is_some());
        }
        for at in (0..2048).step_by(8) {
            let mut wild = whole[..whole.len().min(1 << 20)].to_vec();
            wild[at..at + 8].fill(0xfe);
            let cache = ReadCache::new(Cursor::new(wild));
            let _ = (Elf::read(&cache).is_some(), read_tables(&cache).is_some());
        }
    }
}
