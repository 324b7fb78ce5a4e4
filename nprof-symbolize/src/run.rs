//! One run: from the command line to the outcome.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use nprof_format::stage::{self, Input, Outcome};
use nprof_format::{Reader, Spelling, Step, Verdict, Writer, shell};

use crate::args::Args;
use crate::catalog::Catalog;
use crate::filter::Filter;
use crate::images::Finder;
use crate::resolve::Detail;
use crate::summary;

/// The program's name.
pub(crate) const TOOL: &str = "nprof-symbolize";

/// Does what the command line says.
///
/// # Errors
///
/// When the input cannot be read or the output not be written.
pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let input = stage::open(args.input.as_deref())?;
    stage::refuse_same_file([args.input.as_deref()], args.output.as_deref())?;
    let output = stage::output(args.output.as_deref())?;
    let is_text = args.text || output.is_terminal();
    let spelling = if is_text { Spelling::Text } else { Spelling::Binary };
    let detail = Detail { inlines: !args.no_inlines, lines: !args.no_lines };
    let catalog = Catalog::new(Finder { debug_dirs: args.debug_dir, symfs: args.symfs, detail });
    let step = Step {
        tool: TOOL.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: shell::quoted(std::env::args_os()),
        ..Step::default()
    };
    let mut filter = Filter::new(Writer::new(output, spelling), catalog, step);
    let name = input.name().to_owned();
    let mut reader = Reader::new(input);
    let copied = copy(&mut reader, &mut filter).with_context(|| name.clone());
    // What came before an error is good, and wanted.
    let mut catalog = filter.finish().context("cannot write")?;
    copied?;
    for wanted in &args.explain {
        explain(&mut catalog, wanted);
    }
    if args.verbose {
        tell(&summary::summary(catalog.slots()));
    }
    Ok(judge(&reader, &name, args.partial_ok))
}

/// Copies the stream; hands on what there is before it waits for more.
fn copy<W: Write>(reader: &mut Reader<Input>, filter: &mut Filter<W>) -> anyhow::Result<()> {
    while let Some(record) = reader.next()? {
        filter.take(&record).context("cannot write")?;
        drop(record);
        if reader.drained() {
            filter.flush().context("cannot write")?;
        }
    }
    Ok(())
}

fn explain(catalog: &mut Catalog, wanted: &OsStr) {
    let is_meant = |slot| summary::is_meant(slot, wanted.as_bytes());
    let meant = catalog.slots().iter().enumerate().filter(|(_, slot)| is_meant(slot));
    let meant: Vec<_> = meant.map(|(index, _)| index).collect();
    if meant.is_empty() {
        tell(&format!("{}: no such image in the input\n", wanted.display()));
    }
    for index in meant {
        catalog.open(index);
        tell(&summary::explanation(&catalog.slots()[index]));
    }
}

/// Prints lines on standard error.
fn tell(lines: &str) {
    for line in lines.lines() {
        stage::warn(TOOL, line);
    }
}

/// Says whether all of the input was there.
fn judge(reader: &Reader<Input>, name: &str, partial_ok: bool) -> Outcome {
    let verdict = reader.verdict();
    if verdict == Verdict::Complete {
        return Outcome::Done;
    }
    let first = reader.damages().first();
    let place = first.map(|damage| format!(": byte {}: {}", damage.offset, damage.what));
    stage::warn(TOOL, &format!("{name}: the input is {verdict}{}", place.unwrap_or_default()));
    if partial_ok { Outcome::Done } else { Outcome::Incomplete }
}
