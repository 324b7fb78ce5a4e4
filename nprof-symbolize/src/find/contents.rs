//! What is taken from the files of an image once they are found: symbols, stubs, where functions
//! begin, and the symbols that are packed in it.

use std::path::PathBuf;

use nprof_stream::Status;
use object::elf;

use super::decompress;
use super::elf_file::ElfFile;
use super::failure::Failure;
use super::search_log::SearchLog;
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::plt;
use crate::elf::symbol_table::{SymbolTable, SymbolTableBuilder};

/// The largest unwind table and the largest `.gnu_debugdata` that are read, bytes.
const LARGEST: u64 = 256 << 20;

/// The first full symbol table, else what the first file exports; and the stubs of that.
pub(super) fn symbols(files: &[ElfFile], trace: &SearchLog) -> SymbolTable {
    let mut symbols = SymbolTableBuilder::default();
    let full = files.iter().find(|file| file.headers.has_symbols());
    if let Some(source) = full.or(files.first()) {
        let (kind, table) = match full {
            Some(_) => (elf::SHT_SYMTAB, ".symtab"),
            None => (elf::SHT_DYNSYM, ".dynsym"),
        };
        symbols.add_elf(&source.headers, &source.data(), kind.0);
        trace.tried(&source.path, format!("names from {table}"));
    }
    if let Some(image) = files.first() {
        plt::add_stubs(&mut symbols, &image.headers, &image.data());
    }
    let symbols = symbols.build();
    trace.note(format!("symbols: names for {} ranges", symbols.len()));
    symbols
}

/// The functions of the image's unwind table.
pub(super) fn function_ranges(files: &[ElfFile], trace: &SearchLog) -> FunctionRanges {
    let section = files.first().and_then(|file| Some((file, file.headers.section(b".eh_frame")?)));
    let Some((file, section)) = section else { return FunctionRanges::default() };
    let little_endian = file.headers.endian == object::Endianness::Little;
    let address_size = if file.headers.is_64 { 8 } else { 4 };
    let bytes = file.whole(b".eh_frame", LARGEST);
    let function_ranges =
        FunctionRanges::read(&bytes, section.address, little_endian, address_size);
    trace.tried(&file.path, format!("{} functions in .eh_frame", function_ranges.len()));
    function_ranges
}

/// The small ELF file that some distributions leave in stripped images: their symbols, packed.
pub(super) fn debug_data(image: &ElfFile, trace: &SearchLog) -> Option<ElfFile> {
    const NAME: &[u8] = b".gnu_debugdata";
    image.headers.section(NAME)?;
    let label = PathBuf::from(format!("{}(.gnu_debugdata)", image.path.display()));
    let bytes = decompress::debug_data(&image.whole(NAME, LARGEST));
    let bytes =
        bytes.map_err(|error| Failure { status: Status::Unreadable, why: format!("{error:#}") });
    match bytes.and_then(|bytes| ElfFile::of_bytes(&label, bytes)) {
        Ok(file) => {
            trace.tried(&label, format!("is part of the image: {}", file.description()));
            Some(file)
        }
        Err(failure) => {
            trace.tried(&label, failure.why);
            None
        }
    }
}
