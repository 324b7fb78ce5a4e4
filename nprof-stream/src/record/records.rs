//! What a record is: plain types, no input, no output, no spelling.
//!
//! A stream is a sequence of *segments*, one per run of a producer; a segment is
//! [`Record::Head`] .. [`Record::End`]. Ids are defined before they are used, start at 1 and
//! live until the next [`Record::Epoch`] or [`Record::Head`]; 0 means "none". Times are
//! nanoseconds on the segment's clock. Strings are bytes: paths and names need not be UTF-8.
//!
//! The manual page nprof-format(5) is the specification of all of this.

use crate::record::enums::*;
use crate::record::extras::Extras;
use crate::record::ids::*;
use crate::record::kind;
use crate::record::pairs::{End, Epoch, Event, Head, Naming, RunEnd, Step};

/// One record of a stream, borrowed from the reader that spelled it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// `@nprof`: a segment begins.
    Head(Box<Head>),
    /// `@step`: a program that touched the stream.
    Step(Box<Step>),
    /// `@event`: what is counted, as it was opened.
    Event(Box<Event>),
    /// `@epoch`: all ids are forgotten; what is still in use is defined again.
    Epoch(Epoch),
    /// `@end`: the segment is over, with its totals.
    End(Box<End>),
    /// `@run`: what the head of a run said that was merged into this segment.
    Run(Box<Head>),
    /// `@run_end`: the end of such a run, as its producer wrote it.
    RunEnd(Box<RunEnd>),
    /// `I`: an ELF object, the kernel, a module, the vDSO, a generated function.
    Image(Image<'a>),
    /// `T`: a process or thread.
    Task(Task<'a>),
    /// `F`: a place in an image.
    Frame(Frame<'a>),
    /// `N`: a branch of the calling context tree.
    Nodes(Nodes<'a>),
    /// `S`: one observation.
    Sample(Sample<'a>),
    /// `X`: a task took another name, executed another image, or ended.
    Change(Change<'a>),
    /// `L`: observations that were not made or not kept.
    Lost(Lost<'a>),
    /// `U`: a function.
    Function(Function<'a>),
    /// `D`: a source file.
    File(SourceFile<'a>),
    /// `Y`: what a frame is called, or why it has no name.
    Location(Location<'a>),
    /// `@naming`: how naming the frames of an image went.
    Naming(Box<Naming>),
    /// An optional record this version does not know.
    Unknown(Unknown<'a>),
}

impl Record<'_> {
    /// The number of the record's kind, see [`kind::KINDS`].
    pub fn kind(&self) -> u8 {
        match self {
            Record::Head(_) => kind::HEAD,
            Record::Step(_) => kind::STEP,
            Record::Event(_) => kind::EVENT,
            Record::Epoch(_) => kind::EPOCH,
            Record::End(_) => kind::END,
            Record::Run(_) => kind::RUN,
            Record::RunEnd(_) => kind::RUN_END,
            Record::Image(_) => kind::IMAGE,
            Record::Task(_) => kind::TASK,
            Record::Frame(_) => kind::FRAME,
            Record::Nodes(_) => kind::NODES,
            Record::Sample(_) => kind::SAMPLE,
            Record::Change(_) => kind::CHANGE,
            Record::Lost(_) => kind::LOST,
            Record::Function(_) => kind::FUNCTION,
            Record::File(_) => kind::FILE,
            Record::Location(_) => kind::LOCATION,
            Record::Naming(_) => kind::NAMING,
            Record::Unknown(unknown) => unknown.kind,
        }
    }

    /// Whether the record is an annotation: added by a filter, removed by stripping, and not
    /// counted in [`End::records`].
    pub fn is_annotation(&self) -> bool {
        self.kind() >= kind::FIRST_OPTIONAL
    }
}

/// An ELF object, the kernel, a kernel module, the vDSO, a generated function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// The image's id.
    pub id: ImageId,
    /// What it is, and so what the offsets of its frames count from.
    pub kind: ImageKind,
    /// The GNU build ID, at most 64 bytes; empty when there is none or it could not be read.
    pub build_id: &'a [u8],
    /// The path as the profiled process saw it, or a name in brackets (`[kernel]`, `[vdso]`);
    /// of generated code the function's name, in any bytes.
    pub path: &'a [u8],
    /// `base=0x..` the runtime address offsets count from (kernel, module, jit);
    /// `task=N` whose memory it is (anon, jit of a process).
    pub extras: Extras<'a>,
}

/// A process or thread, from its first record on. Task ids are never reused when pids are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// The task's id.
    pub id: TaskId,
    /// When it began, or when it was first seen.
    pub time: u64,
    /// The process id, in the recorder's pid namespace.
    pub pid: u32,
    /// The thread id; equal to `pid` for the first thread.
    pub tid: u32,
    /// For a thread its process's first thread, for a process its parent; none when unknown.
    pub parent: TaskId,
    /// The name at that time (`comm`).
    pub comm: &'a [u8],
    /// `run=0x..` the run it is of, in a merged segment.
    pub extras: Extras<'a>,
}

/// A place in an image, resolved when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The frame's id.
    pub id: FrameId,
    /// The image; none when `mark` is set or the address lies in no mapping.
    pub image: ImageId,
    /// Where in the image, see [`ImageKind`] for what it counts from.
    pub offset: u64,
    /// Whether it ran in the kernel.
    pub kernel: bool,
    /// Whether `offset` is a return address, so that the call lies just before it.
    pub return_address: bool,
    /// Why the stack ends here, for the explicit mark at the root of an incomplete stack.
    pub mark: Mark,
    /// Nothing yet.
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
    /// The node it hangs under; none for a root.
    pub parent: NodeId,
    /// At least one frame.
    pub frames: &'a [FrameId],
}

/// The CPU number of a record that knows none.
pub const NO_CPU: u32 = u32::MAX;

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// When.
    pub time: u64,
    /// What overflowed.
    pub event: EventId,
    /// Who ran.
    pub task: TaskId,
    /// Where it ran, [`NO_CPU`] when unknown.
    pub cpu: u32,
    /// The leaf of its stack; none for a sample without a stack.
    pub node: NodeId,
    /// What the sample adds to sums, in the event's unit: normally its period.
    pub weight: u64,
    /// How many observations it stands for, normally 1.
    pub count: u64,
    /// `run=0x..` the run it is of, in a merged segment and where no task tells it;
    /// `stitched=N` how many of its frames, from the root, were known before it.
    pub extras: Extras<'a>,
}

/// A task took another name, executed another image, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// When.
    pub time: u64,
    /// Whom it happened to.
    pub task: TaskId,
    /// What happened.
    pub kind: ChangeKind,
    /// Its name or status, see [`ChangeKind`].
    pub value: &'a [u8],
    /// `exe=PATH` the image an exec started.
    pub extras: Extras<'a>,
}

/// Observations that were not made or not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost<'a> {
    /// When the loss was noticed.
    pub time: u64,
    /// Which event lost them; none when it cannot be told.
    pub event: EventId,
    /// Where, [`NO_CPU`] when unknown.
    pub cpu: u32,
    /// Whose, none when unknown.
    pub task: TaskId,
    /// How many observations; 0 when their number is unknown.
    pub count: u64,
    /// Why.
    pub cause: Cause,
    /// `run=0x..` as of a [`Sample`]; `records=N` how many records of processes and mappings
    /// were lost.
    pub extras: Extras<'a>,
}

/// A function, as its symbol table or debug information names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The function's id.
    pub id: FunctionId,
    /// The name to show: demangled, without hash.
    pub name: &'a [u8],
    /// The name the linker knows; empty when it is the same as `name` or there is none.
    pub linkage: &'a [u8],
    /// Nothing yet.
    pub extras: Extras<'a>,
}

/// A source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// The file's id.
    pub id: FileId,
    /// Its path as the compiler recorded it, made absolute.
    pub path: &'a [u8],
    /// Nothing yet.
    pub extras: Extras<'a>,
}

/// One line of a frame: a function, and where in its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function; none when only the line is known.
    pub function: FunctionId,
    /// The source file, none when unknown.
    pub file: FileId,
    /// The line, 0 when unknown. For an inlined function's caller, the line of the call.
    pub line: u32,
    /// The column, 0 when unknown.
    pub column: u32,
}

/// What a frame is called, or why it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The frame.
    pub frame: FrameId,
    /// How the naming went.
    pub status: Status,
    /// Innermost first: every line but the last is an inlined call. Where there is no name,
    /// empty, or one function called `image+0xoffset` after where it begins, or
    /// `before->behind+0xdistance` after the exports around it.
    pub lines: &'a [Line],
    /// Nothing yet.
    pub extras: Extras<'a>,
}

/// A record this version does not know and may pass over: kinds 64 to 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// The kind's number, 64 to 127.
    pub kind: u8,
    /// Its body, to be passed on byte for byte.
    pub body: &'a [u8],
}
