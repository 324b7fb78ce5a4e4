//! The files of images: finds them by path and build ID, and keeps their unwind tables within a memory
//! bound.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nprof_object::vdso;
use nprof_stream::ImageKind;
use nprof_stream::number::hex;
use nprof_unwind::image::elf::Elf;
use nprof_unwind::image::file_code::{Contents, FileCode};
use object::ReadCache;

use crate::output::ImageDef;

/// The most memory for the unwind tables of all files. Those of the file in use are kept at any size.
const TABLES_MAX_BYTES: usize = 256 << 20;

/// The reason why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// There is none.
    NotFound,
    /// There is one, of another build.
    OtherBuild,
}

/// The search for the file of an image.
#[derive(Debug)]
enum Found {
    Code(Box<FileCode>),
    Lacking(Lacking),
}

/// The files of images, by the numbers of the images.
#[derive(Debug, Default)]
pub(crate) struct ImageFiles {
    /// The root of the recorded system. None if it is this system.
    symfs: Option<PathBuf>,
    /// The directory of perf's copies of files.
    cache: Option<PathBuf>,
    /// None if the file was not needed so far.
    found: Vec<Option<Found>>,
    /// The memory of each file, as it was counted.
    counted: Vec<usize>,
    bytes: usize,
}

impl ImageFiles {
    /// Returns the files of this system, or of a root.
    pub(crate) fn new(symfs: Option<PathBuf>) -> Self {
        // As perf finds it (tools/perf/util/config.c); in the home of the user who imports.
        let cache = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".debug"));
        Self { symfs, cache, ..Self::default() }
    }

    /// Returns the code of an image; `inode` is that of the recorded file. None if its file cannot be used.
    pub(crate) fn code(
        &mut self,
        number: u32,
        image: &ImageDef,
        inode: Option<u64>,
    ) -> Option<&mut FileCode> {
        let at = number as usize;
        if self.found.len() <= at {
            self.found.resize_with(at + 1, || None);
            self.counted.resize(at + 1, 0);
        }
        self.count(at);
        let (symfs, cache) = (self.symfs.as_deref(), self.cache.as_deref());
        match self.found[at].get_or_insert_with(|| find(image, inode, symfs, cache)) {
            Found::Code(code) => Some(code),
            Found::Lacking(_) => None,
        }
    }

    /// Returns the loaded segments of an image, as the extra of its definition. Empty if its file cannot be
    /// used, which is no problem here.
    pub(crate) fn load(&self, image: &ImageDef, inode: Option<u64>) -> String {
        match find(image, inode, self.symfs.as_deref(), self.cache.as_deref()) {
            Found::Code(code) => code.elf().load().unwrap_or_default(),
            Found::Lacking(_) => String::new(),
        }
    }

    /// Counts the memory of a file that is used next, and drops the tables of the others if all take too
    /// much.
    fn count(&mut self, at: usize) {
        let bytes = match &self.found[at] {
            Some(Found::Code(code)) => code.bytes(),
            _ => 0,
        };
        self.bytes = self.bytes - std::mem::replace(&mut self.counted[at], bytes) + bytes;
        if self.bytes <= TABLES_MAX_BYTES {
            return;
        }
        for (other, found) in self.found.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            if let Some(Found::Code(code)) = found {
                code.drop_tables();
                self.bytes -= std::mem::take(&mut self.counted[other]);
            }
        }
    }

    /// Returns the numbers of the images of which files were needed and could not be used.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (u32, Lacking)> + '_ {
        self.found.iter().enumerate().filter_map(|(at, found)| match found {
            Some(Found::Lacking(reason)) => Some((at as u32, *reason)),
            _ => None,
        })
    }
}

/// Searches the file of an image: the recorded path, then perf's copies.
fn find(image: &ImageDef, inode: Option<u64>, symfs: Option<&Path>, cache: Option<&Path>) -> Found {
    if image.kind == ImageKind::Vdso
        && let Some(bytes) = vdso::read_own().ok().flatten()
        && let Some(elf) = Elf::read(&ReadCache::new(Cursor::new(&bytes)))
        && elf.build_id == image.build_id
    {
        return Found::Code(Box::new(FileCode::new(elf, Contents::Bytes(bytes))));
    }
    let path = Path::new(OsStr::from_bytes(&image.path));
    let recorded = path.is_absolute().then(|| match symfs {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    });
    // The inode of a copy of the system is another.
    let inode = inode.filter(|_| symfs.is_none());
    let mut reason = Lacking::NotFound;
    if let Some(path) = recorded
        && let Some((elf, found_inode)) = read_headers(&path)
    {
        let is_same = match image.build_id.is_empty() {
            false => elf.build_id == image.build_id,
            true => inode.is_none_or(|inode| inode == found_inode),
        };
        if is_same {
            return Found::Code(Box::new(FileCode::new(elf, Contents::Path(path))));
        }
        reason = Lacking::OtherBuild;
    }
    for path in cache.map(|cache| copies(cache, &image.build_id)).into_iter().flatten() {
        if let Some((elf, _)) =
            read_headers(&path).filter(|(elf, _)| elf.build_id == image.build_id)
        {
            return Found::Code(Box::new(FileCode::new(elf, Contents::Path(path))));
        }
    }
    Found::Lacking(reason)
}

/// Returns the paths of perf's copies of a file with a build ID. None without one.
fn copies(cache: &Path, build_id: &[u8]) -> Vec<PathBuf> {
    let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Vec::new();
    };
    let directory = cache.join(format!(".build-id/{first:02x}/{}", hex(rest)));
    ["elf", "vdso"].map(|name| directory.join(name)).into()
}

/// Reads the headers and the inode of a regular file. None if it is another, or no ELF file.
fn read_headers(path: &Path) -> Option<(Elf, u64)> {
    // Opening a FIFO would block.
    let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let elf = Elf::read(&ReadCache::new(File::open(path).ok()?))?;
    Some((elf, metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(path: &Path, build_id: &[u8]) -> ImageDef {
        let path = path.as_os_str().as_bytes().to_vec();
        ImageDef::file(build_id.to_vec(), path)
    }

    #[test]
    fn file_of_another_build_is_not_used() {
        let own = std::env::current_exe().expect("a path");
        let (elf, inode) = read_headers(&own).expect("this program");
        let search = |image: &ImageDef, inode| {
            let mut files = ImageFiles { found: Vec::new(), ..ImageFiles::default() };
            let is_found = files.code(3, image, inode).is_some();
            (
                is_found,
                files.lacking().next().map(|(number, reason)| {
                    assert_eq!(number, 3);
                    reason
                }),
            )
        };
        assert_eq!(search(&image(&own, &elf.build_id), None), (true, None));
        // Its build ID is the same, so that another inode does not matter.
        if !elf.build_id.is_empty() {
            assert_eq!(search(&image(&own, &elf.build_id), Some(inode + 1)), (true, None));
        }
        let other = Some(Lacking::OtherBuild);
        assert_eq!(search(&image(&own, &[1, 2]), Some(inode)), (false, other));
        assert_eq!(search(&image(&own, &[]), Some(inode + 1)), (false, other));
        assert_eq!(search(&image(&own, &[]), Some(inode)), (true, None));
        let missing = Some(Lacking::NotFound);
        assert_eq!(search(&image(Path::new("/none/such"), &[1, 2]), None), (false, missing));
        assert_eq!(search(&image(Path::new("/dev/null"), &[]), None), (false, missing));
    }

    #[test]
    fn files_below_a_root_and_copies_of_perf_are_found_by_build_id() {
        let directory = tempfile::tempdir().expect("a directory");
        let own = std::env::current_exe().expect("a path");
        let (elf, _) = read_headers(&own).expect("this program");
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("bin")).expect("created");
        std::fs::copy(&own, root.join("bin/prog")).expect("copied");
        let prog = image(Path::new("/bin/prog"), &elf.build_id);
        let mut files = ImageFiles { symfs: Some(root), ..ImageFiles::default() };
        assert!(files.code(0, &prog, Some(1)).is_some());
        let cache = directory.path().to_owned();
        let copy = copies(&cache, &[1, 2, 3]).remove(0);
        assert!(copy.ends_with(".build-id/01/0203/elf"), "{copy:?}");
        if let Some(copy) = copies(&cache, &elf.build_id).first() {
            std::fs::create_dir_all(copy.parent().expect("a directory")).expect("created");
            std::fs::copy(&own, copy).expect("copied");
            let mut files = ImageFiles { cache: Some(cache), ..ImageFiles::default() };
            let gone = image(Path::new("/none/prog"), &elf.build_id);
            assert!(files.code(0, &gone, None).is_some());
        }
    }
}
