//! Program headers of ELF files, within bounds: a sparse file can claim any number of them.

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef};

use crate::address::{FileOffset, ImageAddress};
use crate::build_id;
use crate::segments::{Segment, Segments};

/// Returns the program headers. None if they cannot be read or there are more than `max`.
///
/// Linked files have tens of them. A number that the header's field cannot hold (`PN_XNUM`) is
/// stated by the first section header, which may claim any number.
pub fn program_headers<'data, H, R>(
    header: &H,
    endian: H::Endian,
    data: R,
    max: u32,
) -> Option<&'data [H::ProgramHeader]>
where
    H: FileHeader,
    R: ReadRef<'data>,
{
    let is_bounded = header.phnum(endian, data).is_ok_and(|count| count <= max);
    is_bounded.then(|| header.program_headers(endian, data).ok())?
}

/// Returns the loaded segments (`PT_LOAD`).
pub fn segments<P>(endian: Endianness, programs: &[P]) -> Segments
where
    P: ProgramHeader<Endian = Endianness>,
{
    // Only these are in memory: other segments describe parts of them, or have no bytes.
    let loaded = programs.iter().filter(|program| program.p_type(endian) == elf::PT_LOAD);
    loaded
        .map(|program| Segment {
            offset: FileOffset(program.p_offset(endian).into()),
            // p_memsz would include .bss, which has no bytes in the file.
            size: program.p_filesz(endian).into(),
            address: ImageAddress(program.p_vaddr(endian).into()),
            executable: program.p_flags(endian).0 & elf::PF_X.0 != 0,
        })
        .collect()
}

/// Returns the build ID in the segments of notes (`PT_NOTE`). None if there is none. Reads at most
/// `max_bytes` in all: the build ID is among the first few hundred bytes.
pub fn build_id_of_segments<'data, P, R>(
    endian: Endianness,
    programs: &[P],
    data: R,
    max_bytes: u64,
) -> Option<Vec<u8>>
where
    P: ProgramHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut bytes_left = max_bytes;
    for program in programs.iter().filter(|program| program.p_type(endian) == elf::PT_NOTE) {
        // A segment that is too large is skipped; a later, smaller one may hold the ID.
        let Some(left) = bytes_left.checked_sub(program.p_filesz(endian).into()) else { continue };
        bytes_left = left;
        // A debug file keeps the program headers but not the bytes they point to.
        let Ok(Some(notes)) = program.notes(endian, data) else { continue };
        let found = build_id::find::<P::Elf>(endian, notes);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the build ID in a section of notes (`SHT_NOTE`). None if there is none or the section
/// is larger than `max_bytes`.
///
/// In a file of separate debug information the sections are right where the program headers are
/// not: they still describe the file it was split from.
pub fn build_id_of_section<'data, S, R>(
    endian: Endianness,
    section: &S,
    data: R,
    max_bytes: u64,
) -> Option<Vec<u8>>
where
    S: SectionHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let is_bounded = section.sh_size(endian).into() <= max_bytes;
    let notes = is_bounded.then(|| section.notes(endian, data).ok()?)?;
    build_id::find::<S::Elf>(endian, notes?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::elf::FileHeader64;
    use object::read::elf::SectionTable;

    type Header = FileHeader64<Endianness>;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().expect("a path")).expect("this program")
    }

    #[test]
    fn own_program_has_code_and_one_build_id() {
        let file = own();
        let header = Header::parse(&file[..]).expect("an ELF file");
        let endian = header.endian().expect("a byte order");
        let programs = program_headers(header, endian, &file[..], 1 << 10).expect("headers");
        let segments = segments(endian, programs);
        let code = segments.iter().find(|segment| segment.executable).expect("code");
        let inside = code.offset.wrapping_add(5);
        assert_eq!(segments.image_address(inside), code.address.checked_add(5));
        let table: SectionTable<'_, Header> = header.sections(endian, &file[..]).expect("sections");
        let notes = table.iter().filter(|section| section.sh_type(endian) == elf::SHT_NOTE);
        let of_section = notes
            .filter_map(|section| build_id_of_section(endian, section, &file[..], 1 << 20))
            .next();
        assert_eq!(build_id_of_segments(endian, programs, &file[..], 1 << 16), of_section);
        assert_eq!(build_id_of_segments(endian, programs, &file[..], 0), None);
    }

    #[test]
    fn too_many_program_headers_are_refused() {
        let file = own();
        let header = Header::parse(&file[..]).expect("an ELF file");
        let endian = header.endian().expect("a byte order");
        assert!(program_headers(header, endian, &file[..], 1).is_none());
    }
}
