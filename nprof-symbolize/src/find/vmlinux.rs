//! The kernel as an ELF file: `vmlinux` with its symbols and DWARF, which know inlined calls and
//! lines where `/proc/kallsyms` has only names. The build ID decides whether it is the one.

use std::path::{Path, PathBuf};

use object::elf::{self, Sym64};
use object::read::elf::Sym;
use object::{Endianness, ReadRef};

use super::debuginfod::ArtifactKind;
use super::elf_file::ElfFile;
use super::finder::{Finder, Nearby};
use super::identity;
use super::recorded::RecordedImage;
use super::search_log::SearchLog;
use super::search_paths::SearchPaths;
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::{Headers, Segment};
use crate::elf::symbol_table::SymbolTableBuilder;
use crate::image::opened::{ElfImage, OpenImage};

/// How many installed kernels are tried.
const KERNELS: usize = 64;

/// The largest symbol table that is looked through, bytes.
const LARGEST: u64 = 256 << 20;

/// Where a kernel may be installed, `@` standing for its release; below the root.
const INSTALLED: [&str; 3] =
    ["boot/vmlinux-@", "lib/modules/@/vmlinux", "lib/modules/@/build/vmlinux"];

/// Where its debug file may be, below a debug directory.
const DEBUG: [&str; 3] = ["boot/vmlinux-@", "lib/modules/@/vmlinux", "vmlinux-@"];

impl Finder {
    /// The kernel's ELF file, with the recorded build ID.
    pub(crate) fn vmlinux(&self, recorded: &RecordedImage, trace: &SearchLog) -> Option<OpenImage> {
        let (file, headers) = self.kernel_file(recorded, trace)?;
        let mut symbols = SymbolTableBuilder::default();
        symbols.add_elf(&file.headers, &file.data(), elf::SHT_SYMTAB.0);
        let nearby = Nearby { places: self.places.clone(), beside: vec![file.path.clone()] };
        let files = [file];
        let wanted = self.detail.reads_debug_info(true);
        let dwarf = if wanted { self.dwarf(&files, &nearby, trace) } else { Err(None) };
        let (symbols, function_ranges) = (symbols.build(), FunctionRanges::default());
        Some(OpenImage::Elf(Box::new(ElfImage { headers, symbols, dwarf, function_ranges })))
    }

    /// Whether there is one.
    pub(crate) fn has_vmlinux(&self, recorded: &RecordedImage) -> bool {
        self.kernel_file(recorded, &SearchLog::default()).is_some()
    }

    /// That file, and headers for which the recorded offsets are some.
    fn kernel_file(
        &self,
        recorded: &RecordedImage,
        trace: &SearchLog,
    ) -> Option<(ElfFile, Headers)> {
        let build_id = &*recorded.build_id;
        let paths = paths(&self.places, build_id, &releases(&self.places));
        let usable = |path: PathBuf| {
            let found = ElfFile::open(&path);
            let found =
                found.and_then(|file| identity::has_build_id(&file, build_id).map(|()| file));
            match found {
                Ok(file) => {
                    trace.tried(&path, format!("is the kernel: {}", file.description()));
                    let headers = headers(&file);
                    if headers.is_none() {
                        trace.tried(&path, "has no symbol _stext");
                    }
                    Some((file, headers?))
                }
                Err(failure) => {
                    trace.tried(&path, failure.why);
                    None
                }
            }
        };
        if build_id.is_empty() {
            return None;
        }
        let fetched = || self.fetch(build_id, ArtifactKind::DebugInfo, trace).into_iter();
        paths.into_iter().find_map(usable).or_else(|| fetched().find_map(usable))
    }
}

/// The paths the kernel with a build ID may have: by build ID, then where distributions put the
/// kernels of these releases.
fn paths(places: &SearchPaths, build_id: &[u8], releases: &[String]) -> Vec<PathBuf> {
    let mut paths = places.by_build_id(build_id, ".debug");
    paths.extend(places.by_build_id(build_id, ""));
    let root = places.symfs.clone().unwrap_or_else(|| PathBuf::from("/"));
    for release in releases {
        let below = |directory: &Path, names: &[&str]| {
            let named = names.iter().map(|name| directory.join(name.replace('@', release)));
            named.collect::<Vec<PathBuf>>()
        };
        paths.extend(places.directories().iter().flat_map(|directory| below(directory, &DEBUG)));
        paths.extend(below(&root, &INSTALLED));
    }
    paths
}

/// The releases of the kernels installed under the root, the running one first.
fn releases(places: &SearchPaths) -> Vec<String> {
    let mut releases = Vec::new();
    if places.symfs.is_none() {
        let running = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        releases.push(running.trim().to_owned());
    }
    let root = places.symfs.clone().unwrap_or_else(|| PathBuf::from("/"));
    let installed = std::fs::read_dir(root.join("lib/modules")).into_iter().flatten();
    let names = installed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(KERNELS).collect();
    names.sort();
    releases.extend(names);
    releases.retain(|release| !release.is_empty());
    let mut seen = std::collections::HashSet::new();
    releases.retain(|release| seen.insert(release.clone()));
    releases
}

/// Headers for which an offset in the recording, which counts from `_stext`, is one in a single
/// segment. `None` when the file has no such symbol.
fn headers(file: &ElfFile) -> Option<Headers> {
    let start = address(file, b"_stext").or_else(|| address(file, b"_text"))?;
    let size = u64::MAX - start;
    let segment = Segment { offset: 0, size, address: start, executable: true };
    Some(Headers { segments: vec![segment], ..(*file.headers).clone() })
}

/// The address of a symbol.
fn address(file: &ElfFile, name: &[u8]) -> Option<u64> {
    let headers = &file.headers;
    let is_table = |kind| kind == elf::SHT_SYMTAB.0;
    let table = headers.sections.iter().find(|section| is_table(section.kind))?;
    let strings = headers.sections.get(table.link)?;
    let data = file.data();
    let range =
        |section: &crate::elf::headers::Section| Some((section.offset?, section.size.min(LARGEST)));
    let (at, size) = range(strings)?;
    let strings = (&data).read_bytes_at(at, size).ok()?;
    let (at, size) = range(table).filter(|_| headers.is_64)?;
    let count = usize::try_from(size).ok()? / size_of::<Sym64<Endianness>>();
    let symbols = (&data).read_slice_at::<Sym64<Endianness>>(at, count).ok()?;
    let is_meant = |symbol: &&Sym64<Endianness>| {
        let rest = strings.get(symbol.st_name(headers.endian) as usize..).unwrap_or_default();
        rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
    };
    symbols.iter().find(is_meant).map(|symbol| symbol.st_value(headers.endian))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_comes_before_releases() {
        let places = SearchPaths { debug_dirs: vec!["/d".into()], symfs: Some("/r".into()) };
        let paths = paths(&places, &[1, 2], &["6.1".to_owned()]);
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
    fn releases_are_told_once() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("lib/modules/6.2")).unwrap();
        std::fs::create_dir_all(directory.path().join("lib/modules/6.1")).unwrap();
        let there = SearchPaths { debug_dirs: vec![], symfs: Some(directory.path().into()) };
        assert_eq!(releases(&there), ["6.1", "6.2"]);
        let here = releases(&SearchPaths::default());
        assert!(!here.is_empty(), "at least the running kernel's");
    }
}
