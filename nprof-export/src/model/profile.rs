//! The model: samples, their stacks and threads. All strings are valid UTF-8 without control characters.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_stream::{Event, LoadSegment};

/// All samples of the streams that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    /// The facts of the recordings.
    pub(crate) facts: Facts,
    /// The runs, in the order of the streams.
    pub(crate) runs: Vec<Run>,
    /// The events; runs that recorded the same event share one.
    pub(crate) events: Vec<Event>,
    /// The sources of code. The first one is the program, if there is any.
    pub(crate) images: Vec<Image>,
    /// The threads, in the order of their first samples.
    pub(crate) threads: Vec<Thread>,
    /// The names of threads.
    pub(crate) names: Vec<String>,
    /// The functions.
    pub(crate) functions: Vec<Function>,
    /// The frames.
    pub(crate) frames: Vec<Frame>,
    /// The stacks: each is a frame and the stack of its callers, which has a lower index.
    pub(crate) stacks: Vec<Stack>,
    /// The samples: each one, or sums of those that share thread, name, stack and event.
    pub(crate) samples: Vec<Sample>,
    /// The losses, in the order of the streams.
    pub(crate) losses: Vec<Loss>,
}

/// The facts of the recordings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The command of each run.
    pub(crate) commands: Vec<String>,
    /// The host of the first run; empty if unknown.
    pub(crate) host: String,
    /// The operating system of the first run.
    pub(crate) os: String,
    /// The processor of the first run.
    pub(crate) cpu: String,
    /// The number of CPUs of the first run.
    pub(crate) cpus: Option<u64>,
    /// The earliest time, ns since 1970 if the streams state it.
    pub(crate) start: i64,
    /// The latest time.
    pub(crate) end: i64,
    /// The number of lost samples.
    pub(crate) lost: u64,
    /// The number of samples without their stack, which was left out to save memory.
    pub(crate) folded: u64,
    /// True if any frame has a name.
    pub(crate) has_names: bool,
}

/// A recording of a program or machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its id.
    pub(crate) id: u64,
    /// Its host; empty if unknown.
    pub(crate) host: String,
    /// The service that it belongs to, and its version; empty if unknown.
    pub(crate) service: String,
    pub(crate) version: String,
    /// The command.
    pub(crate) command: String,
    /// The times of its first and last record with samples, ns since 1970 if the stream states it.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Lost samples by event.
    pub(crate) lost: BTreeMap<u32, u64>,
    /// The time of the first loss, as that of samples. None without a loss.
    pub(crate) first_loss: Option<i64>,
    /// True if its stream was complete.
    pub(crate) is_complete: bool,
}

impl Run {
    /// Returns the times of the first and last sample; without samples, of the first loss.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "for Parquet"))]
    pub(crate) fn span(&self) -> (i64, i64) {
        let loss = self.first_loss.unwrap_or(0);
        if self.start <= self.end { (self.start, self.end) } else { (loss, loss) }
    }
}

/// A source of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// The word of its kind.
    pub(crate) kind: &'static str,
    /// The path, or a name in brackets.
    pub(crate) path: String,
    /// The last component of the path.
    pub(crate) name: String,
    /// The build ID in hexadecimal digits; empty if unknown.
    pub(crate) build_id: String,
    /// True if nprof-symbolize has looked for the names of its frames.
    pub(crate) is_symbolized: bool,
    /// Its segments of code, by their offsets; empty if they are unknown.
    pub(crate) segments: Vec<LoadSegment>,
    /// The address of its first loaded byte, as the file is linked; 0 if it is unknown.
    pub(crate) first_address: u64,
}

impl Image {
    /// Sets the loaded segments.
    pub(crate) fn set_load(&mut self, load: &[LoadSegment]) {
        self.first_address = load.iter().map(|segment| segment.address).min().unwrap_or_default();
        self.segments = load.iter().filter(|segment| segment.executable).copied().collect();
        self.segments.sort_by_key(|segment| segment.offset);
        // No linker lets segments share code. A search would find any of them.
        self.segments.dedup_by(|next, last| next.offset - last.offset < last.size);
    }

    /// Returns the index of the segment that has the code at an offset. None if no known one has it.
    pub(crate) fn segment_of(&self, offset: u64) -> Option<usize> {
        let next = self.segments.partition_point(|segment| segment.offset <= offset);
        let index = next.checked_sub(1)?;
        (offset - self.segments[index].offset < self.segments[index].size).then_some(index)
    }

    /// Returns the distance of the code at an offset from the first loaded byte, as the file is linked. None
    /// without the segment.
    pub(crate) fn relative_address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments[self.segment_of(offset)?];
        (segment.address - self.first_address).checked_add(offset - segment.offset)
    }
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread {
    /// The process id.
    pub(crate) pid: u32,
    /// The thread id.
    pub(crate) tid: u32,
    /// The beginning of its last name. Some formats repeat it for each thread.
    pub(crate) name: Rc<str>,
    /// The time of its start or first sight.
    pub(crate) start: i64,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name; that of a place without a name is `image+0xoffset`.
    pub(crate) name: Rc<str>,
    /// Its source file; empty if unknown.
    pub(crate) file: Rc<str>,
    /// The line at which it begins, 0 if unknown.
    pub(crate) start_line: u32,
    /// Its image. None for marks.
    pub(crate) image: Option<u32>,
}

/// The kind of code of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Category {
    /// Code of a program or library.
    User,
    /// Code of the kernel.
    Kernel,
    /// Code generated at run time.
    Jit,
    /// No code: the mark of an incomplete stack.
    Mark,
}

/// A place in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its image.
    pub(crate) image: Option<u32>,
    /// The offset in the image of the instruction; inside of the call, if it is a caller.
    pub(crate) offset: u64,
    /// True if it is a caller, so that the stream has the offset after the call.
    pub(crate) return_address: bool,
    /// The kind of code.
    pub(crate) category: Category,
    /// True if it has names. None if no program has looked for them.
    pub(crate) is_named: Option<bool>,
    /// Its calls, innermost first: all but the last are inlined. At least one.
    pub(crate) calls: Vec<CallSite>,
}

impl Frame {
    /// Returns a frame in an image.
    #[cfg(test)]
    pub(crate) fn of_image(image: u32) -> Self {
        Self {
            image: Some(image),
            offset: 0,
            return_address: false,
            category: Category::User,
            is_named: None,
            calls: Vec::new(),
        }
    }

    /// Returns the offset as the stream has it.
    pub(crate) fn raw_offset(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.return_address))
    }

    /// True if it is code of the kernel.
    pub(crate) fn is_kernel(&self) -> bool {
        self.category == Category::Kernel
    }
}

/// A call of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallSite {
    /// The function.
    pub(crate) function: u32,
    /// The line, 0 if unknown.
    pub(crate) line: u32,
}

/// A stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    /// The stack of the callers. None at the root.
    pub(crate) parent: Option<u32>,
    /// The frame at its leaf.
    pub(crate) frame: u32,
}

/// A sample, or a sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The time; of a sum the beginning of its window, or 0.
    pub(crate) time: i64,
    /// The run.
    pub(crate) run: u32,
    /// The event.
    pub(crate) event: u32,
    /// The thread; 0 of a sum of a window.
    pub(crate) thread: u32,
    /// The name of the thread at that time, in [`Profile::names`].
    pub(crate) name: u32,
    /// The stack. None for a sample without one.
    pub(crate) stack: Option<u32>,
    /// The number of observations.
    pub(crate) count: u64,
    /// The weight, in the unit of the event.
    pub(crate) weight: u64,
}

/// Lost samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The time at which the loss was noticed.
    pub(crate) time: i64,
    /// The number of samples, 0 if unknown.
    pub(crate) count: u64,
    /// The cause.
    pub(crate) cause: String,
}

impl Profile {
    /// Returns the frames of a stack, leaf first.
    pub(crate) fn frames_of(&self, stack: Option<u32>) -> impl Iterator<Item = &Frame> + '_ {
        self.frame_numbers_of(stack).map(|frame| &self.frames[frame as usize])
    }

    /// Returns the numbers of the frames of a stack, leaf first.
    pub(crate) fn frame_numbers_of(&self, stack: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let numbers = std::iter::successors(stack, |&stack| self.stacks[stack as usize].parent);
        numbers.map(|stack| self.stacks[stack as usize].frame)
    }

    /// Returns the number of frames of each stack.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "for Parquet"))]
    pub(crate) fn depths(&self) -> Vec<u32> {
        let mut depths = Vec::with_capacity(self.stacks.len());
        for stack in &self.stacks {
            // A parent has a lower index.
            let above = stack.parent.map_or(0, |parent| depths[parent as usize]);
            depths.push(above + 1);
        }
        depths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_its_segment() {
        let segment =
            |offset, address, size, executable| LoadSegment { offset, address, size, executable };
        let mut image = Image::default();
        image.set_load(&[
            segment(0, 0x1000, 0x100, false),
            segment(0x900, 0x4900, 0x10, true),
            segment(0x200, 0x2200, 0x100, true),
            // It overlaps the one before.
            segment(0x280, 0x8000, 0x10, true),
        ]);
        let found = [0, 0x1ff, 0x200, 0x285, 0x2ff, 0x300, 0x900, 0x90f, 0x910, u64::MAX]
            .map(|offset| image.relative_address(offset));
        let expected = [
            None,
            None,
            Some(0x1200),
            Some(0x1285),
            Some(0x12ff),
            None,
            Some(0x3900),
            Some(0x390f),
            None,
            None,
        ];
        assert_eq!(found, expected);
    }
}
