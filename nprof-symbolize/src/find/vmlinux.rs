//! The kernel as an ELF file, `vmlinux`: its DWARF has inlined calls and lines, `/proc/kallsyms` only
//! names. It must have the recorded build ID.

use std::path::{Path, PathBuf};

use nprof_object::{FileOffset, ImageAddress, Segment};
use object::elf::{self, Sym64};
use object::read::elf::Sym;
use object::{Endianness, ReadRef};

use super::debuginfod::ArtifactKind;
use super::elf_file::ElfFile;
use super::finder::{Finder, ReferencePaths};
use super::identity;
use super::kernel_code::KernelFile;
use super::recorded::RecordedImage;
use super::search_log::SearchLog;
use super::search_paths::SearchPaths;
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::{Headers, Section};
use crate::elf::symbol_table::SymbolTableBuilder;
use crate::image::opened::{ElfImage, OpenImage};

/// The number of installed kernels that are tried.
const MAX_KERNELS: usize = 64;

/// The largest symbol table that is searched.
const MAX_BYTES: u64 = 256 << 20;

/// The paths of an installed kernel below the root, with `@` in the place of its release.
const IMAGE_PATHS: [&str; 3] =
    ["boot/vmlinux-@", "lib/modules/@/vmlinux", "lib/modules/@/build/vmlinux"];

/// The paths of its debug file below a debug directory.
const DEBUG_PATHS: [&str; 3] = ["boot/vmlinux-@", "lib/modules/@/vmlinux", "vmlinux-@"];

impl Finder {
    /// Opens the kernel's ELF file with the recorded build ID.
    pub(crate) fn vmlinux(&self, recorded: &RecordedImage, log: &SearchLog) -> Option<OpenImage> {
        let (file, headers) = self.kernel_file(recorded, log)?;
        let start = headers.segments.iter().next()?.address;
        let code =
            KernelFile { bytes: file.bytes(), segments: file.headers.segments.clone(), start };
        let mut symbols = SymbolTableBuilder::default();
        symbols.add_elf(&file.headers, &file.data(), elf::SHT_SYMTAB.0);
        let search_paths = self.search_paths.clone();
        let references = ReferencePaths { search_paths, beside: vec![file.path.clone()] };
        let dwarf = if self.detail.reads_debug_info(true) {
            let dwarf = self.dwarf(&[file], &references, log);
            if dwarf.is_err() {
                log.note("no DWARF: no inlined calls, no lines");
            }
            dwarf
        } else {
            Err(None)
        };
        let function_ranges = FunctionRanges::default();
        let symbols = symbols.build(&function_ranges);
        let image = ElfImage {
            headers,
            symbols,
            dwarf,
            function_ranges,
            go: None,
            code: Ok(Box::new(code)),
        };
        Some(OpenImage::Elf(Box::new(image)))
    }

    /// True if there is such a file.
    pub(crate) fn has_vmlinux(&self, recorded: &RecordedImage) -> bool {
        self.kernel_file(recorded, &SearchLog::default()).is_some()
    }

    /// Finds the file, and headers that map recorded offsets.
    fn kernel_file(&self, recorded: &RecordedImage, log: &SearchLog) -> Option<(ElfFile, Headers)> {
        let build_id = &*recorded.build_id;
        if build_id.is_empty() {
            return None;
        }
        let paths = paths(&self.search_paths, build_id, &releases(&self.search_paths));
        // Installed files first; the servers need time.
        let found = paths.into_iter().find_map(|path| try_kernel_file(&path, build_id, log));
        found.or_else(|| {
            let fetched = self.fetch(build_id, ArtifactKind::DebugInfo, log)?;
            try_kernel_file(&fetched, build_id, log)
        })
    }
}

/// Opens a file if it is the kernel with a build ID.
fn try_kernel_file(path: &Path, build_id: &[u8], log: &SearchLog) -> Option<(ElfFile, Headers)> {
    let opened = ElfFile::open(path);
    let file = match opened.and_then(|file| {
        identity::has_build_id(&file, build_id)?;
        Ok(file)
    }) {
        Ok(file) => file,
        Err(failure) => {
            log.tried(path, failure.reason);
            return None;
        }
    };
    log.tried(path, format!("is the kernel: {}", file.description()));
    let headers = headers_from_stext(&file);
    if headers.is_none() {
        log.tried(path, "has no symbol _stext");
    }
    Some((file, headers?))
}

/// Returns the paths of a kernel: by build ID, then those that distributions use for the kernels of
/// these releases.
fn paths(search_paths: &SearchPaths, build_id: &[u8], releases: &[String]) -> Vec<PathBuf> {
    let mut paths = search_paths.by_build_id(build_id, ".debug");
    // Some distributions install the whole vmlinux by build ID, without the suffix.
    paths.extend(search_paths.by_build_id(build_id, ""));
    let root = search_paths.symfs.clone().unwrap_or_else(|| PathBuf::from("/"));
    for release in releases {
        for directory in search_paths.directories() {
            paths.extend(DEBUG_PATHS.map(|path| directory.join(path.replace('@', release))));
        }
        paths.extend(IMAGE_PATHS.map(|path| root.join(path.replace('@', release))));
    }
    paths
}

/// Returns the releases of the kernels under the root, each once, the running one first.
fn releases(search_paths: &SearchPaths) -> Vec<String> {
    let mut releases = Vec::new();
    // The running kernel belongs to this system only.
    if search_paths.symfs.is_none() {
        let running = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        releases.push(running.trim().to_owned());
    }
    let root = search_paths.symfs.clone().unwrap_or_else(|| PathBuf::from("/"));
    let installed = std::fs::read_dir(root.join("lib/modules")).into_iter().flatten();
    let names = installed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(MAX_KERNELS).collect();
    // The order of a directory is random; the search must be reproducible.
    names.sort();
    releases.extend(names);
    releases.retain(|release| !release.is_empty());
    let mut seen = std::collections::HashSet::new();
    releases.retain(|release| seen.insert(release.clone()));
    releases
}

/// Returns headers with one segment that starts at `_stext`, from which recorded offsets count.
/// None if the file has no such symbol.
fn headers_from_stext(file: &ElfFile) -> Option<Headers> {
    let start = address_of(file, b"_stext").or_else(|| address_of(file, b"_text"))?;
    let size = u64::MAX - start.0;
    let segment = Segment { offset: FileOffset(0), size, address: start, executable: true };
    Some(Headers { segments: [segment].into_iter().collect(), ..(*file.headers).clone() })
}

/// Returns the address of a symbol.
fn address_of(file: &ElfFile, name: &[u8]) -> Option<ImageAddress> {
    let headers = &file.headers;
    let mut sections = headers.sections.iter();
    let table = sections.find(|section| section.kind == elf::SHT_SYMTAB.0)?;
    let data = file.data();
    // Names are compared in place: the kernel has more than 100,000 symbols.
    let (strings_at, strings_bytes) = bounded_range(headers.sections.get(table.link)?)?;
    let strings = (&data).read_bytes_at(strings_at, strings_bytes).ok()?;
    // Kernels of 32 bits have other symbol entries; nprof does not record on them.
    let (table_at, table_bytes) = bounded_range(table).filter(|_| headers.is_64)?;
    let count = usize::try_from(table_bytes).ok()? / size_of::<Sym64<Endianness>>();
    let symbols = (&data).read_slice_at::<Sym64<Endianness>>(table_at, count).ok()?;
    let has_name = |symbol: &&Sym64<Endianness>| {
        let rest = strings.get(symbol.st_name(headers.endian) as usize..).unwrap_or_default();
        rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
    };
    let symbol = symbols.iter().find(has_name)?;
    Some(ImageAddress(symbol.st_value(headers.endian)))
}

/// Returns the file offset and the bounded size of a section.
fn bounded_range(section: &Section) -> Option<(u64, u64)> {
    Some((section.offset?, section.size.min(MAX_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_is_tried_before_releases() {
        let search_paths = SearchPaths { debug_dirs: vec!["/d".into()], symfs: Some("/r".into()) };
        let paths = paths(&search_paths, &[1, 2], &["6.1".to_owned()]);
        let words: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(words[0], "/d/.build-id/01/02.debug");
        assert!(words.contains(&"/r/usr/lib/debug/boot/vmlinux-6.1"));
        assert_eq!(
            words[words.len() - 3..],
            [
                "/r/boot/vmlinux-6.1",
                "/r/lib/modules/6.1/vmlinux",
                "/r/lib/modules/6.1/build/vmlinux"
            ]
        );
    }

    #[test]
    fn releases_are_listed_once() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("lib/modules/6.2")).unwrap();
        std::fs::create_dir_all(directory.path().join("lib/modules/6.1")).unwrap();
        let elsewhere = SearchPaths { debug_dirs: vec![], symfs: Some(directory.path().into()) };
        assert_eq!(releases(&elsewhere), ["6.1", "6.2"]);
        let here = releases(&SearchPaths::default());
        assert!(!here.is_empty(), "at least the running kernel's");
    }
}
