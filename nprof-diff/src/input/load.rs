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
use crate::input::run_counts::{RowKeys, RunCounts, StreamCounts};
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
    /// The kinds of rows, each of which gets its own counts.
    pub(crate) row_kinds: &'a [RowKind],
    /// The name of the event to compare by.
    pub(crate) event: Option<&'a str>,
    /// The name of the event to divide by.
    pub(crate) per: Option<&'a str>,
    /// The events that are added into others.
    pub(crate) joins: Joins,
    /// True if truncated and damaged streams are accepted.
    pub(crate) partial_ok: bool,
}

/// Both sides in memory, with the counts of one kind of rows.
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

/// The streams of both sides, with the counts of one kind of rows.
struct Loading {
    row_kind: RowKind,
    keys: KeyTable,
    /// The names that differ on the side that is read.
    renames: Renames,
    base: Vec<StreamCounts>,
    new: Vec<StreamCounts>,
}

/// Reads all streams. Returns both sides for each kind of rows.
///
/// # Errors
///
/// Names the stream that cannot be read or compared, and the reason.
pub(crate) fn load(sources: &Sources<'_>) -> Result<Vec<InputSides>> {
    let renames = match sources.renames {
        Some(path) => read_renames(path).with_context(|| format!("--rename {}", path.display()))?,
        None => Renames::default(),
    };
    let mut kinds: Vec<Loading> =
        sources.row_kinds.iter().map(|&kind| Loading::new(kind, renames.clone())).collect();
    for path in sources.base {
        let streams = read("base", path, sources, &mut kinds)?;
        for (kind, stream) in kinds.iter_mut().zip(streams) {
            kind.base.push(stream);
            kind.fold();
        }
    }
    // Names of the base are replaced by those of the new side, which stay as they are.
    let renames: Vec<Renames> =
        kinds.iter_mut().map(|kind| std::mem::take(&mut kind.renames)).collect();
    for path in sources.new {
        let streams = read("new", path, sources, &mut kinds)?;
        for (kind, stream) in kinds.iter_mut().zip(streams) {
            kind.new.push(stream);
            kind.fold();
        }
    }
    kinds.into_iter().zip(&renames).map(|(kind, renames)| kind.finish(sources, renames)).collect()
}

impl Loading {
    fn new(row_kind: RowKind, renames: Renames) -> Self {
        let (base, new) = (Vec::new(), Vec::new());
        Self { row_kind, keys: KeyTable::default(), renames, base, new }
    }

    fn fold(&mut self) {
        let mut runs = runs_of(&mut self.base, &mut self.new);
        fold::fold(&mut self.keys, &mut runs, Budget::default());
    }

    /// Checks that the sides can be compared, and chooses the event.
    fn finish(mut self, sources: &Sources<'_>, renames: &Renames) -> Result<InputSides> {
        let mut runs = runs_of(&mut self.base, &mut self.new);
        fold::fold_doubtful(&mut self.keys, &mut runs, Budget::default());
        let folded = fold::warning(&self.keys, &runs);
        let Self { row_kind, mut keys, .. } = self;
        let mut base = Side { name: "base", streams: self.base };
        let new = Side { name: "new", streams: self.new };
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
        let mut warnings = unused_renames(sources.renames, renames);
        warnings.extend(folded);
        Ok(InputSides { base, new, keys, event, per, moved_directories, warnings })
    }
}

/// Reads a stream of a side once, and counts its samples by each kind of rows: a pipe has no second reading.
fn read(
    side: &str,
    path: &Path,
    sources: &Sources<'_>,
    kinds: &mut [Loading],
) -> Result<Vec<StreamCounts>> {
    let input = stage::open(Some(path))?;
    let name = input.name().to_owned();
    let rows = kinds.iter_mut().map(|kind| RowKeys {
        row_kind: kind.row_kind,
        keys: &mut kind.keys,
        renames: &mut kind.renames,
    });
    let streams =
        StreamCounts::read(Budget::default(), &name, input, sources.joins.clone(), rows.collect())
            .with_context(|| format!("{side}: {name}"))?;
    // Each run needs all parts: a sum without one of them is another quantity.
    let summary = streams.first().map(|stream| &stream.summary);
    if let Some(Err(message)) = summary.map(|summary| sources.joins.check(summary)) {
        bail!("{side}: {name}: {message}");
    }
    Ok(streams)
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

/// Returns the counts of all runs of all events.
fn runs_of<'a>(
    base: &'a mut [StreamCounts],
    new: &'a mut [StreamCounts],
) -> Vec<&'a mut RunCounts> {
    base.iter_mut().chain(new).flat_map(|stream| stream.counts.values_mut()).collect()
}
