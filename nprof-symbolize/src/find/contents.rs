//! The contents of an image's files: symbols, PLT stubs, ranges of functions, and compressed symbols.

use std::path::PathBuf;

use nprof_object::ImageAddress;
use nprof_stream::Status;
use object::elf;

use super::decompress;
use super::elf_file::ElfFile;
use super::failure::Failure;
use super::search_log::SearchLog;
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::plt;
use crate::elf::symbol_table::{SymbolTable, SymbolTableBuilder};
use crate::go::GoTable;

/// The largest unwind table and the largest `.gnu_debugdata` that are read.
const MAX_BYTES: u64 = 256 << 20;

/// Reads the first full symbol table, and the exports and PLT stubs of the first file. `functions` are
/// those of its unwind table.
pub(super) fn symbols(
    files: &[ElfFile],
    functions: &FunctionRanges,
    log: &SearchLog,
) -> SymbolTable {
    let mut symbols = SymbolTableBuilder::default();
    let full = files.iter().find(|file| file.headers.has_symbols());
    if let Some(source) = full {
        symbols.add_elf(&source.headers, &source.data(), elf::SHT_SYMTAB.0);
        log.tried(&source.path, "names from .symtab");
    }
    if let Some(image) = files.first() {
        // Also with a full table: exports are the names that do not depend on debug files, and
        // MiniDebugInfo leaves them out.
        symbols.add_elf(&image.headers, &image.data(), elf::SHT_DYNSYM.0);
        if full.is_none() {
            log.tried(&image.path, "names from .dynsym");
        }
        // Debug files have no code, so that stubs come from the image.
        plt::add_stubs(&mut symbols, &image.headers, &image.data());
    }
    let symbols = symbols.build(functions);
    log.note(format!("symbols: names for {} ranges", symbols.len()));
    symbols
}

/// Reads the ranges of functions in the image's unwind table.
pub(super) fn function_ranges(files: &[ElfFile], log: &SearchLog) -> FunctionRanges {
    let section = files.first().and_then(|file| Some((file, file.headers.section(b".eh_frame")?)));
    let Some((file, section)) = section else { return FunctionRanges::default() };
    let little_endian = file.headers.endian == object::Endianness::Little;
    let address_size = if file.headers.is_64 { 8 } else { 4 };
    // Bounded: a sparse file may claim any size.
    let bytes = file.whole(b".eh_frame", MAX_BYTES);
    let function_ranges =
        FunctionRanges::read(&bytes, ImageAddress(section.address), little_endian, address_size);
    log.tried(&file.path, format!("{} functions in .eh_frame", function_ranges.len()));
    function_ranges
}

/// Reads the table of functions that every Go program keeps, stripped or not.
pub(super) fn go_table(image: &ElfFile, log: &SearchLog) -> Option<GoTable> {
    let table = GoTable::read(&image.bytes(), &image.headers)?;
    let inlined = if table.has_inlined_calls() { "inlined calls and " } else { "" };
    let count = table.len();
    log.tried(
        &image.path,
        format!("names, {inlined}lines of {count} Go functions from .gopclntab"),
    );
    Some(table)
}

/// Opens the ELF file inside of stripped images of some distributions (MiniDebugInfo): symbols,
/// compressed.
pub(super) fn debug_data(image: &ElfFile, log: &SearchLog) -> Option<ElfFile> {
    const NAME: &[u8] = b".gnu_debugdata";
    image.headers.section(NAME)?;
    let label = PathBuf::from(format!("{}(.gnu_debugdata)", image.path.display()));
    let bytes = decompress::debug_data(&image.whole(NAME, MAX_BYTES));
    let bytes =
        bytes.map_err(|error| Failure { status: Status::Unreadable, reason: format!("{error:#}") });
    match bytes.and_then(|bytes| ElfFile::of_bytes(&label, bytes)) {
        Ok(file) => {
            log.tried(&label, format!("is part of the image: {}", file.description()));
            Some(file)
        }
        Err(failure) => {
            log.tried(&label, failure.reason);
            None
        }
    }
}
