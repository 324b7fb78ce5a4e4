//! The types of the records: plain data, without input, output and encoding.
//!
//! A stream is a sequence of *segments*, one per run of a producer; a segment is
//! [`Record::Head`] .. [`Record::End`]. Ids are defined before they are used, start at 1 and
//! live until the next [`Record::Epoch`] or [`Record::Head`]; 0 means "none". Times are
//! nanoseconds on the segment's clock. Strings are bytes: paths and names need not be UTF-8.
//!
//! The manual page nprof-format(5) is the specification.

use crate::record::code_rows::CodeRows;
use crate::record::enums::*;
use crate::record::extras::Extras;
use crate::record::ids::*;
use crate::record::kind::{self, with_kinds};
use crate::record::line::Line;
use crate::record::number::hex_bytes_in_place;
use crate::record::pairs::{End, Epoch, Event, Head, Naming, RunEnd, Step};

macro_rules! content {
    (pairs $type:ident $a:lifetime) => {
        // Boxed: these records are large and rare.
        Box<$type>
    };
    ($encoding:ident $type:ident $a:lifetime) => {
        $type<$a>
    };
}

macro_rules! record {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        /// A record of a stream, borrowed from the reader that decoded it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Record<'a> {
            $($(#[$doc])* $variant(content!($encoding $type 'a)),)*
            /// An optional record this version does not know.
            Unknown(Unknown<'a>),
        }

        impl Record<'_> {
            /// Returns the number of the record's kind, see [`kind::KINDS`].
            pub fn kind(&self) -> u8 {
                match self {
                    $(Record::$variant(_) => kind::$constant,)*
                    Record::Unknown(unknown) => unknown.kind,
                }
            }
        }
    };
}

with_kinds!(record);

impl Record<'_> {
    /// True if the record is an annotation: added by a filter, removed by stripping, and not counted
    /// in [`End::records`].
    pub fn is_annotation(&self) -> bool {
        self.kind() >= kind::FIRST_OPTIONAL
    }
}

/// An ELF object, the kernel, a kernel module, the vDSO, a generated function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// The image's id.
    pub id: ImageId,
    /// Its kind, which decides on the origin of the offsets of its frames.
    pub kind: ImageKind,
    /// The GNU build ID, at most 64 bytes; empty if there is none or it could not be read.
    pub build_id: &'a [u8],
    /// The path as the profiled process saw it, or a name in brackets (`[kernel]`, `[vdso]`);
    /// of generated code the function's name, in any bytes.
    pub path: &'a [u8],
    /// `base=0x..`: the runtime address that offsets count from (kernel, module, jit);
    /// `task=N`: the task that owns the memory (anon, jit of a process);
    /// `load`: [`LoadSegment`](crate::LoadSegment)s (elf).
    pub extras: Extras<'a>,
}

/// A process or thread, from its first record on. Task ids are not reused when pids are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// The task's id.
    pub id: TaskId,
    /// The time of its start, or of its first observation.
    pub time: u64,
    /// The process id, in the recorder's pid namespace.
    pub pid: u32,
    /// The thread id; equal to `pid` for the first thread.
    pub tid: u32,
    /// Of a thread, the first thread of its process; of a process, its parent; none if unknown.
    pub parent: TaskId,
    /// The name at that time (`comm`).
    pub comm: &'a [u8],
    /// `run=0x..`: its run, in a merged segment; `exe=PATH`: of a process, the image that it executes.
    pub extras: Extras<'a>,
}

/// A place in an image, resolved at recording time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The frame's id.
    pub id: FrameId,
    /// The image; none if `mark` is set or the address lies in no mapping.
    pub image: ImageId,
    /// The offset in the image, see [`ImageKind`] for its origin.
    pub offset: u64,
    /// True for code of the kernel.
    pub kernel: bool,
    /// True if `offset` is a return address, so that the call lies just before it.
    pub return_address: bool,
    /// The reason for the end of the stack, of the explicit mark at the root of an incomplete one.
    pub mark: Mark,
    /// None yet.
    pub extras: Extras<'a>,
}

/// A branch of the calling context tree: a chain of new nodes below `parent`, root first.
///
/// Node `first` has the frame `frames[0]` and the parent `parent`; node `first + i` has the
/// frame `frames[i]` and the parent `first + i - 1`. The kernel part of a stack hangs below
/// the user frame that entered the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes<'a> {
    /// The id of the first new node; greater than `parent`.
    pub first: NodeId,
    /// The parent of the first new node; none for a root.
    pub parent: NodeId,
    /// At least one frame.
    pub frames: &'a [FrameId],
}

/// The CPU number of a record with an unknown CPU.
pub const NO_CPU: u32 = u32::MAX;

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The time of the sample.
    pub time: u64,
    /// The event that overflowed.
    pub event: EventId,
    /// The task that ran.
    pub task: TaskId,
    /// The CPU, [`NO_CPU`] if unknown.
    pub cpu: u32,
    /// The leaf of its stack; none for a sample without a stack.
    pub node: NodeId,
    /// The amount that the sample adds to sums, in the event's unit: normally its period.
    pub weight: u64,
    /// The number of observations that it represents, normally 1.
    pub count: u64,
    /// `run=0x..`: its run, in a merged segment if the task does not state it;
    /// `stitched=N`: the number of its frames, from the root, taken from an earlier sample.
    /// Of a wait: `lasted=N`, its length in ns; `call`, `on` and `state`, its cause; `pair=N`, the same
    /// number as on the sample of the waker.
    pub extras: Extras<'a>,
}

/// A task took another name, executed another image, or ended; or the exact times of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The time of the change.
    pub time: u64,
    /// The task that changed.
    pub task: TaskId,
    /// The kind of change.
    pub kind: ChangeKind,
    /// Its name or status, see [`ChangeKind`].
    pub value: &'a [u8],
    /// `exe=PATH`: the image that an exec started; `wall`, `cpu`, `runnable`, `blocked`: times in ns,
    /// see [`ChangeKind::Times`].
    pub extras: Extras<'a>,
}

/// Samples that were not taken or not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost<'a> {
    /// The time at which the loss was noticed.
    pub time: u64,
    /// The event that lost samples; none if unknown.
    pub event: EventId,
    /// The CPU, [`NO_CPU`] if unknown.
    pub cpu: u32,
    /// The task, none if unknown.
    pub task: TaskId,
    /// The number of lost samples; 0 if unknown. Estimated if `others` is among the extras.
    pub count: u64,
    /// The cause.
    pub cause: Cause,
    /// `run=0x..` as of a [`Sample`]; [`others=N`](Self::others); [`records=N`](Self::records).
    pub extras: Extras<'a>,
}

impl Lost<'_> {
    /// Returns the number of samples of processes that are not recorded, lost at the same time.
    /// The kernel reports only the sum with `count`, so both are estimates.
    pub fn others(&self) -> u64 {
        self.extras.number("others").unwrap_or(0)
    }

    /// Returns the number of lost records of processes and mappings. They are no samples, and
    /// `count` does not include them.
    pub fn records(&self) -> u64 {
        self.extras.number("records").unwrap_or(0)
    }
}

/// A function, as its symbol table or debug information names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The function's id.
    pub id: FunctionId,
    /// The name to show: demangled, without hash.
    pub name: &'a [u8],
    /// The name that the linker knows; empty if it equals `name` or there is none.
    pub linkage: &'a [u8],
    /// `line=N`: see [`Function::start_line`].
    pub extras: Extras<'a>,
}

impl Function<'_> {
    /// Returns the line at which the function begins in its source file, 0 if unknown.
    pub fn start_line(&self) -> u32 {
        self.extras.number("line").and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
    }
}

/// A source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// The file's id.
    pub id: FileId,
    /// Its path as the compiler recorded it, made absolute.
    pub path: &'a [u8],
    /// `md5`: see [`SourceFile::md5`].
    pub extras: Extras<'a>,
}

/// The MD5 of a file.
pub type Md5Sum = [u8; 16];

impl SourceFile<'_> {
    /// Returns the MD5 of the file that was compiled. None if it is unknown.
    pub fn md5(&self) -> Option<Md5Sum> {
        let mut digits = self.extras.get("md5")?.into_owned();
        hex_bytes_in_place(&mut digits)?.try_into().ok()
    }
}

/// The names of a frame, or the reason for their absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The frame.
    pub frame: FrameId,
    /// The result of the naming.
    pub status: Status,
    /// Innermost first: every call but the last is inlined. Without a name, empty, or one function
    /// called `image+0xoffset` by its start, or `before->after+0xdistance` by the exports around
    /// it.
    pub lines: &'a [Line],
    /// None yet.
    pub extras: Extras<'a>,
}

/// The code of a function that has samples, or a part of it, as it was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// A frame in the code, which identifies the image.
    pub frame: FrameId,
    /// The offset of the first byte in that image.
    pub offset: u64,
    /// The architecture of the instructions, as uname(2) names it.
    pub arch: &'a [u8],
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The functions and lines of its instructions: a row holds up to the offset of the next.
    pub rows: CodeRows<'a>,
    /// The functions to which its instructions jump or which they call.
    pub callees: CodeRows<'a>,
    /// None yet.
    pub extras: Extras<'a>,
}

/// A record that this version does not know and may skip: kinds 64 to 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// The kind's number, 64 to 127.
    pub kind: u8,
    /// Its body, which is copied byte by byte.
    pub body: &'a [u8],
}
