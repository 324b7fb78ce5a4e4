//! Frames that wait for the next record that is no annotation: what the input says of a frame
//! stands behind it, behind others of its stack as well. Pure.

use std::collections::VecDeque;

use nprof_stream::FrameId;
use rustc_hash::FxHashMap;

/// Frames in the order of the stream, and something for each.
#[derive(Debug)]
pub(crate) struct FrameQueue<T> {
    frames: VecDeque<(FrameId, T)>,
    /// How many before these were taken.
    taken: usize,
    /// Which one is expected to be asked for: they come in their order.
    next: usize,
    /// Where the last one with an id is, counted with those taken. Empty as long as ids ascend, so
    /// that each is there once, and frames are asked for in their order.
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

    /// Adds a frame behind the others.
    pub(crate) fn push(&mut self, frame: FrameId, what: T) {
        let ascends = self.frames.back().is_none_or(|&(last, _)| last < frame);
        if !ascends {
            self.index();
        }
        if !self.by_id.is_empty() {
            self.by_id.insert(frame, self.taken + self.frames.len());
        }
        self.frames.push_back((frame, what));
    }

    /// What there is for the first one, if that is the last with this id.
    pub(crate) fn first(&self, frame: FrameId) -> Option<&T> {
        let is_last = self.by_id.get(&frame).is_none_or(|&at| at == self.taken);
        self.frames.front().filter(|(id, _)| *id == frame && is_last).map(|(_, what)| what)
    }

    /// The first one waits no more.
    pub(crate) fn take_first(&mut self) {
        self.frames.pop_front();
        self.next = self.next.saturating_sub(1);
        self.taken += 1;
        if self.frames.is_empty() {
            self.begin_anew();
        }
    }

    /// What there is for the last frame with an id.
    pub(crate) fn get_mut(&mut self, frame: FrameId) -> Option<&mut T> {
        let is_next = self.frames.get(self.next).is_some_and(|(id, _)| *id == frame);
        if !is_next || !self.by_id.is_empty() {
            self.index();
            self.next = self.by_id.get(&frame)?.checked_sub(self.taken)?;
        }
        self.next += 1;
        self.frames.get_mut(self.next - 1).map(|(_, what)| what)
    }

    fn index(&mut self) {
        if self.by_id.is_empty() {
            let ids = self.frames.iter().map(|(id, _)| *id);
            self.by_id = ids.zip(self.taken..).collect();
        }
    }

    /// What there is for all of them.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.frames.iter_mut().map(|(_, what)| what)
    }

    /// Nothing waits any more.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (FrameId, T)> {
        self.begin_anew();
        self.frames.drain(..)
    }

    fn begin_anew(&mut self) {
        (self.taken, self.next) = (0, 0);
        if !self.by_id.is_empty() {
            self.by_id = FxHashMap::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(frames: &[(u32, char)]) -> FrameQueue<char> {
        let mut waiting = FrameQueue::default();
        frames.iter().for_each(|&(id, what)| waiting.push(FrameId(id), what));
        waiting
    }

    #[test]
    fn frames_are_found_in_any_order() {
        let mut waiting = waiting(&[(1, 'a'), (2, 'b'), (3, 'c'), (2, 'd')]);
        let mut ask = |id| waiting.get_mut(FrameId(id)).copied();
        assert_eq!((ask(1), ask(2), ask(3)), (Some('a'), Some('d'), Some('c')), "the last one");
        assert_eq!((ask(1), ask(3), ask(9)), (Some('a'), Some('c'), None));
        waiting.push(FrameId(9), 'e');
        assert_eq!(waiting.get_mut(FrameId(9)), Some(&mut 'e'));
        waiting.all_mut().for_each(char::make_ascii_uppercase);
        assert!(waiting.drain().map(|(_, what)| what).eq("ABCDE".chars()));
        assert!(waiting.is_empty() && waiting.get_mut(FrameId(1)).is_none());
    }

    #[test]
    fn the_first_ones_are_taken() {
        let mut waiting = waiting(&[(1, 'a'), (2, 'b'), (3, 'c')]);
        assert_eq!((waiting.first(FrameId(2)), waiting.first(FrameId(1))), (None, Some(&'a')));
        assert_eq!(waiting.get_mut(FrameId(3)), Some(&mut 'c'));
        waiting.take_first();
        assert_eq!(waiting.get_mut(FrameId(1)), None, "it waits no more");
        assert_eq!(waiting.get_mut(FrameId(2)), Some(&mut 'b'));
        waiting.take_first();
        waiting.take_first();
        assert!(waiting.is_empty());
        waiting.push(FrameId(1), 'd');
        assert_eq!(waiting.get_mut(FrameId(1)), Some(&mut 'd'));
        waiting.push(FrameId(1), 'e');
        assert_eq!(waiting.first(FrameId(1)), None);
        assert_eq!(waiting.get_mut(FrameId(1)), Some(&mut 'e'));
    }
}
