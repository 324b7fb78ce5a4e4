//! The samples of one day and service, which share files. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nprof_cli::date;

use crate::model::{Profile, Run, Sample};

/// The longest name of a folder, as of most file systems.
const MAX_NAME: usize = 255;

/// The samples of a day and service.
#[derive(Clone, Debug)]
pub(super) struct Partition<'a> {
    /// The day, such as 2026-11-23, UTC.
    day: String,
    service: String,
    pub(super) samples: Vec<&'a Sample>,
}

impl Partition<'_> {
    /// Returns the runs with samples, in ascending order.
    pub(super) fn runs(&self, profile: &Profile) -> impl Iterator<Item = u32> + use<> {
        let runs: BTreeSet<u32> = self.samples.iter().map(|sample| sample.run).collect();
        debug_assert!(runs.iter().all(|&run| (run as usize) < profile.runs.len()));
        runs.into_iter()
    }

    /// Returns the frames of all stacks, given the depth of each.
    pub(super) fn stack_rows(&self, depths: &[u32]) -> u64 {
        let stacks: BTreeSet<u32> = self.samples.iter().filter_map(|sample| sample.stack).collect();
        stacks.iter().map(|&stack| u64::from(depths[stack as usize])).sum()
    }

    /// Returns the folders below that of a table, in the spelling of Hive, which engines read as columns.
    pub(super) fn folder(&self) -> PathBuf {
        let mut service = format!("service={}", encoded(&self.service));
        // Names are ASCII here. Two services with one folder have different runs, and so different files.
        service.truncate(MAX_NAME);
        PathBuf::from(format!("day={}", self.day)).join(service)
    }
}

/// Divides the samples of a profile by day and service.
pub(super) fn partitions(profile: &Profile) -> Vec<Partition<'_>> {
    let mut partitions: BTreeMap<(i64, String), Vec<&Sample>> = BTreeMap::new();
    let services: Vec<String> = profile.runs.iter().map(|run| service(profile, run)).collect();
    for sample in &profile.samples {
        // Times before 1970, as of damage, are of its first day.
        let day = sample.time.div_euclid(NS_PER_DAY).max(0);
        let service = services.get(sample.run as usize).cloned().unwrap_or_default();
        partitions.entry((day, service)).or_default().push(sample);
    }
    let partition = |((day, service), samples): ((i64, String), _)| {
        let ns = u64::try_from(day.saturating_mul(NS_PER_DAY)).unwrap_or(0);
        let mut day = date::utc(ns);
        day.truncate("2026-11-23".len());
        Partition { day, service, samples }
    };
    partitions.into_iter().map(partition).collect()
}

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// Returns the service of a run: the one that was recorded, else the name of its program.
pub(super) fn service(profile: &Profile, run: &Run) -> String {
    if !run.service.is_empty() {
        return run.service.clone();
    }
    let program = match profile.images.first() {
        Some(image) if run.command.starts_with("pid ") => &image.name,
        _ => run.command.split(' ').next().unwrap_or_default(),
    };
    let name = program.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}

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
        let folder = |service: &str| {
            let (day, samples) = ("2026-11-23".to_owned(), Vec::new());
            let partition = Partition { day, service: service.to_owned(), samples };
            partition.folder().to_str().map(str::to_owned)
        };
        assert_eq!(folder("api-2.0").as_deref(), Some("day=2026-11-23/service=api-2.0"));
        assert_eq!(folder("../x").as_deref(), Some("day=2026-11-23/service=%2E.%2Fx"));
        assert_eq!(folder("ü=\\n").as_deref(), Some("day=2026-11-23/service=%C3%BC%3D%5Cn"));
        assert!(folder(&"/".repeat(1000)).is_some_and(|folder| folder.len() < 300));
    }
}
