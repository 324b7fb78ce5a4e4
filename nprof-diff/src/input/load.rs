//! The streams of both sides, read and found fit to be compared.

use std::path::PathBuf;

use anyhow::{Context, Result};
use nprof_format::stage;

use crate::args::Args;
use crate::input::event::{self, Chosen};
use crate::input::key::{By, Keys};
use crate::input::preconditions;
use crate::input::rename::Renames;
use crate::input::run_counts::{Recording, Side};

/// What was read.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// The base.
    pub(crate) base: Side,
    /// The new side; without streams where the base is compared with itself.
    pub(crate) new: Side,
    /// The names of the keys of both.
    pub(crate) keys: Keys,
    /// The event to compare by; none when there are no samples.
    pub(crate) event: Option<Chosen>,
    /// What is to be told of the options.
    pub(crate) warnings: Vec<String>,
}

/// Reads all streams.
///
/// # Errors
///
/// Says which stream cannot be read, or not be compared, and why.
pub(crate) fn read(args: &Args) -> Result<Inputs> {
    let [base, new] = args.sides()?;
    let inputs = base.iter().chain(new).chain(&args.rename).map(|path| Some(path.as_path()));
    stage::refuse_same_file(inputs, args.output.as_deref())?;
    let mut renames = renames(args)?;
    let mut keys = Keys::default();
    let by = args.by()?;
    let base = side("base", base, by, &mut keys, &mut renames)?;
    let new = side("new", new, by, &mut keys, &mut Renames::default())?;
    preconditions::refuse(&base, &new, by, args.partial_ok)?;
    let event = event::choose(&base, &new, args.event.as_deref())?;
    if let (Some(event), Some(asked)) = (&event, args.asked_in_time()) {
        preconditions::refuse_time(&base, &new, event, &asked)?;
    }
    if !args.fail_on.is_empty() {
        preconditions::refuse_shared(&base, &new)?;
    }
    Ok(Inputs { base, new, keys, event, warnings: unused(args, &renames) })
}

/// Lines of `--rename` that are about nothing.
fn unused(args: &Args, renames: &Renames) -> Vec<String> {
    let Some(path) = &args.rename else { return Vec::new() };
    let told = |(line, old): (usize, String)| {
        format!("{}: line {line}: nothing on base is called {old}", path.display())
    };
    renames.unused().into_iter().map(told).collect()
}

/// What `--rename` says.
fn renames(args: &Args) -> Result<Renames> {
    let Some(path) = &args.rename else { return Ok(Renames::default()) };
    let name = || format!("--rename {}", path.display());
    let text = std::fs::read(path).with_context(name)?;
    Renames::parse(&text).with_context(name)
}

fn side(
    name: &'static str,
    paths: &[PathBuf],
    by: By,
    keys: &mut Keys,
    renames: &mut Renames,
) -> Result<Side> {
    let mut recordings = Vec::new();
    for path in paths {
        let input = stage::open(Some(path))?;
        let input_name = input.name().to_owned();
        let recording = Recording::read(&input_name, input, by, keys, renames);
        recordings.push(recording.with_context(|| format!("{name}: {input_name}"))?);
    }
    Ok(Side { name, recordings })
}
