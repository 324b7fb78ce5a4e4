//! The allocation function that an executable defines itself.

use std::fs::File;

use nprof_object::{FileOffset, ImageAddress, elf};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache};

/// The most program headers that are read.
const PROGRAM_HEADERS_MAX: u32 = 256;

/// The largest symbol table that is read, in symbols. Those of browsers have a few million.
const SYMBOLS_MAX: usize = 1 << 24;

/// The names under which programs link allocators: their own, and jemalloc, mimalloc and tcmalloc with the
/// prefixes of their packages for C and Rust.
const NAMES: [&str; 6] =
    ["malloc", "_rjem_malloc", "je_malloc", "mi_malloc", "tc_malloc", "rpmalloc"];

/// The allocation function that an executable defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocationFunction {
    pub(crate) name: &'static str,
    /// Its offset in the file, where a probe can be set.
    pub(crate) offset: FileOffset,
}

impl AllocationFunction {
    /// Finds that of a file. None if it has none, or no symbols.
    pub(crate) fn find(file: File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let endian = file.endian();
        let headers = elf::program_headers(file.elf_header(), endian, &cache, PROGRAM_HEADERS_MAX)?;
        let segments = elf::segments(endian, headers);
        let symbols = file.symbols().chain(file.dynamic_symbols()).take(SYMBOLS_MAX);
        let defined = symbols.filter(|symbol| symbol.is_definition() && symbol.address() != 0);
        let mut found: Option<(usize, u64)> = None;
        for symbol in defined {
            let Ok(name) = symbol.name_bytes() else { continue };
            let Some(rank) = NAMES.iter().position(|known| known.as_bytes() == name) else {
                continue;
            };
            if found.is_none_or(|(best, _)| rank < best) {
                found = Some((rank, symbol.address()));
            }
        }
        let (rank, address) = found?;
        let (offset, _) = segments.file_offset(ImageAddress(address))?;
        Some(Self { name: NAMES[rank], offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_with_the_allocator_of_the_c_library_has_none() {
        let own = File::open("/proc/self/exe").expect("this test");
        assert_eq!(AllocationFunction::find(own), None);
    }
}
