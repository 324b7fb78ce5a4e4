//! `stat`: counts records, samples, losses, tasks and images of streams.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;

use nprof_cli::stage::{self, Outcome};
use nprof_report::profile::{GroupBy, Profile};
use nprof_report::summary::{EventSummary, Run, Summary, lost_text};
use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::{Reader, Record, Verdict, kind};
use serde_json::{Map, Value, json};

use super::args::{Format, Report};
use super::images::Images;
use super::tasks::Tasks;

/// Number of records of a kind, and their bytes, block headers included.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    records: u64,
    bytes: u64,
}

/// Counts beyond those of every report.
#[derive(Debug, Default)]
struct Counts {
    profile: Profile,
    kinds: BTreeMap<&'static str, Share>,
    tasks: Tasks,
    images: Images,
    bytes: u64,
    /// Times of the first and the last sample in nanoseconds, by run.
    times: BTreeMap<usize, (u64, u64)>,
}

pub(crate) fn run(args: &Report) -> Result<Outcome, Box<dyn Error>> {
    let group_by = GroupBy { task: true, ..GroupBy::default() };
    let mut counts = Counts { profile: Profile::new(group_by), ..Counts::default() };
    for operand in args.inputs.operands() {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        counts.read(input).map_err(|error| format!("{name}: {}", stage::chain(&error)))?;
    }
    let mut output = stage::output(None)?;
    let text = match args.format {
        Format::Table => counts.lines(output.width()),
        Format::Json => format!("{:#}\n", counts.object()),
    };
    output.write_all(text.as_bytes())?;
    let summary = &counts.profile.summary;
    for incomplete in &summary.incomplete_inputs {
        stage::warn(super::args::TOOL, &incomplete.to_string());
    }
    Ok(if summary.is_complete() { Outcome::Done } else { Outcome::Incomplete })
}

impl Counts {
    fn read(&mut self, input: stage::Input) -> Result<(), nprof_stream::Error> {
        self.profile.begin(input.name());
        let mut reader = Reader::new(input);
        let mut position = 0;
        while let Some(record) = reader.next()? {
            let kind = kind::name(record.kind());
            self.take(&record);
            // Counted after the record was processed: its bytes end at the reader's position.
            let share = self.kinds.entry(kind).or_default();
            share.records += 1;
            share.bytes += reader.position() - position;
            position = reader.position();
        }
        let Self { profile, tasks, .. } = self;
        profile.end(&reader, &mut |tables, group, sum| tasks.add(tables, group, sum));
        self.bytes += reader.position();
        Ok(())
    }

    fn take(&mut self, record: &Record<'_>) {
        let Self { profile, tasks, .. } = self;
        profile.take(record, &mut |tables, group, sum| tasks.add(tables, group, sum));
        match record {
            Record::Task(task) => tasks.name(profile, task.id),
            Record::Change(change) => tasks.name(profile, change.task),
            Record::Lost(lost) => tasks.lose(profile, lost),
            Record::Naming(naming) => self.images.add(naming),
            Record::Sample(sample) => {
                // Runs have clocks of their own, so their times are not compared.
                let run = profile.run();
                let (first, last) = self.times.entry(run).or_insert((sample.time, sample.time));
                (*first, *last) = (sample.time.min(*first), sample.time.max(*last));
            }
            _ => {}
        }
    }

    /// Returns the sum over runs of the time between first and last sample, in nanoseconds.
    fn span(&self) -> u64 {
        total(self.times.values().map(|(first, last)| last - first))
    }

    /// Returns the numbers with stable names, in their order of output.
    fn numbers(&self) -> Vec<(&'static str, Value)> {
        let summary = &self.profile.summary;
        let samples = summary.samples();
        let sum = |of: fn(&EventSummary) -> u64| total(summary.events.iter().map(of));
        let incomplete = sum(EventSummary::incomplete_samples);
        let late = total(ends(summary).filter_map(|end| end.late));
        // Unknown instead of a division by zero.
        let per_sample = (samples > 0).then(|| self.bytes as f64 / samples as f64);
        let seconds = self.span() as f64 / 1e9;
        let achieved = (seconds > 0.0).then(|| samples as f64 / seconds);
        // The worst verdict of all streams.
        let verdict = summary.incomplete_inputs.iter().map(|incomplete| incomplete.verdict).max();
        vec![
            ("verdict", json!(verdict.unwrap_or(Verdict::Complete).to_string())),
            ("segments", json!(summary.runs.len())),
            ("bytes", json!(self.bytes)),
            ("samples", json!(samples)),
            ("lost", json!(sum(EventSummary::lost_samples))),
            ("lost_others", json!(sum(|event| event.lost_others))),
            ("lost_records", json!(summary.lost_records)),
            ("unseen", json!(summary.unseen())),
            ("late", json!(late)),
            ("bytes_per_sample", json!(per_sample)),
            ("complete_percent", json!(percent(samples.saturating_sub(incomplete), samples))),
            ("stitched_percent", json!(stitched(summary))),
            ("coverage_percent", json!(coverage(summary))),
            ("achieved_hz", json!(achieved)),
            ("seconds", json!(seconds)),
            ("tasks", json!(self.tasks.count())),
        ]
    }

    /// Returns the output for people, on a terminal of this width.
    fn lines(&self, width: Option<usize>) -> String {
        let mut lines: Vec<String> = self
            .numbers()
            .into_iter()
            .map(|(name, value)| match value {
                // Unknown, such as a rate without samples.
                Value::Null => format!("{name:<18} -"),
                Value::String(word) => format!("{name:<18} {word}"),
                Value::Number(number) if number.is_f64() => {
                    format!("{name:<18} {:.2}", number.as_f64().unwrap_or_default())
                }
                other => format!("{name:<18} {other}"),
            })
            .collect();
        let summary = &self.profile.summary;
        lines.extend(summary.events.iter().map(event_line));
        for step in summary.runs.iter().flat_map(|run| &run.steps) {
            let (tool, version) = (escaped(&step.tool), escaped(&step.version));
            lines.push(format!("{:<18} {tool} {version}: {}", "step", escaped(&step.command)));
        }
        lines.extend(self.images.lines());
        if self.tasks.count() > 0 {
            lines.push(format!("\n{}", self.tasks.lines(summary, width)));
        }
        lines.push(format!("{:<18} {:>12} {:>14}", "kind", "records", "bytes"));
        for (kind, share) in &self.kinds {
            lines.push(format!("{kind:<18} {:>12} {:>14}", share.records, share.bytes));
        }
        lines.join("\n") + "\n"
    }

    fn object(&self) -> Value {
        let summary = &self.profile.summary;
        let mut object: Map<String, Value> =
            self.numbers().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let kinds = self.kinds.iter().map(|(&kind, share)| {
            (kind.to_owned(), json!({ "records": share.records, "bytes": share.bytes }))
        });
        object.insert("kinds".to_owned(), Value::Object(kinds.collect()));
        object.extend(summary.facts());
        object.insert("tasks".to_owned(), self.tasks.list(summary));
        object.insert("images".to_owned(), self.images.list());
        Value::Object(object)
    }
}

fn ends(summary: &Summary) -> impl Iterator<Item = &nprof_stream::End> {
    summary.runs.iter().filter_map(|run| run.end.as_ref())
}

/// Returns the sampled time in per cent of the CPU time of the tasks, over the segments with both.
fn coverage(summary: &Summary) -> Option<f64> {
    let known = ends(summary).filter_map(|end| Some((end.sampled_ns?, end.task_ns?)));
    let add = |(a, b): (u64, u64), (c, d)| (a.saturating_add(c), b.saturating_add(d));
    let (sampled, task) = known.fold((0, 0), add);
    percent(sampled, task)
}

/// Returns the share of samples with stitched stacks in per cent, over the runs that count them.
fn stitched(summary: &Summary) -> Option<f64> {
    let known = || {
        let counts = |run: &'_ Run| Some((run.end.as_ref()?.stitched?, run.samples));
        summary.runs.iter().filter_map(counts)
    };
    percent(total(known().map(|(stitched, _)| stitched)), total(known().map(|(_, all)| all)))
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

fn event_line(summary: &EventSummary) -> String {
    let event = &summary.event;
    let mut line = format!(
        "{:<18} {}: {} samples, weight {} {}, lost {}",
        "event",
        escaped(&event.name),
        summary.sum.samples,
        summary.sum.weight,
        escaped(&event.unit),
        lost_text(summary.lost_samples(), summary.lost_others)
    );
    for (mark, samples) in &summary.incomplete {
        line.push_str(&format!("\n{:<18} {samples} {mark}", "  incomplete"));
    }
    line
}
