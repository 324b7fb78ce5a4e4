//! The samples of one day and service, which share files. Pure.

use std::collections::{BTreeMap, BTreeSet};

use nprof_cli::date;

use super::service::services;
use crate::model::{Profile, Sample};

/// The longest name of a folder, as of most file systems.
const MAX_NAME: usize = 255;

/// The samples of a day and service.
#[derive(Clone, Debug)]
pub(super) struct Partition<'a> {
    /// The day, such as 2026-11-23, UTC.
    day: String,
    pub(super) service: String,
    pub(super) samples: Vec<&'a Sample>,
    /// Run and event of which all samples were lost, if this is the day of the run.
    pub(super) lost: Vec<(u32, u32)>,
}

impl Partition<'_> {
    fn new(day: i64, service: String) -> Self {
        let ns = u64::try_from(day.saturating_mul(NS_PER_DAY)).unwrap_or(0);
        let mut day = date::utc(ns);
        day.truncate("2026-11-23".len());
        Self { day, service, samples: Vec::new(), lost: Vec::new() }
    }

    /// Returns the runs with samples or losses, in ascending order.
    pub(super) fn runs(&self, profile: &Profile) -> impl Iterator<Item = u32> + use<> {
        let mut runs: BTreeSet<u32> = self.samples.iter().map(|sample| sample.run).collect();
        runs.extend(self.lost.iter().map(|&(run, _)| run));
        debug_assert!(runs.iter().all(|&run| (run as usize) < profile.runs.len()));
        runs.into_iter()
    }

    /// Returns the frames of all stacks, given the depth of each.
    pub(super) fn stack_rows(&self, depths: &[u32]) -> u64 {
        let stacks: BTreeSet<u32> = self.samples.iter().filter_map(|sample| sample.stack).collect();
        stacks.iter().map(|&stack| u64::from(depths[stack as usize])).sum()
    }

    /// Returns the folders of the day and of the service below that of a table, in the spelling of Hive, which
    /// engines read as columns.
    pub(super) fn folders(&self) -> [String; 2] {
        let mut service = format!("service={}", encoded(&self.service));
        // Names are ASCII here. Two services with one folder have different runs, and so different files.
        service.truncate(MAX_NAME);
        [format!("day={}", self.day), service]
    }
}

/// Divides the samples of a profile by day and service.
pub(super) fn partitions(profile: &Profile) -> Vec<Partition<'_>> {
    let services = services(profile);
    let mut partitions: BTreeMap<(i64, &str), Partition<'_>> = BTreeMap::new();
    let key = |time: i64, run: u32| {
        // Times before 1970, as of damage, are of its first day.
        (time.div_euclid(NS_PER_DAY).max(0), services[run as usize].as_str())
    };
    let new = |(day, service): (i64, &str)| Partition::new(day, service.to_owned());
    let mut seen = BTreeSet::new();
    for sample in &profile.samples {
        let key = key(sample.time, sample.run);
        partitions.entry(key).or_insert_with(|| new(key)).samples.push(sample);
        seen.insert((sample.run, sample.event));
    }
    for (run, number) in profile.runs.iter().zip(0..) {
        for &event in run.lost.keys().filter(|&&event| !seen.contains(&(number, event))) {
            // With its samples of other events, if it has any.
            let time = if run.start == i64::MAX { run.first_loss } else { Some(run.start) };
            let key = key(time.unwrap_or(0), number);
            partitions.entry(key).or_insert_with(|| new(key)).lost.push((number, event));
        }
    }
    partitions.into_values().collect()
}

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// Returns a text as a part of a path: other characters than letters, digits, `-`, `_` and inner dots as
/// `%` and two hexadecimal digits, which engines decode.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(byte)),
            b'.' if index > 0 => out.push('.'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_services_stay_in_their_folder() {
        let folder = |service: &str| Partition::new(20_780, service.to_owned()).folders().join("/");
        assert_eq!(folder("api-2.0"), "day=2026-11-23/service=api-2.0");
        assert_eq!(folder("../x"), "day=2026-11-23/service=%2E.%2Fx");
        assert_eq!(folder("ü=\\n"), "day=2026-11-23/service=%C3%BC%3D%5Cn");
        assert!(folder(&"/".repeat(1000)).len() < 300);
    }
}
