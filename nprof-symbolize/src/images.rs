//! Finds and opens the files an ELF image and its debug information are in.
//!
//! The order is fixed, and every step leaves a line in a trace that `--explain` prints. No file
//! is taken for another: the build ID decides, or the CRC the image has of its debug file.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use nprof_format::{ImageKind, Status};
use object::read::{CompressedData, CompressionFormat};
use object::{ReadCache, elf};

use crate::dwarf::{DebugFile, DebugFiles, Dwarf, Section as DebugSection, SplitUnit};
use crate::elf::{Headers, Packing, Section};
use crate::extents::Extents;
use crate::plt;
use crate::resolve::{Detail, ElfImage, OpenImage};
use crate::symbols::{SymbolTable, SymbolTableBuilder};

/// The debug directory of every distribution.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// The largest section once it is unpacked, bytes: what offsets of 32-bit DWARF can reach.
const UNPACKED: u64 = 1 << 32;

/// What the stream says of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recorded {
    /// What it is.
    pub(crate) kind: ImageKind,
    /// Its build ID, empty when there is none.
    pub(crate) build_id: Box<[u8]>,
    /// Its path, or a name in brackets.
    pub(crate) path: Box<[u8]>,
}

/// Why an image has no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What its frames get.
    pub(crate) status: Status,
    /// The reason, for people.
    pub(crate) why: String,
}

/// What was tried, a line each.
pub(crate) type Trace = Vec<String>;

/// Where to look for files.
#[derive(Clone, Debug)]
pub(crate) struct Finder {
    /// Directories that hold debug files, before the system's.
    pub(crate) debug_dirs: Vec<PathBuf>,
    /// Where the root of the profiled system is.
    pub(crate) symfs: Option<PathBuf>,
    /// What the files are wanted for.
    pub(crate) detail: Detail,
}

/// An ELF file that was opened.
struct ElfFile {
    path: PathBuf,
    file: File,
    headers: Headers,
}

impl Finder {
    /// Finds and opens the ELF file the stream names.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn open(
        &self,
        recorded: &Recorded,
        trace: &mut Trace,
    ) -> Result<OpenImage, Failure> {
        let image = self.image(recorded, trace);
        let mut files = self.debug_files(recorded, image.as_ref().ok(), trace);
        let headers = match image {
            Ok(image) => {
                files.insert(0, image);
                files[0].headers.clone()
            }
            Err(failure) => {
                // Without the image its debug file may still tell where its code was.
                let told = files.iter().find(|file| tells_offsets(&file.headers));
                let Some(told) = told else { return Err(failure) };
                trace.push(format!("{}: stands in for the image", told.path.display()));
                told.headers.clone()
            }
        };
        Ok(OpenImage::Elf(Box::new(self.put_together(headers, &files, trace))))
    }

    /// The file that was executed.
    fn image(&self, recorded: &Recorded, trace: &mut Trace) -> Result<ElfFile, Failure> {
        let mut failure = None;
        let by_id = self.by_build_id(&recorded.build_id, "");
        for path in self.recorded_path(recorded).into_iter().chain(by_id) {
            let found = open_elf(&path).and_then(|file| has_build_id(file, &recorded.build_id));
            match found {
                Ok(file) => {
                    trace.push(format!("{}: is the image", path.display()));
                    return Ok(file);
                }
                Err(Failure { status, why }) => {
                    trace.push(format!("{}: {why}", path.display()));
                    let why = format!("{}: {why}", path.display());
                    failure = failure.or(Some(Failure { status, why }));
                }
            }
        }
        let why = "its path is not absolute".to_owned();
        Err(failure.unwrap_or(Failure { status: Status::NoImage, why }))
    }

    fn recorded_path(&self, recorded: &Recorded) -> Option<PathBuf> {
        let path = recorded.path.strip_suffix(b" (deleted)").unwrap_or(&recorded.path);
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        Some(match &self.symfs {
            Some(root) => root.join(path.strip_prefix("/").ok()?),
            None if path.is_absolute() => path.to_owned(),
            None => return None,
        })
    }

    /// Where debug files are, the most particular directory first.
    fn directories(&self) -> Vec<PathBuf> {
        let mut directories = self.debug_dirs.clone();
        directories.extend(self.symfs.iter().map(|root| root.join(&DEBUG_DIR[1..])));
        directories.push(DEBUG_DIR.into());
        directories
    }

    /// The paths of what has a build ID: `.build-id/xx/yyyy` with a suffix.
    fn by_build_id(&self, build_id: &[u8], suffix: &str) -> Vec<PathBuf> {
        let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return Vec::new();
        };
        let name = format!(".build-id/{first:02x}/{}{suffix}", hex(rest));
        self.directories().iter().map(|directory| directory.join(&name)).collect()
    }

    /// The files that may hold the image's debug information, in the order they are tried.
    fn debug_files(
        &self,
        recorded: &Recorded,
        image: Option<&ElfFile>,
        trace: &mut Trace,
    ) -> Vec<ElfFile> {
        let build_id = match image {
            Some(image) => &image.headers.build_id,
            None => &recorded.build_id[..],
        };
        let mut files = Vec::new();
        if image.is_some_and(|image| image.headers.has_dwarf()) {
            return files;
        }
        for path in self.by_build_id(build_id, ".debug") {
            let found = open_elf(&path).and_then(|file| has_build_id(file, build_id));
            keep(&mut files, trace, &path, found);
        }
        let linked = image.and_then(|image| Some((image, image.headers.debug_link.as_ref()?)));
        if let Some((image, link)) =
            linked.filter(|_| !files.iter().any(|file| file.headers.has_dwarf()))
        {
            for path in self.by_link(image, &link.name) {
                let found = open_elf(&path).and_then(|file| is_linked(file, build_id, link.crc));
                keep(&mut files, trace, &path, found);
            }
        }
        files
    }

    /// The paths a debug link may mean: beside the image, in `.debug` there, and in the debug
    /// directories under the image's directory.
    fn by_link(&self, image: &ElfFile, name: &[u8]) -> Vec<PathBuf> {
        let name = std::ffi::OsStr::from_bytes(name);
        let Some(directory) = image.path.parent() else { return Vec::new() };
        let mut paths = vec![directory.join(name), directory.join(".debug").join(name)];
        let inside = self.symfs.as_ref().and_then(|root| directory.strip_prefix(root).ok());
        let inside = inside.unwrap_or(directory);
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        paths.extend(self.directories().iter().map(|debug| debug.join(inside).join(name)));
        paths.retain(|path| *path != image.path);
        paths
    }

    /// Takes the best each file has to offer: DWARF before a symbol table before exports.
    fn put_together(&self, headers: Headers, files: &[ElfFile], trace: &mut Trace) -> ElfImage {
        let symbols = symbols(files, trace);
        let has_symbols = files.iter().any(|file| file.headers.has_symbols());
        let wanted = !self.detail.is_symbols_only() || !has_symbols;
        let dwarf = if wanted { dwarf(files, trace) } else { None };
        let extents = if has_symbols { Extents::default() } else { extents(files, trace) };
        ElfImage { headers, symbols, dwarf, extents }
    }
}

/// The first full symbol table, else what the first file exports; and the stubs of that.
fn symbols(files: &[ElfFile], trace: &mut Trace) -> SymbolTable {
    let mut symbols = SymbolTableBuilder::default();
    let full = files.iter().find(|file| file.headers.has_symbols());
    if let Some(source) = full.or(files.first()) {
        let (kind, table) = match full {
            Some(_) => (elf::SHT_SYMTAB, ".symtab"),
            None => (elf::SHT_DYNSYM, ".dynsym"),
        };
        symbols.add_elf(&source.headers, &ReadCache::new(&source.file), kind.0);
        trace.push(format!("{}: names from {table}", source.path.display()));
    }
    if let Some(image) = files.first() {
        plt::add_stubs(&mut symbols, &image.headers, &ReadCache::new(&image.file));
    }
    let symbols = symbols.build();
    trace.push(format!("symbols: names for {} ranges", symbols.len()));
    symbols
}

/// The functions of the image's unwind table.
fn extents(files: &[ElfFile], trace: &mut Trace) -> Extents {
    let section = files.first().and_then(|file| Some((file, file.headers.section(b".eh_frame")?)));
    let Some((file, section)) = section else { return Extents::default() };
    let little_endian = file.headers.endian == object::Endianness::Little;
    let address_size = if file.headers.is_64 { 8 } else { 4 };
    let bytes = contents(&file.file, section).unwrap_or_default();
    let extents = Extents::read(&bytes, section.address, little_endian, address_size);
    trace.push(format!("{}: {} functions in .eh_frame", file.path.display(), extents.len()));
    extents
}

/// The first debug information that can be read.
fn dwarf(files: &[ElfFile], trace: &mut Trace) -> Option<Dwarf> {
    for file in files.iter().filter(|file| file.headers.has_dwarf()) {
        let path = file.path.display();
        match load_dwarf(file) {
            Ok(dwarf) => {
                trace.push(format!("{path}: DWARF, {} bytes", dwarf.bytes()));
                if file.headers.section(b".gnu_debugaltlink").is_some() {
                    let what = "part of its DWARF is in a file shared by several (dwz)";
                    trace.push(format!("{what}, which is not read: some names are missing"));
                }
                return Some(dwarf);
            }
            Err(error) => trace.push(format!("{path}: DWARF: {error:#}")),
        }
    }
    trace.push("no DWARF: no inlined calls, no lines".to_owned());
    None
}

/// Takes note of a debug file that was tried, and keeps it when it is the right one.
fn keep(files: &mut Vec<ElfFile>, trace: &mut Trace, path: &Path, found: Result<ElfFile, Failure>) {
    match found {
        Ok(file) => {
            trace.push(format!("{}: is a debug file of the image", path.display()));
            files.push(file);
        }
        Err(failure) => trace.push(format!("{}: {}", path.display(), failure.why)),
    }
}

/// Whether the headers of a debug file still say where in the image its segments were.
/// objcopy(1) leaves no sizes, since the segments' bytes are not there.
fn tells_offsets(headers: &Headers) -> bool {
    headers.segments.iter().any(|segment| segment.executable && segment.size > 0)
}

fn open_elf(path: &Path) -> Result<ElfFile, Failure> {
    let failure = |status, why: String| Failure { status, why };
    let absent = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => failure(Status::Unreadable, error.to_string()),
        _ => failure(Status::NoImage, error.to_string()),
    };
    // Looked at before it is opened: opening a pipe waits, opening a device may do anything.
    let metadata = std::fs::metadata(path).map_err(absent)?;
    if !metadata.is_file() {
        return Err(failure(Status::Unreadable, "not a regular file".to_owned()));
    }
    let file = File::open(path).map_err(absent)?;
    let headers = Headers::read(&ReadCache::new(&file));
    let headers = headers.map_err(|error| failure(Status::Unreadable, error.to_string()))?;
    Ok(ElfFile { path: path.to_owned(), file, headers })
}

/// Accepts a file by its build ID; any where none was recorded.
fn has_build_id(file: ElfFile, build_id: &[u8]) -> Result<ElfFile, Failure> {
    let found = &file.headers.build_id;
    if build_id.is_empty() || found == build_id {
        return Ok(file);
    }
    let found = if found.is_empty() { "none".to_owned() } else { hex(found) };
    let why = format!("another build ID: it has {found}, want {}", hex(build_id));
    Err(Failure { status: Status::Mismatch, why })
}

/// Accepts a file a debug link names: by build ID where both have one, else by its CRC.
fn is_linked(file: ElfFile, build_id: &[u8], crc: u32) -> Result<ElfFile, Failure> {
    if !build_id.is_empty() && !file.headers.build_id.is_empty() {
        return has_build_id(file, build_id);
    }
    let found = checksum(&file.file);
    let failure = |status, why| Failure { status, why };
    match found {
        Ok(found) if found == crc => Ok(file),
        Ok(found) => {
            let why = format!("another checksum: it has {found:08x}, want {crc:08x}");
            Err(failure(Status::Mismatch, why))
        }
        Err(error) => Err(failure(Status::Unreadable, error.to_string())),
    }
}

/// The CRC-32 of a whole file.
fn checksum(mut file: &File) -> std::io::Result<u32> {
    use std::io::Seek;
    file.rewind()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// A file by itself.
#[derive(Clone)]
struct Alone {
    file: Rc<File>,
    headers: Headers,
}

impl DebugFile for Alone {
    fn is_little_endian(&self) -> bool {
        self.headers.endian == object::Endianness::Little
    }

    fn section(&self, name: &str) -> anyhow::Result<DebugSection> {
        let old = name.replacen(".debug_", ".zdebug_", 1);
        let section = self.headers.section(name.as_bytes());
        let section = section.or_else(|| self.headers.section(old.as_bytes()));
        let Some(section) = section else { return Ok(DebugSection::default()) };
        if section.packing != Packing::None {
            return contents(&self.file, section).map(DebugSection::Memory);
        }
        let start = section.offset.unwrap_or_default();
        let end = start.checked_add(section.size).context("it lies outside of the file")?;
        ensure!(end <= self.file.metadata()?.len(), "it lies outside of the file");
        Ok(DebugSection::File { file: Rc::clone(&self.file), start, size: section.size })
    }
}

impl DebugFiles for Alone {
    fn main(&self) -> Box<dyn DebugFile> {
        Box::new(self.clone())
    }

    fn supplementary(&self) -> Option<Box<dyn DebugFile>> {
        None
    }

    fn package(&self) -> Option<Box<dyn DebugFile>> {
        None
    }

    fn split(&self, _: &SplitUnit) -> Option<Box<dyn DebugFile>> {
        None
    }
}

fn load_dwarf(file: &ElfFile) -> anyhow::Result<Dwarf> {
    let alone = Alone { file: Rc::new(file.file.try_clone()?), headers: file.headers.clone() };
    Dwarf::load(Box::new(alone)).map_err(|fault| anyhow::anyhow!("{fault}"))
}

/// A section's bytes, unpacked.
fn contents(file: &File, section: &Section) -> anyhow::Result<Rc<[u8]>> {
    let offset = section.offset.unwrap_or_default();
    let end = offset.checked_add(section.size).context("it lies outside of the file")?;
    ensure!(end <= file.metadata()?.len(), "it lies outside of the file");
    // Zeroes first, since memory must be initialized; shared, since many parts point into it.
    let mut bytes: Rc<[u8]> = std::iter::repeat_n(0, usize::try_from(section.size)?).collect();
    let place = Rc::get_mut(&mut bytes).context("just made, and shared already")?;
    file.read_exact_at(place, offset)?;
    let (format, size, skip) = match section.packing {
        Packing::None => return Ok(bytes),
        Packing::Elf { kind, size, skip } if kind == elf::ELFCOMPRESS_ZLIB.0 => {
            (CompressionFormat::Zlib, size, skip)
        }
        Packing::Elf { kind, size, skip } if kind == elf::ELFCOMPRESS_ZSTD.0 => {
            (CompressionFormat::Zstandard, size, skip)
        }
        Packing::Elf { kind, .. } => bail!("compressed in a way that is not known ({kind})"),
        Packing::Gnu => {
            let size = bytes.strip_prefix(b"ZLIB").and_then(|rest| rest.first_chunk::<8>());
            let size = size.context("a compressed section without its header")?;
            (CompressionFormat::Zlib, u64::from_be_bytes(*size), 12)
        }
    };
    ensure!(size <= UNPACKED, "{size} bytes once unpacked: too large");
    let data = bytes.get(usize::try_from(skip)?..).context("shorter than its header")?;
    let packed = CompressedData { format, data, uncompressed_size: size };
    Ok(packed.decompress()?.into_owned().into())
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
