//! From a sample to the node of its stack: resolves addresses to offsets in images, by the mappings
//! at the time of the sample, and gives new images, frames and nodes their ids.

use std::rc::Rc;

use nprof_object::{ImageOffset, RuntimeAddress};
use nprof_stream::number::hex;
use nprof_stream::{
    Extras, ExtrasBuilder, FrameId, ImageKind, Line, Location, Mark, NodeId, Record, Status,
};
use nprof_unwind::unwind::stack_input::{StackInput, UserStack};
use nprof_unwind::unwind::{FrameAddress, FrameNotes, WalkWords};
use rustc_hash::FxHashMap;

use crate::convert::address_space::AddressSpace;
use crate::convert::deep_stacks::absent_pages::PageReader;
use crate::convert::deep_stacks::copy_hints::CopyHints;
use crate::convert::deep_stacks::frame_watch::FrameWatches;
use crate::convert::deep_stacks::watchpoints::HwBreakpoints;
use crate::convert::dictionary::{Dictionary, FrameKey, ImageFacts, Sink};
use crate::convert::process_code::{ProcessCode, RuntimeCode};
use crate::convert::process_tree::{Process, ProcessTree};
use crate::convert::rule_cache::RuleCache;
use crate::convert::sample_stack;
use crate::convert::stack_cache::{KnownPart, StackCache};
use crate::image::jit::growing_file::OpenFileBudget;
use crate::image::jit::runtime_code::RuntimeFunctions;
use crate::image::jit::runtime_unwinding::RuntimeRules;
use crate::image::jit::unnamed_frames::UnnamedFrames;
use crate::image::kept_images::CopyKey;
use crate::image::kernel::running_kernel::{KernelLocation, RunningKernel};
use crate::image::key::{ImageIndex, ImageKey};
use crate::image::table::ImageTable;
use crate::os::code_mapping::Ksymbol;
use crate::os::task_serial::ProcessId;
use crate::perf::record::{Sample, SampleId};
use crate::sys::{self, SharedWords};

/// The most nodes, and the most frames, of an epoch.
const DICTIONARY_MAX: u32 = 1 << 20;

/// The most cached nodes of caller stacks; with more, all are dropped.
const OUTER_NODES_MAX: usize = 256;

/// The most threads with frame watches.
const WATCHED_THREADS_MAX: u64 = 256;

/// Returns the number of threads that may have frame watches. Each takes up to three descriptors,
/// which the events need, too.
fn max_watched_threads() -> usize {
    usize::try_from(WATCHED_THREADS_MAX.min(sys::descriptor_limit() / 16)).unwrap_or(0)
}

/// Resolves stacks to nodes.
///
/// One stack is resolved at a time: [`Self::resolve`], then [`Self::begin_epoch`] if
/// [`Self::is_full`], then [`Self::node`].
#[derive(Debug)]
pub(crate) struct StackResolver {
    depth: usize,
    pub(crate) images: ImageTable,
    /// Read at the first sample in the kernel, unless it was before sampling began.
    kernel: Option<RunningKernel>,
    functions: RuntimeFunctions,
    unnamed: UnnamedFrames,
    /// True if frames were in memory that may hold code generated at run time.
    pub(crate) has_generated_code: bool,
    runtime_rules: RuntimeRules,
    pub(crate) files: OpenFileBudget,
    pub(crate) dictionary: Dictionary,
    /// Completes stacks that are deeper than their copy.
    pub(crate) watches: FrameWatches<HwBreakpoints>,
    /// Makes absent pages of stacks present where no BPF program skips them.
    page_reader: PageReader,
    /// The part of each stack that the BPF program should copy; `None` without the program.
    pub(crate) copy_hints: Option<CopyHints<Rc<SharedWords>>>,
    /// The same for the stacks of waits.
    pub(crate) wait_copy_hints: Option<CopyHints<Rc<SharedWords>>>,
    /// The callers that complete the stack, if it is deeper than its copy, with their frames unless
    /// their node is cached.
    outer: Option<(Rc<[FrameAddress]>, Vec<FrameKey>)>,
    /// The nodes of such callers in this epoch, by their address in our memory. The reference keeps
    /// the address from being used again.
    outer_nodes: FxHashMap<*const FrameAddress, (Rc<[FrameAddress]>, NodeId)>,
    /// The latest stacks, whose callers most samples share.
    latest: StackCache,
    rules: RuleCache,
    /// The part of the current stack that the latest stack of its thread has, too.
    known: Option<KnownPart>,
    /// True if the words on which a walk depends are found.
    finds_words: bool,
    /// Those of the current stack.
    words: Option<WalkWords>,
    /// The offset of the leaf of the current stack in place of that of its address.
    pub(crate) leaf_offset: Option<ImageOffset>,
    /// The current stack: the addresses of its user part, all frames leaf first but for the known
    /// part, their ids and nodes root first.
    addresses: Vec<FrameAddress>,
    keys: Vec<FrameKey>,
    frames: Vec<FrameId>,
    nodes: Vec<NodeId>,
}

impl StackResolver {
    /// Creates a resolver that keeps at most `depth` frames of each part of a stack.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth,
            images: ImageTable::default(),
            kernel: None,
            functions: RuntimeFunctions::default(),
            unnamed: UnnamedFrames::default(),
            has_generated_code: false,
            runtime_rules: RuntimeRules::default(),
            files: OpenFileBudget::default(),
            dictionary: Dictionary::new(DICTIONARY_MAX),
            watches: FrameWatches::new(HwBreakpoints::default(), max_watched_threads(), depth),
            page_reader: PageReader::default(),
            copy_hints: None,
            wait_copy_hints: None,
            outer: None,
            outer_nodes: FxHashMap::default(),
            latest: StackCache::default(),
            rules: RuleCache::default(),
            known: None,
            finds_words: false,
            words: None,
            leaf_offset: None,
            addresses: Vec::new(),
            keys: Vec::new(),
            frames: Vec::new(),
            nodes: Vec::new(),
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

    /// Resolves the stack of a sample. Returns the reason why it is incomplete.
    pub(crate) fn resolve(
        &mut self,
        process: &mut Process,
        sample_id: SampleId,
        sample: &Sample<'_>,
    ) -> Mark {
        self.keys.clear();
        self.outer = None;
        self.known = None;
        self.words = None;
        self.functions.begin_stack();
        self.unnamed.begin_stack();
        if sample.stack.in_kernel {
            self.kernel_part(&sample.stack);
        }
        let mark = self.user_part(process, sample_id, sample);
        let is_known = self.known.as_ref().is_some_and(|known| known.addresses > 0);
        if mark != Mark::None && !is_known {
            self.keys.push(FrameKey::mark(mark));
        }
        mark
    }

    /// Finds the words on which the walks of calls depend, from now on.
    pub(crate) fn find_words(&mut self) {
        self.finds_words = true;
    }

    /// Returns the words on which the walk of the current stack depends, and its addresses. None if it
    /// depends on more, or the stack is incomplete.
    pub(crate) fn words(&self) -> Option<(&WalkWords, &[FrameAddress])> {
        Some((self.words.as_ref()?, &self.addresses))
    }

    /// True if the current stack may not fit into this epoch.
    pub(crate) fn is_full(&self) -> bool {
        let outer = self.outer.as_ref().map_or(0, |(addresses, _)| addresses.len() + 1);
        self.dictionary.is_full(self.keys.len() + outer) || self.images.is_full()
    }

    /// Returns the number of frames of the current stack that were read earlier from the process.
    pub(crate) fn stitched(&self) -> usize {
        self.outer.as_ref().map_or(0, |(addresses, _)| addresses.len())
    }

    /// Drops all ids; the current stack stays.
    pub(crate) fn begin_epoch(&mut self, sink: &mut impl Sink) {
        self.functions.begin_epoch();
        self.unnamed.begin_epoch();
        self.outer_nodes.clear();
        self.latest.drop_nodes();
        self.dictionary.begin_epoch(sink);
    }

    /// Returns the node of the current stack, after defining all that it needs.
    pub(crate) fn node(&mut self, tree: &ProcessTree, sink: &mut impl Sink) -> NodeId {
        let outer = self.outer_node(tree, sink);
        let known = self.known.take();
        let parent =
            known.as_ref().filter(|known| known.addresses > 0).map_or(outer, |known| known.node);
        let mut keys = std::mem::take(&mut self.keys);
        if let Some(offset) = self.leaf_offset.take()
            && let Some(leaf) = keys.first_mut().filter(|leaf| leaf.mark == Mark::None)
        {
            leaf.offset = offset;
        }
        let node = self.node_below(parent, &keys, tree, sink);
        self.keys = keys;
        if let Some(known) = known {
            self.latest.update(&known, &self.addresses, &self.nodes);
        }
        node
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

    /// Returns the node of the callers that complete the current stack. Many samples share it.
    fn outer_node(&mut self, tree: &ProcessTree, sink: &mut impl Sink) -> NodeId {
        let Some((addresses, mut keys)) = self.outer.take() else { return NodeId::NONE };
        // The mark belongs at the root of the whole stack.
        let mark = self.keys.pop_if(|key| key.mark != Mark::None);
        if let Some((_, node)) = self.outer_nodes.get(&addresses.as_ptr()) {
            return *node;
        }
        keys.extend(mark);
        let node = self.node_below(NodeId::NONE, &keys, tree, sink);
        if self.outer_nodes.len() >= OUTER_NODES_MAX {
            self.outer_nodes.clear();
        }
        self.outer_nodes.insert(addresses.as_ptr(), (addresses, node));
        node
    }

    /// Returns the node of frames, leaf first, below another node.
    fn node_below(
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
            let last = self.dictionary.last_frame();
            let id = self.dictionary.frame(key, sink);
            if id > last {
                self.note_unnamed(key, id);
            }
            self.frames.push(id);
        }
        self.dictionary.node(parent, &self.frames, &mut self.nodes, sink)
    }

    /// Appends the user frames to `keys`, leaf first. Returns the reason why they are incomplete.
    fn user_part(
        &mut self,
        process: &mut Process,
        sample_id: SampleId,
        sample: &Sample<'_>,
    ) -> Mark {
        self.addresses.clear();
        let maps = process.maps.clone();
        let runtime = RuntimeCode {
            owner: ProcessId { pid: sample_id.pid, serial: process.serial },
            time_ns: sample_id.time,
            jit: &mut process.jit,
            rules: &mut self.runtime_rules,
            functions: &self.functions,
            files: &self.files,
        };
        let runtime = Some(runtime);
        let input = &sample.stack;
        // Of a stack that the source walked at most the rule of the last address is needed.
        let is_copied = matches!(input.user, UserStack::Copied(_));
        let space = if is_copied { self.latest.of(sample_id.tid, &maps).space } else { 0 };
        let rules = is_copied.then_some((&mut self.rules, space));
        let mut code = ProcessCode { maps: &maps, images: &mut self.images, runtime, rules };
        let not_seen = &mut process.not_seen_since_exec;
        let (depth, addresses) = (self.depth, &mut self.addresses);
        let mark = match &input.user {
            // Its stack may be another by now: no breakpoint could prove that it is not.
            UserStack::Copied(copied) if copied.is_after_call => {
                let mut notes = FrameNotes::default();
                let mark = sample_stack::unwind_copy(
                    not_seen, input, copied, &mut code, depth, addresses, &mut notes,
                );
                if self.finds_words && mark == Mark::None {
                    self.words = sample_stack::words_of_walk(copied, &mut code, addresses, &notes);
                }
                mark
            }
            UserStack::Copied(copied) => {
                let (tid, sp) = (sample_id.tid, copied.stack_pointer().unwrap_or(0));
                let extra_stack = sample.extra_stack.unwrap_or_default();
                let end = extra_stack.segments.end().saturating_sub(sp);
                let copied_bytes = end.max(copied.bytes.len() as u64);
                let mut trace = self.watches.trace(tid, sp, copied_bytes);
                let mark = sample_stack::unwind_copy(
                    not_seen, input, copied, &mut code, depth, addresses, &mut trace,
                );
                // The BPF program needs no help: it copies the pages beyond.
                if let (Mark::PageAbsent, Some(absent), None) =
                    (mark, trace.absent, sample.extra_stack)
                {
                    let copied_end = sp.saturating_add(copied.bytes.len() as u64);
                    self.page_reader.make_present(sample_id.tid, copied_end, absent);
                }
                let is_reported = sample.extra_stack.is_some() && trace.read_range.end > sp;
                let copy_hints = match sample.wait {
                    Some(_) => &mut self.wait_copy_hints,
                    None => &mut self.copy_hints,
                };
                if let Some(copy_hints) = copy_hints.as_mut().filter(|_| is_reported) {
                    copy_hints.update(tid, sp, &extra_stack, mark, trace.read_range);
                }
                let (mark, outer) = self.watches.complete(sample_id, trace, mark, addresses);
                self.outer = outer.map(|outer| (outer, Vec::new()));
                mark
            }
            UserStack::Walked(walked) => {
                let latest = self.latest.of(sample_id.tid, &maps);
                let mark_of_end = |root| latest.mark_of_end(root);
                let walked = *walked;
                sample_stack::take_walked(
                    not_seen,
                    input,
                    walked,
                    &mut code,
                    depth,
                    addresses,
                    mark_of_end,
                )
            }
            UserStack::Known(known) => {
                addresses.extend_from_slice(known);
                Mark::None
            }
            UserStack::NotCaptured if input.in_kernel => Mark::None,
            UserStack::NotCaptured => {
                addresses.push(FrameAddress::Instruction(RuntimeAddress(input.ip)));
                Mark::None
            }
        };
        if let Some((addresses, mut keys)) = self.outer.take() {
            // The cache only saves work if the node is in it, and no new epoch drops it first.
            let depth = self.keys.len() + self.addresses.len() + addresses.len() + 2;
            let is_known = self.outer_nodes.contains_key(&addresses.as_ptr());
            if !is_known || self.dictionary.is_full(depth) || self.images.is_full() {
                let key =
                    |&address: &FrameAddress| self.user_key(process, &maps, sample_id, address);
                keys.extend(addresses.iter().map_while(key));
            }
            self.outer = Some((addresses, keys));
        }
        let mut known = self.known_part(sample_id.tid, maps.clone(), mark);
        for at in 0..self.addresses.len() - known.addresses {
            match self.user_key(process, &maps, sample_id, self.addresses[at]) {
                Some(key) => {
                    known.is_kept &= key.image.is_some_and(|image| self.images.is_permanent(image));
                    self.keys.push(key);
                }
                None => return Mark::Unmapped,
            }
        }
        // The frames of code that is generated at run time may be other ones the next time.
        if !known.is_kept {
            self.words = None;
        }
        self.known = Some(known);
        mark
    }

    /// Returns the part of the user stack that the latest stack of the thread has, too.
    fn known_part(&mut self, tid: u32, maps: Rc<AddressSpace>, mark: Mark) -> KnownPart {
        // The node of a leaf with another offset is not that of its address.
        if self.leaf_offset.is_some() {
            return KnownPart::none(tid, maps, mark, false);
        }
        // All frames are needed if a new epoch may drop the nodes first.
        let depth = self.keys.len() + self.addresses.len() + 1;
        let is_whole = self.outer.is_none();
        if is_whole && !self.dictionary.is_full(depth) && !self.images.is_full() {
            self.latest.known_part(tid, maps, mark, &self.addresses)
        } else {
            KnownPart::none(tid, maps, mark, is_whole)
        }
    }

    /// Returns the user frame at an address. None if nothing is mapped there.
    fn user_key(
        &mut self,
        process: &mut Process,
        maps: &AddressSpace,
        sample_id: SampleId,
        address: FrameAddress,
    ) -> Option<FrameKey> {
        let inside = address.address_for_lookup();
        let (index, mapped_offset) = maps.find(inside)?;
        let (image, offset) = if self.images.may_contain_jit(index) {
            self.runtime_code_key(process, sample_id, inside, index, mapped_offset)
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
        address: RuntimeAddress,
        index: ImageIndex,
        mapped_offset: ImageOffset,
    ) -> (ImageKey, ImageOffset) {
        self.has_generated_code = true;
        let owner = ProcessId { pid: sample_id.pid, serial: process.serial };
        // The perf map is read only for samples in such images.
        process.jit.read_until(owner, sample_id.time, &self.functions, &self.files);
        self.name_earlier_frames(process);
        if let Some((function, offset)) = process.jit.find(address.0)
            && let Some(number) = self.functions.number(function)
        {
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
    fn name_earlier_frames(&mut self, process: &mut Process) {
        for applied in process.jit.take_applied() {
            let start = RuntimeAddress(applied.function.start);
            if let Some((index, _)) = process.maps.find(start) {
                self.unnamed.name(index, &applied);
            }
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
        self.name_earlier_frames(process);
    }

    /// Writes the locations of frames that were written before their names were found.
    pub(crate) fn write_late_names(&mut self, sink: &mut impl Sink) {
        for (frame, function) in self.unnamed.take_found() {
            let id = self.dictionary.function(&function, sink);
            let line = Line { function: id, ..Line::default() };
            let (status, lines, extras) = (Status::Named, &[line][..], Extras::NONE);
            sink.take(&Record::Location(Location { frame, status, lines, extras }));
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

    /// Ends a batch of samples: sets the frame watches for the next.
    pub(crate) fn end_batch(&mut self, tree: &mut ProcessTree) {
        self.files.end_drain();
        self.images.end_batch();
        for (pid, tid) in self.watches.end_batch() {
            let Some(process) = tree.process_mut(pid) else { continue };
            let (maps, images) = (&*process.maps, &mut self.images);
            let mut code = ProcessCode { maps, images, runtime: None, rules: None };
            self.watches.adjust(tid, &mut code);
        }
    }

    /// Appends the kernel frames to `keys`, leaf first.
    fn kernel_part(&mut self, input: &StackInput<'_>) {
        let kernel = self.kernel.get_or_insert_with(RunningKernel::running);
        let mut push = |address: u64, returns| {
            let (place, offset) = kernel.find(RuntimeAddress(address), &self.functions);
            let image = match place {
                KernelLocation::Image(part) => Some(ImageKey::Kernel(part as u32)),
                KernelLocation::Function(function) => {
                    self.functions.number(&function).map(ImageKey::Function)
                }
            };
            self.keys.push(FrameKey {
                image,
                offset,
                kernel: true,
                return_address: returns,
                mark: Mark::None,
            });
        };
        let mut returns = false;
        for address in input.kernel.iter().take(self.depth) {
            push(address, returns);
            returns = true;
        }
        // Without a call chain the instruction pointer is all that is known.
        if !returns {
            push(input.ip, false);
        }
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
        add_owner(&mut extras, image.owner, tree);
        if let Some(since_ns) = since_ns {
            extras.add("since", since_ns.to_string().as_bytes());
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
        extras.add("task", id.to_string().as_bytes());
    }
}
