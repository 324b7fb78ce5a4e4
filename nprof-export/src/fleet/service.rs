//! The services of runs. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::model::{Profile, Run};

/// Returns the service of each run: the one that was recorded, else the name of its program.
pub(super) fn services(profile: &Profile) -> Vec<String> {
    let programs = attached_programs(profile);
    let run = |(number, run): (usize, &Run)| {
        if !run.service.is_empty() {
            return run.service.clone();
        }
        let program = match programs.get(&(number as u32)) {
            Some(&image) => &profile.images[image as usize].name,
            None if run.command.starts_with("pid ") => "",
            None => run.command.split(' ').next().unwrap_or_default(),
        };
        let name = program.rsplit('/').next().unwrap_or_default();
        if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
    };
    profile.runs.iter().enumerate().map(run).collect()
}

/// Returns the program with the most samples of each run that has the id of a process as its command.
fn attached_programs(profile: &Profile) -> BTreeMap<u32, u32> {
    let mut stacks: FxHashMap<(u32, u32), u64> = FxHashMap::default();
    for sample in &profile.samples {
        let is_attached = profile.runs[sample.run as usize].command.starts_with("pid ");
        if let Some(stack) = sample.stack.filter(|_| is_attached) {
            let count = stacks.entry((sample.run, stack)).or_default();
            *count = count.saturating_add(sample.count);
        }
    }
    let mut counts: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for ((run, stack), count) in stacks {
        let frames = profile.frames_of(Some(stack));
        let mut images: Vec<u32> = frames.filter_map(|frame| frame.image).collect();
        images.sort_unstable();
        images.dedup();
        for image in images {
            let sum = counts.entry((run, image)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let mut best = BTreeMap::new();
    for ((run, image), count) in counts {
        let key = (profile.images[image as usize].is_program(), count, Reverse(image));
        let most = best.entry(run).or_insert(key);
        *most = (*most).max(key);
    }
    best.into_iter().map(|(run, (_, _, Reverse(image)))| (run, image)).collect()
}
