//! An opened image: symbolizes an offset in it. Pure.

use std::sync::Arc;

use nprof_object::{FileOffset, ImageAddress, ImageOffset};
use nprof_stream::Status;

use super::code_bytes::ImageCode;
use crate::dwarf::detail::Detail;
use crate::dwarf::{Call, Dwarf, DwarfError};
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::Headers;
use crate::elf::symbol_table::{Found, SymbolTable};
use crate::go::GoTable;
use crate::names::demangle::{NameStyle, demangle, is_mangled};

/// An image with the names that were found for it.
pub(crate) enum OpenImage {
    /// An ELF file; offsets are file offsets.
    Elf(Box<ElfImage>),
    /// The kernel or a module; symbols have offsets as addresses.
    Symbols(KernelImage),
}

/// The kernel or a module.
pub(crate) struct KernelImage {
    pub(crate) symbols: SymbolTable,
    pub(crate) code: ImageCode,
}

/// An ELF file combined with its debug files.
pub(crate) struct ElfImage {
    /// The headers of the file that was executed.
    pub(crate) headers: Headers,
    /// The best symbol table of all its files.
    pub(crate) symbols: SymbolTable,
    /// The debug information of the first file that has any, or the reason it cannot be read: None
    /// if there is no such file.
    pub(crate) dwarf: Result<Dwarf, Option<DwarfError>>,
    /// The ranges of its functions, if there is no full symbol table.
    pub(crate) function_ranges: FunctionRanges,
    /// The functions of a Go program, if there is no debug information.
    pub(crate) go: Option<GoTable>,
    /// Its code.
    pub(crate) code: ImageCode,
}

impl OpenImage {
    /// Returns its memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Elf(elf) => {
                let dwarf = elf.dwarf.as_ref().map_or(0, Dwarf::bytes);
                let go = elf.go.as_ref().map_or(0, GoTable::bytes);
                elf.symbols.bytes() + elf.function_ranges.bytes() + dwarf + go
            }
            Self::Symbols(kernel) => kernel.symbols.bytes(),
        }
    }
}

/// The result of looking up an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbolized {
    /// The outcome.
    pub(crate) status: Status,
    /// The calls, innermost first; empty if there is no name.
    pub(crate) calls: Vec<Call>,
    /// The problem with the debug information at this offset, if any.
    pub(crate) problem: Option<DwarfError>,
    /// A description of a function without a name.
    pub(crate) unnamed: Option<Unnamed>,
}

impl Symbolized {
    /// Creates a result without a name.
    pub(crate) fn unnamed(status: Status) -> Self {
        Self { status, calls: Vec::new(), problem: None, unnamed: None }
    }
}

/// A function without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unnamed {
    /// The offset of its start in the image.
    pub(crate) start: ImageOffset,
    /// The shown name of the function before it.
    pub(crate) after: Option<String>,
}

impl OpenImage {
    /// Sorts offsets by the unit that has their debug information, then by themselves: lookups in
    /// this order read each unit once.
    pub(crate) fn sort_by_unit(&self, offsets: &mut [ImageOffset]) {
        let Self::Elf(elf) = self else { return };
        let unit = |offset: &ImageOffset| {
            let address = elf.headers.segments.image_address(FileOffset(offset.0))?;
            elf.dwarf.as_ref().ok()?.unit(address.0)
        };
        offsets.sort_by_cached_key(|offset| (unit(offset), *offset));
    }

    /// Declares that lookups come in the order of [`Self::sort_by_unit`], which takes less memory,
    /// or in any order.
    pub(crate) fn set_sorted(&self, is_sorted: bool) {
        if let Self::Elf(elf) = self
            && let Ok(dwarf) = &elf.dwarf
        {
            dwarf.set_sorted(is_sorted);
        }
    }
}

/// Looks up an offset in an image.
pub(crate) fn resolve(image: &OpenImage, offset: ImageOffset, detail: Detail) -> Symbolized {
    match image {
        OpenImage::Elf(elf) => resolve_elf(elf, FileOffset(offset.0), detail),
        OpenImage::Symbols(kernel) => match kernel.symbols.find(ImageAddress(offset.0)) {
            Some(found) => named(vec![call_of_symbol(found.name)], None),
            None => Symbolized::unnamed(Status::NoSymbol),
        },
    }
}

fn resolve_elf(elf: &ElfImage, offset: FileOffset, detail: Detail) -> Symbolized {
    let Some(address) = elf.headers.segments.image_address(offset) else {
        return Symbolized::unnamed(Status::NoSymbol);
    };
    let symbol = elf.symbols.find(address);
    let (mut calls, problem) = match &elf.dwarf {
        // For functions alone the symbol table suffices, and is much faster.
        _ if !detail.reads_debug_info(symbol.is_some()) => (Vec::new(), None),
        Ok(dwarf) => {
            let mangled = symbol.map(|found| found.name).filter(|name| is_mangled(name));
            let found = dwarf.calls(address.0, detail, mangled);
            (found.calls, found.fault)
        }
        Err(fault) => (Vec::new(), fault.clone()),
    };
    let is_symbol_enough = symbol.is_some() && detail.is_symbols_only();
    if let Some(go) = elf.go.as_ref().filter(|_| calls.is_empty() && !is_symbol_enough) {
        calls = go.calls(address);
    }
    if !detail.inlines {
        // The outermost call is the function with code of its own.
        calls.drain(..calls.len().saturating_sub(1));
    }
    if !detail.lines {
        for call in &mut calls {
            *call = Call { function: call.function.take(), ..Call::default() };
        }
        // Without lines, a call without a name says nothing.
        calls.retain(|call| call.function.is_some());
    }
    match (calls.last_mut(), symbol) {
        (Some(outermost), Some(symbol)) => {
            let name = out_of_line_name(outermost.function.take(), symbol);
            outermost.function = Some(name);
        }
        (None, Some(symbol)) => calls.push(call_of_symbol(symbol.name)),
        (Some(_), None) => {}
        (None, None) => {
            let status = match (&elf.dwarf, &problem) {
                // A missing split unit is no damage; a malformed one is.
                (_, Some(fault)) if !fault.is_absence() => Status::Unreadable,
                // PLT stubs and exports count as symbols.
                (Err(_), _) if elf.symbols.is_empty() => Status::Stripped,
                _ => Status::NoSymbol,
            };
            let unnamed = describe_unnamed(elf, address);
            return Symbolized { problem, unnamed, ..Symbolized::unnamed(status) };
        }
    }
    named(calls, problem)
}

/// Describes the function without a name at an address: by its start, so that all of its addresses
/// have one name, and by the symbol before it, as Prospect did (Tsariounov 2002).
///
/// Code that the unwind table does not have either counts as one function from the end of the symbol
/// or function before it.
fn describe_unnamed(elf: &ElfImage, address: ImageAddress) -> Option<Unnamed> {
    // A full table leaves out padding only.
    if elf.symbols.is_whole() {
        return None;
    }
    let start = elf.function_ranges.at(address).map(|function| function.start).or_else(|| {
        let covers =
            |start: u64, size: u64| address.0.checked_sub(start).is_some_and(|at| at < size);
        let mut sections = elf.headers.sections.iter();
        let section = sections.find(|section| covers(section.address, section.size))?;
        let function = elf.function_ranges.last_before(address).map(|function| function.end);
        let symbol = elf.symbols.gap(address).map(|gap| gap.start);
        let ends = [symbol, function, Some(ImageAddress(section.address))];
        ends.into_iter().flatten().max()
    })?;
    let (offset, _) = elf.headers.segments.file_offset(start)?;
    let after = elf.symbols.gap(start).and_then(|gap| gap.after).map(|name| {
        // The names of templates would hide the offset.
        String::from_utf8_lossy(&demangle(name, NameStyle::Short)).into_owned()
    });
    Some(Unnamed { start: ImageOffset(offset.0), after })
}

/// Chooses the linkage name of a function between debug information and symbol table.
///
/// An exported symbol names the function with and without debug information, so that two machines
/// compare. Otherwise, debug information has the name in the source. The symbol table has the result
/// of compilation: a part that was split off (`f.cold`), a clone, or the linkage name if the debug
/// information has the plain name only. Otherwise they are aliases, and the name in the source is
/// preferred.
///
/// Go's linker adds `.abi0` to functions in assembly, which Go's own tools never show.
fn out_of_line_name(in_source: Option<Arc<[u8]>>, symbol: Found<'_>) -> Arc<[u8]> {
    let Found { name: symbol, is_exported } = symbol;
    let Some(in_source) = in_source else { return symbol.into() };
    let suffix = symbol.strip_prefix(&in_source[..]);
    let is_clone = suffix.is_some_and(|suffix| suffix.starts_with(b".") && suffix != b".abi0");
    if is_exported || is_clone || (is_mangled(symbol) && !is_mangled(&in_source)) {
        symbol.into()
    } else {
        in_source
    }
}

fn call_of_symbol(name: &[u8]) -> Call {
    Call { function: Some(name.into()), ..Call::default() }
}

fn named(calls: Vec<Call>, problem: Option<DwarfError>) -> Symbolized {
    Symbolized { status: Status::Named, calls, problem, unnamed: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::symbol_table::{Binding, SymbolTableBuilder};

    const ALL: Detail = Detail { inlines: true, lines: true, debug: true };

    #[test]
    fn offset_is_named_by_the_symbol_that_covers_it() {
        let mut builder = SymbolTableBuilder::default();
        let (first, second) = (ImageAddress(0), ImageAddress(16));
        builder.add(b"caller", first, 16, first, Binding::Global);
        builder.add(b"next", second, 16, first, Binding::Global);
        let symbols = builder.build(&FunctionRanges::default());
        let image = OpenImage::Symbols(KernelImage { symbols, code: Err(String::new()) });
        let name = |offset| {
            let calls = resolve(&image, ImageOffset(offset), ALL).calls;
            calls.first().and_then(|call| call.function.clone()).unwrap_or_default().to_vec()
        };
        assert_eq!(name(16), b"next");
        assert_eq!(name(15), b"caller");
        assert_eq!(name(31), b"next");
        assert_eq!(name(32), b"");
        assert_eq!(name(0), b"caller");
    }

    #[test]
    fn symbol_names_clones_and_adds_linkage_names() {
        let name = |in_source: &str, symbol: &str| {
            let symbol = Found { name: symbol.as_bytes(), is_exported: false };
            let name = out_of_line_name(Some(in_source.as_bytes().into()), symbol);
            String::from_utf8(name.to_vec()).unwrap()
        };
        assert_eq!(name("f", "f.cold"), "f.cold");
        assert_eq!(name("f", "_ZN1a1fEv"), "_ZN1a1fEv");
        assert_eq!(name("_ZN1AC4Ev", "_ZN1AC2Ev"), "_ZN1AC4Ev");
        assert_eq!(name("write", "__libc_write"), "write");
        assert_eq!(name("runtime.memmove", "runtime.memmove.abi0"), "runtime.memmove");
        let exported = Found { name: b"malloc", is_exported: true };
        let in_source = Some(b"__GI___libc_malloc"[..].into());
        assert_eq!(&*out_of_line_name(in_source, exported), b"malloc");
        assert_eq!(&*out_of_line_name(None, exported), b"malloc");
    }
}
