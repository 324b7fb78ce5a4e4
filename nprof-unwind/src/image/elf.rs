//! Reads ELF files: build ID, code segments, entry point, unwind tables.
//!
//! Only these ranges are read, and the file is never mapped: a mapped file that is truncated raises
//! SIGBUS and would end the recording.

use std::cell::Cell;
use std::io::{Read, Seek};
use std::rc::Rc;

use nprof_object::elf::{build_id_of_segments, program_headers, segments};
use nprof_object::{FileOffset, ImageAddress, Segments};
use nprof_stream::LoadSegment;
use object::elf::{self, FileHeader32, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, FileKind, ReadCache, ReadRef, StringTable};

use crate::arch::{Machine, Plt};
use crate::image::cfi::{UnwindSection, UnwindSections, UnwindTables};
use crate::image::go_table::GoTable;

/// The most bytes of unwind tables read from one file. The largest programs have tens of MiB; a
/// sparse file can claim any size.
const TABLES_MAX_BYTES: u64 = 64 << 20;

/// The most program headers of a file. Linked files have about ten.
const PROGRAMS_MAX: u32 = 1 << 10;

/// The most section headers of a file. Linked files have tens.
const SECTIONS_MAX: u32 = 1 << 13;

/// The most bytes of names of sections read from one file. Those of linked files take some hundred.
const NAMES_MAX_BYTES: u64 = 1 << 20;

/// The most bytes of notes read from one file. The build ID is in the first few hundred.
const NOTES_MAX_BYTES: u64 = 64 << 10;

/// The most segments of notes that are searched for that of Go. Linked files have two.
const NOTES_MAX: usize = 4;

/// The bytes of the function at the entry point (`_start`): it is short assembly without a size. The longest known
/// is that of Free Pascal, 73 bytes.
const ENTRY_BYTES: u64 = 80;

/// The sections with the table of a Go program; the second is that of PIE up to Go 1.25.
const GO_TABLES: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];

/// The section headers of a file, with their names.
type Sections<'data> = SectionTable<'data, FileHeader64<Endianness>>;

/// The headers of an ELF file, for identification and unwinding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The GNU build ID; empty if there is none.
    pub build_id: Vec<u8>,
    /// True if Go linked the file: its functions preserve other registers.
    pub is_go: bool,
    /// The architecture. None if stacks of the file are not unwound, as of 32-bit programs.
    pub machine: Option<Machine>,
    entry: ImageAddress,
    /// The loaded segments.
    loaded: Segments,
    /// The executable ones.
    code: Segments,
}

impl Elf {
    /// Reads the headers. None if the file is no valid ELF file.
    pub fn read<R: Read + Seek>(cache: &ReadCache<R>) -> Option<Self> {
        match FileKind::parse(cache).ok()? {
            FileKind::Elf64 => read_headers::<FileHeader64<Endianness>, _>(cache),
            // 32-bit programs are identified, but not unwound.
            FileKind::Elf32 => read_headers::<FileHeader32<Endianness>, _>(cache),
            _ => None,
        }
    }

    /// Returns the loaded segments as an extra of the image. None if there are none, or too many.
    pub fn load(&self) -> Option<String> {
        LoadSegment::encode(self.loaded.iter().map(|segment| LoadSegment {
            offset: segment.offset.0,
            address: segment.address.0,
            size: segment.size,
            executable: segment.executable,
        }))
    }

    /// Returns the image address of a file offset. None if it is no executable code.
    pub fn image_address(&self, offset: FileOffset) -> Option<ImageAddress> {
        self.code.image_address(offset)
    }

    /// Returns the file offset of an image address, and the bytes of code from there on. None if
    /// it is no executable code.
    pub fn file_offset(&self, address: ImageAddress) -> Option<(FileOffset, u64)> {
        self.code.file_offset(address)
    }

    /// Returns the number of bytes of executable code.
    pub fn code_bytes(&self) -> u64 {
        self.code.iter().fold(0, |sum, segment| sum.saturating_add(segment.size))
    }

    /// Returns the file offset of the entry point.
    pub fn entry_offset(&self) -> Option<FileOffset> {
        self.file_offset(self.entry).map(|(offset, _)| offset)
    }

    /// True if an image address is in the function at the entry point.
    pub fn is_entry(&self, address: ImageAddress) -> bool {
        // An object without an entry point, such as most libraries, has 0 there.
        self.entry.0 != 0 && address.offset_from(self.entry).is_some_and(|at| at < ENTRY_BYTES)
    }
}

fn read_headers<'data, H, R>(data: R) -> Option<Elf>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let programs = program_headers(header, endian, data, PROGRAMS_MAX)?;
    let build_id = build_id_of_segments(endian, programs, data, NOTES_MAX_BYTES);
    let loaded = segments(endian, programs);
    Some(Elf {
        build_id: build_id.unwrap_or_default(),
        machine: Machine::of_elf(header.e_machine(endian)).filter(|_| header.is_class_64()),
        is_go: has_go_note(endian, programs, data),
        entry: ImageAddress(header.e_entry(endian).into()),
        code: loaded.executable(),
        loaded,
    })
}

/// True if a file has the note in which Go's linker stores its build ID (`.note.go.buildid`).
fn has_go_note<'data, P, R>(endian: Endianness, programs: &[P], data: R) -> bool
where
    P: ProgramHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let is_note = |program: &&P| {
        program.p_type(endian) == elf::PT_NOTE && program.p_filesz(endian).into() <= NOTES_MAX_BYTES
    };
    programs.iter().filter(is_note).take(NOTES_MAX).any(|program| {
        let Ok(Some(mut notes)) = program.notes(endian, data) else { return false };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Go" {
                return true;
            }
        }
        false
    })
}

/// Reads the unwind tables of a 64-bit file. None if it has none.
pub fn read_tables<R: Read + Seek>(cache: &ReadCache<R>) -> Option<UnwindTables> {
    let header = FileHeader64::<Endianness>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let machine = Machine::of_elf(header.e_machine(endian))?;
    // The stacks that are unwound are little-endian.
    if endian != Endianness::Little {
        return None;
    }
    if header.shnum(endian, cache).ok()? > SECTIONS_MAX {
        return None;
    }
    let sections = sections(header, endian, cache)?;
    let left = Cell::new(TABLES_MAX_BYTES);
    let section = |name: &[u8]| read_section(&sections, endian, cache, name, &left);
    let mut tables = UnwindSections {
        machine,
        text: section_address(&sections, endian, b".text"),
        got: section_address(&sections, endian, b".got"),
        eh_frame: section(b".eh_frame"),
        eh_frame_hdr: section(b".eh_frame_hdr"),
        debug_frame: None,
        plts: Vec::new(),
        go: None,
    };
    if tables.eh_frame.is_none() {
        (tables.eh_frame_hdr, tables.eh_frame) = tables_without_sections(header, endian, cache);
    }
    // After .eh_frame, which has all functions of usual programs: it gets the budget first.
    let go = GO_TABLES.iter().filter(|_| machine == Machine::X86_64).find_map(|name| section(name));
    let entry = ImageAddress(header.e_entry(endian));
    tables.go = go.and_then(|section| GoTable::read(section.bytes, entry));
    if tables.go.is_none() {
        tables.debug_frame = section(b".debug_frame");
    }
    for &(name, has_header) in machine.plt_sections() {
        if let Some((_, section)) = sections.section_by_name(endian, name) {
            let (address, size) = (section.sh_addr(endian), section.sh_size(endian));
            tables.plts.push(Plt { address: ImageAddress(address), size, has_header });
        }
    }
    UnwindTables::new(tables)
}

/// Returns the section headers of a file with their names, which are read at once: [`ReadCache`] would
/// read a file for each.
fn sections<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> Option<Sections<'data>> {
    let headers = header.section_headers(endian, data).ok()?;
    if headers.is_empty() {
        return Some(SectionTable::new(headers, StringTable::default()));
    }
    let index = header.section_strings_index(endian, data).ok()?;
    let range = headers.get(index.0)?.file_range(endian);
    let read = |(at, size): (u64, u64)| data.read_bytes_at(at, size.min(NAMES_MAX_BYTES)).ok();
    // Without names, as in a truncated file, the program headers still lead to the tables.
    let names = range.and_then(read).unwrap_or_default();
    let names = StringTable::new(names, 0, names.len() as u64);
    Some(SectionTable::new(headers, names))
}

/// Returns the image address of a section; 0 if there is none.
fn section_address(sections: &Sections<'_>, endian: Endianness, name: &[u8]) -> u64 {
    sections.section_by_name(endian, name).map_or(0, |(_, section)| section.sh_addr(endian))
}

/// Reads a section, decompressed, if it fits in the remaining bytes `left`.
fn read_section<'data, R: ReadRef<'data>>(
    sections: &Sections<'data>,
    endian: Endianness,
    data: R,
    name: &[u8],
    left: &Cell<u64>,
) -> Option<UnwindSection> {
    let (_, section) = sections.section_by_name(endian, name)?;
    let size: u64 = section.sh_size(endian);
    // In files of separate debug information, .eh_frame is empty (SHT_NOBITS).
    if size == 0 {
        return None;
    }
    let take = |size| left.get().checked_sub(size).map(|rest| left.set(rest));
    take(size)?;
    let bytes: Rc<[u8]> = match section.compression(endian, data).ok()? {
        None => section.data(endian, data).ok()?.into(),
        Some((header, offset, size)) => {
            use object::read::elf::CompressionHeader;
            let uncompressed_size = header.ch_size(endian);
            // zstd (ELFCOMPRESS_ZSTD) is not supported.
            if header.ch_type(endian) != elf::ELFCOMPRESS_ZLIB {
                return None;
            }
            // The decompressed bytes stay in memory, so they count, too.
            take(uncompressed_size)?;
            let format = object::CompressionFormat::Zlib;
            let data = data.read_bytes_at(offset, size).ok()?;
            let compressed = object::CompressedData { format, data, uncompressed_size };
            compressed.decompress().ok()?.as_ref().into()
        }
    };
    Some(UnwindSection { address: section.sh_addr(endian), bytes })
}

/// Reads `.eh_frame_hdr` and `.eh_frame` of a file without section headers.
///
/// The first is a segment of its own (PT_GNU_EH_FRAME) and has the address of the second. The
/// length of the second is unknown: it is read to the end of its segment. Each is limited to
/// [`TABLES_MAX_BYTES`].
fn tables_without_sections<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> (Option<UnwindSection>, Option<UnwindSection>) {
    let Some(programs) = program_headers(header, endian, data, PROGRAMS_MAX) else {
        return (None, None);
    };
    let is_index = |program: &&ProgramHeader64<Endianness>| {
        program.p_type(endian) == elf::PT_GNU_EH_FRAME
            && program.p_filesz(endian) <= TABLES_MAX_BYTES
    };
    let Some(index) = programs.iter().find(is_index) else { return (None, None) };
    let Ok(bytes) = index.data(endian, data) else { return (None, None) };
    let index = UnwindSection { address: index.p_vaddr(endian), bytes: bytes.into() };
    let Some(address) = index.eh_frame_address() else { return (None, None) };
    let frames = programs.iter().find_map(|program| {
        let (offset, size) = program.file_range(endian);
        let at = address.checked_sub(program.p_vaddr(endian)).filter(|&at| at < size)?;
        let is_loaded = program.p_type(endian) == elf::PT_LOAD && size - at <= TABLES_MAX_BYTES;
        let offset = offset.checked_add(at).filter(|_| is_loaded)?;
        let bytes = data.read_bytes_at(offset, size - at).ok()?;
        Some(UnwindSection { address, bytes: bytes.into() })
    });
    (Some(index), frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_object::Segment;
    use std::io::{Cursor, SeekFrom};

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a path")).expect("this program")
    }

    #[test]
    fn own_program_has_code_and_tables() {
        let cache = ReadCache::new(Cursor::new(own()));
        let elf = Elf::read(&cache).expect("an ELF file");
        let &Segment { offset, size, address, .. } = elf.code.iter().next().expect("code");
        assert_eq!(elf.image_address(offset.wrapping_add(5)), Some(address.wrapping_add(5)));
        assert_eq!(elf.image_address(offset.wrapping_add(size)), None);
        assert!(elf.is_entry(elf.entry) && !elf.is_entry(elf.entry.wrapping_add(ENTRY_BYTES)));
        let mut cfi = read_tables(&cache).expect("tables");
        assert!(cfi.rule(elf.entry.wrapping_add(1)).is_some());
        assert!(cfi.rule(ImageAddress(0)).is_none());
    }

    #[test]
    fn each_executable_segment_has_its_own_distance() {
        let segment = |offset, size, address| Segment {
            offset: FileOffset(offset),
            size,
            address: ImageAddress(address),
            executable: true,
        };
        let code = [segment(0x1000, 0x900, 0x40_1000), segment(0x1900, 0x500, 0x80_0900)];
        let elf = Elf { code: code.into_iter().collect(), ..Elf::default() };
        let address = |offset| elf.image_address(FileOffset(offset)).map(|address| address.0);
        assert_eq!(address(0x18ff), Some(0x40_18ff));
        assert_eq!(address(0x1900), Some(0x80_0900));
        assert_eq!(address(0xfff), None);
        assert_eq!(address(0x1e00), None);
    }

    #[test]
    fn malformed_files_do_not_panic() {
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

    /// A sparse file of 1 TiB that fails the test if much of it is read at once.
    struct Sparse(Cursor<Vec<u8>>);

    impl Read for Sparse {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(buffer.len() <= 1 << 20, "{} bytes at once", buffer.len());
            let read = self.0.read(buffer)?;
            buffer[read..].fill(0);
            Ok(buffer.len())
        }
    }

    impl Seek for Sparse {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            match to {
                SeekFrom::End(_) => Ok(1 << 40),
                to => self.0.seek(to),
            }
        }
    }

    /// Returns an ELF header that claims these numbers of program headers and sections, followed by
    /// `programs`: type, offset, size.
    fn claiming(e_phnum: u16, e_shnum: u16, programs: &[(u32, u64, u64)]) -> ReadCache<Sparse> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let halves = [3u16, 62].map(u16::to_le_bytes).concat();
        file.extend(halves.into_iter().chain(1u32.to_le_bytes()));
        let words = [0u64, 64, 4096].map(u64::to_le_bytes).concat();
        file.extend(words.into_iter().chain(0u32.to_le_bytes()));
        file.extend([64u16, 56, e_phnum, 64, e_shnum, 1].map(u16::to_le_bytes).concat());
        for &(p_type, offset, size) in programs {
            file.extend([p_type, 4].map(u32::to_le_bytes).concat());
            file.extend([offset, 0, 0, size, size, 4].map(u64::to_le_bytes).concat());
        }
        // The first section header: sh_size has the number of sections, sh_info that of programs.
        file.resize(4096 + 64, 0);
        file[4096 + 32..4096 + 40].copy_from_slice(&(1u64 << 28).to_le_bytes());
        file[4096 + 44..4096 + 48].copy_from_slice(&(1u32 << 28).to_le_bytes());
        ReadCache::new(Sparse(Cursor::new(file)))
    }

    #[test]
    fn large_claims_of_sparse_file_are_not_read() {
        let (note, huge) = (elf::PT_NOTE.0, 1 << 30);
        let cache = claiming(2, 0, &[(note, 8192, huge), (note, 8192, NOTES_MAX_BYTES + 1)]);
        assert_eq!(Elf::read(&cache).map(|elf| elf.build_id), Some(Vec::new()));
        assert!(read_tables(&cache).is_none(), "too many sections");
        assert!(Elf::read(&claiming(0xffff, 0, &[])).is_none(), "too many programs");
        assert!(Elf::read(&claiming(PROGRAMS_MAX as u16 + 1, 0, &[])).is_none());
        let notes = [(note, 8192, NOTES_MAX_BYTES); 1000];
        assert!(Elf::read(&claiming(1000, 0, &notes)).is_some());
        let index = [(elf::PT_GNU_EH_FRAME.0, 8192, huge)];
        assert!(read_tables(&claiming(1, 1, &index)).is_none());
    }
}
