//! The files one image's debug information is spread over, opened as the engine asks for them:
//! the file with the units, the supplementary file several files share, split units and their
//! package.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::debuginfod::{ArtifactKind, Debuginfod};
use super::elf_file::ElfFile;
use super::hex::hex;
use super::search_log::SearchLog;
use super::search_paths::SearchPaths;
use crate::dwarf::{DebugFile, DebugFiles, SplitUnit};
use crate::elf::debug_link::{self, SharedLink};

/// The largest section that names another file, bytes.
const LINK: u64 = 64 << 10;

/// The debug information of one image.
pub(crate) struct SplitFiles {
    /// The file with the units, or with their skeletons.
    pub(crate) main: ElfFile,
    /// Where the image is, and the files of it that were found.
    pub(crate) files: Vec<PathBuf>,
    /// Where to look for the others.
    pub(crate) places: SearchPaths,
    /// The servers to ask, if they may be asked.
    pub(crate) debuginfod: Option<Rc<Debuginfod>>,
    /// What was tried.
    pub(crate) trace: SearchLog,
    /// How many split units were not found.
    pub(crate) missing: Cell<usize>,
}

/// How many split units that were not found are told one by one.
const MISSING: usize = 3;

impl SplitFiles {
    /// The supplementary file, and whether the main file's link is of `.debug_sup`.
    fn shared_link(&self) -> Option<(SharedLink, bool)> {
        let alt = debug_link::alt_link(&self.main.whole(b".gnu_debugaltlink", LINK));
        let sup = || {
            let section = self.main.whole(b".debug_sup", LINK);
            debug_link::debug_sup(self.main.headers.endian, &section)
        };
        alt.map(|link| (link, false)).or_else(|| {
            let sup = sup().filter(|sup| !sup.is_supplementary && !sup.link.path.is_empty());
            Some((sup?.link, true))
        })
    }

    /// The supplementary file.
    pub(crate) fn find_shared(&self) -> Option<ElfFile> {
        let (link, is_sup) = self.shared_link()?;
        // What dwz(1) takes as the checksum is a build ID, too.
        let id = &link.id;
        let paths = self.places.shared(&self.main.path, &link.path, id);
        let found = paths.into_iter().find_map(|path| self.try_shared(&path, &link, is_sup));
        let found = found.or_else(|| {
            let fetched =
                self.debuginfod.as_ref()?.fetch(id, ArtifactKind::DebugInfo, &self.trace)?;
            self.try_shared(&fetched, &link, is_sup)
        });
        if found.is_none() {
            self.trace.note("the shared file (dwz) was not found: some names are missing");
        }
        found
    }

    /// Opens a file if it is the supplementary one.
    fn try_shared(&self, path: &Path, link: &SharedLink, is_sup: bool) -> Option<ElfFile> {
        let file = match ElfFile::open(path) {
            Ok(file) => file,
            Err(failure) => {
                self.trace.tried(path, failure.why);
                return None;
            }
        };
        let (what, id) = if is_sup {
            let section = file.whole(b".debug_sup", LINK);
            let sup = debug_link::debug_sup(file.headers.endian, &section);
            ("checksum", sup.filter(|sup| sup.is_supplementary).map(|sup| sup.link.id))
        } else {
            ("build ID", Some(file.headers.build_id.clone()).filter(|id| !id.is_empty()))
        };
        if id.as_ref() == Some(&link.id) {
            self.trace.tried(path, format!("is the shared file: {}", file.description()));
            return Some(file);
        }
        let (has, want) = (id.map_or("none".to_owned(), |id| hex(&id)), hex(&link.id));
        self.trace.tried(path, format!("another {what}: it has {has}, want {want}"));
        None
    }

    /// The package of the split units.
    pub(crate) fn find_package(&self) -> Option<ElfFile> {
        self.places.packages(&self.files).into_iter().find_map(|path| {
            self.open(&path, "is the package of split units", |file| {
                file.headers.section(b".debug_cu_index").is_some()
            })
        })
    }

    fn open(
        &self,
        path: &Path,
        what: &str,
        is_right: impl Fn(&ElfFile) -> bool,
    ) -> Option<ElfFile> {
        match ElfFile::open(path) {
            Ok(file) if is_right(&file) => {
                self.trace.tried(path, format!("{what}: {}", file.description()));
                Some(file)
            }
            Ok(_) => {
                self.trace.tried(path, "has no split units");
                None
            }
            Err(failure) => {
                self.trace.tried(path, failure.why);
                None
            }
        }
    }
}

impl DebugFiles for SplitFiles {
    fn main(&self) -> Box<dyn DebugFile> {
        Box::new(self.main.clone())
    }

    fn supplementary(&self) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(self.find_shared()?))
    }

    fn package(&self) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(self.find_package()?))
    }

    fn split(&self, wanted: &SplitUnit) -> Option<Box<dyn DebugFile>> {
        let mut tried = Vec::new();
        for path in self.places.split(&self.files, wanted) {
            match ElfFile::open(&path) {
                Ok(file) if file.headers.section(b".debug_info.dwo").is_some() => {
                    self.trace.tried(&path, format!("split unit: {}", file.description()));
                    return Some(Box::new(file));
                }
                Ok(_) => tried.push((path, "has no split units".to_owned())),
                Err(failure) => tried.push((path, failure.why)),
            }
        }
        self.missing.set(self.missing.get() + 1);
        if self.missing.get() <= MISSING {
            tried.iter().for_each(|(path, why)| self.trace.tried(path, why));
        } else if self.missing.get() == MISSING + 1 {
            self.trace.note("more split units (.dwo) were not found");
        }
        None
    }
}
