//! One run: from the command line to the outcome.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use nprof_cli::shell;
use nprof_cli::stage::{self, Input, Outcome, Ready};
use nprof_stream::{Reader, Record, Spelling, Step, Verdict, Writer};

use crate::cli::args::Args;
use crate::dwarf::detail::Detail;
use crate::find::{Debuginfod, Finder, RecordedImage, SearchPaths, Settings};
use crate::lookup::background::BackgroundLookup;
use crate::lookup::image_cache::ImageCache;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::parallel::{LookupThreads, STACK};
use crate::stats::image_stats::ImageStats;
use crate::stats::summary;
use crate::stream::filter::Filter;
use crate::stream::hottest_images;
use crate::stream::read_ahead;

/// The program's name.
pub(crate) const TOOL: &str = "nprof-symbolize";

/// How long what was looked up of a live stream is held back while more is looked up.
const LATENCY: Duration = Duration::from_millis(250);

/// How long a live stream waits for debug information before it goes on with what symbols tell.
const PATIENCE: Duration = Duration::from_millis(500);

/// Does what the command line says.
///
/// # Errors
///
/// When the input cannot be read or the output not be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut catalog = ImageCatalog::new(Rc::new(finder(args)));
    catalog.names.style = args.names;
    if is_only_explaining(args) {
        for wanted in &args.explain {
            let recorded = RecordedImage::of(wanted);
            let recorded = recorded
                .with_context(|| format!("{}: no ELF file, and no build ID", wanted.display()))?;
            tell(&catalog.explain(&recorded, None));
        }
        return Ok(Outcome::Done);
    }
    let input = stage::open(args.input.as_deref())?;
    stage::refuse_same_file([args.input.as_deref()], args.output.as_deref())?;
    let output = stage::output(args.output.as_deref())?;
    let is_text = args.text || output.is_terminal();
    let spelling = if is_text { Spelling::Text } else { Spelling::Binary };
    prefetch(args, &input, &catalog);
    let step = Step {
        tool: TOOL.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: shell::quoted(std::env::args_os()),
        naming_options: names(args).into(),
        ..Step::default()
    };
    let read_ahead = input.ahead().map(|file| {
        read_ahead::resolve(file, &mut catalog, &step, |pids| crew(args, pids));
    });
    let is_live = read_ahead.is_none();
    if is_live && !catalog.finder.detail.is_symbols_only() {
        catalog = live(catalog, args)?;
    }
    let mut filter = Filter::new(Writer::new(output, spelling), catalog, step, PATIENCE);
    let name = input.name().to_owned();
    let ready = is_live.then(|| input.ready()).flatten();
    let mut reader = Reader::new(input);
    let copied = copy(&mut reader, &mut filter, ready.as_ref()).with_context(|| name.clone());
    // What came before an error is good, and wanted.
    let mut catalog = filter.finish().context("cannot write")?;
    copied?;
    args.explain.iter().for_each(|wanted| explain(&mut catalog, wanted));
    if args.verbose {
        tell(&catalog.summary());
    }
    Ok(outcome(&reader, &name, args.partial_ok))
}

/// What names are like, apart from where they come from: their style, and what is told of a place.
fn names(args: &Args) -> String {
    let style = args.names.to_possible_value();
    let mut words: Vec<&str> = style.iter().map(PossibleValue::get_name).collect();
    words.extend((!args.no_inlines).then_some("inlines"));
    words.extend((!args.no_lines).then_some("lines"));
    words.join(",")
}

/// Where files are looked for.
fn finder(args: &Args) -> Finder {
    let detail = Detail { inlines: !args.no_inlines, lines: !args.no_lines, debug: true };
    let places = SearchPaths { debug_dirs: args.debug_dir.clone(), symfs: args.symfs.clone() };
    let progress = |what: &str| {
        if std::io::stderr().is_terminal() {
            stage::warn(TOOL, what);
        }
    };
    let settings = || Settings::read(|name| std::env::var(name).ok());
    let debuginfod = args.debuginfod.then(|| Rc::new(Debuginfod::new(settings(), progress)));
    let allow_mismatch = args.allow_mismatch;
    Finder { debuginfod, allow_mismatch, ..Finder::new(places, detail) }
}

/// Threads that look up the places of an image together, of a recording with these processes.
fn crew(args: &Args, pids: Vec<u32>) -> LookupThreads {
    let args = args.clone();
    // A server is asked by one only.
    LookupThreads::new(
        !args.debuginfod,
        Box::new(move |threads| {
            let finder = Finder { sharers: threads, ..finder(&args) };
            pids.iter().for_each(|&pid| finder.living.note_process(pid));
            ImageCache::new(Rc::new(finder))
        }),
    )
}

/// A catalog that looks up places in the background, and has what symbols tell in the meantime.
fn live(catalog: ImageCatalog, args: &Args) -> anyhow::Result<ImageCatalog> {
    let full = args.clone();
    let background =
        BackgroundLookup::start(STACK, move || ImageCache::new(Rc::new(finder(&full))));
    let background = background.context("cannot start a thread")?;
    let detail = Detail { inlines: false, lines: false, debug: false };
    let living = Rc::clone(&catalog.finder.living);
    let quick = Finder { detail, living, debuginfod: None, ..finder(args) };
    Ok(catalog.live(ImageCache::new(Rc::new(quick)), background))
}

/// Whether images are to be explained and no stream is given.
fn is_only_explaining(args: &Args) -> bool {
    let is_device = || {
        let input = std::fs::metadata("/dev/stdin");
        input.is_ok_and(|input| input.file_type().is_char_device())
    };
    !args.explain.is_empty() && args.input.is_none() && is_device()
}

/// Fetches files for the hottest images first, where the input can be read beforehand.
fn prefetch(args: &Args, input: &Input, catalog: &ImageCatalog) {
    let Some(file) = input.ahead().filter(|_| args.debuginfod) else { return };
    let finder = &catalog.finder;
    for recorded in hottest_images::hottest_first(&mut Reader::new(file), &finder.living) {
        finder.prefetch(&recorded);
    }
}

/// Copies the stream; hands on what there is before it waits for more, and of a live one also
/// while many frames are looked up.
fn copy<W: Write>(
    reader: &mut Reader<Input>,
    filter: &mut Filter<W>,
    live: Option<&Ready>,
) -> anyhow::Result<()> {
    let mut flushed = Instant::now();
    let (mut was_idle, mut damages) = (false, 0);
    while let Some(record) = reader.next()? {
        if std::mem::take(&mut was_idle) {
            filter.resume();
        }
        filter.take(&record).context("cannot write")?;
        let is_sample = matches!(record, Record::Sample(_));
        drop(record);
        if reader.damage_count() > damages {
            damages = reader.damage_count();
            filter.invalidate();
        }
        filter.pass(reader).context("cannot write")?;
        // What becomes of a file depends on no clock.
        let is_late = live.is_some() && !is_sample && flushed.elapsed() > LATENCY;
        let is_drained = reader.drained();
        if is_late || is_drained {
            filter.flush().context("cannot write")?;
            flushed = Instant::now();
        }
        if let Some(ready) = live.filter(|_| is_drained) {
            filter.idle(|| ready.is_ready()).context("cannot write")?;
            was_idle = true;
        }
    }
    Ok(())
}

/// Tells what was tried for the images that are meant, of the input or, where there is none,
/// the file itself.
fn explain(catalog: &mut ImageCatalog, wanted: &OsStr) {
    let absolute = std::fs::canonicalize(wanted).map(PathBuf::into_os_string);
    let ways = [Some(wanted), absolute.as_deref().ok()];
    let is_meant = |slot: &ImageStats| {
        ways.iter().flatten().any(|way| summary::is_meant(&slot.recorded, way.as_bytes()))
    };
    let slots = catalog.slots().iter().enumerate();
    let meant: Vec<_> = slots.filter(|(_, slot)| is_meant(slot)).map(|(index, _)| index).collect();
    if meant.is_empty() {
        stage::warn(TOOL, &format!("{}: no such image in the input", wanted.display()));
        if let Some(recorded) = RecordedImage::of(wanted) {
            tell(&catalog.explain(&recorded, None));
        }
    }
    for index in meant {
        let recorded = catalog.slots()[index].recorded.clone();
        tell(&catalog.explain(&recorded, Some(index)));
    }
}

/// Prints lines on standard error, in which names and paths are escaped.
fn tell(lines: &str) {
    for line in lines.lines() {
        stage::warn_escaped(TOOL, line);
    }
}

/// Says whether all of the input was there.
fn outcome(reader: &Reader<Input>, name: &str, partial_ok: bool) -> Outcome {
    let verdict = reader.verdict();
    if verdict == Verdict::Complete {
        return Outcome::Done;
    }
    let first = reader.damages().first();
    let place = first.map(|damage| format!(": byte {}: {}", damage.offset, damage.what));
    stage::warn(TOOL, &format!("{name}: the input is {verdict}{}", place.unwrap_or_default()));
    if partial_ok { Outcome::Done } else { Outcome::Incomplete }
}
