//! Parquet files for a fleet of machines: aggregated samples, stacks, frames, names and runs, by day and
//! service.

mod id;
mod partition;
mod rows;
mod table;

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, ensure};

use crate::model::Profile;
use partition::partitions;

/// The most frames of all stacks of a day and service: about 1 GB as rows.
const MAX_STACK_ROWS: u64 = 1 << 25;

/// Writes the samples of a profile as files in the folders of a directory. The same runs replace their
/// files.
///
/// # Errors
///
/// If there are too many stacks, and if a file cannot be written; the message names it.
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
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for partition in partitions {
        let runs = partition.runs(profile).map(|run| profile.runs[run as usize].id);
        let name = id::of_runs(runs);
        for table in rows::tables(profile, &frames, &partition) {
            let folder = directory.join(table.name).join(partition.folder());
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let path = folder.join(format!("{name}.parquet"));
            // Engines that read the directory at this time see the file as a whole or not at all.
            let new = folder.join(format!(".{name}.new"));
            let written = File::create(&new).map_err(anyhow::Error::from);
            let written = written.and_then(|file| Ok(table.write(file)?));
            let renamed = written.and_then(|()| Ok(fs::rename(&new, &path)?));
            if renamed.is_err() {
                // The error of the write is the one that matters.
                let _ = fs::remove_file(&new);
            }
            renamed.with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
