//! What nprof-symbolize does with an image, on arbitrary bytes: headers, symbols, stubs, unwind
//! tables, debug information and names. A part of the tool's own modules when it is fuzzed, and
//! of its bench.

use std::rc::Rc;

use object::Endianness;

use crate::demangle::{Style, demangle};
use crate::detail::Detail;
use crate::dwarf::{DebugFile, DebugFiles, Dwarf, Section, SplitUnit};
use crate::elf::{Headers, Packing, Segment};
use crate::extents::Extents;
use crate::plt;
use crate::resolve::{ElfImage, OpenImage, Place, resolve};
use crate::symbols::SymbolTableBuilder;

/// How many places of an image are asked for.
const PLACES: u64 = 64;

/// How much memory an image of these sizes may take, bytes.
const ROOM: usize = 64 << 20;

/// A file in memory, which is its own supplementary file and its own split unit as well, so that
/// references lead somewhere.
#[derive(Clone)]
struct File {
    bytes: Rc<[u8]>,
    headers: Rc<Headers>,
}

impl DebugFile for File {
    fn is_little_endian(&self) -> bool {
        self.headers.endian == Endianness::Little
    }

    fn section(&self, name: &str) -> anyhow::Result<Section> {
        let name = name.trim_end_matches(".dwo").as_bytes();
        let section = self.headers.section(name).filter(|section| section.packing == Packing::None);
        let range = section.and_then(|section| {
            let start = usize::try_from(section.offset?).ok()?;
            self.bytes.get(start..start.checked_add(usize::try_from(section.size).ok()?)?)
        });
        Ok(Section::Memory(range.unwrap_or_default().to_vec().into()))
    }
}

impl DebugFiles for File {
    fn main(&self) -> Box<dyn DebugFile> {
        Box::new(self.clone())
    }

    fn supplementary(&self) -> Option<Box<dyn DebugFile>> {
        Some(self.main())
    }

    fn package(&self) -> Option<Box<dyn DebugFile>> {
        None
    }

    fn split(&self, _: &SplitUnit) -> Option<Box<dyn DebugFile>> {
        Some(self.main())
    }
}

/// Opens an image, and gives its executable segments as well.
pub(crate) fn open(bytes: &[u8]) -> Option<(OpenImage, Vec<Segment>)> {
    let headers = Headers::read(bytes).ok()?;
    let mut symbols = SymbolTableBuilder::default();
    symbols.add_elf(&headers, bytes, object::elf::SHT_SYMTAB.0);
    symbols.add_elf(&headers, bytes, object::elf::SHT_DYNSYM.0);
    plt::add_stubs(&mut symbols, &headers, bytes);
    let unwind = headers.section(b".eh_frame").and_then(|section| {
        let start = usize::try_from(section.offset?).ok()?;
        let end = start.checked_add(usize::try_from(section.size).ok()?)?;
        Some(Extents::read(bytes.get(start..end)?, section.address, true, 8))
    });
    let file = File { bytes: bytes.into(), headers: Rc::new(headers.clone()) };
    let code = headers.segments.iter().filter(|part| part.executable).copied().collect();
    let image = OpenImage::Elf(Box::new(ElfImage {
        headers,
        symbols: symbols.build(),
        dwarf: Dwarf::load(Box::new(file), usize::MAX).map_err(Some),
        extents: unwind.unwrap_or_default(),
    }));
    Some((image, code))
}

/// Opens an image and names places all over it.
pub fn name_places(bytes: &[u8]) {
    let Some((image, code)) = open(bytes) else { return };
    for segment in code.iter().take(4) {
        let step = (segment.size / PLACES).max(1);
        for place in 0..PLACES {
            let offset = segment.offset.wrapping_add(place.wrapping_mul(step));
            let place = Place { offset, return_address: offset % 2 == 1 };
            let found = resolve(&image, place, Detail { inlines: true, lines: true, debug: true });
            assert!(found.calls.len() <= nprof_stream::limits::LINES);
            for name in found.calls.iter().filter_map(|call| call.function.as_deref()) {
                assert!(demangle(name, Style::Full).len() <= nprof_stream::limits::STRING);
                assert!(demangle(name, Style::Short).len() <= nprof_stream::limits::STRING);
            }
        }
    }
    assert!(image.bytes() < ROOM + 64 * bytes.len(), "{} of {}", image.bytes(), bytes.len());
}
