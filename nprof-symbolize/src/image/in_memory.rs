//! An image opened from bytes in memory, for benchmarks and fuzz targets.

use std::rc::Rc;

use nprof_object::{FileOffset, ImageAddress, ImageOffset, Segment};
use object::Endianness;

use super::opened::{ElfImage, OpenImage, resolve};
use crate::dwarf::detail::Detail;
use crate::dwarf::{DebugFile, DebugFiles, Dwarf, Section, SplitUnit};
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::{Compression, Headers};
use crate::elf::plt;
use crate::elf::symbol_table::SymbolTableBuilder;
use crate::go::GoTable;
use crate::names::demangle::{NameStyle, demangle};

/// The number of offsets of each executable segment that a fuzz target looks up.
const OFFSETS: u64 = 64;

/// The memory that an image of a fuzz target may take apart from 64 times its size, in bytes.
const ROOM_BYTES: usize = 64 << 20;

/// A file in memory, which is its own supplementary file and its own split unit as well, so that
/// references resolve.
#[derive(Clone)]
struct MemoryFile {
    bytes: Rc<[u8]>,
    headers: Rc<Headers>,
}

impl DebugFile for MemoryFile {
    fn is_little_endian(&self) -> bool {
        self.headers.endian == Endianness::Little
    }

    fn section(&self, name: &str) -> anyhow::Result<Section> {
        let name = name.trim_end_matches(".dwo").as_bytes();
        let section =
            self.headers.section(name).filter(|section| section.compression == Compression::None);
        let range = section.and_then(|section| {
            let start = usize::try_from(section.offset?).ok()?;
            self.bytes.get(start..start.checked_add(usize::try_from(section.size).ok()?)?)
        });
        Ok(Section::Memory(range.unwrap_or_default().to_vec().into()))
    }
}

impl DebugFiles for MemoryFile {
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

/// An image, opened from the bytes of an ELF file.
pub struct MemoryImage {
    image: OpenImage,
    code: Vec<Segment>,
}

impl std::fmt::Debug for MemoryImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryImage").finish_non_exhaustive()
    }
}

impl MemoryImage {
    /// Opens an image. None if the bytes are no ELF file.
    #[must_use]
    pub fn open(bytes: &[u8]) -> Option<Self> {
        let headers = Headers::read(bytes).ok()?;
        let mut symbols = SymbolTableBuilder::default();
        symbols.add_elf(&headers, bytes, object::elf::SHT_SYMTAB.0);
        symbols.add_elf(&headers, bytes, object::elf::SHT_DYNSYM.0);
        plt::add_stubs(&mut symbols, &headers, bytes);
        let unwind = headers.section(b".eh_frame").and_then(|section| {
            let start = usize::try_from(section.offset?).ok()?;
            let end = start.checked_add(usize::try_from(section.size).ok()?)?;
            Some(FunctionRanges::read(
                bytes.get(start..end)?,
                ImageAddress(section.address),
                true,
                8,
            ))
        });
        let function_ranges = unwind.unwrap_or_default();
        let go = GoTable::read(&Section::Memory(bytes.to_vec().into()), &headers);
        let file = MemoryFile { bytes: bytes.into(), headers: Rc::new(headers.clone()) };
        let code = headers.segments.iter().filter(|part| part.executable).copied().collect();
        let image = OpenImage::Elf(Box::new(ElfImage {
            headers,
            symbols: symbols.build(&function_ranges),
            dwarf: Dwarf::load(Box::new(file), usize::MAX).map_err(Some),
            function_ranges,
            go,
            code: Err("a file in memory".to_owned()),
        }));
        Some(Self { image, code })
    }

    /// Returns `count` file offsets, evenly over the largest executable segment.
    #[must_use]
    pub fn code_offsets(&self, count: u64) -> Vec<FileOffset> {
        let code = self.code.iter().max_by_key(|segment| segment.size);
        let offsets = code.map(|code| offsets_in(code, code.size / count, count));
        offsets.unwrap_or_default()
    }

    /// Looks up a file offset: the function, and the inlined calls, files and lines if
    /// `inlines_and_lines`. Returns the number of calls found.
    #[must_use]
    pub fn look_up(&self, offset: FileOffset, inlines_and_lines: bool) -> usize {
        let detail = Detail { inlines: inlines_and_lines, lines: inlines_and_lines, debug: true };
        resolve(&self.image, ImageOffset(offset.0), detail).calls.len()
    }
}

/// Opens arbitrary bytes as an image and looks up offsets all over its code.
///
/// # Panics
///
/// If a result exceeds a limit of the stream, or the image takes memory out of proportion to the
/// bytes. A panic is how a fuzz target reports a bug.
pub fn check_bytes(bytes: &[u8]) {
    let Some(MemoryImage { image, code }) = MemoryImage::open(bytes) else { return };
    for segment in code.iter().take(4) {
        let step = (segment.size / OFFSETS).max(1);
        for offset in offsets_in(segment, step, OFFSETS) {
            let detail = Detail { inlines: true, lines: true, debug: true };
            let found = resolve(&image, ImageOffset(offset.0), detail);
            assert!(found.calls.len() <= nprof_stream::limits::LINES);
            for name in found.calls.iter().filter_map(|call| call.function.as_deref()) {
                assert!(demangle(name, NameStyle::Full).len() <= nprof_stream::limits::STRING);
                assert!(demangle(name, NameStyle::Short).len() <= nprof_stream::limits::STRING);
            }
        }
    }
    let limit = ROOM_BYTES + 64 * bytes.len();
    assert!(image.bytes() < limit, "{} of {}", image.bytes(), bytes.len());
}

/// Returns `count` file offsets from the start of a segment, `step` bytes apart.
fn offsets_in(segment: &Segment, step: u64, count: u64) -> Vec<FileOffset> {
    (0..count).map(|index| segment.offset.wrapping_add(index.wrapping_mul(step))).collect()
}
