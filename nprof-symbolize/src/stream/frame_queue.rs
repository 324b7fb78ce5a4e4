//! Frames that wait for the next record that is no annotation: existing annotations of a frame
//! follow it, possibly after other frames of the same stack. Pure.

use std::collections::VecDeque;

use nprof_stream::FrameId;
use rustc_hash::FxHashMap;

/// Frames in the order of the stream, with a value each.
#[derive(Debug)]
pub(crate) struct FrameQueue<T> {
    frames: VecDeque<(FrameId, T)>,
    /// The number of frames that were taken from the front.
    taken: usize,
    /// The position that the next request probably wants: requests come in the order of frames.
    next: usize,
    /// The position of the last frame with an id, counted with those taken. Empty while ids ascend
    /// and frames are requested in order, which needs no index.
    by_id: FxHashMap<FrameId, usize>,
}

impl<T> Default for FrameQueue<T> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), taken: 0, next: 0, by_id: FxHashMap::default() }
    }
}

impl<T> FrameQueue<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame at the end.
    pub(crate) fn push(&mut self, frame: FrameId, value: T) {
        // Frames are numbered in order; an id repeats in a damaged stream.
        let ascends = self.frames.back().is_none_or(|&(last, _)| last < frame);
        if !ascends {
            self.index();
        }
        if !self.by_id.is_empty() {
            self.by_id.insert(frame, self.taken + self.frames.len());
        }
        self.frames.push_back((frame, value));
    }

    /// Returns the value of the first frame. None unless it is the last one with this id.
    pub(crate) fn first(&self, frame: FrameId) -> Option<&T> {
        let is_last = self.by_id.get(&frame).is_none_or(|&at| at == self.taken);
        self.frames.front().filter(|(id, _)| *id == frame && is_last).map(|(_, value)| value)
    }

    /// Removes the first frame.
    pub(crate) fn take_first(&mut self) {
        self.frames.pop_front();
        self.next = self.next.saturating_sub(1);
        self.taken += 1;
        if self.frames.is_empty() {
            self.reset();
        }
    }

    /// Returns the value of the last frame with an id.
    pub(crate) fn get_mut(&mut self, frame: FrameId) -> Option<&mut T> {
        let is_next = self.frames.get(self.next).is_some_and(|(id, _)| *id == frame);
        // With an index some id may repeat, and the next position may not be the last with its id.
        if !is_next || !self.by_id.is_empty() {
            self.index();
            self.next = self.by_id.get(&frame)?.checked_sub(self.taken)?;
        }
        self.next += 1;
        self.frames.get_mut(self.next - 1).map(|(_, value)| value)
    }

    fn index(&mut self) {
        if self.by_id.is_empty() {
            let ids = self.frames.iter().map(|(id, _)| *id);
            self.by_id = ids.zip(self.taken..).collect();
        }
    }

    /// Returns the values of all frames.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.frames.iter_mut().map(|(_, value)| value)
    }

    /// Removes all frames; keeps the memory for the next ones.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (FrameId, T)> {
        self.reset();
        self.frames.drain(..)
    }

    fn reset(&mut self) {
        (self.taken, self.next) = (0, 0);
        if !self.by_id.is_empty() {
            self.by_id = FxHashMap::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(frames: &[(u32, char)]) -> FrameQueue<char> {
        let mut queue = FrameQueue::default();
        frames.iter().for_each(|&(id, value)| queue.push(FrameId(id), value));
        queue
    }

    #[test]
    fn frames_are_found_in_any_order() {
        let mut queue = queue(&[(1, 'a'), (2, 'b'), (3, 'c'), (2, 'd')]);
        let mut get = |id| queue.get_mut(FrameId(id)).copied();
        assert_eq!((get(1), get(2), get(3)), (Some('a'), Some('d'), Some('c')), "the last one");
        assert_eq!((get(1), get(3), get(9)), (Some('a'), Some('c'), None));
        queue.push(FrameId(9), 'e');
        assert_eq!(queue.get_mut(FrameId(9)), Some(&mut 'e'));
        queue.all_mut().for_each(char::make_ascii_uppercase);
        assert!(queue.drain().map(|(_, value)| value).eq("ABCDE".chars()));
        assert!(queue.is_empty() && queue.get_mut(FrameId(1)).is_none());
    }

    #[test]
    fn frames_are_taken_from_the_front() {
        let mut queue = queue(&[(1, 'a'), (2, 'b'), (3, 'c')]);
        assert_eq!((queue.first(FrameId(2)), queue.first(FrameId(1))), (None, Some(&'a')));
        assert_eq!(queue.get_mut(FrameId(3)), Some(&mut 'c'));
        queue.take_first();
        assert_eq!(queue.get_mut(FrameId(1)), None, "it was taken");
        assert_eq!(queue.get_mut(FrameId(2)), Some(&mut 'b'));
        queue.take_first();
        queue.take_first();
        assert!(queue.is_empty());
        queue.push(FrameId(1), 'd');
        assert_eq!(queue.get_mut(FrameId(1)), Some(&mut 'd'));
        queue.push(FrameId(1), 'e');
        assert_eq!(queue.first(FrameId(1)), None);
        assert_eq!(queue.get_mut(FrameId(1)), Some(&mut 'e'));
    }
}
