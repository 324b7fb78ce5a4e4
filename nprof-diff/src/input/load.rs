//! Reads the streams of both sides and checks that they can be compared.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nprof_cli::stage;
use nprof_report::join::Joins;

use crate::input::event::{self, ComparedEvent};
use crate::input::fold::{self, Budget};
use crate::input::key::KeyTable;
use crate::input::moved_files::{MovedDirectory, join_moved_files};
use crate::input::preconditions;
use crate::input::rename::Renames;
use crate::input::row_kind::RowKind;
use crate::input::run_counts::{RunCounts, StreamCounts};
use crate::input::side::Side;

/// The streams to read, and how to count their samples.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    /// The streams of the base.
    pub(crate) base: &'a [PathBuf],
    /// The streams of the new side.
    pub(crate) new: &'a [PathBuf],
    /// The file of names that differ on the new side.
    pub(crate) renames: Option<&'a Path>,
    /// The kind of the rows.
    pub(crate) row_kind: RowKind,
    /// The name of the event to compare by.
    pub(crate) event: Option<&'a str>,
    /// The name of the event to divide by.
    pub(crate) per: Option<&'a str>,
    /// The events that are added into others.
    pub(crate) joins: Joins,
    /// True if truncated and damaged streams are accepted.
    pub(crate) partial_ok: bool,
}

/// Both sides in memory.
#[derive(Debug)]
pub(crate) struct InputSides {
    /// The base.
    pub(crate) base: Side,
    /// The new side; without streams if runs of the base are compared with each other.
    pub(crate) new: Side,
    /// The keys of both sides.
    pub(crate) keys: KeyTable,
    /// The event to compare by. None without samples.
    pub(crate) event: Option<ComparedEvent>,
    /// The event to divide by. None unless one was requested.
    pub(crate) per: Option<ComparedEvent>,
    /// Directories of source files that have another path on the new side; their rows are joined.
    pub(crate) moved_directories: Vec<MovedDirectory>,
    /// Warnings about the options.
    pub(crate) warnings: Vec<String>,
}

/// Reads all streams.
///
/// # Errors
///
/// Names the stream that cannot be read or compared, and the reason.
pub(crate) fn load(sources: &Sources<'_>) -> Result<InputSides> {
    let mut renames = match sources.renames {
        Some(path) => read_renames(path).with_context(|| format!("--rename {}", path.display()))?,
        None => Renames::default(),
    };
    let mut keys = KeyTable::default();
    let row_kind = sources.row_kind;
    let mut base = load_side("base", sources.base, sources, &mut keys, &mut renames, &mut [])?;
    // Names of the base are replaced by those of the new side, which stay as they are.
    let renamed = &mut Renames::default();
    let earlier = &mut base.streams[..];
    let mut new = load_side("new", sources.new, sources, &mut keys, renamed, earlier)?;
    let mut runs = runs_of(&mut base.streams, &mut new.streams);
    fold::fold_doubtful(&mut keys, &mut runs, Budget::default());
    let folded = fold::warning(&keys, &runs);
    preconditions::refuse(&base, &new, row_kind, sources.partial_ok)?;
    let per = match sources.per {
        Some(name) => event::choose(&base, &new, Some(name), None).context("--per")?,
        None => None,
    };
    let event = event::choose(&base, &new, sources.event, sources.per)?;
    for event in [&event, &per] {
        preconditions::refuse_estimates(&base, &new, event.as_ref())?;
    }
    let moved_directories = join_moved_files(&mut base, &new, &mut keys, row_kind);
    let mut warnings = unused_renames(sources.renames, &renames);
    warnings.extend(folded);
    Ok(InputSides { base, new, keys, event, per, moved_directories, warnings })
}

fn read_renames(path: &Path) -> Result<Renames> {
    Renames::parse(&std::fs::read(path)?)
}

/// Returns a warning for each line of `--rename` that matches no key of the base.
fn unused_renames(path: Option<&Path>, renames: &Renames) -> Vec<String> {
    let Some(path) = path else { return Vec::new() };
    let unused = renames.unused().into_iter();
    unused
        .map(|(line, old)| format!("{}: line {line}: base has no {old}", path.display()))
        .collect()
}

fn load_side(
    name: &'static str,
    paths: &[PathBuf],
    sources: &Sources<'_>,
    keys: &mut KeyTable,
    renames: &mut Renames,
    earlier: &mut [StreamCounts],
) -> Result<Side> {
    let mut streams: Vec<StreamCounts> = Vec::new();
    for path in paths {
        let input = stage::open(Some(path))?;
        let input_name = input.name().to_owned();
        let joins = sources.joins.clone();
        let stream = StreamCounts::read(&input_name, input, sources.row_kind, joins, keys, renames)
            .with_context(|| format!("{name}: {input_name}"))?;
        // Each run needs all parts: a sum without one of them is another quantity.
        if let Err(message) = sources.joins.check(&stream.summary) {
            bail!("{name}: {input_name}: {message}");
        }
        streams.push(stream);
        fold::fold(keys, &mut runs_of(earlier, &mut streams), Budget::default());
    }
    Ok(Side { name, streams })
}

/// Returns the counts of all runs of all events.
fn runs_of<'a>(
    earlier: &'a mut [StreamCounts],
    streams: &'a mut [StreamCounts],
) -> Vec<&'a mut RunCounts> {
    let streams = earlier.iter_mut().chain(streams);
    streams.flat_map(|stream| stream.counts.values_mut()).collect()
}
