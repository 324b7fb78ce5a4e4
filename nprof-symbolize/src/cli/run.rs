//! One run: from the options to the outcome.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use nprof_cli::stage::{self, Input, Outcome, Ready};
use nprof_stream::{Encoding, Reader, Record, Step, Verdict, Writer};

use super::args::{Args, TOOL};
use super::entries;
use crate::dwarf::detail::Detail;
use crate::find::{Debuginfod, Finder, RecordedImage, SearchPaths};
use crate::lookup::background::BackgroundLookup;
use crate::lookup::image_cache::ImageCache;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::parallel::{LookupThreads, STACK_BYTES};
use crate::stats::image_stats::ImageStats;
use crate::stats::self_samples::SelfSamples;
use crate::stats::summary;
use crate::stream::filter::Filter;
use crate::stream::{hottest_images, read_ahead};

/// The longest time that output of a live stream stays buffered while frames are looked up.
const MAX_LATENCY: Duration = Duration::from_millis(250);

/// The longest time that a live stream waits for debug information before it continues with the
/// names of symbols.
const WAIT_LIMIT: Duration = Duration::from_millis(500);

/// Runs the tool.
///
/// # Errors
///
/// If the input cannot be read or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    check_features(args)?;
    if let Some(regex) = &args.entries {
        return entries::run(args, regex, &finder(args));
    }
    let mut catalog = ImageCatalog::new(Rc::new(finder(args)));
    // Names are interned in their shown form, so that the style must be known first.
    catalog.names.style = args.names;
    catalog.names.has_md5s = args.code;
    if is_explain_only(args) {
        for wanted in &args.explain {
            let recorded = RecordedImage::of(wanted)
                .with_context(|| format!("{}: no ELF file, and no build ID", wanted.display()))?;
            print_lines(&catalog.explain(&recorded, None));
        }
        return Ok(Outcome::Done);
    }
    let input = stage::open(args.input.as_deref())?;
    // Opening the output would truncate the input.
    stage::refuse_same_file([args.input.as_deref()], args.output.path())?;
    let output = stage::output(args.output.path())?;
    // A binary stream would garble a terminal.
    let is_text = args.text || output.is_terminal();
    let encoding = if is_text { Encoding::Text } else { Encoding::Binary };
    // Before any lookup: the time limit of servers goes to the images with the most samples.
    prefetch(args, &input, &catalog);
    let naming_options = naming_options(args).into();
    let step = Step { naming_options, ..nprof_cli::step::this_process(TOOL) };
    // The samples of a pipe pass undecoded.
    let ahead = input.ahead().filter(|_| args.verbose);
    let self_samples = ahead.map(|file| SelfSamples::read(&mut Reader::new(file)));
    // A file can be read twice; a pipe is a live stream.
    let is_live = input.ahead().is_none();
    if let Some(file) = input.ahead() {
        let threads = |pids| lookup_threads(args, pids);
        read_ahead::resolve(file, &mut catalog, &step, args.code, threads);
    }
    // Without debug information lookups are fast, and need no second location.
    if is_live && !catalog.finder.detail.is_symbols_only() {
        catalog = live(catalog, args)?;
    }
    let mut filter = Filter::new(Writer::new(output, encoding), catalog, step, WAIT_LIMIT);
    if args.code {
        filter = filter.with_code();
    }
    let name = input.name().to_owned();
    // Only a live stream has an input that can be empty for now.
    let ready = is_live.then(|| input.ready()).flatten();
    let mut reader = Reader::new(input);
    let copied = copy(&mut reader, &mut filter, ready.as_ref()).with_context(|| name.clone());
    // The records before a read error are valid and must be written.
    let mut catalog = filter.finish().context("cannot write")?;
    copied?;
    args.explain.iter().for_each(|wanted| explain(&mut catalog, wanted));
    print_lines(&catalog.missing_code().join("\n"));
    if args.verbose {
        // The summary counts all frames.
        print_lines(&catalog.summary(self_samples.as_ref()));
    }
    Ok(outcome(&reader, &name, args.tolerance.partial_ok))
}

/// Refuses options that this build does not support.
fn check_features(args: &Args) -> anyhow::Result<()> {
    let is_supported = cfg!(feature = "debuginfod") || !args.debuginfod;
    anyhow::ensure!(
        is_supported,
        "--debuginfod: this build has no HTTP client; build it with the cargo feature debuginfod"
    );
    Ok(())
}

/// Returns the options that determine names: the style, and the parts of a location.
fn naming_options(args: &Args) -> String {
    let style = args.names.to_possible_value();
    let mut words: Vec<&str> = style.iter().map(PossibleValue::get_name).collect();
    // Two streams with equal words have names that can replace each other.
    words.extend((!args.no_inlines).then_some("inlines"));
    words.extend((!args.no_lines).then_some("lines"));
    words.extend(args.code.then_some("code"));
    words.join(",")
}

/// Creates the finder of the options.
fn finder(args: &Args) -> Finder {
    let detail = Detail { inlines: !args.no_inlines, lines: !args.no_lines, debug: true };
    let search_paths =
        SearchPaths { debug_dirs: args.debug_dir.clone(), symfs: args.symfs.clone() };
    let allow_mismatch = args.allow_mismatch;
    Finder { debuginfod: debuginfod(args), allow_mismatch, ..Finder::new(search_paths, detail) }
}

/// Creates the client of the servers in the environment, if the user allows requests.
#[cfg(feature = "debuginfod")]
fn debuginfod(args: &Args) -> Option<Rc<Debuginfod>> {
    let settings = || crate::find::Settings::read(|name| std::env::var(name).ok());
    args.debuginfod.then(|| Rc::new(Debuginfod::new(settings(), show_progress)))
}

/// Creates no client: this build has none.
#[cfg(not(feature = "debuginfod"))]
fn debuginfod(_: &Args) -> Option<Rc<Debuginfod>> {
    None
}

/// Shows a message to a user at a terminal. In a log it would be noise.
#[cfg(feature = "debuginfod")]
fn show_progress(message: &str) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        stage::warn(TOOL, message);
    }
}

/// Creates the threads for the images of a recording with these processes.
fn lookup_threads(args: &Args, pids: Vec<u32>) -> LookupThreads {
    let args = args.clone();
    // With servers there is one thread: several would fetch the same file.
    LookupThreads::new(
        !args.debuginfod,
        Box::new(move |threads| {
            let finder = Finder { sharers: threads, ..finder(&args) };
            pids.iter().for_each(|&pid| finder.live_processes.note_process(pid));
            ImageCache::new(Rc::new(finder))
        }),
    )
}

/// Makes the catalog one of a live stream: with lookups in the background, and provisional names
/// from symbols.
fn live(catalog: ImageCatalog, args: &Args) -> anyhow::Result<ImageCatalog> {
    let full = args.clone();
    let open_cache = move || ImageCache::new(Rc::new(finder(&full)));
    let background = BackgroundLookup::start(STACK_BYTES, open_cache);
    let background = background.context("cannot start a thread")?;
    let detail = Detail { inlines: false, lines: false, debug: false };
    let live_processes = Rc::clone(&catalog.finder.live_processes);
    let symbols_only = Finder { detail, live_processes, debuginfod: None, ..finder(args) };
    Ok(catalog.live(ImageCache::new(Rc::new(symbols_only)), background))
}

/// True if images are to be explained and there is no stream.
fn is_explain_only(args: &Args) -> bool {
    if args.explain.is_empty() || args.input.is_some() {
        return false;
    }
    // A terminal or /dev/null; a stream comes from a file or a pipe.
    let stdin = std::fs::metadata("/dev/stdin");
    stdin.is_ok_and(|stdin| stdin.file_type().is_char_device())
}

/// Fetches the files of the images with the most samples first, if the input can be read twice.
fn prefetch(args: &Args, input: &Input, catalog: &ImageCatalog) {
    let Some(file) = input.ahead().filter(|_| args.debuginfod) else { return };
    let finder = &catalog.finder;
    let mut reader = Reader::new(file);
    for recorded in hottest_images::hottest_first(&mut reader, &finder.live_processes) {
        finder.prefetch(&recorded);
    }
}

/// Copies the stream. Flushes the output before waiting for input, and that of a live stream also
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
            filter.note_input();
        }
        filter.process(&record).context("cannot write")?;
        let is_sample = matches!(record, Record::Sample(_));
        // The record borrows the reader.
        drop(record);
        if reader.damage_count() > damages {
            damages = reader.damage_count();
            // After damage an id may belong to another record than before.
            filter.invalidate();
        }
        filter.copy_plain(reader).context("cannot write")?;
        // The clock decides in live streams only: the output for a file is reproducible.
        let is_late = live.is_some() && !is_sample && flushed.elapsed() > MAX_LATENCY;
        let is_drained = reader.would_block();
        if is_late || is_drained {
            filter.flush().context("cannot write")?;
            flushed = Instant::now();
        }
        if let Some(ready) = live.filter(|_| is_drained) {
            filter.write_until_ready(|| ready.is_ready()).context("cannot write")?;
            // The next record starts a new wait budget.
            was_idle = true;
        }
    }
    Ok(())
}

/// Prints the search for the images of the input that match `wanted`, or for that file itself.
fn explain(catalog: &mut ImageCatalog, wanted: &OsStr) {
    // The stream has absolute paths; users give relative ones.
    let absolute = std::fs::canonicalize(wanted).map(PathBuf::into_os_string);
    let spellings = [Some(wanted), absolute.as_deref().ok()];
    let matches = |image: &ImageStats| {
        let mut spellings = spellings.iter().flatten();
        spellings.any(|wanted| summary::matches_image(&image.recorded, wanted.as_bytes()))
    };
    let images = catalog.images().iter().enumerate();
    let indexes: Vec<usize> =
        images.filter(|(_, image)| matches(image)).map(|(index, _)| index).collect();
    if indexes.is_empty() {
        stage::warn(TOOL, &format!("{}: no such image in the input", wanted.display()));
        if let Some(recorded) = RecordedImage::of(wanted) {
            print_lines(&catalog.explain(&recorded, None));
        }
    }
    for index in indexes {
        let recorded = catalog.images()[index].recorded.clone();
        print_lines(&catalog.explain(&recorded, Some(index)));
    }
}

/// Prints lines on standard error. Their names and paths are escaped already.
fn print_lines(lines: &str) {
    for line in lines.lines() {
        stage::warn_escaped(TOOL, line);
    }
}

/// Returns the outcome of the run; warns if the input was incomplete.
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
