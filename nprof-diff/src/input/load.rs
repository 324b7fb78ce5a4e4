//! The streams of both sides, read and found fit to be compared.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nprof_cli::stage;

use crate::input::event::{self, ComparedEvent};
use crate::input::key::{By, KeyTable};
use crate::input::preconditions;
use crate::input::rename::Renames;
use crate::input::run_counts::StreamCounts;
use crate::input::side::Side;

/// What was read.
#[derive(Debug)]
pub(crate) struct InputSides {
    /// The base.
    pub(crate) base: Side,
    /// The new side; without streams where the base is compared with itself.
    pub(crate) new: Side,
    /// The names of the keys of both.
    pub(crate) keys: KeyTable,
    /// The event to compare by; none when there are no samples.
    pub(crate) event: Option<ComparedEvent>,
    /// What is to be told of the options.
    pub(crate) warnings: Vec<String>,
}

/// The streams to read, and how to count them.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    /// The streams of the base.
    pub(crate) base: &'a [PathBuf],
    /// The streams of the new side.
    pub(crate) new: &'a [PathBuf],
    /// The file of names that differ on the new side.
    pub(crate) renames: Option<&'a Path>,
    /// What a row is.
    pub(crate) by: By,
    /// The name of the event to compare by.
    pub(crate) event: Option<&'a str>,
    /// True if truncated and damaged streams are accepted.
    pub(crate) partial_ok: bool,
}

/// Reads all streams.
///
/// # Errors
///
/// Says which stream cannot be read, or not be compared, and why.
pub(crate) fn load(sources: &Sources<'_>) -> Result<InputSides> {
    let mut renames = renames(sources.renames)?;
    let mut keys = KeyTable::default();
    let by = sources.by;
    let base = side("base", sources.base, by, &mut keys, &mut renames)?;
    let new = side("new", sources.new, by, &mut keys, &mut Renames::default())?;
    preconditions::refuse(&base, &new, by, sources.partial_ok)?;
    let event = event::choose(&base, &new, sources.event)?;
    Ok(InputSides { base, new, keys, event, warnings: unused(sources.renames, &renames) })
}

/// Lines of `--rename` that are about nothing.
fn unused(path: Option<&Path>, renames: &Renames) -> Vec<String> {
    let Some(path) = path else { return Vec::new() };
    let told = |(line, old): (usize, String)| {
        format!("{}: line {line}: nothing on base is called {old}", path.display())
    };
    renames.unused().into_iter().map(told).collect()
}

/// What `--rename` says.
fn renames(path: Option<&Path>) -> Result<Renames> {
    let Some(path) = path else { return Ok(Renames::default()) };
    let name = || format!("--rename {}", path.display());
    let text = std::fs::read(path).with_context(name)?;
    Renames::parse(&text).with_context(name)
}

fn side(
    name: &'static str,
    paths: &[PathBuf],
    by: By,
    keys: &mut KeyTable,
    renames: &mut Renames,
) -> Result<Side> {
    let mut recordings = Vec::new();
    for path in paths {
        let input = stage::open(Some(path))?;
        let input_name = input.name().to_owned();
        let recording = StreamCounts::read(&input_name, input, by, keys, renames);
        recordings.push(recording.with_context(|| format!("{name}: {input_name}"))?);
    }
    Ok(Side { name, recordings })
}
