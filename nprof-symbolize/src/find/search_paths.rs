//! The paths at which files are searched, in order. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nprof_object::path::without_deleted;

use crate::dwarf::SplitUnit;
use nprof_stream::number::hex;

/// The debug directory of every distribution.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// The directories that are searched.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchPaths {
    /// The debug directories of the command line, searched before those of the system.
    pub(crate) debug_dirs: Vec<PathBuf>,
    /// The root of the profiled system. None if it is this system.
    pub(crate) symfs: Option<PathBuf>,
}

impl SearchPaths {
    /// Returns the path of a recorded image, under the root. None if it is not absolute.
    pub(crate) fn recorded(&self, recorded: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(without_deleted(recorded)));
        path.is_absolute().then(|| self.rooted(path))
    }

    /// Returns an absolute path under the root.
    fn rooted(&self, path: &Path) -> PathBuf {
        match &self.symfs {
            Some(root) => root.join(relative(path)),
            None => path.to_owned(),
        }
    }

    /// Returns the directories of debug files, the most specific first.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let mut directories = self.debug_dirs.clone();
        directories.extend(self.symfs.iter().map(|root| root.join(&DEBUG_DIR[1..])));
        // With a root the debug files may still be on this system, as for a container.
        directories.push(DEBUG_DIR.into());
        directories
    }

    /// Returns the paths of the file with a build ID: `.build-id/xx/yyyy` and a suffix.
    pub(crate) fn by_build_id(&self, build_id: &[u8], suffix: &str) -> Vec<PathBuf> {
        let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return Vec::new();
        };
        // The layout of the GDB manual, section Separate Debug Files.
        let name = format!(".build-id/{first:02x}/{}{suffix}", hex(rest));
        self.directories().iter().map(|directory| directory.join(&name)).collect()
    }

    /// Returns the paths of copies with a build ID, as perf's cache and `nprof-record --keep-images`
    /// file them: `.build-id/xx/yyyy/elf`, or another name for other files. Only directories of the
    /// command line have them.
    pub(crate) fn copies(&self, build_id: &[u8], name: &str) -> Vec<PathBuf> {
        self.filed(".build-id", build_id, name)
    }

    /// Returns the paths of the copy of a file without a build ID: `.file-id/xx/yyyy/elf`.
    pub(crate) fn by_copy_key(&self, key: &[u8]) -> Vec<PathBuf> {
        self.filed(".file-id", key, "elf")
    }

    fn filed(&self, kind: &str, key: &[u8], name: &str) -> Vec<PathBuf> {
        let Some((first, rest)) = key.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let name = format!("{kind}/{first:02x}/{}/{name}", hex(rest));
        self.debug_dirs.iter().map(|directory| directory.join(&name)).collect()
    }

    /// Returns the paths for the name in a debug link: next to the image, in `.debug` there, and in
    /// the debug directories under the image's directory.
    pub(crate) fn by_link(&self, image: &Path, name: &[u8]) -> Vec<PathBuf> {
        let name = OsStr::from_bytes(name);
        let Some(directory) = image.parent() else { return Vec::new() };
        let mut paths = vec![directory.join(name), directory.join(".debug").join(name)];
        let inside = self.inside(directory);
        paths.extend(self.directories().iter().map(|debug| debug.join(&inside).join(name)));
        // A link may state the image's own name: its debug file is then in another directory.
        paths.retain(|path| path != image);
        paths
    }

    /// Returns the paths for the supplementary file that `file` states: the stated path, the same
    /// from `.dwz` on in each debug directory, and by build ID.
    pub(crate) fn supplementary(&self, file: &Path, path: &[u8], id: &[u8]) -> Vec<PathBuf> {
        let stated = Path::new(OsStr::from_bytes(path));
        let mut paths = vec![match file.parent() {
            Some(directory) if stated.is_relative() => directory.join(stated),
            _ => self.rooted(stated),
        }];
        let mut parts = stated.components();
        // Distributions install dwz files in /usr/lib/debug/.dwz.
        if parts.by_ref().any(|part| part.as_os_str() == ".dwz") {
            let rest = Path::new(".dwz").join(parts.as_path());
            paths.extend(self.directories().iter().map(|debug| debug.join(&rest)));
        }
        paths.extend(self.by_build_id(id, ".debug"));
        dedup(paths)
    }

    /// Returns the paths for the package of an image's split units: the name of the image or of its
    /// debug file, followed by `.dwp`.
    pub(crate) fn packages(&self, files: &[PathBuf]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for file in files {
            let mut name = file.as_os_str().to_owned();
            name.push(".dwp");
            paths.push(name.into());
            // `prog.debug` may lie next to `prog.dwp`.
            if file.extension().is_some_and(|extension| extension == "debug") {
                paths.push(file.with_extension("dwp"));
            }
        }
        if let Some((directory, name)) =
            files.first().and_then(|image| Some((image.parent()?, image.file_name()?)))
        {
            let mut name = name.to_owned();
            name.push(".dwp");
            let inside = self.inside(directory);
            paths.extend(self.directories().iter().map(|debug| debug.join(&inside).join(&name)));
        }
        dedup(paths)
    }

    /// Returns the paths for a split unit: the one at which the compiler wrote it, and, since a
    /// program may be moved after it was built, below and next to the image.
    pub(crate) fn split(&self, files: &[PathBuf], unit: &SplitUnit) -> Vec<PathBuf> {
        let [name, directory] =
            [&unit.name, &unit.directory].map(|path| Path::new(OsStr::from_bytes(path)));
        let compiled = directory.join(name);
        let mut paths = Vec::new();
        // A relative directory of the compiler (-fdebug-compilation-dir) has no known base.
        if compiled.is_absolute() {
            paths.push(self.rooted(&compiled));
        }
        for beside in files.iter().filter_map(|file| file.parent()) {
            // Keeps the directories of a build tree that was moved as a whole.
            if name.is_relative() {
                paths.push(beside.join(name));
            }
            paths.extend(name.file_name().map(|name| beside.join(name)));
        }
        dedup(paths)
    }

    /// Returns a directory as the profiled system sees it, without the leading `/`.
    fn inside(&self, directory: &Path) -> PathBuf {
        let inside = self.symfs.as_ref().and_then(|root| directory.strip_prefix(root).ok());
        relative(inside.unwrap_or(directory)).to_owned()
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn dedup(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen: Vec<PathBuf> = Vec::with_capacity(paths.len());
    for path in paths {
        if !seen.contains(&path) {
            seen.push(path);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search_paths(debug_dirs: &[&str], symfs: Option<&str>) -> SearchPaths {
        SearchPaths {
            debug_dirs: debug_dirs.iter().map(PathBuf::from).collect(),
            symfs: symfs.map(PathBuf::from),
        }
    }

    fn words(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn recorded_path_is_joined_to_the_root() {
        let (here, there) = (search_paths(&[], None), search_paths(&[], Some("/r")));
        assert_eq!(here.recorded(b"/bin/a (deleted)"), Some("/bin/a".into()));
        assert_eq!(there.recorded(b"/bin/a"), Some("/r/bin/a".into()));
        assert_eq!(there.recorded(b"bin/a"), None);
        assert_eq!(here.recorded(b"[heap]"), None);
    }

    #[test]
    fn debug_directories_of_the_user_come_first() {
        let paths_of = search_paths(&["/d"], Some("/r"));
        let paths = paths_of.by_build_id(&[0xab, 0xcd, 1], ".debug");
        assert_eq!(
            words(&paths),
            [
                "/d/.build-id/ab/cd01.debug",
                "/r/usr/lib/debug/.build-id/ab/cd01.debug",
                "/usr/lib/debug/.build-id/ab/cd01.debug"
            ]
        );
        assert!(paths_of.by_build_id(&[1], "").is_empty(), "one byte has no second part");
        assert_eq!(words(&paths_of.copies(&[0xab, 0xcd, 1], "elf")), ["/d/.build-id/ab/cd01/elf"]);
        assert_eq!(words(&paths_of.by_copy_key(&[1, 2])), ["/d/.file-id/01/02/elf"]);
        let paths = paths_of.by_link(Path::new("/r/bin/a"), b"a.debug");
        assert_eq!(
            words(&paths),
            [
                "/r/bin/a.debug",
                "/r/bin/.debug/a.debug",
                "/d/bin/a.debug",
                "/r/usr/lib/debug/bin/a.debug",
                "/usr/lib/debug/bin/a.debug"
            ]
        );
    }

    #[test]
    fn supplementary_file_is_searched_at_its_path_and_below_dwz() {
        let paths_of = search_paths(&["/d"], None);
        let file = Path::new("/usr/lib/debug/.build-id/ab/cd.debug");
        let paths = paths_of.supplementary(file, b"/usr/lib/debug/.dwz/x86/a.debug", &[1, 2]);
        assert_eq!(
            words(&paths),
            [
                "/usr/lib/debug/.dwz/x86/a.debug",
                "/d/.dwz/x86/a.debug",
                "/d/.build-id/01/02.debug",
                "/usr/lib/debug/.build-id/01/02.debug"
            ]
        );
        let paths = paths_of.supplementary(file, b"../../.dwz/b", &[]);
        assert_eq!(words(&paths[..1]), ["/usr/lib/debug/.build-id/ab/../../.dwz/b"]);
    }

    #[test]
    fn split_units_are_searched_at_their_path_and_beside_the_image() {
        let paths_of = search_paths(&[], Some("/r"));
        let files = [PathBuf::from("/r/bin/a"), PathBuf::from("/d/a.debug")];
        let unit = SplitUnit { name: b"o/a.dwo".to_vec(), directory: b"/src".to_vec(), id: 1 };
        assert_eq!(
            words(&paths_of.split(&files, &unit)),
            ["/r/src/o/a.dwo", "/r/bin/o/a.dwo", "/r/bin/a.dwo", "/d/o/a.dwo", "/d/a.dwo"]
        );
        assert_eq!(
            words(&paths_of.packages(&files)),
            [
                "/r/bin/a.dwp",
                "/d/a.debug.dwp",
                "/d/a.dwp",
                "/r/usr/lib/debug/bin/a.dwp",
                "/usr/lib/debug/bin/a.dwp"
            ]
        );
    }
}
