//! The files of one image's debug information, opened when the DWARF engine needs them: the file
//! with the units, the supplementary file that several files share, split units and their package.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::debuginfod::{ArtifactKind, Debuginfod};
use super::elf_file::ElfFile;
use super::search_log::SearchLog;
use super::search_paths::SearchPaths;
use crate::dwarf::{DebugFile, DebugFiles, SplitUnit};
use crate::elf::debug_link::{self, SupplementaryLink};
use nprof_stream::number::hex;

/// The largest section with a link to another file.
const MAX_LINK_BYTES: u64 = 64 << 10;

/// The number of missing split units that are logged one by one.
const MAX_LOGGED_MISSING: usize = 3;

/// The debug information of one image.
pub(crate) struct SplitFiles {
    /// The file with the units, or with their skeletons.
    pub(crate) main: ElfFile,
    /// Paths in the directories to search: the image, and its files that were found.
    pub(crate) beside: Vec<PathBuf>,
    /// The directories that are searched.
    pub(crate) search_paths: SearchPaths,
    /// The debuginfod servers. None if the user did not allow requests.
    pub(crate) debuginfod: Option<Rc<Debuginfod>>,
    /// The steps of the search.
    pub(crate) log: SearchLog,
    /// The number of split units that were not found.
    pub(crate) missing: Cell<usize>,
}

/// The section that links to the supplementary file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkKind {
    /// `.gnu_debugaltlink`, with a build ID.
    AltLink,
    /// `.debug_sup`, with a checksum.
    DebugSup,
}

impl SplitFiles {
    /// Returns the main file's link to a supplementary file.
    fn supplementary_link(&self) -> Option<(LinkKind, SupplementaryLink)> {
        let section = self.main.whole(b".gnu_debugaltlink", MAX_LINK_BYTES);
        if let Some(link) = debug_link::alt_link(&section) {
            return Some((LinkKind::AltLink, link));
        }
        let section = self.main.whole(b".debug_sup", MAX_LINK_BYTES);
        let sup = debug_link::debug_sup(self.main.headers.endian, &section)?;
        // The supplementary file has the section, too, without a path.
        let is_link = !sup.is_supplementary && !sup.link.path.is_empty();
        is_link.then_some((LinkKind::DebugSup, sup.link))
    }

    /// Finds the supplementary file.
    pub(crate) fn find_supplementary(&self) -> Option<ElfFile> {
        let (kind, link) = self.supplementary_link()?;
        // The checksum that dwz(1) writes to .debug_sup is a build ID, too.
        let id = &link.id;
        let paths = self.search_paths.supplementary(&self.main.path, &link.path, id);
        let found = paths.into_iter().find_map(|path| self.try_supplementary(&path, &link, kind));
        let found = found.or_else(|| {
            let servers = self.debuginfod.as_ref()?;
            let fetched = servers.fetch(id, ArtifactKind::DebugInfo, &self.log)?;
            self.try_supplementary(&fetched, &link, kind)
        });
        if found.is_none() {
            self.log.note("the supplementary file (dwz) was not found: some names are missing");
        }
        found
    }

    /// Opens a file if it is the supplementary one.
    fn try_supplementary(
        &self,
        path: &Path,
        link: &SupplementaryLink,
        kind: LinkKind,
    ) -> Option<ElfFile> {
        let file = match ElfFile::open(path) {
            Ok(file) => file,
            Err(failure) => {
                self.log.tried(path, failure.reason);
                return None;
            }
        };
        let (id_name, id) = match kind {
            LinkKind::DebugSup => {
                let section = file.whole(b".debug_sup", MAX_LINK_BYTES);
                let sup = debug_link::debug_sup(file.headers.endian, &section);
                ("checksum", sup.filter(|sup| sup.is_supplementary).map(|sup| sup.link.id))
            }
            LinkKind::AltLink => {
                ("build ID", Some(file.headers.build_id.clone()).filter(|id| !id.is_empty()))
            }
        };
        if id.as_ref() == Some(&link.id) {
            self.log.tried(path, format!("is the supplementary file: {}", file.description()));
            return Some(file);
        }
        let (has, want) = (id.map_or("none".to_owned(), |id| hex(&id)), hex(&link.id));
        self.log.tried(path, format!("another {id_name}: it has {has}, want {want}"));
        None
    }

    /// Finds the package of the split units.
    pub(crate) fn find_package(&self) -> Option<ElfFile> {
        let paths = self.search_paths.packages(&self.beside);
        paths.into_iter().find_map(|path| self.try_package(&path))
    }

    /// Opens a file if it is a package.
    fn try_package(&self, path: &Path) -> Option<ElfFile> {
        match ElfFile::open(path) {
            Ok(file) if file.headers.section(b".debug_cu_index").is_some() => {
                let description = file.description();
                self.log.tried(path, format!("is the package of split units: {description}"));
                return Some(file);
            }
            Ok(_) => self.log.tried(path, "has no split units"),
            Err(failure) => self.log.tried(path, failure.reason),
        }
        None
    }
}

impl DebugFiles for SplitFiles {
    fn main(&self) -> Box<dyn DebugFile> {
        Box::new(self.main.clone())
    }

    fn supplementary(&self) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(self.find_supplementary()?))
    }

    fn package(&self) -> Option<Box<dyn DebugFile>> {
        Some(Box::new(self.find_package()?))
    }

    fn split(&self, wanted: &SplitUnit) -> Option<Box<dyn DebugFile>> {
        // Logged only for the first missing units: a program may have thousands.
        let mut tried = Vec::new();
        for path in self.search_paths.split(&self.beside, wanted) {
            match ElfFile::open(&path) {
                // A file of the same name may be something else; the engine compares the unit ID.
                Ok(file) if file.headers.section(b".debug_info.dwo").is_some() => {
                    self.log.tried(&path, format!("split unit: {}", file.description()));
                    return Some(Box::new(file));
                }
                Ok(_) => tried.push((path, "has no split units".to_owned())),
                Err(failure) => tried.push((path, failure.reason)),
            }
        }
        self.missing.set(self.missing.get() + 1);
        if self.missing.get() <= MAX_LOGGED_MISSING {
            tried.iter().for_each(|(path, reason)| self.log.tried(path, reason));
        } else if self.missing.get() == MAX_LOGGED_MISSING + 1 {
            self.log.note("more split units (.dwo) were not found");
        }
        None
    }
}
