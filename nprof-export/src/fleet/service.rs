//! The services of runs. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

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
    let mut stacks: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for sample in &profile.samples {
        let is_attached = profile.runs[sample.run as usize].command.starts_with("pid ");
        if let Some(stack) = sample.stack.filter(|_| is_attached) {
            let count = stacks.entry(sample.run).or_default().entry(stack).or_default();
            *count = count.saturating_add(sample.count);
        }
    }
    let is_first = if stacks.is_empty() { Vec::new() } else { profile.first_of_images() };
    let program = |(run, counts)| {
        let counts = profile.image_counts(&is_first, counts);
        let key = |&(image, count): &(u32, u64)| {
            (profile.images[image as usize].is_program(), count, Reverse(image))
        };
        counts.into_iter().max_by_key(key).map(|(image, _)| (run, image))
    };
    stacks.into_iter().filter_map(program).collect()
}
