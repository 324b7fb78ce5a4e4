//! The files that belong to the linked one: the supplementary file that several files share, and the units
//! that were split off, each in its own file (`.dwo`) or all in a package (`.dwp`).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use gimli::{DebugCuIndex, EndianSlice};

use super::debug_file::{DwarfFile, endian};
use super::error::{DwarfError, Result};
use super::section::{DebugFile, DebugFiles, Section, SplitUnit};

/// The largest index of a package in bytes.
const INDEX: u64 = 256 << 20;

/// The files that belong to the linked one, opened when they are needed.
pub(crate) struct LinkedFiles {
    files: Box<dyn DebugFiles>,
    supplementary: OnceCell<Option<Rc<DwarfFile>>>,
    package: OnceCell<Option<Rc<Package>>>,
}

impl LinkedFiles {
    /// Wraps the files; opens none.
    pub(crate) fn new(files: Box<dyn DebugFiles>) -> Self {
        Self { files, supplementary: OnceCell::new(), package: OnceCell::new() }
    }

    /// Returns the supplementary file.
    ///
    /// # Errors
    ///
    /// When it is missing or cannot be read.
    pub(crate) fn supplementary(&self) -> Result<Rc<DwarfFile>> {
        let open = || DwarfFile::new(self.files.supplementary()?, false).ok().map(Rc::new);
        self.supplementary.get_or_init(open).clone().ok_or(DwarfError::NoSupplementary)
    }

    /// Opens the file of a split unit: its part of the package, else its own `.dwo` file.
    ///
    /// # Errors
    ///
    /// When it is missing or cannot be read.
    pub(crate) fn split(&self, wanted: &SplitUnit) -> Result<Rc<DwarfFile>> {
        let package = || self.files.package().and_then(Package::open).map(Rc::new);
        let packed = self.package.get_or_init(package).as_ref();
        // A package replaces the .dwo files, which are often deleted after that.
        if let Some(part) = packed.and_then(|package| PackagedUnit::find(package, wanted.id)) {
            return DwarfFile::new(Box::new(part), true).map(Rc::new);
        }
        let file = self.files.split(wanted);
        // A missing file is reported for each unit, since others may be found.
        let absent = || DwarfError::NoSplit(String::from_utf8_lossy(&wanted.name).into_owned());
        DwarfFile::new(file.ok_or_else(absent)?, true).map(Rc::new)
    }

    /// Drops the bytes of the supplementary file that are kept.
    pub(crate) fn drop_kept(&self) {
        if let Some(Some(shared)) = self.supplementary.get() {
            shared.drop_kept();
        }
    }

    /// Returns the memory that [`Self::drop_kept`] frees, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let shared = self.supplementary.get().and_then(Option::as_ref);
        shared.map_or(0, |shared| shared.kept_bytes())
    }

    /// Returns the memory that the files take in any case, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let shared = self.supplementary.get().and_then(Option::as_ref);
        let package = self.package.get().and_then(Option::as_ref);
        shared.map_or(0, |data| data.bytes()) + package.map_or(0, |package| package.bytes())
    }
}

/// A package of split units.
struct Package {
    file: Box<dyn DebugFile>,
    /// `.debug_cu_index`: the parts of the sections that belong to each unit (DWARF 5, 7.3.5).
    index: Vec<u8>,
    sections: RefCell<BTreeMap<String, Section>>,
}

impl Package {
    fn open(file: Box<dyn DebugFile>) -> Option<Self> {
        let section = file.section(".debug_cu_index").ok()?;
        let index = section.read(0, section.len().min(INDEX)).ok()?.into_owned();
        Some(Self { file, index, sections: RefCell::default() })
    }

    fn section(&self, name: &str) -> anyhow::Result<Section> {
        if let Some(section) = self.sections.borrow().get(name) {
            return Ok(section.clone());
        }
        let section = self.file.section(name)?;
        self.sections.borrow_mut().insert(name.to_owned(), section.clone());
        Ok(section)
    }

    fn bytes(&self) -> usize {
        let sections = self.sections.borrow();
        self.index.len() + sections.values().map(Section::bytes).sum::<usize>()
    }
}

/// One unit of a package, presented as a file of its own.
struct PackagedUnit {
    package: Rc<Package>,
    /// The offset and the size of its part of each section.
    parts: BTreeMap<&'static str, (u64, u64)>,
}

impl PackagedUnit {
    fn find(package: &Rc<Package>, id: u64) -> Option<Self> {
        let endian = endian(package.file.is_little_endian());
        let index = DebugCuIndex::from(EndianSlice::new(&package.index, endian)).index().ok()?;
        let sections = index.sections(index.find(id)?).ok()?;
        let parts = sections.map(|section| {
            (section.section.dwo_name(), (u64::from(section.offset), u64::from(section.size)))
        });
        Some(Self { package: Rc::clone(package), parts: parts.collect() })
    }
}

impl DebugFile for PackagedUnit {
    fn is_little_endian(&self) -> bool {
        self.package.file.is_little_endian()
    }

    fn section(&self, name: &str) -> anyhow::Result<Section> {
        match self.parts.get(name) {
            Some(&(offset, size)) => Ok(self.package.section(name)?.part(offset, size)),
            // All units share the strings; the index has no column for them.
            None if name == ".debug_str.dwo" => self.package.section(name),
            None => Ok(Section::default()),
        }
    }
}
