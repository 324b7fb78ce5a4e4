//! Parquet files for a fleet of machines: aggregated samples, stacks, frames, names and runs, by day and
//! service.

mod directory;
mod id;
mod partition;
mod rows;
mod service;
mod table;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::ensure;

use crate::model::Profile;
use directory::Directory;
use partition::{Partition, partitions};

/// The most frames of all stacks of a day and service: about 1 GB as rows.
const MAX_STACK_ROWS: u64 = 1 << 25;

/// Writes the samples of a profile as files in the folders of a directory. The same runs replace their
/// files.
///
/// # Errors
///
/// If there are too many stacks, if a file has some of the runs and others, and if a file cannot be
/// written; the message names it.
pub(crate) fn write(profile: &Profile, directory: &Path) -> anyhow::Result<()> {
    let frames: Vec<i64> =
        profile.frames.iter().map(|frame| id::of_frame(profile, frame)).collect();
    let partitions = partitions(profile);
    let depths = profile.depths();
    for partition in &partitions {
        // Samples at each depth of a recursion have few nodes in a stream, and many rows.
        ensure!(
            partition.stack_rows(&depths) <= MAX_STACK_ROWS,
            "more than {MAX_STACK_ROWS} rows of stacks; export shorter recordings"
        );
    }
    let directory = Directory::create(directory)?;
    let ids_of = |partition: &Partition<'_>| -> BTreeSet<u64> {
        partition.runs(profile).map(|run| profile.runs[run as usize].id).collect()
    };
    let exported = partitions.iter().flat_map(ids_of).collect();
    let mut places = Vec::new();
    // Before anything is written.
    for partition in &partitions {
        places.push(directory.place(partition.folders(), &ids_of(partition), &exported)?);
    }
    for (partition, place) in partitions.iter().zip(&places) {
        for table in rows::tables(profile, &frames, partition) {
            place.write(&table)?;
        }
    }
    Ok(())
}
