//! Frames of code without a name, and the names that the files of its process give them later.
//!
//! A frame is an address without a time. If a file with times is still to come, the
//! addresses may have held several functions: the frames are then divided into generations of a few
//! samples each. Pure.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_stream::FrameId;
use rustc_hash::FxHashMap;

use crate::image::jit::process_jit::AppliedName;
use crate::image::jit::runtime_code::RuntimeFunction;
use crate::image::key::{ImageIndex, ImageKey};

/// The samples of a generation. Where an address got another function, at most this number of
/// samples get the name of the other one; each generation repeats the definitions of its stacks.
const GENERATION_SAMPLES: u32 = 16;

/// The most frames that are compared with names from one call of [`UnnamedFrames::take_found`] to the
/// next. Each takes some 50 ns, and a hostile file may have a million names for all addresses.
const COMPARISONS_MAX: usize = 1 << 22;

/// A generation of the frames in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) image: ImageIndex,
    /// The times of its first and its last sample.
    pub(crate) first_ns: u64,
    last_ns: u64,
    samples: u32,
}

/// The origin of the name of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    Unnamed,
    /// An entry without a time, from this poll of its file.
    ByPoll(u64),
    /// An entry with a time, not later than the frame.
    ByTime,
    /// An entry with a time, later than the frame but not than its generation.
    ByLaterTime,
}

/// The name of a frame that was written without one.
#[derive(Clone, Debug)]
pub(crate) struct FoundName {
    pub(crate) function: Rc<RuntimeFunction>,
    /// The image of the frame.
    pub(crate) image: ImageKey,
}

/// A frame.
#[derive(Debug)]
struct UnnamedFrame {
    /// The number of its generation; 0 without one.
    generation: u32,
    first_ns: u64,
    naming: Naming,
}

/// The frames of code without a name in the current epoch.
#[derive(Debug, Default)]
pub(crate) struct UnnamedFrames {
    /// The frames by the address for lookup, for each image of anonymous memory.
    by_image: FxHashMap<ImageIndex, BTreeMap<(u64, FrameId), UnnamedFrame>>,
    /// Generations by number, counted from 1.
    generations: FxHashMap<u32, Generation>,
    last_generation: u32,
    /// The number of the current generation of each image.
    current: FxHashMap<ImageIndex, u32>,
    /// The names found since they were last taken.
    found: BTreeMap<FrameId, FoundName>,
    /// The number of frames that were compared since then.
    compared: usize,
    /// True if an epoch has begun: its first stack may still use earlier generations.
    is_stale: bool,
}

impl UnnamedFrames {
    /// Begins a new stack.
    pub(crate) fn begin_stack(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.generations.clear();
            self.current.clear();
        }
    }

    /// Begins a new epoch, to which the current stack already belongs: forgets all frames.
    pub(crate) fn begin_epoch(&mut self) {
        self.by_image.clear();
        self.found.clear();
        self.is_stale = true;
    }

    /// Returns the number of the current generation of an image, for a sample at `time_ns`. None if
    /// no numbers are left.
    pub(crate) fn generation_at(&mut self, image: ImageIndex, time_ns: u64) -> Option<u32> {
        if let Some(&number) = self.current.get(&image)
            && let Some(generation) = self.generations.get_mut(&number)
            && (generation.last_ns == time_ns || generation.samples < GENERATION_SAMPLES)
        {
            generation.samples += u32::from(generation.last_ns != time_ns);
            generation.last_ns = time_ns;
            return Some(number);
        }
        self.last_generation = self.last_generation.checked_add(1)?;
        let number = self.last_generation;
        let generation = Generation { image, first_ns: time_ns, last_ns: time_ns, samples: 1 };
        self.generations.insert(number, generation);
        self.current.insert(image, number);
        Some(number)
    }

    /// Returns a generation by its number.
    pub(crate) fn generation(&self, number: u32) -> Option<Generation> {
        self.generations.get(&number).copied()
    }

    /// Adds a new frame of an image. `address` is its address for lookup.
    pub(crate) fn add(&mut self, image: ImageIndex, address: u64, frame: FrameId) {
        self.insert(image, address, frame, 0, 0);
    }

    /// Adds a new frame of the current sample in the generation of this number.
    pub(crate) fn add_in(&mut self, number: u32, address: u64, frame: FrameId) {
        if let Some(generation) = self.generation(number) {
            self.insert(generation.image, address, frame, number, generation.last_ns);
        }
    }

    fn insert(
        &mut self,
        image: ImageIndex,
        address: u64,
        frame: FrameId,
        generation: u32,
        first_ns: u64,
    ) {
        let unnamed = UnnamedFrame { generation, first_ns, naming: Naming::Unnamed };
        self.by_image.entry(image).or_default().insert((address, frame), unnamed);
    }

    /// True if an image has no frames.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_image.is_empty()
    }

    /// Gives a name to the frames of its function in an image. Names must come in the order in
    /// which they were applied. True if it named a frame.
    pub(crate) fn name(&mut self, image: ImageIndex, applied: &AppliedName) -> bool {
        let Some(frames) = self.by_image.get_mut(&image) else { return false };
        if self.compared >= COMPARISONS_MAX {
            return false;
        }
        let mut is_found = false;
        let start = applied.function.start;
        let end = start.saturating_add(applied.size);
        for (&(_, frame), unnamed) in frames.range_mut((start, FrameId::NONE)..(end, FrameId::NONE))
        {
            self.compared += 1;
            let last_ns = match self.generations.get(&unnamed.generation) {
                Some(generation) => generation.last_ns,
                // Without generations there are no times: any name may be the right one.
                None => u64::MAX,
            };
            let naming = match applied.time_ns {
                None => Naming::ByPoll(applied.poll),
                Some(time_ns) if unnamed.generation == 0 || time_ns <= unnamed.first_ns => {
                    Naming::ByTime
                }
                Some(time_ns) if time_ns <= last_ns => Naming::ByLaterTime,
                // Generated when the frame was no longer in use.
                Some(_) => continue,
            };
            let is_better = match (unnamed.naming, naming) {
                (Naming::Unnamed, _) | (_, Naming::ByTime) => true,
                // A later poll may describe other code at the same address.
                (Naming::ByPoll(old), Naming::ByPoll(new)) => old == new,
                _ => false,
            };
            if is_better {
                unnamed.naming = naming;
                let image = match unnamed.generation {
                    0 => ImageKey::File(image),
                    generation => ImageKey::Unnamed(generation),
                };
                let function = applied.function.clone();
                self.found.insert(frame, FoundName { function, image });
                is_found = true;
            }
        }
        is_found
    }

    /// Takes the names found since the last call, by frame.
    pub(crate) fn take_found(&mut self) -> BTreeMap<FrameId, FoundName> {
        self.compared = 0;
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::jit::runtime_code::RuntimeFunctions;
    use std::ops::Range;

    const IMAGE: ImageIndex = 7;

    /// Applies an entry of a file: its time or None, its poll, and the range and name of a function.
    fn apply(
        frames: &mut UnnamedFrames,
        time_ns: Option<u64>,
        poll: u64,
        range: Range<u64>,
        name: &str,
    ) {
        let function = RuntimeFunctions::default().create(name.as_bytes(), range.start, None);
        let (function, size) = (function.expect("room"), range.end - range.start);
        frames.name(IMAGE, &AppliedName { function, size, time_ns, poll });
    }

    fn found(frames: &mut UnnamedFrames) -> Vec<(u32, String)> {
        let found = frames.take_found().into_iter();
        let name = |it: FoundName| String::from_utf8_lossy(&it.function.name).into_owned();
        found.map(|(id, it)| (id.0, name(it))).collect()
    }

    fn named(id: u32, name: &str) -> (u32, String) {
        (id, name.to_owned())
    }

    #[test]
    fn entry_without_time_names_frames_in_its_range_once() {
        let mut frames = UnnamedFrames::default();
        for (id, address) in [(1, 0xf), (2, 0x10), (3, 0x1f), (4, 0x20)] {
            frames.add(IMAGE, address, FrameId(id));
        }
        frames.add(IMAGE + 1, 0x10, FrameId(5));
        apply(&mut frames, None, 1, 0x10..0x20, "f");
        assert_eq!(found(&mut frames), [named(2, "f"), named(3, "f")]);
        assert_eq!(found(&mut frames), []);
        // Of one poll the last entry holds; a later poll describes other code.
        apply(&mut frames, None, 1, 0x1f..0x20, "g");
        apply(&mut frames, None, 2, 0x10..0x21, "h");
        assert_eq!(found(&mut frames), [named(3, "g"), named(4, "h")]);
    }

    #[test]
    fn times_choose_among_functions_at_one_address() {
        let mut frames = UnnamedFrames::default();
        let mut ids = Vec::new();
        for time_ns in (0..64).map(|sample| 1000 + 10 * sample) {
            let number = frames.generation_at(IMAGE, time_ns).expect("numbers");
            if ids.last() != Some(&number) {
                ids.push(number);
                frames.add_in(number, 0x10, FrameId(number));
            }
        }
        assert_eq!(ids, [1, 2, 3, 4], "one for each {GENERATION_SAMPLES} samples");
        // Generation 3 begins at 1320; "later" comes after the last sample.
        for (time_ns, name) in [(900, "a"), (1320, "b"), (1700, "later")] {
            apply(&mut frames, Some(time_ns), 1, 0x10..0x18, name);
        }
        let expected = [named(1, "a"), named(2, "a"), named(3, "b"), named(4, "b")];
        assert_eq!(found(&mut frames), expected);
    }

    #[test]
    fn function_reported_after_its_first_sample_is_named_in_that_generation() {
        let mut frames = UnnamedFrames::default();
        let number = frames.generation_at(IMAGE, 100).expect("numbers");
        frames.add_in(number, 0x10, FrameId(1));
        frames.generation_at(IMAGE, 110);
        apply(&mut frames, Some(105), 1, 0x10..0x18, "f");
        apply(&mut frames, Some(108), 1, 0x10..0x18, "g");
        assert_eq!(found(&mut frames), [named(1, "f")]);
        apply(&mut frames, Some(100), 2, 0x10..0x18, "h");
        assert_eq!(found(&mut frames), [named(1, "h")]);
    }

    #[test]
    fn epoch_forgets_frames_but_keeps_generations_of_its_first_stack() {
        let mut frames = UnnamedFrames::default();
        let number = frames.generation_at(IMAGE, 100).expect("numbers");
        frames.add_in(number, 0x10, FrameId(1));
        frames.begin_epoch();
        assert!(frames.is_empty());
        frames.add_in(number, 0x10, FrameId(2));
        apply(&mut frames, Some(9), 1, 0x10..0x18, "f");
        assert_eq!(found(&mut frames), [named(2, "f")]);
        frames.begin_stack();
        assert_eq!(frames.generation(number), None);
        assert_eq!(frames.generation_at(IMAGE, 100), Some(number + 1));
    }
}
