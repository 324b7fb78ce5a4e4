//! From a place in an opened image to the calls it stands for. Pure.

use std::sync::Arc;

use nprof_stream::Status;

use crate::dwarf::detail::Detail;
use crate::dwarf::{Call, Dwarf, DwarfError};
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::Headers;
use crate::elf::symbol_table::SymbolTable;
use crate::names::demangle::{NameStyle, demangle, is_mangled};

/// An image whose names have been found, as far as there are any.
pub(crate) enum OpenImage {
    /// An ELF file; offsets are positions in the file.
    Elf(Box<ElfImage>),
    /// The kernel or a module; offsets are what its symbols count from.
    Symbols(SymbolTable),
}

/// An ELF file and its debug files, put together.
pub(crate) struct ElfImage {
    /// The headers of the file that was executed.
    pub(crate) headers: Headers,
    /// The best symbol table of all its files.
    pub(crate) symbols: SymbolTable,
    /// The debug information of the first of its files that has any, or why that cannot be read.
    pub(crate) dwarf: Result<Dwarf, Option<DwarfError>>,
    /// Where its functions are, if there is no full symbol table.
    pub(crate) function_ranges: FunctionRanges,
}

impl OpenImage {
    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Elf(elf) => {
                let dwarf = elf.dwarf.as_ref().map_or(0, Dwarf::bytes);
                elf.symbols.bytes() + elf.function_ranges.bytes() + dwarf
            }
            Self::Symbols(symbols) => symbols.bytes(),
        }
    }
}

/// A place in an image, as the stream's frames have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Where in the image.
    pub(crate) offset: u64,
    /// Whether it is a return address, so that the call lies just before it.
    pub(crate) return_address: bool,
}

/// What a place is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbolized {
    /// How it went.
    pub(crate) status: Status,
    /// The calls, innermost first; empty when there is no name.
    pub(crate) calls: Vec<Call>,
    /// What was wrong with the debug information, where it was.
    pub(crate) problem: Option<DwarfError>,
    /// What is known of a function without a name.
    pub(crate) function: Option<Unnamed>,
}

impl Symbolized {
    /// There is no name.
    pub(crate) fn unnamed(status: Status) -> Self {
        Self { status, calls: Vec::new(), problem: None, function: None }
    }
}

/// A function without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// It begins at this offset of the image.
    At(u64),
    /// It lies between two exports: `recv->recvfrom`, and how many bytes behind the beginning of
    /// the first it begins, where that is known.
    Between(String),
}

/// Finds what a place in an image is called.
pub(crate) fn resolve(image: &OpenImage, place: Place, detail: Detail) -> Symbolized {
    // A call may be the last instruction of its function: its return address is in the next.
    let offset = place.offset.saturating_sub(u64::from(place.return_address));
    match image {
        OpenImage::Elf(elf) => resolve_elf(elf, offset, detail),
        OpenImage::Symbols(symbols) => match symbols.find(offset) {
            Some(name) => named(vec![of_symbol(name)], None),
            None => Symbolized::unnamed(Status::NoSymbol),
        },
    }
}

fn resolve_elf(elf: &ElfImage, offset: u64, detail: Detail) -> Symbolized {
    let Some(address) = elf.headers.address(offset) else {
        return Symbolized::unnamed(Status::NoSymbol);
    };
    let symbol = elf.symbols.find(address);
    let (mut calls, problem) = match &elf.dwarf {
        _ if !detail.reads_debug_info(symbol.is_some()) => (Vec::new(), None),
        Ok(dwarf) => {
            let found = dwarf.calls(address, detail);
            (found.calls, found.fault)
        }
        Err(fault) => (Vec::new(), fault.clone()),
    };
    if !detail.inlines {
        calls.drain(..calls.len().saturating_sub(1));
    }
    if !detail.lines {
        let forget = |call: Call| Call { function: call.function, ..Call::default() };
        calls = calls.into_iter().map(forget).collect();
        calls.retain(|call| call.function.is_some());
    }
    match (calls.last_mut(), symbol) {
        (Some(outermost), Some(symbol)) => {
            let known = outermost.function.take();
            outermost.function = Some(out_of_line_name(known, symbol));
        }
        (None, Some(symbol)) => calls.push(of_symbol(symbol)),
        (Some(_), None) => {}
        (None, None) => {
            let status = match (&elf.dwarf, &problem) {
                (_, Some(fault)) if !fault.is_absence() => Status::Unreadable,
                (Err(_), _) if elf.symbols.is_empty() => Status::Stripped,
                _ => Status::NoSymbol,
            };
            let function = nameless(elf, address);
            return Symbolized { problem, function, ..Symbolized::unnamed(status) };
        }
    }
    named(calls, problem)
}

/// What can be told of the function at an address that has no name: the way of Prospect (Tsariounov
/// 2002), which shows the exports around it, with the beginning of the function added where the
/// unwind table knows it. Exports bracket many functions, and places of two are not one.
fn nameless(elf: &ElfImage, address: u64) -> Option<Unnamed> {
    let start = elf.function_ranges.start(address);
    let Some(bracket) = elf.symbols.around(start.unwrap_or(address)) else {
        return Some(Unnamed::At(elf.headers.offset(start?)?));
    };
    let shown = |name| String::from_utf8_lossy(&demangle(name, NameStyle::Plain)).into_owned();
    let offset = start.map(|start| format!("+{:#x}", start.saturating_sub(bracket.start)));
    let (before, behind) = (shown(bracket.before), shown(bracket.behind));
    Some(Unnamed::Between(format!("{before}->{behind}{}", offset.unwrap_or_default())))
}

/// The linkage name of a function from what debug information and symbol table call it.
///
/// Debug information knows the name in the source, the symbol table what became of it: a part
/// that was split off (`f.cold`), a clone, or the linkage name where the debug information has
/// only the plain one. Otherwise they differ by aliases, and the source's is the better one.
fn out_of_line_name(known: Option<Arc<[u8]>>, symbol: &[u8]) -> Arc<[u8]> {
    let Some(known) = known else { return symbol.into() };
    let is_clone = symbol.strip_prefix(&known[..]).is_some_and(|rest| rest.starts_with(b"."));
    if is_clone || (is_mangled(symbol) && !is_mangled(&known)) { symbol.into() } else { known }
}

fn of_symbol(name: &[u8]) -> Call {
    Call { function: Some(name.into()), ..Call::default() }
}

fn named(calls: Vec<Call>, problem: Option<DwarfError>) -> Symbolized {
    Symbolized { status: Status::Named, calls, problem, function: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::symbol_table::{Binding, SymbolTableBuilder};

    const ALL: Detail = Detail { inlines: true, lines: true, debug: true };

    #[test]
    fn a_return_address_is_looked_up_where_the_call_is() {
        let mut builder = SymbolTableBuilder::default();
        builder.add(b"caller", 0, 16, 0, Binding::Global);
        builder.add(b"next", 16, 16, 0, Binding::Global);
        let image = OpenImage::Symbols(builder.build());
        let name = |offset, return_address| {
            let resolution = resolve(&image, Place { offset, return_address }, ALL);
            resolution
                .calls
                .first()
                .and_then(|call| call.function.clone())
                .unwrap_or_default()
                .to_vec()
        };
        assert_eq!(name(16, false), b"next");
        assert_eq!(name(16, true), b"caller");
        assert_eq!(name(32, true), b"next");
        assert_eq!(name(32, false), b"");
        assert_eq!(name(0, true), b"caller");
    }

    #[test]
    fn the_symbol_table_tells_clones_apart() {
        let name = |known: &str, symbol: &str| {
            let name = out_of_line_name(Some(known.as_bytes().into()), symbol.as_bytes());
            String::from_utf8(name.to_vec()).unwrap()
        };
        assert_eq!(name("f", "f.cold"), "f.cold");
        assert_eq!(name("f", "_ZN1a1fEv"), "_ZN1a1fEv");
        assert_eq!(name("_ZN1AC4Ev", "_ZN1AC2Ev"), "_ZN1AC4Ev");
        assert_eq!(name("write", "__libc_write"), "write");
        assert_eq!(&*out_of_line_name(None, b"memcpy"), b"memcpy");
    }
}
