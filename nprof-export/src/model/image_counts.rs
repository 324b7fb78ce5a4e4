//! Counts the observations with an image on their stack, in time that is linear in the stacks: those of a
//! recursion share most of their frames. Pure.

use std::collections::BTreeMap;

use super::Profile;

/// No stack.
const NONE: u32 = u32::MAX;

impl Profile {
    /// Returns, for each stack, true if no caller of its leaf is in the image of its leaf.
    pub(crate) fn first_of_images(&self) -> Vec<bool> {
        // The tree of stacks, as lists of siblings.
        let mut first_child = vec![NONE; self.stacks.len()];
        let mut next_sibling = vec![NONE; self.stacks.len()];
        let mut first_root = NONE;
        for (index, stack) in self.stacks.iter().enumerate().rev() {
            let first = match stack.parent {
                Some(parent) => &mut first_child[parent as usize],
                None => &mut first_root,
            };
            next_sibling[index] = std::mem::replace(first, index as u32);
        }
        let image_of = |stack: u32| {
            let frame = &self.frames[self.stacks[stack as usize].frame as usize];
            frame.image.map(|image| image as usize)
        };
        // The frames of each image on the way from the root.
        let mut above = vec![0_u32; self.images.len()];
        let mut is_first = vec![false; self.stacks.len()];
        let mut next = first_root;
        let mut path = Vec::new();
        loop {
            if next != NONE {
                if let Some(image) = image_of(next) {
                    is_first[next as usize] = above[image] == 0;
                    above[image] += 1;
                }
                path.push(next);
                next = first_child[next as usize];
                continue;
            }
            let Some(done) = path.pop() else { return is_first };
            if let Some(image) = image_of(done) {
                above[image] -= 1;
            }
            next = next_sibling[done as usize];
        }
    }

    /// Returns the sums of the counts of stacks with an image, by image. `is_first` is the result of
    /// [`Self::first_of_images`].
    pub(crate) fn image_counts(
        &self,
        is_first: &[bool],
        mut counts: BTreeMap<u32, u64>,
    ) -> BTreeMap<u32, u64> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        // A parent has a lower index: it comes after all its children.
        while let Some((stack, count)) = counts.pop_last() {
            let above = self.stacks[stack as usize];
            let image = self.frames[above.frame as usize].image;
            if let Some(image) = image.filter(|_| is_first[stack as usize]) {
                let sum = sums.entry(image).or_default();
                *sum = sum.saturating_add(count);
            }
            if let Some(parent) = above.parent {
                let of_parent = counts.entry(parent).or_default();
                *of_parent = of_parent.saturating_add(count);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, Image, Stack};
    use super::*;

    /// Returns a profile with a stack for each pair of a parent and an image.
    fn profile(stacks: &[(Option<u32>, u32)]) -> Profile {
        let mut profile = Profile { images: vec![Image::default(); 3], ..Profile::default() };
        for (frame, &(parent, image)) in (0..).zip(stacks) {
            profile.frames.push(Frame::of_image(image));
            profile.stacks.push(Stack { parent, frame });
        }
        profile
    }

    #[test]
    fn stack_counts_once_for_each_of_its_images() {
        // 0 - 1 - 0 - 2, and 0 - 2 - 2.
        let stacks =
            [(None, 0), (Some(0), 1), (Some(1), 0), (Some(2), 2), (Some(0), 2), (Some(4), 2)];
        let profile = profile(&stacks);
        let is_first = profile.first_of_images();
        assert_eq!(is_first, [true, true, false, true, true, false]);
        let counts = BTreeMap::from([(2, 1), (3, 10), (5, 100)]);
        let sums = profile.image_counts(&is_first, counts);
        assert_eq!(sums, BTreeMap::from([(0, 111), (1, 11), (2, 110)]));
    }

    #[test]
    fn deep_recursion_needs_no_deep_call_stack() {
        let stacks: Vec<_> = (0..200_000_u32).map(|at| (at.checked_sub(1), at % 3)).collect();
        let profile = profile(&stacks);
        let is_first = profile.first_of_images();
        let counts: BTreeMap<u32, u64> = (0..200_000).map(|at| (at, 1)).collect();
        let sums = profile.image_counts(&is_first, counts);
        assert_eq!(sums, BTreeMap::from([(0, 200_000), (1, 199_999), (2, 199_998)]));
    }
}
