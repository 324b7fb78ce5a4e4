//! From a sample to the node of its stack: unwinds it, completes it with callers that were read
//! earlier, and resolves only the frames that the latest stack of its thread does not have.

use std::rc::Rc;

use nprof_object::{ImageOffset, RuntimeAddress};
use nprof_stream::{Mark, NodeId};
use nprof_unwind::unwind::stack_input::UserStack;
use nprof_unwind::unwind::{FrameAddress, FrameNotes, WalkWords};
use rustc_hash::FxHashMap;

use crate::convert::address_space::AddressSpace;
use crate::convert::deep_stacks::absent_pages::PageReader;
use crate::convert::deep_stacks::copy_hints::CopyHints;
use crate::convert::deep_stacks::frame_watch::FrameWatches;
use crate::convert::deep_stacks::watchpoints::HwBreakpoints;
use crate::convert::dictionary::{FrameKey, Sink};
use crate::convert::frame_table::FrameTable;
use crate::convert::process_code::{ProcessCode, RuntimeCode};
use crate::convert::process_tree::{Process, ProcessTree};
use crate::convert::recent_stacks::{RecentStacks, StackHash};
use crate::convert::rule_cache::RuleCache;
use crate::convert::sample_stack;
use crate::convert::stack_cache::{KnownPart, StackCache};
use crate::image::jit::runtime_unwinding::RuntimeRules;
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
    /// The frames of code, and their definitions.
    pub(crate) frames: FrameTable,
    runtime_rules: RuntimeRules,
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
    /// The stacks that were walked lately: the words of repeated ones are found.
    recent: RecentStacks,
    /// Those of the current stack.
    words: Option<WalkWords>,
    /// The offset of the leaf of the current stack in place of that of its address.
    pub(crate) leaf_offset: Option<ImageOffset>,
    /// The current stack: the addresses of its user part, and all frames leaf first but for the known
    /// part.
    addresses: Vec<FrameAddress>,
    keys: Vec<FrameKey>,
}

impl StackResolver {
    /// Creates a resolver that keeps at most `depth` frames of each part of a stack.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth,
            frames: FrameTable::new(DICTIONARY_MAX),
            runtime_rules: RuntimeRules::default(),
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
            recent: RecentStacks::default(),
            words: None,
            leaf_offset: None,
            addresses: Vec::new(),
            keys: Vec::new(),
        }
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
        self.frames.begin_stack();
        if sample.stack.in_kernel {
            self.frames.kernel_part(&sample.stack, self.depth, &mut self.keys);
        }
        let mark = self.user_part(process, sample_id, sample);
        let is_known = self.known.as_ref().is_some_and(|known| known.addresses > 0);
        if mark != Mark::None && !is_known {
            self.keys.push(FrameKey::mark(mark));
        }
        mark
    }

    /// True if the innermost address of the current stack is in no mapping of its process.
    pub(crate) fn is_leaf_unmapped(&self, process: &Process) -> bool {
        let leaf = self.addresses.first();
        leaf.is_none_or(|leaf| process.maps.find(leaf.address_for_lookup()).is_none())
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
        self.frames.is_full(self.keys.len() + outer)
    }

    /// Returns the number of frames of the current stack that were read earlier from the process.
    pub(crate) fn stitched(&self) -> usize {
        self.outer.as_ref().map_or(0, |(addresses, _)| addresses.len())
    }

    /// Drops all ids; the current stack stays.
    pub(crate) fn begin_epoch(&mut self, sink: &mut impl Sink) {
        self.outer_nodes.clear();
        self.latest.drop_nodes();
        self.frames.begin_epoch(sink);
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
        let node = self.frames.node_below(parent, &keys, tree, sink);
        self.keys = keys;
        if let Some(known) = known {
            self.latest.update(&known, &self.addresses, self.frames.nodes());
        }
        node
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
        let node = self.frames.node_below(NodeId::NONE, &keys, tree, sink);
        if self.outer_nodes.len() >= OUTER_NODES_MAX {
            self.outer_nodes.clear();
        }
        self.outer_nodes.insert(addresses.as_ptr(), (addresses, node));
        node
    }

    /// Walks the user stack of a sample: sets `addresses`, and `outer` where a watch has found the rest. Returns the
    /// reason why they are incomplete.
    fn walk(
        &mut self,
        process: &mut Process,
        maps: &Rc<AddressSpace>,
        sample_id: SampleId,
        sample: &Sample<'_>,
    ) -> Mark {
        self.addresses.clear();
        let runtime = RuntimeCode {
            owner: ProcessId { pid: sample_id.pid, serial: process.serial },
            time_ns: sample_id.time,
            jit: &mut process.jit,
            rules: &mut self.runtime_rules,
            functions: &self.frames.functions,
            files: &self.frames.files,
        };
        let runtime = Some(runtime);
        let input = &sample.stack;
        // Of a stack that the source walked at most the rule of the last address is needed.
        let is_copied = matches!(input.user, UserStack::Copied(_));
        let space = if is_copied { self.latest.of(sample_id.tid, maps).space } else { 0 };
        let rules = is_copied.then_some((&mut self.rules, space));
        let mut code = ProcessCode { maps, images: &mut self.frames.images, runtime, rules };
        let not_seen = &mut process.not_seen_since_exec;
        let (depth, addresses) = (self.depth, &mut self.addresses);
        match &input.user {
            // Its stack may be another by now: no breakpoint could prove that it is not.
            UserStack::Copied(copied) if copied.is_after_call => {
                let mut notes = FrameNotes::default();
                let mark = sample_stack::unwind_copy(
                    not_seen, input, copied, &mut code, depth, addresses, &mut notes,
                );
                if self.finds_words && mark == Mark::None {
                    let sp = copied.stack_pointer().unwrap_or(0);
                    let hash = StackHash::new(sample_id.pid, sp, addresses);
                    if self.recent.is_repeated(hash) {
                        self.words =
                            sample_stack::words_of_walk(copied, &mut code, addresses, &notes);
                        if self.words.is_none() {
                            self.recent.note_in_vain(hash);
                        }
                    }
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
                let latest = self.latest.of(sample_id.tid, maps);
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
        }
    }

    /// Appends the user frames to `keys`, leaf first. Returns the reason why they are incomplete.
    fn user_part(
        &mut self,
        process: &mut Process,
        sample_id: SampleId,
        sample: &Sample<'_>,
    ) -> Mark {
        let maps = process.maps.clone();
        let mark = self.walk(process, &maps, sample_id, sample);
        if let Some((addresses, mut keys)) = self.outer.take() {
            // The cache only saves work if the node is in it, and no new epoch drops it first.
            let depth = self.keys.len() + self.addresses.len() + addresses.len() + 2;
            let is_known = self.outer_nodes.contains_key(&addresses.as_ptr());
            if !is_known || self.frames.is_full(depth) {
                let frames = &mut self.frames;
                let key =
                    |&address: &FrameAddress| frames.user_key(process, &maps, sample_id, address);
                keys.extend(addresses.iter().map_while(key));
            }
            self.outer = Some((addresses, keys));
        }
        let mut known = self.known_part(sample_id.tid, maps.clone(), mark);
        for at in 0..self.addresses.len() - known.addresses {
            match self.frames.user_key(process, &maps, sample_id, self.addresses[at]) {
                Some(key) => {
                    known.is_kept &=
                        key.image.is_some_and(|image| self.frames.images.is_permanent(image));
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
        if is_whole && !self.frames.is_full(depth) {
            self.latest.known_part(tid, maps, mark, &self.addresses)
        } else {
            KnownPart::none(tid, maps, mark, is_whole)
        }
    }

    /// Ends a batch of samples: sets the frame watches for the next.
    pub(crate) fn end_batch(&mut self, tree: &mut ProcessTree) {
        self.frames.end_batch();
        for (pid, tid) in self.watches.end_batch() {
            let Some(process) = tree.process_mut(pid) else { continue };
            let (maps, images) = (&*process.maps, &mut self.frames.images);
            let mut code = ProcessCode { maps, images, runtime: None, rules: None };
            self.watches.adjust(tid, &mut code);
        }
    }
}
