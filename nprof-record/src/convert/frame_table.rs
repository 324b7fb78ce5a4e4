//! The frames of code: finds the frame of an address, by the mappings at the time of the sample, gives
//! new images, frames and nodes their ids, and writes their definitions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use nprof_object::{ImageOffset, RuntimeAddress};
use nprof_stream::number::hex;
use nprof_stream::{
    Extras, ExtrasBuilder, FrameId, ImageKind, Line, Location, Mark, NodeId, Record, Status, limits,
};
use nprof_unwind::image::elf::Elf;
use nprof_unwind::unwind::FrameAddress;
use nprof_unwind::unwind::stack_input::StackInput;
use rustc_hash::FxHashSet;

use crate::convert::address_space::AddressSpace;
use crate::convert::dictionary::{Dictionary, FrameKey, ImageFacts, Sink};
use crate::convert::generated_code::{self, GeneratedCode};
use crate::convert::process_tree::{Process, ProcessTree};
use crate::image::jit::growing_file::OpenFileBudget;
use crate::image::jit::runtime_code::{RuntimeFunction, RuntimeFunctions};
use crate::image::jit::unnamed_frames::{FoundName, UnnamedFrames};
use crate::image::kept_images::CopyKey;
use crate::image::kernel::running_kernel::{KernelLocation, RunningKernel};
use crate::image::key::{ImageIndex, ImageKey};
use crate::image::table::ImageTable;
use crate::os::code_mapping::Ksymbol;
use crate::os::task_serial::ProcessId;
use crate::perf::record::SampleId;

/// The frames of code, with their images, functions and nodes.
#[derive(Debug)]
pub(crate) struct FrameTable {
    pub(crate) images: ImageTable,
    /// Read at the first sample in the kernel, unless it was before sampling began.
    kernel: Option<RunningKernel>,
    pub(super) functions: RuntimeFunctions,
    unnamed: UnnamedFrames,
    /// True if frames were in memory that may hold code generated at run time.
    pub(crate) has_generated_code: bool,
    pub(crate) files: OpenFileBudget,
    pub(crate) dictionary: Dictionary,
    /// The frames and nodes of the latest call of [`Self::node_below`], root first.
    frames: Vec<FrameId>,
    nodes: Vec<NodeId>,
    /// The code of functions generated at run time; `None` if the stream does not get it.
    pub(crate) code: Option<GeneratedCode>,
    /// The name of the file of the preloaded library, and its images that have frames: each mount namespace
    /// may have one.
    pub(crate) library: Option<OsString>,
    library_images: FxHashSet<ImageKey>,
}

impl FrameTable {
    /// Creates a table with at most `max` nodes, and as many frames, in an epoch.
    pub(super) fn new(max: u32) -> Self {
        Self {
            images: ImageTable::default(),
            kernel: None,
            functions: RuntimeFunctions::default(),
            unnamed: UnnamedFrames::default(),
            has_generated_code: false,
            files: OpenFileBudget::default(),
            dictionary: Dictionary::new(max),
            frames: Vec::new(),
            nodes: Vec::new(),
            code: None,
            library: None,
            library_images: FxHashSet::default(),
        }
    }

    /// Takes the kernel as it was read before sampling began.
    pub(crate) fn set_kernel(&mut self, kernel: RunningKernel) {
        self.kernel = Some(kernel);
    }

    /// Notes that the kernel generated code, or released it.
    pub(crate) fn kernel_changed(&mut self, symbol: &Ksymbol<'_>) {
        self.kernel.get_or_insert_with(RunningKernel::running).changed(symbol, &self.functions);
    }

    /// Begins to find the frames of a stack.
    pub(super) fn begin_stack(&mut self) {
        self.functions.begin_stack();
        self.code.iter_mut().for_each(GeneratedCode::begin_stack);
        self.unnamed.begin_stack();
    }

    /// Ends a batch of samples.
    pub(super) fn end_batch(&mut self) {
        self.files.end_drain();
        self.images.end_batch();
    }

    /// True if a stack of `depth` nodes may not fit into this epoch.
    pub(super) fn is_full(&self, depth: usize) -> bool {
        self.dictionary.is_full(depth) || self.images.is_full()
    }

    /// Drops all ids.
    pub(super) fn begin_epoch(&mut self, sink: &mut impl Sink) {
        self.functions.begin_epoch();
        self.unnamed.begin_epoch();
        self.code.iter_mut().for_each(GeneratedCode::begin_epoch);
        self.dictionary.begin_epoch(sink);
    }

    /// Returns the nodes of the latest call of [`Self::node_below`], root first.
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the node of frames, leaf first, that are not of a sample, after defining all that it needs.
    pub(crate) fn node_of(
        &mut self,
        keys: &[FrameKey],
        tree: &ProcessTree,
        sink: &mut impl Sink,
    ) -> NodeId {
        self.node_below(NodeId::NONE, keys, tree, sink)
    }

    /// Returns the node of frames, leaf first, below another node.
    pub(super) fn node_below(
        &mut self,
        parent: NodeId,
        keys: &[FrameKey],
        tree: &ProcessTree,
        sink: &mut impl Sink,
    ) -> NodeId {
        self.frames.clear();
        self.nodes.clear();
        for &key in keys.iter().rev() {
            if let Some(image) = key.image.filter(|&image| self.dictionary.needs_image(image)) {
                self.define_image(image, tree, sink);
            }
            if self.is_hidden(key) {
                self.frames.push(FrameId::NONE);
                continue;
            }
            let last = self.dictionary.last_frame();
            let id = self.dictionary.frame(key, sink);
            if id > last {
                self.note_unnamed(key, id);
                self.write_code(key, id, sink);
            }
            self.frames.push(id);
        }
        self.dictionary.node(parent, &self.frames, &mut self.nodes, sink)
    }

    /// True for a function of the preloaded library that calls another one, such as the C library's function of its
    /// name: the program does not know it.
    fn is_hidden(&self, key: FrameKey) -> bool {
        key.return_address && key.image.is_some_and(|image| self.library_images.contains(&image))
    }

    /// Returns the user frame at an address. None if nothing is mapped there.
    pub(super) fn user_key(
        &mut self,
        process: &mut Process,
        maps: &AddressSpace,
        sample_id: SampleId,
        address: FrameAddress,
    ) -> Option<FrameKey> {
        let inside = address.address_for_lookup();
        let (index, mapped_offset) = maps.find(inside)?;
        let (image, offset) = if self.images.may_contain_jit(index) {
            self.runtime_code_key(process, sample_id, address, index, mapped_offset)
        } else {
            (ImageKey::File(index), mapped_offset)
        };
        // Frames hold the return address itself; only the lookup is one byte before it.
        let after_lookup = address.value().0.wrapping_sub(inside.0);
        Some(FrameKey {
            image: Some(image),
            offset: offset.wrapping_add(after_lookup),
            kernel: false,
            return_address: address.is_return(),
            mark: Mark::None,
        })
    }

    /// Returns the image of an address in the image `index`, which may contain code generated at run
    /// time, and the offset.
    fn runtime_code_key(
        &mut self,
        process: &mut Process,
        sample_id: SampleId,
        address: FrameAddress,
        index: ImageIndex,
        mapped_offset: ImageOffset,
    ) -> (ImageKey, ImageOffset) {
        let RuntimeAddress(inside) = address.address_for_lookup();
        self.has_generated_code = true;
        let owner = ProcessId { pid: sample_id.pid, serial: process.serial };
        // The perf map is read only for samples in such images.
        process.jit.read_until(owner, sample_id.time, &self.functions, &self.files);
        self.name_earlier_frames(owner.pid, process);
        if let Some((function, offset)) = process.jit.find(inside)
            && let Some(number) = self.functions.number(function)
        {
            // Only callers have no samples of their own.
            if !address.is_return() {
                self.keep_code(owner.pid, process, function, number);
            }
            return (ImageKey::Function(number), ImageOffset(offset));
        }
        let is_anonymous = self.images.get(index).kind == ImageKind::Anonymous;
        let generation = if is_anonymous && process.jit.has_times() {
            self.unnamed.generation_at(index, sample_id.time)
        } else {
            None
        };
        (generation.map_or(ImageKey::File(index), ImageKey::Unnamed), mapped_offset)
    }

    /// Finds the frames of earlier samples that have a name by now.
    fn name_earlier_frames(&mut self, pid: u32, process: &mut Process) {
        for applied in process.jit.take_applied() {
            let start = RuntimeAddress(applied.function.start);
            let Some((index, _)) = process.maps.find(start) else { continue };
            if self.unnamed.name(index, &applied)
                && self.code.is_some()
                && let Some(number) = self.functions.number(&applied.function)
            {
                self.keep_code(pid, process, &applied.function, number);
            }
        }
    }

    /// Keeps the code of a function of a process for the stream, if that gets code.
    fn keep_code(
        &mut self,
        pid: u32,
        process: &Process,
        function: &Rc<RuntimeFunction>,
        number: u32,
    ) {
        // The code of 32-bit programs would be disassembled as 64-bit code.
        if let Some(code) = self.code.as_mut().filter(|_| !process.maps.is_32_bit()) {
            code.keep(number, || process.jit.code(pid, function, limits::CODE));
        }
    }

    /// Reads the files that name the code of a process to their end, and names its earlier frames by
    /// the entries up to `time_ns`.
    pub(crate) fn read_names_to_end(&mut self, pid: u32, process: &mut Process, time_ns: u64) {
        if self.unnamed.is_empty() {
            return;
        }
        let owner = ProcessId { pid, serial: process.serial };
        process.jit.read_to_end(owner, time_ns, &self.functions, &self.files);
        self.name_earlier_frames(pid, process);
    }

    /// Writes the locations of frames that were written before their names were found.
    pub(crate) fn write_late_names(&mut self, sink: &mut impl Sink) {
        for (frame, FoundName { function, image }) in self.unnamed.take_found() {
            let id = self.dictionary.function(&function, sink);
            let line = Line { function: id, ..Line::default() };
            let (status, lines, extras) = (Status::Named, &[line][..], Extras::NONE);
            sink.take(&Record::Location(Location { frame, status, lines, extras }));
            if let Some(code) = self.code.as_mut().filter(|code| code.is_sampled(frame))
                && let Some(number) = self.functions.number(&function)
                && let Some(bytes) = code.take_unwritten(number, image)
            {
                // Offsets in the image of the frame, which is anonymous memory, are addresses.
                generated_code::write(frame, function.start, &bytes, id, sink);
            }
        }
    }

    /// Writes the code of a function that was generated at run time, with a new frame of a sample in it.
    fn write_code(&mut self, key: FrameKey, frame: FrameId, sink: &mut impl Sink) {
        let Some(code) = self.code.as_mut().filter(|_| !key.return_address) else { return };
        // Its name may come later.
        code.add_sampled(frame);
        if let Some(image @ ImageKey::Function(number)) = key.image
            && let Some(bytes) = code.take_unwritten(number, image)
            && let Some(function) = self.functions.get(number)
        {
            let id = self.dictionary.function(function, sink);
            generated_code::write(frame, 0, &bytes, id, sink);
        }
    }

    /// Remembers a new frame of anonymous memory: its name may come later.
    fn note_unnamed(&mut self, key: FrameKey, id: FrameId) {
        let address = key.offset.0.wrapping_sub(u64::from(key.return_address));
        match key.image {
            // Offsets in anonymous memory are addresses.
            Some(ImageKey::File(index)) if self.images.get(index).kind == ImageKind::Anonymous => {
                self.unnamed.add(index, address, id);
            }
            Some(ImageKey::Unnamed(number)) => self.unnamed.add_in(number, address, id),
            _ => {}
        }
    }

    /// Appends the kernel frames to `keys`, leaf first, at most `depth`.
    pub(super) fn kernel_part(
        &mut self,
        input: &StackInput<'_>,
        depth: usize,
        keys: &mut Vec<FrameKey>,
    ) {
        let mut returns = false;
        for address in input.kernel.iter().take(depth) {
            keys.push(self.kernel_key(address, returns));
            returns = true;
        }
        // Without a call chain the instruction pointer is all that is known.
        if !returns {
            keys.push(self.kernel_key(input.ip, false));
        }
    }

    /// Returns the frame at an address in the kernel.
    pub(crate) fn kernel_key(&mut self, address: u64, return_address: bool) -> FrameKey {
        let kernel = self.kernel.get_or_insert_with(RunningKernel::running);
        let (place, offset) = kernel.find(RuntimeAddress(address), &self.functions);
        let image = match place {
            KernelLocation::Image(part) => Some(ImageKey::Kernel(part as u32)),
            KernelLocation::Function(function) => {
                self.functions.number(&function).map(ImageKey::Function)
            }
        };
        FrameKey { image, offset, kernel: true, return_address, mark: Mark::None }
    }

    fn define_image(&mut self, key: ImageKey, tree: &ProcessTree, sink: &mut impl Sink) {
        match key {
            ImageKey::File(index) => self.define_mapped(key, index, None, tree, sink),
            ImageKey::Unnamed(number) => {
                if let Some(generation) = self.unnamed.generation(number) {
                    let since = Some(generation.first_ns);
                    self.define_mapped(key, generation.image, since, tree, sink);
                }
            }
            ImageKey::Kernel(part) => self.define_kernel(key, part, sink),
            ImageKey::Function(number) => self.define_function(key, number, tree, sink),
        }
    }

    fn define_mapped(
        &mut self,
        key: ImageKey,
        index: ImageIndex,
        since_ns: Option<u64>,
        tree: &ProcessTree,
        sink: &mut impl Sink,
    ) {
        let mut extras = ExtrasBuilder::new();
        // A build ID is the key of its copy.
        if let Some(CopyKey::File(id)) = self.images.keep(index) {
            extras.add("file", hex(&id.to_be_bytes()).as_bytes());
        }
        let image = self.images.get(index);
        let path = Path::new(OsStr::from_bytes(&image.path));
        if self.library.is_some() && path.file_name() == self.library.as_deref() {
            self.library_images.insert(key);
        }
        if let Some(load) = image.elf.as_ref().and_then(Elf::load) {
            extras.add("load", load.as_bytes());
        }
        add_owner(&mut extras, image.owner, tree);
        if let Some(since_ns) = since_ns {
            extras.add_number("since", since_ns);
        }
        let facts = ImageFacts {
            kind: image.kind,
            path: &image.path,
            build_id: &image.build_id,
            extras: extras.extras(),
        };
        self.dictionary.define_image(key, &facts, sink);
    }

    fn define_kernel(&mut self, key: ImageKey, part: u32, sink: &mut impl Sink) {
        let mut extras = ExtrasBuilder::new();
        let kernel = self.kernel.get_or_insert_with(RunningKernel::running);
        let part = kernel.image(part as usize);
        if part.kind == ImageKind::Kernel && !part.build_id.is_empty() {
            self.images.keep_kernel(&part.build_id);
        }
        if part.base != 0 {
            extras.add("base", format!("{:#x}", part.base).as_bytes());
        }
        let facts = ImageFacts {
            kind: part.kind,
            path: &part.name,
            build_id: &part.build_id,
            extras: extras.extras(),
        };
        self.dictionary.define_image(key, &facts, sink);
    }

    /// Defines a function generated at run time. It is an image of its own, since no file has its
    /// name.
    fn define_function(
        &mut self,
        key: ImageKey,
        number: u32,
        tree: &ProcessTree,
        sink: &mut impl Sink,
    ) {
        let Some(function) = self.functions.get(number) else { return };
        let mut extras = ExtrasBuilder::new();
        extras.add("base", format!("{:#x}", function.start).as_bytes());
        add_owner(&mut extras, function.owner, tree);
        let facts = ImageFacts {
            kind: ImageKind::Jit,
            path: &function.name,
            build_id: &[],
            extras: extras.extras(),
        };
        self.dictionary.define_image(key, &facts, sink);
    }
}

/// Adds the process that an image of anonymous memory belongs to, unless it was removed.
fn add_owner(extras: &mut ExtrasBuilder, owner: Option<ProcessId>, tree: &ProcessTree) {
    let id = owner.map(|owner| tree.id_of(owner.pid, owner.serial));
    if let Some(id) = id.filter(|id| !id.is_none()) {
        extras.add_number("task", id.0.into());
    }
}
