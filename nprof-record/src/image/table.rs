//! The images of all processes: names, code addresses, unwind tables, code analysis.
//!
//! Each distinct file is opened once, when it is first mapped, so that it can be read even if it is
//! unlinked before it is needed. Memory is bounded: the least recently used unwind tables are
//! dropped, and read again if their file still exists. Images that no process maps any more are
//! dropped with an epoch.

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use nprof_object::path::split_deleted;
use nprof_object::{FileOffset, ImageOffset};
use nprof_stream::ImageKind;
use nprof_unwind::arch::Machine;
use nprof_unwind::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use nprof_unwind::image::code_bytes::{CallBefore, CodeCache};
use nprof_unwind::image::code_pages::CodeSource;
use nprof_unwind::unwind::{FrameAddress, UnwindInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::image::kept_images::{CopyKey, KeptImages};
use crate::image::key::{ImageIndex, ImageKey};
use crate::image::mapped_file::FileVersion;
use crate::os::code_mapping::{Identity, Mmap};
use crate::os::task_serial::{ProcessId, TaskSerial};
use code_files::CodeFiles;
use opened::{Backing, Image, TableState};

/// The most files held open for unwind tables that have not been read.
const OPEN_MAX: usize = 128;

/// The most files held open to be copied.
const TO_COPY_MAX: usize = 256;

/// The most memory for the unwind tables of all images and their caches. Those of the image in use
/// are kept at any size.
const TABLES_MAX_BYTES: usize = 256 << 20;

/// The most new images in an epoch: unmapped ones are dropped only at its end.
const NEW_MAX: usize = 1 << 16;

/// The identity of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ImageIdentity {
    /// A file, by its path and its identity in the kernel's record.
    File(Vec<u8>, Identity),
    /// A file of which another version was mapped later.
    Earlier(ImageIndex),
    /// Memory of one process, by its name.
    Anonymous(Vec<u8>, ProcessId),
    Vdso,
}

/// The images of all processes.
#[derive(Debug, Default)]
pub(crate) struct ImageTable {
    images: Vec<Image>,
    by_identity: FxHashMap<ImageIdentity, ImageIndex>,
    /// Indices of dropped images, for new ones.
    free: Vec<ImageIndex>,
    /// The number of new images in this epoch.
    new: usize,
    /// The number of files held open.
    open: usize,
    /// The copies of images with frames, if they are kept.
    pub(crate) kept: Option<KeptImages>,
    /// True if the symbols of the kernel were passed to `kept`.
    is_kernel_kept: bool,
    /// The number of files held open to be copied.
    to_copy: usize,
    /// The memory of the tables of all images.
    bytes: usize,
    uses: u64,
    /// The number of ended batches of samples.
    batch: u64,
    code_files: CodeFiles,
}

impl ImageTable {
    /// Ends a batch of samples.
    pub(crate) fn end_batch(&mut self) {
        self.batch += 1;
        self.code_files.close();
    }

    /// Returns the number of ended batches of samples.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// Notes a use of the tables of an image by a copy of their rules.
    pub(crate) fn note_use(&mut self, index: ImageIndex) {
        self.uses += 1;
        self.images[index as usize].used = self.uses;
    }

    /// Returns the number of the last use of the tables of an image: a later use has a higher one.
    #[cfg(test)]
    pub(crate) fn last_use(&self, index: ImageIndex) -> u64 {
        self.get(index).used
    }

    /// Returns an image.
    pub(crate) fn get(&self, index: ImageIndex) -> &Image {
        &self.images[index as usize]
    }

    /// True if a process may generate code in this image: it is no ELF file.
    pub(crate) fn may_contain_jit(&self, index: ImageIndex) -> bool {
        let image = self.get(index);
        match image.kind {
            ImageKind::Elf => image.elf.is_none(),
            kind => kind == ImageKind::Anonymous,
        }
    }

    /// True if an address in this image always means the same code: it is that of an ELF file, unlike
    /// generated code and the kernel's modules.
    pub(crate) fn is_permanent(&self, key: ImageKey) -> bool {
        matches!(key, ImageKey::File(index) if !self.may_contain_jit(index))
    }

    /// True if code in this image was generated at run time. A file that cannot be read more likely
    /// holds compiled code, which may use the frame pointer for something else.
    pub(crate) fn is_generated(&self, index: ImageIndex) -> bool {
        self.may_contain_jit(index) && !self.get(index).is_unread
    }

    /// Returns the image of a mapping of the time `mapped_ns`, and the image offset of its first byte.
    pub(crate) fn image_of(
        &mut self,
        mmap: &Mmap<'_>,
        serial: TaskSerial,
        mapped_ns: u64,
    ) -> (ImageIndex, ImageOffset) {
        let (path, _) = split_deleted(&mmap.path);
        match Backing::of(mmap) {
            Backing::Vdso => {
                return (
                    self.intern(ImageIdentity::Vdso, opened::open_vdso),
                    ImageOffset(mmap.offset.0),
                );
            }
            backing @ (Backing::File | Backing::SharedMemory) => {
                let key = ImageIdentity::File(path.to_vec(), mmap.identity);
                let version = FileVersion::at_path_of(mmap);
                let is_overwritten = version.is_some_and(|version| version.is_after(mapped_ns));
                // As by cp(1). A version after the mapping is not its own.
                if !is_overwritten {
                    self.set_version(&key, version);
                }
                // The file may be removed before its tables are needed.
                let hold = self.open < OPEN_MAX;
                let keep = self.kept.is_some() && self.to_copy < TO_COPY_MAX;
                let index = self.intern(key, || match is_overwritten {
                    true => opened::overwritten(path),
                    false => opened::open_file(path, mmap, hold, keep),
                });
                // Shared memory can hold a program (fexecve(3) of a memfd), or generated code.
                if backing == Backing::File || self.get(index).elf.is_some() {
                    return (index, ImageOffset(mmap.offset.0));
                }
            }
            Backing::Anonymous => {}
        }
        let name = if path == b"//anon" { b"[anon]" } else { path };
        let owner = ProcessId { pid: mmap.pid, serial };
        let key = ImageIdentity::Anonymous(name.to_vec(), owner);
        let image = || Image::without_file(ImageKind::Anonymous, name, Some(owner));
        // Several mappings of the process share this image: their offsets are addresses.
        (self.intern(key, image), ImageOffset(mmap.start.0))
    }

    /// True if an image is memory of another process than `owner`.
    pub(crate) fn is_memory_of_another(&self, index: ImageIndex, owner: ProcessId) -> bool {
        let image = self.get(index);
        image.memory_of().is_some() && image.owner != Some(owner)
    }

    /// Returns the image of memory that a process has from its parent, given that of the parent: each may
    /// write other code to it. Other images are those of all processes.
    pub(crate) fn inherited(&mut self, index: ImageIndex, owner: ProcessId) -> ImageIndex {
        if !self.is_memory_of_another(index, owner) {
            return index;
        }
        let (path, parent) = (self.get(index).path.clone(), self.get(index).memory_of());
        self.intern(ImageIdentity::Anonymous(path.clone(), owner), || {
            let mut image = Image::without_file(ImageKind::Anonymous, &path, Some(owner));
            image.inherited_from = parent;
            image
        })
    }

    /// True if a mapping in /proc is of the file of this image, and begins at this offset.
    pub(crate) fn is_mapping_of(
        &self,
        mmap: &Mmap<'_>,
        index: ImageIndex,
        offset: ImageOffset,
    ) -> bool {
        let image = self.get(index);
        let (path, _) = split_deleted(&mmap.path);
        let is_same = |(_, inode): &(PathBuf, u64)| *inode == mmap.identity.inode;
        image.path == path && image.file.as_ref().is_none_or(is_same) && offset.0 == mmap.offset.0
    }

    /// Sets apart the image of a file if it is of another version.
    fn set_version(&mut self, key: &ImageIdentity, version: Option<FileVersion>) {
        if let (Some(&index), Some(version)) = (self.by_identity.get(key), version)
            && self.get(index).version.is_some_and(|known| known != version)
        {
            // Earlier samples refer to it until the epoch ends.
            self.by_identity.remove(key);
            self.by_identity.insert(ImageIdentity::Earlier(index), index);
        }
    }

    fn intern(&mut self, key: ImageIdentity, make: impl FnOnce() -> Image) -> ImageIndex {
        if let Some(&index) = self.by_identity.get(&key) {
            return index;
        }
        let image = make();
        self.new += 1;
        self.open += usize::from(image.is_open());
        self.to_copy += usize::from(image.to_copy.is_some());
        let index = match self.free.pop() {
            Some(index) => {
                self.images[index as usize] = image;
                index
            }
            None => {
                self.images.push(image);
                (self.images.len() - 1) as ImageIndex
            }
        };
        self.by_identity.insert(key, index);
        index
    }

    /// True if a new epoch should begin, to drop unmapped images.
    pub(crate) fn is_full(&self) -> bool {
        self.new >= NEW_MAX
    }

    /// Returns the number of images of which the headers or tables were not read for want of descriptors.
    pub(crate) fn without_descriptors(&self) -> usize {
        self.images.iter().filter(|image| image.lacks_descriptors).count()
    }

    /// Begins an epoch: drops all images that are not in `mapped`. Their indices are reused.
    pub(crate) fn begin_epoch(&mut self, mapped: impl Iterator<Item = ImageIndex>) {
        let mapped: FxHashSet<_> = mapped.collect();
        self.new = 0;
        self.code_files.close();
        let (images, free) = (&mut self.images, &mut self.free);
        self.by_identity.retain(|_, &mut index| {
            let is_kept = mapped.contains(&index);
            if !is_kept {
                let empty = Image::without_file(ImageKind::Anonymous, b"", None);
                let dropped = std::mem::replace(&mut images[index as usize], empty);
                self.open -= usize::from(dropped.is_open());
                self.to_copy -= usize::from(dropped.to_copy.is_some());
                self.bytes -= dropped.bytes;
                free.push(index);
            }
            is_kept
        });
    }

    /// Keeps a copy of an image with a frame, if it is a file and copies are kept. Returns the key
    /// of the copy.
    pub(crate) fn keep(&mut self, index: ImageIndex) -> Option<CopyKey> {
        let kept = self.kept.as_mut()?;
        let image = &mut self.images[index as usize];
        // Every epoch defines the image again.
        if image.kind != ImageKind::Elf || std::mem::replace(&mut image.is_copied, true) {
            return image.copy.clone();
        }
        self.to_copy -= usize::from(image.to_copy.is_some());
        let is_same = |file: &File| FileVersion::of_file(file) == image.version;
        let held = image.to_copy.take().filter(is_same);
        let (path, elf, version) = (image.file.as_ref(), image.elf.as_ref(), image.version);
        let file = held.or_else(|| opened::reopen(path, elf, version));
        image.copy = CopyKey::new(&image.build_id, &image.path, file.as_ref());
        kept.keep(file, image.file.as_ref(), image.copy.clone(), &image.path);
        image.copy.clone()
    }

    /// Keeps the symbols of the running kernel, if copies are kept.
    pub(crate) fn keep_kernel(&mut self, build_id: &[u8]) {
        if !std::mem::replace(&mut self.is_kernel_kept, true)
            && let Some(kept) = &mut self.kept
        {
            kept.keep_kernel(build_id);
        }
    }

    /// Returns the unwind information for an offset in an image.
    pub(crate) fn unwind_info(&mut self, index: ImageIndex, offset: ImageOffset) -> UnwindInfo {
        let image = &mut self.images[index as usize];
        let Some(elf) = &image.elf else { return UnwindInfo::NoTable };
        let offset = FileOffset(offset.0);
        let Some(address) = elf.image_address(offset) else { return UnwindInfo::NoTable };
        let is_entry = elf.is_entry(address);
        // Reading the tables closes the file.
        self.open -= usize::from(image.is_open());
        image.read_tables();
        let unwind_info = match image.table_rule(address) {
            Some(rule) => UnwindInfo::Rule(rule),
            None => match image.rule_after_system_call(offset, address) {
                Some(rule) => UnwindInfo::Rule(rule),
                None if is_entry => UnwindInfo::Entry,
                None if image.is_signal_return(offset) => UnwindInfo::SignalReturn,
                None => UnwindInfo::NoTable,
            },
        };
        self.count(index);
        unwind_info
    }

    /// Counts a use and the memory of an image's tables and caches, and drops others if it is too
    /// much.
    fn count(&mut self, index: ImageIndex) {
        self.note_use(index);
        let image = &mut self.images[index as usize];
        let bytes = image.count_bytes();
        self.bytes = self.bytes - std::mem::replace(&mut image.bytes, bytes) + bytes;
        if self.bytes > TABLES_MAX_BYTES {
            // A quarter of room, so that the next use of other tables does not drop some again.
            self.drop_tables(index, TABLES_MAX_BYTES / 4 * 3);
        }
    }

    /// Analyzes the code at a frame's address; `offset` is that of its address for lookup.
    pub(crate) fn analyze(
        &mut self,
        index: ImageIndex,
        offset: ImageOffset,
        address: FrameAddress,
    ) -> AnalyzedRule {
        let after_lookup = address.value().0.wrapping_sub(address.address_for_lookup().0);
        let image = &mut self.images[index as usize];
        if image.path == opened::STEPPED_CODE {
            let rule = Machine::NATIVE.stepped_rule().map(Rc::new);
            return rule.map_or(AnalyzedRule::Unknown, AnalyzedRule::Rule);
        }
        let Some(lookup) = image.image_address(offset) else { return AnalyzedRule::Unknown };
        let at = lookup.wrapping_add(after_lookup);
        let is_memory = image.memory_of().is_some();
        let rule =
            self.with_code(index, |code, source| code.analyze(at, address.is_return(), source));
        if is_memory {
            self.count(index);
        }
        rule.unwrap_or(AnalyzedRule::Unknown)
    }

    /// Returns the rule at a frame's address, if the call that ends after the byte at `call` is of
    /// its function; `offset` is that of its address for lookup.
    pub(crate) fn rule_since_call(
        &mut self,
        index: ImageIndex,
        call: ImageOffset,
        offset: ImageOffset,
        address: FrameAddress,
    ) -> Option<Rc<UnwindRule>> {
        let after_lookup = address.value().0.wrapping_sub(address.address_for_lookup().0);
        let image = &mut self.images[index as usize];
        let call_end = image.image_address(call)?.wrapping_add(1);
        let at = image.image_address(offset)?.wrapping_add(after_lookup);
        self.with_code(index, |code, source| code.rule_since_call(call_end, at, source))?
    }

    /// Returns the rules at a frame's address by the code before it; `offset` is that of its address
    /// for lookup.
    pub(crate) fn rules_since_prologues(
        &mut self,
        index: ImageIndex,
        offset: ImageOffset,
        address: FrameAddress,
    ) -> Rc<[UnwindRule]> {
        let after_lookup = address.value().0.wrapping_sub(address.address_for_lookup().0);
        let image = &mut self.images[index as usize];
        let Some(lookup) = image.image_address(offset) else { return Rc::default() };
        let at = lookup.wrapping_add(after_lookup);
        let rules = self.with_code(index, |code, source| code.rules_since_prologues(at, source));
        rules.unwrap_or_default()
    }

    /// Returns true if generated code near an offset has changed since it was read.
    pub(crate) fn has_changed(&mut self, index: ImageIndex, offset: ImageOffset) -> bool {
        let image = &mut self.images[index as usize];
        let Some(address) = image.image_address(offset) else { return false };
        let has_changed = self.with_code(index, |code, source| code.has_changed(address, source));
        has_changed.unwrap_or(false)
    }

    /// Returns the kind of the frames of generated code at an offset.
    pub(crate) fn generated_frame(
        &mut self,
        index: ImageIndex,
        offset: ImageOffset,
    ) -> GeneratedFrame {
        // Code generated in a mapped file is not read. The runtime that does so, .NET, keeps the
        // frame pointer.
        let of_file = match self.is_generated(index) {
            true => GeneratedFrame::FramePointer,
            false => GeneratedFrame::Unknown,
        };
        let image = &mut self.images[index as usize];
        let frame = image.image_address(offset).and_then(|address| {
            self.with_code(index, |code, source| code.generated_frame(address, source))
        });
        frame.unwrap_or(of_file)
    }

    /// Calls a function with the cache of the code of an image and the source of more. None without ELF
    /// headers.
    fn with_code<T>(
        &mut self,
        index: ImageIndex,
        use_code: impl FnOnce(&mut CodeCache, &mut CodeSource<'_>) -> T,
    ) -> Option<T> {
        let image = &mut self.images[index as usize];
        image.with_code(self.batch, |open| self.code_files.file(index, open), use_code)
    }

    /// True if a call ends after the byte at an offset. None if the code cannot be read.
    pub(crate) fn is_after_call(&mut self, index: ImageIndex, offset: ImageOffset) -> Option<bool> {
        let image = &mut self.images[index as usize];
        let address = image.image_address(offset)?.wrapping_add(1);
        match self.with_code(index, |code, source| code.call_before(address, source))? {
            CallBefore::Unreadable => None,
            CallBefore::NoCall => Some(false),
            CallBefore::Call(_) => Some(true),
        }
    }

    /// Drops the least recently used tables until all use at most `limit_bytes`. Keeps those of the
    /// image `keep`, and those that have no file to read again.
    fn drop_tables(&mut self, keep: ImageIndex, limit_bytes: usize) {
        let mut by_use = Vec::new();
        for (index, image) in self.images.iter().enumerate() {
            let is_read_again = image.file.is_some() || image.memory_of().is_some();
            if index != keep as usize && image.bytes > 0 && is_read_again {
                by_use.push((image.used, index));
            }
        }
        by_use.sort_unstable();
        for (_, index) in by_use {
            if self.bytes <= limit_bytes {
                return;
            }
            let image = &mut self.images[index];
            image.tables = TableState::Closed;
            image.signal_returns = FxHashMap::default();
            image.code = CodeCache::default();
            self.bytes -= std::mem::take(&mut image.bytes);
        }
    }
}

mod code_files;
mod opened;
#[cfg(test)]
mod tests;
