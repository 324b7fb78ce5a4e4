//! Where files may be: the paths that are tried, in their order. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::hex::hex;
use crate::dwarf::SplitUnit;

/// The debug directory of every distribution.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// The directories files are looked for in.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchPaths {
    /// Directories that hold debug files, before the system's.
    pub(crate) debug_dirs: Vec<PathBuf>,
    /// Where the root of the profiled system is; `None` if it is this one's.
    pub(crate) symfs: Option<PathBuf>,
}

impl SearchPaths {
    /// The path of a recorded image, under the root. `None` when it is not absolute.
    pub(crate) fn recorded(&self, recorded: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(without_deleted(recorded)));
        path.is_absolute().then(|| self.rooted(path))
    }

    /// An absolute path under the root.
    fn rooted(&self, path: &Path) -> PathBuf {
        match &self.symfs {
            Some(root) => root.join(relative(path)),
            None => path.to_owned(),
        }
    }

    /// Where debug files are, the most particular directory first.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let mut directories = self.debug_dirs.clone();
        directories.extend(self.symfs.iter().map(|root| root.join(&DEBUG_DIR[1..])));
        directories.push(DEBUG_DIR.into());
        directories
    }

    /// The paths of what has a build ID: `.build-id/xx/yyyy` with a suffix.
    pub(crate) fn by_build_id(&self, build_id: &[u8], suffix: &str) -> Vec<PathBuf> {
        let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())
        else {
            return Vec::new();
        };
        let name = format!(".build-id/{first:02x}/{}{suffix}", hex(rest));
        self.directories().iter().map(|directory| directory.join(&name)).collect()
    }

    /// The paths a debug link may mean: beside the image, in `.debug` there, and in the debug
    /// directories under the image's directory.
    pub(crate) fn by_link(&self, image: &Path, name: &[u8]) -> Vec<PathBuf> {
        let name = OsStr::from_bytes(name);
        let Some(directory) = image.parent() else { return Vec::new() };
        let mut paths = vec![directory.join(name), directory.join(".debug").join(name)];
        let inside = self.inside(directory);
        paths.extend(self.directories().iter().map(|debug| debug.join(&inside).join(name)));
        paths.retain(|path| path != image);
        paths
    }

    /// The paths a supplementary file may have that `file` names: the path it says, the same
    /// below a debug directory from `.dwz` on, and by build ID.
    pub(crate) fn shared(&self, file: &Path, path: &[u8], id: &[u8]) -> Vec<PathBuf> {
        let said = Path::new(OsStr::from_bytes(path));
        let mut paths = vec![match file.parent() {
            Some(directory) if said.is_relative() => directory.join(said),
            _ => self.rooted(said),
        }];
        let mut parts = said.components();
        if parts.by_ref().any(|part| part.as_os_str() == ".dwz") {
            let rest = Path::new(".dwz").join(parts.as_path());
            paths.extend(self.directories().iter().map(|debug| debug.join(&rest)));
        }
        paths.extend(self.by_build_id(id, ".debug"));
        dedup(paths)
    }

    /// The paths of the package of an image's split units: the name of the image, or of the file
    /// its debug information is in, with `.dwp` behind it.
    pub(crate) fn packages(&self, files: &[PathBuf]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for file in files {
            let mut name = file.as_os_str().to_owned();
            name.push(".dwp");
            paths.push(name.into());
            // `prog.debug` may stand beside `prog.dwp`.
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

    /// The paths a split unit may have: where the compiler put it, and, since programs are built
    /// in one place and kept in another, below and beside the image.
    pub(crate) fn split(&self, files: &[PathBuf], unit: &SplitUnit) -> Vec<PathBuf> {
        let [name, directory] =
            [&unit.name, &unit.directory].map(|path| Path::new(OsStr::from_bytes(path)));
        let compiled = directory.join(name);
        let mut paths = Vec::new();
        if compiled.is_absolute() {
            paths.push(self.rooted(&compiled));
        }
        for beside in files.iter().filter_map(|file| file.parent()) {
            if name.is_relative() {
                paths.push(beside.join(name));
            }
            paths.extend(name.file_name().map(|name| beside.join(name)));
        }
        dedup(paths)
    }

    /// A directory as the profiled system sees it, without the `/` in front.
    fn inside(&self, directory: &Path) -> PathBuf {
        let inside = self.symfs.as_ref().and_then(|root| directory.strip_prefix(root).ok());
        relative(inside.unwrap_or(directory)).to_owned()
    }
}

/// A recorded path without what the kernel puts behind that of a file that was removed.
pub(crate) fn without_deleted(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
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

    fn places(debug_dirs: &[&str], symfs: Option<&str>) -> SearchPaths {
        SearchPaths {
            debug_dirs: debug_dirs.iter().map(PathBuf::from).collect(),
            symfs: symfs.map(PathBuf::from),
        }
    }

    fn words(paths: &[PathBuf]) -> Vec<&str> {
        paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_recorded_path_is_taken_under_the_root() {
        let (here, there) = (places(&[], None), places(&[], Some("/r")));
        assert_eq!(here.recorded(b"/bin/a (deleted)"), Some("/bin/a".into()));
        assert_eq!(there.recorded(b"/bin/a"), Some("/r/bin/a".into()));
        assert_eq!(there.recorded(b"bin/a"), None);
        assert_eq!(here.recorded(b"[heap]"), None);
    }

    #[test]
    fn the_users_debug_directories_come_first_and_the_systems_last() {
        let places = places(&["/d"], Some("/r"));
        let paths = places.by_build_id(&[0xab, 0xcd, 1], ".debug");
        assert_eq!(
            words(&paths),
            [
                "/d/.build-id/ab/cd01.debug",
                "/r/usr/lib/debug/.build-id/ab/cd01.debug",
                "/usr/lib/debug/.build-id/ab/cd01.debug"
            ]
        );
        assert!(places.by_build_id(&[1], "").is_empty(), "of one byte there is no second part");
        let paths = places.by_link(Path::new("/r/bin/a"), b"a.debug");
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
    fn a_shared_file_is_looked_for_where_it_is_said_to_be_and_in_the_dwz_directories() {
        let places = places(&["/d"], None);
        let file = Path::new("/usr/lib/debug/.build-id/ab/cd.debug");
        let paths = places.shared(file, b"/usr/lib/debug/.dwz/x86/a.debug", &[1, 2]);
        assert_eq!(
            words(&paths),
            [
                "/usr/lib/debug/.dwz/x86/a.debug",
                "/d/.dwz/x86/a.debug",
                "/d/.build-id/01/02.debug",
                "/usr/lib/debug/.build-id/01/02.debug"
            ]
        );
        let paths = places.shared(file, b"../../.dwz/b", &[]);
        assert_eq!(words(&paths[..1]), ["/usr/lib/debug/.build-id/ab/../../.dwz/b"]);
    }

    #[test]
    fn split_units_are_looked_for_where_they_were_made_and_where_the_image_is() {
        let places = places(&[], Some("/r"));
        let files = [PathBuf::from("/r/bin/a"), PathBuf::from("/d/a.debug")];
        let unit = SplitUnit { name: b"o/a.dwo".to_vec(), directory: b"/src".to_vec(), id: 1 };
        assert_eq!(
            words(&places.split(&files, &unit)),
            ["/r/src/o/a.dwo", "/r/bin/o/a.dwo", "/r/bin/a.dwo", "/d/o/a.dwo", "/d/a.dwo"]
        );
        assert_eq!(
            words(&places.packages(&files)),
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
