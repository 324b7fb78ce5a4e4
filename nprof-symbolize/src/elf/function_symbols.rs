//! The functions that the symbol tables of a file define or import, with all their names. Pure over
//! bytes.

use nprof_object::ImageAddress;
use object::elf::{self, Sym64};
use object::read::elf::Sym;
use object::{Endianness, ReadRef};

use crate::elf::headers::{Headers, Section};
use crate::elf::symbol_table::{MAX_NAMES_BYTES, MAX_SYMBOLS, string};

/// A symbol of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FunctionSymbol {
    /// The address of the first byte; 0 for an import.
    pub(crate) start: ImageAddress,
    /// Its size in bytes; 0 if the symbol has none.
    pub(crate) size: u64,
    /// Its meaning.
    pub(crate) kind: SymbolKind,
    /// Its linkage name, without a version.
    pub(crate) name: Vec<u8>,
}

/// The meaning of a symbol of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SymbolKind {
    /// A function.
    Function,
    /// The function that chooses an implementation when the program starts (`STT_GNU_IFUNC`).
    Indirect,
    /// Data in a section of code.
    Data,
    /// A function of another file.
    Import,
}

/// Appends the symbols of the tables of one kind (`SHT_SYMTAB`, `SHT_DYNSYM`) of a 64-bit file.
pub(crate) fn read<'d, R: ReadRef<'d>>(
    headers: &Headers,
    data: R,
    kind: u32,
    symbols: &mut Vec<FunctionSymbol>,
) {
    for table in headers.sections.iter().filter(|section| section.kind == kind) {
        // A table that lies outside of the file counts as absent.
        let _ = read_table(headers, data, table, symbols);
    }
}

fn read_table<'d, R: ReadRef<'d>>(
    headers: &Headers,
    data: R,
    table: &Section,
    found: &mut Vec<FunctionSymbol>,
) -> Option<()> {
    let count = usize::try_from(table.size / size_of::<Sym64<Endianness>>() as u64).ok()?;
    let symbols =
        data.read_slice_at::<Sym64<Endianness>>(table.offset?, count.min(MAX_SYMBOLS)).ok()?;
    let names = headers.sections.get(table.link)?;
    let strings = data.read_bytes_at(names.offset?, names.size.min(MAX_NAMES_BYTES)).ok()?;
    for symbol in symbols {
        let Some(kind) = kind_of(headers, symbol) else { continue };
        let name = string(strings, symbol.st_name(headers.endian));
        if !name.is_empty() {
            found.push(FunctionSymbol {
                start: ImageAddress(symbol.st_value(headers.endian)),
                size: symbol.st_size(headers.endian),
                kind,
                name: name.to_vec(),
            });
        }
    }
    Some(())
}

/// Returns the meaning of a symbol. None if it names no code.
fn kind_of(headers: &Headers, symbol: &Sym64<Endianness>) -> Option<SymbolKind> {
    let index = symbol.st_shndx(headers.endian);
    let section = headers.sections.get(usize::from(index.0));
    match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC if index == elf::SHN_UNDEF => Some(SymbolKind::Import),
        elf::STT_FUNC => Some(SymbolKind::Function),
        elf::STT_GNU_IFUNC => Some(SymbolKind::Indirect),
        elf::STT_OBJECT if section.is_some_and(|it| it.executable) => Some(SymbolKind::Data),
        _ => None,
    }
}
