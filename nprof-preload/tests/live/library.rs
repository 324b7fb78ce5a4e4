//! The file of the library.

use nprof_preload::LIBRARY;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Object, ObjectSymbol};

/// One file serves programs with any C library, and without one.
#[test]
fn library_needs_no_other_library() {
    let file: ElfFile64<'_> = ElfFile64::parse(LIBRARY).unwrap();
    let undefined: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined() && symbol.name() != Ok(""))
        .map(|symbol| (symbol.name().unwrap(), symbol.is_weak()))
        .collect();
    assert_eq!(undefined, [("dl_iterate_phdr", true)]);
    let endian = file.endian();
    let segments = file.elf_header().program_headers(endian, LIBRARY).unwrap();
    let entries = segments
        .iter()
        .find_map(|segment| {
            object::read::elf::ProgramHeader::dynamic(segment, endian, LIBRARY).unwrap()
        })
        .unwrap();
    let needed =
        entries.iter().filter(|entry| entry.d_tag(endian) == object::elf::DT_NEEDED).count();
    assert_eq!(needed, 0);
}
