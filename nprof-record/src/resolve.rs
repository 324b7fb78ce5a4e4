//! From a sample to the node of its stack: its addresses become places in images while what is
//! mapped is known, and everything new gets its id.

use nprof_format::{ExtrasBuilder, FrameId, ImageKind, Mark, NodeId};

use crate::event::Unwind;
use crate::functions::Functions;
use crate::growing::Files;
use crate::images::{Images, ProcessCode};
use crate::intern::{Dictionary, FrameKey, ImageFacts, ImageNumber, Sink};
use crate::kernel::{Kernel, Place};
use crate::process::{Process, Tree};
use crate::ring::{Ksymbol, Sample};
use crate::stack;
use crate::unwind::Address;

/// The most nodes and frames of an epoch.
const DICTIONARY_MAX: u32 = 1 << 20;

/// What sets the numbers of the kernel's parts apart from those of images.
const KERNEL_IMAGES: ImageNumber = 1 << 31;

/// What sets the numbers of functions made at run time apart, and the number they stay below.
const FUNCTIONS: ImageNumber = 1 << 30;

/// Turns stacks into nodes.
#[derive(Debug)]
pub(crate) struct Resolver {
    unwind: Unwind,
    depth: usize,
    pub(crate) images: Images,
    /// Asked for when the kernel is first sampled.
    kernel: Option<Kernel>,
    functions: Functions,
    pub(crate) files: Files,
    pub(crate) dictionary: Dictionary,
    /// The stack at hand: the user part's addresses, all frames leaf first, their ids root first.
    addresses: Vec<Address>,
    keys: Vec<FrameKey>,
    frames: Vec<FrameId>,
}

impl Resolver {
    /// With stacks captured this way, and of each part of one at most `depth` frames kept.
    pub(crate) fn new(unwind: Unwind, depth: usize) -> Self {
        Self {
            unwind,
            depth,
            images: Images::default(),
            kernel: None,
            functions: Functions::default(),
            files: Files::default(),
            dictionary: Dictionary::new(DICTIONARY_MAX),
            addresses: Vec::new(),
            keys: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// The kernel made code, or unmade it.
    pub(crate) fn kernel_changed(&mut self, symbol: &Ksymbol<'_>) {
        self.kernel.get_or_insert_with(Kernel::running).changed(symbol, &self.functions);
    }

    /// Takes up a sample of process `pid` at `time`, ns: the stack at hand from now on. Gives why
    /// it is incomplete.
    pub(crate) fn resolve(
        &mut self,
        process: &mut Process,
        pid: u32,
        time: u64,
        sample: &Sample<'_>,
    ) -> Mark {
        self.keys.clear();
        self.functions.begin_stack();
        if sample.in_kernel {
            self.kernel_part(sample);
        }
        let mark = self.user_part(process, pid, time, sample);
        if mark != Mark::None {
            self.keys.push(FrameKey::mark(mark));
        }
        mark
    }

    /// Whether the stack at hand may be too much for this epoch.
    pub(crate) fn is_full(&self) -> bool {
        self.dictionary.is_full(self.keys.len())
    }

    /// Forgets all ids; the stack at hand stays.
    pub(crate) fn begin_epoch(&mut self, sink: &mut impl Sink) {
        self.functions.begin_epoch();
        self.dictionary.begin_epoch(sink);
    }

    /// Gives the stack at hand its node, with everything it needs defined before it.
    pub(crate) fn node(&mut self, tree: &Tree, sink: &mut impl Sink) -> NodeId {
        self.frames.clear();
        for at in (0..self.keys.len()).rev() {
            let key = self.keys[at];
            if let Some(image) = key.image.filter(|&image| self.dictionary.needs_image(image)) {
                self.define_image(image, tree, sink);
            }
            self.frames.push(self.dictionary.frame(key, sink));
        }
        self.dictionary.node(&self.frames, sink)
    }

    /// Appends the user frames to `keys`, leaf first; why they are not complete.
    fn user_part(
        &mut self,
        process: &mut Process,
        pid: u32,
        time: u64,
        sample: &Sample<'_>,
    ) -> Mark {
        self.addresses.clear();
        let maps = process.maps.clone();
        let mut code = ProcessCode { maps: &maps, images: &mut self.images };
        let mark = match self.unwind {
            Unwind::Dwarf => stack::by_tables(
                &mut process.fresh,
                sample,
                &mut code,
                self.depth,
                &mut self.addresses,
            ),
            Unwind::FramePointer => stack::by_chain(
                &mut process.fresh,
                sample,
                &mut code,
                self.depth,
                &mut self.addresses,
            ),
            Unwind::None if sample.in_kernel => Mark::None,
            Unwind::None => {
                self.addresses.push(Address { value: sample.ip, returns: false });
                Mark::None
            }
        };
        for &address in &self.addresses {
            let inside = address.inside();
            let Some(mapped) = maps.find(inside) else { return Mark::Mapping };
            let made = self.images.may_be_made(mapped.0).then(|| {
                let owner = (pid, process.serial);
                process.jit.catch_up(owner, time, &self.functions, &self.files);
                let (function, offset) = process.jit.find(inside)?;
                Some((FUNCTIONS | self.functions.number(function, FUNCTIONS)?, offset))
            });
            let (image, offset) = made.flatten().unwrap_or(mapped);
            self.keys.push(FrameKey {
                image: Some(image),
                offset: offset.wrapping_add(address.value.wrapping_sub(inside)),
                kernel: false,
                return_address: address.returns,
                mark: Mark::None,
            });
        }
        mark
    }

    /// Appends the kernel's frames to `keys`, leaf first.
    fn kernel_part(&mut self, sample: &Sample<'_>) {
        let kernel = self.kernel.get_or_insert_with(Kernel::running);
        let mut push = |address: u64, returns| {
            let (place, offset) = kernel.find(address, &self.functions);
            let image = match place {
                Place::Part(part) => Some(KERNEL_IMAGES | part as ImageNumber),
                Place::Function(function) => {
                    self.functions.number(&function, FUNCTIONS).map(|number| FUNCTIONS | number)
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
        let chain = stack::context(sample, stack::CONTEXT_KERNEL);
        let mut returns = false;
        for address in chain.take(self.depth) {
            push(address, returns);
            returns = true;
        }
        if !returns {
            push(sample.ip, false);
        }
    }

    fn define_image(&mut self, number: ImageNumber, tree: &Tree, sink: &mut impl Sink) {
        let mut extras = ExtrasBuilder::new();
        if number & KERNEL_IMAGES != 0 {
            let kernel = self.kernel.get_or_insert_with(Kernel::running);
            let part = kernel.part((number & !KERNEL_IMAGES) as usize);
            if part.base != 0 {
                extras.add("base", format!("{:#x}", part.base).as_bytes());
            }
            let facts = ImageFacts {
                kind: part.kind,
                path: &part.name,
                build_id: &part.build_id,
                extras: extras.extras(),
            };
            self.dictionary.define_image(number, &facts, sink);
            return;
        }
        if number & FUNCTIONS != 0 {
            return self.define_function(number, tree, sink);
        }
        let image = self.images.get(number);
        let owner = image.owner.map(|(pid, serial)| tree.id_of(pid, serial));
        if let Some(owner) = owner.filter(|owner| !owner.is_none()) {
            extras.add("task", owner.to_string().as_bytes());
        }
        let facts = ImageFacts {
            kind: image.kind,
            path: &image.path,
            build_id: &image.build_id,
            extras: extras.extras(),
        };
        self.dictionary.define_image(number, &facts, sink);
    }

    /// A function made at run time is an image of its own: nothing else could tell its name later.
    fn define_function(&mut self, number: ImageNumber, tree: &Tree, sink: &mut impl Sink) {
        let Some(function) = self.functions.get(number & !FUNCTIONS) else { return };
        let mut extras = ExtrasBuilder::new();
        extras.add("base", format!("{:#x}", function.start).as_bytes());
        let owner = function.owner.map(|(pid, serial)| tree.id_of(pid, serial));
        if let Some(owner) = owner.filter(|owner| !owner.is_none()) {
            extras.add("task", owner.to_string().as_bytes());
        }
        let facts = ImageFacts {
            kind: ImageKind::Jit,
            path: &function.name,
            build_id: &[],
            extras: extras.extras(),
        };
        self.dictionary.define_image(number, &facts, sink);
    }
}
