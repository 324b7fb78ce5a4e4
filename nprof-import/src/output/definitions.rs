//! Images, places and tasks as importers know them: without ids, which the stream assigns. Pure.
//!
//! Texts are shared: a small hostile file can name one long text any number of times.

use std::rc::Rc;

use nprof_stream::{ImageKind, Mark};

/// A source of code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ImageDef {
    /// Its kind.
    pub(crate) kind: ImageKind,
    /// The build ID; empty if unknown.
    pub(crate) build_id: Vec<u8>,
    /// The path, or a name in brackets.
    pub(crate) path: Rc<[u8]>,
    /// The runtime address of offset 0, of the kernel and its modules.
    pub(crate) base: Option<u64>,
    /// The extra `load`; empty if it is unknown.
    pub(crate) load: String,
}

/// A place in code, or the mark of an incomplete stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The number of the image. None for a mark, and for an address in no mapping.
    pub(crate) image: Option<u32>,
    /// The offset in the image.
    pub(crate) offset: u64,
    /// True for code of the kernel.
    pub(crate) kernel: bool,
    /// True if the offset is a return address.
    pub(crate) return_address: bool,
    /// The reason for the end of the stack.
    pub(crate) mark: Mark,
    /// The number of its calls; 0 if its names are unknown.
    pub(crate) calls: u32,
}

/// A call of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CallDef {
    /// The number of the function's name.
    pub(crate) name: u32,
    /// The number of the path of the source file; 0 if unknown.
    pub(crate) file: u32,
    /// The line, 0 if unknown.
    pub(crate) line: u32,
    /// The line at which the function begins, 0 if unknown.
    pub(crate) start_line: u32,
}

impl ImageDef {
    /// Returns an image that is a file, or is called like one.
    pub(crate) fn file(build_id: Vec<u8>, path: impl Into<Rc<[u8]>>) -> Self {
        Self { kind: ImageKind::Elf, build_id, path: path.into(), base: None, load: String::new() }
    }
}

impl Place {
    /// Returns the mark of an incomplete stack.
    pub(crate) fn mark(mark: Mark) -> Self {
        Self { image: None, offset: 0, kernel: false, return_address: false, mark, calls: 0 }
    }

    /// Returns a place of user code.
    pub(crate) fn in_image(image: u32, offset: u64) -> Self {
        Self { image: Some(image), offset, ..Self::mark(Mark::None) }
    }
}

/// A process or thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskDef {
    /// The time of its start or first sight.
    pub(crate) time: u64,
    /// The process id.
    pub(crate) pid: u32,
    /// The thread id.
    pub(crate) tid: u32,
    /// The number of the task that it belongs to.
    pub(crate) parent: Option<u32>,
    /// Its name.
    pub(crate) comm: Rc<[u8]>,
    /// The file that the process executes; empty if it is unknown, and of other threads than the first.
    pub(crate) exe: Rc<[u8]>,
}
