//! The common part of all reports: reading the streams, filtering and summing their samples, printing
//! once or at an interval. Rows and their layout belong to the individual report.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use nprof_cli::args::{Inputs, OutputFile, PartialOk};
use nprof_cli::stage::{self, Outcome, Output};
use nprof_cli::time::interval;
use nprof_stream::reader::Reader;
use serde_json::{Map, Value};

use crate::profile::filter::{Filter, Rule};
use crate::profile::join::{Join, Joins};
use crate::profile::margin::Confidence;
use crate::profile::summary::Summary;
use crate::profile::time::{Span, TimeSplit};
use crate::profile::{Context, GroupBy, GroupKey, Profile, ReportedEvent, Sum};
use crate::tool::atomic_file::AtomicFile;
use crate::tool::ordered_inputs::{self, InputError};
use crate::tool::ticking_reader::TickingReader;

/// The options of every report.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Count only samples that match; KEY is a key of --by; repeatable
    #[arg(long = "match", value_name = "KEY=REGEX")]
    matching: Vec<Rule>,
    /// Exclude samples that match; repeatable
    #[arg(long, value_name = "KEY=REGEX")]
    exclude: Vec<Rule>,
    /// Count only samples of this time since the start of their run, such as 1s..2.5s
    #[arg(long, value_name = "FROM..TO")]
    pub time: Option<Span>,
    /// Count only samples of blocks of memory and descriptors with this age, such as ..1ms
    #[arg(long, value_name = "FROM..TO")]
    age: Option<Span>,
    /// Add events of one unit into one, such as cpu-clock,runnable,blocked=wall; repeatable
    #[arg(long, value_name = "EVENT,EVENT,..[=NAME]")]
    join: Vec<Join>,
    /// Percentages are relative to the counted samples instead of all samples
    #[arg(long)]
    pub rebase: bool,
    /// Omit rows with a share below P per cent
    #[arg(long, value_name = "P", value_parser = percent)]
    min_percent: Option<f64>,
    /// Maximum number of rows, 0 for all [default: some in a table, else all]
    #[arg(short = 'n', long, value_name = "N")]
    rows: Option<usize>,
    /// Confidence of the margins of error in per cent [default: 95]
    #[arg(long, value_name = "P", value_parser = confidence)]
    confidence: Option<Confidence>,
    /// Print again at this interval (2s, 500ms) while the stream is still being written
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
    /// Print all facts on the recording above a table
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    tolerance: PartialOk,
    #[command(flatten)]
    output: OutputFile,
    #[command(flatten)]
    inputs: Inputs,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

fn confidence(text: &str) -> Result<Confidence, String> {
    let confidence = text.parse().ok().and_then(Confidence::from_percent);
    confidence.ok_or_else(|| "expected a number above 0 and up to 99.9999".to_owned())
}

impl Options {
    /// Returns the filter on samples and calls.
    pub fn filter(&self) -> Filter {
        Filter::new(&self.matching, &self.exclude)
    }

    /// Returns the options that exclude samples, as the user spelled them.
    pub fn sample_rules(&self) -> Vec<String> {
        let mut rules = self.filter().spelled(false);
        rules.extend(self.time.map(|span| format!("--time {span}")));
        rules.extend(self.age.map(|span| format!("--age {span}")));
        rules
    }

    /// Returns the confidence of margins of error.
    pub fn confidence(&self) -> Confidence {
        self.confidence.unwrap_or_default()
    }

    /// Returns the limits of the user, or else `usual_percent` and `usual_rows` (0 for all).
    pub fn row_limits(&self, usual_percent: f64, usual_rows: usize) -> RowLimits {
        RowLimits {
            min_percent: self.min_percent.unwrap_or(usual_percent),
            rows: Some(self.rows.unwrap_or(usual_rows)).filter(|&rows| rows > 0),
        }
    }

    /// Returns `confidence`, the facts of the streams, `filters`, `rebase`, and as `wholes` the samples
    /// that are 100 % of each event. `rules` are the filters as the user spelled them.
    pub fn facts(
        &self,
        rules: Vec<String>,
        summary: &Summary,
        events: &[ReportedEvent],
    ) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("confidence".to_owned(), self.confidence().percent().into());
        facts.extend(summary.facts());
        facts.insert("filters".to_owned(), rules.into());
        facts.insert("rebase".to_owned(), self.rebase.into());
        let wholes = events.iter().map(|event| summary.whole(event)).collect();
        facts.insert("wholes".to_owned(), wholes);
        facts
    }
}

/// The rows that are printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowLimits {
    /// Rows with a smaller share, in per cent, are omitted.
    pub min_percent: f64,
    /// The maximum number of rows.
    pub rows: Option<usize>,
}

impl RowLimits {
    /// True if the share of `sum` in `whole` is too small to be printed.
    pub fn is_small(&self, sum: Sum, whole: Sum) -> bool {
        sum.percent_of(whole) < self.min_percent
    }

    /// Returns the options that limit the rows as the user would spell them; empty if none do.
    pub fn spelled_all(&self) -> String {
        let rows = self.rows.map_or(String::new(), |rows| format!("-n {rows}"));
        let mut options = vec![self.spelled(), rows];
        options.retain(|option| !option.is_empty());
        options.join(" ")
    }

    /// Returns the option that omits small rows as the user would spell it; empty if none does.
    pub fn spelled(&self) -> String {
        if self.min_percent > 0.0 {
            format!("--min-percent {}", self.min_percent)
        } else {
            String::new()
        }
    }
}

/// The error of a report.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// A report: sums samples and returns rows. Rows are data; a [`Render`] function prints them.
pub trait Report: Clone + Send {
    /// The rows.
    type Rows;

    /// Returns the properties by which the profile must separate samples.
    fn group_by(&self) -> GroupBy;

    /// Adds the samples of a group.
    fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum);

    /// Returns the rows of all samples added so far.
    ///
    /// # Errors
    ///
    /// If the streams do not have the data that the user asked for.
    fn rows(&self, summary: &Summary) -> Result<Self::Rows, Failure>;

    /// Returns messages that are printed on standard error after the report.
    fn notes(&self, _summary: &Summary) -> Vec<String> {
        Vec::new()
    }
}

/// A function that writes the rows of a report, with the columns of the terminal; None if the output is
/// none. It fails if the output does, or if the format cannot hold the rows.
pub trait Render<Rows>:
    Fn(&Rows, &Summary, Option<usize>, &mut dyn Write) -> Result<(), Failure>
{
}

impl<Rows, F> Render<Rows> for F where
    F: Fn(&Rows, &Summary, Option<usize>, &mut dyn Write) -> Result<(), Failure>
{
}

/// Most `--match` rules: reports keep a bit for each in a u64.
const RULES: usize = 60;

/// Reads the streams, prints the report, and returns the exit status of the stage.
pub fn run<R: Report>(
    tool: &str,
    options: &Options,
    report: R,
    render: &impl Render<R::Rows>,
) -> ExitCode {
    stage::run(tool, || {
        work(tool, options, report, render).map_err(|failure| -> Box<dyn StdError> { failure })
    })
}

fn work<R: Report>(
    tool: &str,
    options: &Options,
    report: R,
    render: &impl Render<R::Rows>,
) -> Result<Outcome, Failure> {
    if options.matching.len() > RULES {
        return Err(format!(
            "at most {RULES} --match options are possible; combine expressions with |"
        )
        .into());
    }
    let operands = options.inputs.operands();
    // Opening the output would truncate an input before it is read.
    stage::refuse_same_file(operands.iter().copied(), options.output.path())?;
    let mut group_by = report.group_by();
    // Rules need their properties even if no column shows them.
    group_by.add(options.filter().group_by());
    group_by.time = TimeSplit { span: options.time, ..group_by.time };
    group_by.age = options.age;
    let joins = Joins::new(&options.join)?;
    let mut printer = Printer::new(options, joins.clone(), render);
    let new_profile = || Profile::new(group_by).joining(joins.clone());
    let (summary, report) = match options.every {
        None => {
            let threads = ordered_inputs::threads_for(operands.len());
            ordered_inputs::read(&operands, new_profile, report, threads, R::add)?
        }
        Some(every) => watch(&operands, new_profile(), report, every, &mut printer)?,
    };
    let summary = &summary;
    printer.print(&report, summary)?;
    // Also on standard error: the heading is lost when the output is piped into another program.
    for incomplete in &summary.incomplete_inputs {
        stage::warn(tool, &incomplete.to_string());
    }
    // Reports of addresses are valid, but rarely intended.
    if !summary.symbolized && summary.samples() > 0 {
        stage::warn(tool, "frames have no names; pipe the stream through nprof-symbolize");
    }
    for note in report.notes(summary) {
        stage::warn(tool, &note);
    }
    let whole = summary.is_complete() || options.tolerance.partial_ok;
    Ok(if whole { Outcome::Done } else { Outcome::Incomplete })
}

/// Reads all streams to their ends, and prints the report so far at an interval.
fn watch<R: Report>(
    operands: &[Option<&Path>],
    profile: Profile,
    report: R,
    every: Duration,
    printer: &mut Printer<'_, impl Render<R::Rows>>,
) -> Result<(Summary, R), Failure> {
    // Ticks come from within `Reader::next`, between two records, when nothing is borrowed.
    let state = RefCell::new((profile, report));
    let start = Instant::now();
    for &operand in operands {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        let tick = || {
            let (profile, report) = &*state.borrow();
            // The sums that are still accumulating go into a copy: they will be passed again.
            let mut report = report.clone();
            let mut summary =
                profile.snapshot(|context, group, sum| report.add(context, group, sum));
            summary.watched = Some(start.elapsed());
            printer.print(&report, &summary).map_err(io::Error::other)
        };
        state.borrow_mut().0.begin(&name);
        let mut reader = Reader::new(TickingReader::new(input, every, tick)?);
        let result = take_all(&mut reader, &state);
        let (profile, report) = &mut *state.borrow_mut();
        profile.end(&reader, &mut |context: &Context<'_>, group: &GroupKey, sum| {
            report.add(context, group, sum);
        });
        result.map_err(|source| InputError::Read { name, source })?;
    }
    let (profile, report) = state.into_inner();
    Ok((profile.summary, report))
}

fn take_all<R: Report>(
    reader: &mut Reader<impl Read>,
    state: &RefCell<(Profile, R)>,
) -> Result<(), nprof_stream::Error> {
    while let Some(record) = reader.next()? {
        let (profile, report) = &mut *state.borrow_mut();
        profile.take(&record, &mut |context: &Context<'_>, group: &GroupKey, sum| {
            report.add(context, group, sum);
        });
    }
    Ok(())
}

/// ECMA-48 CUP and ED: moves the cursor to the upper left corner and clears the screen below it.
const HOME_AND_CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// The output of a report that may be printed several times.
struct Printer<'a, T> {
    options: &'a Options,
    joins: Joins,
    render: &'a T,
    /// Opened before the first print: an error while reading leaves an existing file unchanged.
    output: Option<Output>,
    /// With `--every`, a file that is replaced atomically.
    atomic_file: Option<AtomicFile>,
}

impl<'a, T> Printer<'a, T> {
    fn new(options: &'a Options, joins: Joins, render: &'a T) -> Self {
        // `-` is standard output, which cannot be replaced.
        let file = options.output.path().filter(|path| path.as_os_str() != "-");
        let atomic_file = file.filter(|_| options.every.is_some()).and_then(AtomicFile::of);
        Self { options, joins, render, output: None, atomic_file }
    }

    fn print<R: Report>(&mut self, report: &R, summary: &Summary) -> Result<(), Failure>
    where
        T: Render<R::Rows>,
    {
        self.joins.check(summary)?;
        let rows = report.rows(summary)?;
        if let Some(file) = &self.atomic_file {
            let written = file.write(|out| (self.render)(&rows, summary, None, out));
            return written.map_err(Writing::caused_by);
        }
        let output = match &mut self.output {
            Some(output) => output,
            none => none.insert(stage::output(self.options.output.path())?),
        };
        let (width, height) = (output.width(), output.height());
        let mut out = FirstLines { out: BufWriter::new(output), left: usize::MAX };
        if let Some(height) = height.filter(|_| self.options.every.is_some()) {
            out.write_all(HOME_AND_CLEAR).map_err(Writing)?;
            // The last report stays on the screen and may scroll; the others are overwritten.
            if summary.live {
                out.left = height.saturating_sub(1);
            }
        }
        let written = (self.render)(&rows, summary, width, &mut out);
        written.and_then(|()| Ok(out.flush()?)).map_err(Writing::caused_by)
    }
}

/// An error while writing the report.
#[derive(Debug, thiserror::Error)]
#[error("writing the report")]
struct Writing(#[source] io::Error);

impl Writing {
    /// Adds to an I/O error that it came while writing; returns other failures as they are.
    fn caused_by(failure: Failure) -> Failure {
        match failure.downcast::<io::Error>() {
            Ok(error) => Writing(*error).into(),
            Err(failure) => failure,
        }
    }
}

/// A writer of the first lines only, so that a terminal does not scroll.
struct FirstLines<W> {
    out: W,
    /// The number of lines that are still written.
    left: usize,
}

impl<W: Write> Write for FirstLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Most output is not cut: no need to look for its lines.
        if self.left == usize::MAX {
            return self.out.write(bytes);
        }
        let mut end = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.left == 0 {
                break;
            }
            end += line.len();
            self.left -= usize::from(line.ends_with(b"\n"));
        }
        self.out.write_all(&bytes[..end])?;
        // Dropped bytes count as written, or the printer would fail.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_screen_are_dropped() {
        let kept = |parts: &[&str], left| {
            let mut out = FirstLines { out: Vec::new(), left };
            parts.iter().for_each(|part| out.write_all(part.as_bytes()).unwrap());
            String::from_utf8(out.out).unwrap()
        };
        assert_eq!(kept(&["a\nb\nc\n"], 2), "a\nb\n");
        assert_eq!(kept(&["a", "\nb", "\nc\n"], 2), "a\nb\n");
        assert_eq!(kept(&["a\nb\n"], 5), "a\nb\n");
    }

    #[test]
    fn rows_below_the_smallest_share_are_omitted() {
        let sum = |samples| Sum::of(samples, samples * 10);
        let limits = RowLimits { min_percent: 5.0, rows: None };
        assert!(limits.is_small(sum(4), sum(100)) && !limits.is_small(sum(5), sum(100)));
        assert_eq!(limits.spelled(), "--min-percent 5");
    }
}
