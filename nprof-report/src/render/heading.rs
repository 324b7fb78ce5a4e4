//! The lines above a table: the facts needed to judge it, or with `--verbose` all facts on the
//! recording. Pure.

use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::{Event, Mark, Measure};
use rustc_hash::FxHashMap;

use crate::profile::summary::{EventSummary, Run, Summary, lost_text};
use crate::render::layout::cut_middle;

/// The most commands that are listed.
const COMMANDS: usize = 2;

/// Coverage in per cent that needs no line: it varies by a few per cent.
const USUAL_COVERAGE: std::ops::RangeInclusive<f64> = 90.0..=110.0;

/// Returns the lines above a table: the facts of the streams, then the legend. Commands are cut to
/// the width of the terminal.
pub fn heading(
    summary: &Summary,
    is_verbose: bool,
    legend: &[String],
    width: Option<usize>,
) -> String {
    let facts = if is_verbose { summary.heading() } else { brief(summary) };
    let mut out = String::new();
    for line in facts.iter().chain(legend) {
        match width.filter(|_| line.starts_with("command")) {
            Some(width) => out.push_str(&cut_middle(line, width)),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Returns the commands, the samples of each event, and the problems of the recording.
fn brief(summary: &Summary) -> Vec<String> {
    let mut lines = commands(summary);
    for event in summary.events.iter().filter(|event| event.sum.samples > 0) {
        lines.push(samples(event));
        lines.extend(summary.unnamed_lines(event));
    }
    lines.extend(summary.thread_time().map(|time| time.line()));
    lines.extend(coverage(summary));
    lines.extend(summary.problems());
    lines
}

/// Returns a line for each command, with the time of its runs.
fn commands(summary: &Summary) -> Vec<String> {
    // A live run without a record has not lost its head: it has not arrived yet.
    let has_begun = |run: &&Run| !summary.live || run.head.is_some() || run.samples > 0;
    let mut commands: Vec<(Option<String>, Vec<&Run>)> = Vec::new();
    // A stream may have any number of runs with different commands.
    let mut places: FxHashMap<Option<&[u8]>, usize> = FxHashMap::default();
    for run in summary.runs.iter().filter(has_begun) {
        let command = run.head.as_ref().map(|head| &head.command[..]);
        let place = *places.entry(command).or_insert(commands.len());
        if place == commands.len() {
            commands.push((command.map(escaped), Vec::new()));
        }
        commands[place].1.push(run);
    }
    let mut lines = Vec::new();
    for (command, runs) in commands.iter().take(COMMANDS) {
        let Some(command) = command else {
            let input = escaped(runs[0].input.as_bytes());
            lines.push(format!("{input}: the head of the stream is lost"));
            continue;
        };
        lines.push(format!("command: {command}{}", times(runs, summary)));
    }
    if commands.len() > COMMANDS {
        let others = commands.len() - COMMANDS;
        let s = if others == 1 { "" } else { "s" };
        lines.push(format!("         and {others} other command{s} (-v)"));
    }
    lines
}

/// Returns the number of runs, their time and their CPU time, as the end of a line. While the streams are
/// still being written, it is the time since the report began to read.
fn times(runs: &[&Run], summary: &Summary) -> String {
    let mut facts = Vec::new();
    let elapsed_ns =
        |run: &Run| Some(run.end.as_ref()?.time?.saturating_sub(run.head.as_ref()?.time?));
    match runs {
        [run] => match (elapsed_ns(run), summary.watched) {
            (Some(ns), _) => facts.push(format!("{:.2} s", ns as f64 / 1e9)),
            (None, Some(watched)) => facts.push(format!("{:.1} s so far", watched.as_secs_f64())),
            (None, None) => {}
        },
        _ => facts.push(format!("{} runs", runs.len())),
    }
    // A recorder that was killed wrote no end, so its totals are unknown.
    let task_ns: Option<Vec<u64>> = runs.iter().map(|run| run.end.as_ref()?.task_ns).collect();
    if let Some(task_ns) = task_ns {
        let used = total(task_ns.into_iter()) as f64 / 1e9;
        facts.push(format!("{used:.2} s of {}", summary.cpu_time_name()));
    }
    if facts.is_empty() { String::new() } else { format!("  ({})", facts.join(", ")) }
}

/// Returns the line on the samples of an event.
fn samples(event: &EventSummary) -> String {
    let rate = match (event.event.frequency, event.event.period) {
        (Some(hertz), _) => format!(" at {hertz} Hz"),
        (None, Some(period)) if event.event.measure == Measure::Count => {
            format!(" every {period}")
        }
        (None, Some(period)) => format!(" every {period} {}", escaped(&event.event.unit)),
        (None, None) => String::new(),
    };
    let number = event.sum.samples;
    let (definition, windows) = (event.definition(), event.windows());
    let mut line = format!("samples: {number} of {definition}{rate}{windows}");
    if event.lost_samples() > 0 {
        let lost = lost_text(event.lost_samples(), event.lost_others);
        line.push_str(&format!(", {lost} lost"));
    }
    let incomplete = event.incomplete_samples();
    if incomplete > 0 {
        line.push_str(&format!(", {incomplete} with unknown callers"));
    }
    line
}

/// Returns a line on an unusual coverage that chance does not explain.
fn coverage(summary: &Summary) -> Option<String> {
    let ends = || summary.runs.iter().filter_map(|run| run.end.as_ref());
    let task_ns = total(ends().filter_map(|end| end.task_ns));
    let sampled_ns = total(ends().filter_map(|end| end.sampled_ns));
    let percent = 100.0 * sampled_ns as f64 / task_ns as f64;
    let is_unusual = task_ns > 0 && sampled_ns > 0 && !USUAL_COVERAGE.contains(&percent);
    let hertz = summary.events.iter().find_map(|event| event.event.frequency);
    let is_chance = hertz.is_some_and(|hertz| {
        // Square roots of Poisson variables have a standard deviation of one half (Anscombe). 1 % of short
        // programs are beyond this on either side.
        let [sampled, expected] =
            [sampled_ns, task_ns].map(|ns| (ns as f64 * hertz as f64 / 1e9).sqrt());
        2.0 * (sampled - expected).abs() <= 2.58
    });
    (is_unusual && !is_chance).then(|| {
        format!("coverage: the samples represent {percent:.1} % of the CPU time; see nprof(7)")
    })
}

/// Returns the lines below a table on the marks of incomplete stacks: the meaning, and the remedy.
pub fn marks<'a>(events: impl Iterator<Item = &'a EventSummary>) -> Vec<String> {
    let mut found: Vec<(Mark, &str)> = Vec::new();
    for event in events {
        let meaning = |mark| match mark {
            Mark::NoStack if waits_by_switches(event) => Some(MISSED_WAIT),
            mark if event.event.unwind[..] == *b"fp" => pointer_meaning(mark),
            mark => meaning(mark),
        };
        found.extend(event.incomplete.keys().filter_map(|&mark| Some((mark, meaning(mark)?))));
    }
    found.sort_unstable();
    found.dedup();
    found.iter().map(|(mark, meaning)| format!("[incomplete:{mark}]: {meaning}")).collect()
}

/// The meaning of a stack that is missing where the recorder looks at waiting threads: that of an ordinary user,
/// and that of root on a kernel without the BPF functions for it.
const MISSED_WAIT: &str = "the stack could not be copied, or a wait ended before it was read; root on Linux 6.16 or \
                           later reads stacks of waits in the kernel";

/// True if the stacks of waits were read from outside, by the records of context switches.
fn waits_by_switches(event: &EventSummary) -> bool {
    let is_by_switches = |event: &Event| event.capture[..] == *b"switches";
    is_by_switches(&event.event) || event.parts.iter().any(is_by_switches)
}

/// Returns the meaning of a mark of stacks that were followed by their frame pointers. None for ordinary
/// frames.
fn pointer_meaning(mark: Mark) -> Option<&'static str> {
    match mark {
        Mark::UnwindFailed | Mark::Unmapped | Mark::NoUnwindInfo => Some(
            "the code keeps no frame pointers; compile it with -fno-omit-frame-pointer, or record with \
             --unwind dwarf",
        ),
        mark => meaning(mark),
    }
}

/// Returns the meaning of a mark and the remedy. None for ordinary frames.
fn meaning(mark: Mark) -> Option<&'static str> {
    Some(match mark {
        Mark::None | Mark::Other(_) => return None,
        Mark::StackTruncated => {
            "the stack is deeper than its copy, as at first in a thread that grows deep; as an \
             ordinary user, record with a larger --stack-size, or as root, which does not help heap \
             events"
        }
        Mark::NoUnwindInfo => {
            "the code has no unwind table, or its file may not be read; compile it with \
             -fasynchronous-unwind-tables, record as root, or let the runtime that generates it keep \
             frame pointers, as java -XX:+PreserveFramePointer"
        }
        Mark::UnwindFailed => "the unwind table of the code led to no valid caller",
        Mark::MaxDepth => "the stack has too many frames; record with a larger --depth",
        Mark::Unmapped => {
            "the caller is in no mapping: its library was unloaded, its process exited before its mappings were \
             read, or the stack was overwritten"
        }
        Mark::NoStack => "the stack could not be copied",
        Mark::PageAbsent => "a page of the stack was not in memory; record as root if it was not",
        Mark::Bits32 => {
            "32-bit programs are not unwound; compile with -fno-omit-frame-pointer, record with \
             --unwind fp"
        }
        Mark::OtherStack => {
            "the program switched stacks, as the runtime of Go does, or handles a signal on a stack of its \
             own; the callers on the other stack are unknown"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{GroupBy, Profile};

    fn summary(stream: &str) -> Summary {
        let mut profile = Profile::new(GroupBy::default());
        profile.read("in", stream.replace(" | ", "\t").as_bytes(), |_, _, _| {}).unwrap();
        profile.summary
    }

    fn run(command: &str, sampled_ns: u64) -> String {
        format!(
            "@nprof | 1.1 | run=0x1 | time=5000000000 | clock=monotonic | command={command}\n\
             @event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | frequency=997\n\
             F | 1 | 0 | 0x0 | u,stack-truncated\nN | 1 | 0 | 1\nS | 1 | 1 | 0 | 0 | 1 | 10 | 4\n\
             L | 2 | 1 | - | 0 | 3 | ring\n\
             @end | time=7000000000 | samples=1 | records=5 | lost=3 | task_ns=1000000000 | \
             sampled_ns={sampled_ns}\n"
        )
    }

    #[test]
    fn brief_heading_has_commands_samples_and_problems() {
        let one = summary(&run("prog", 990_000_000));
        assert_eq!(
            heading(&one, false, &[], None),
            "command: prog  (2.00 s, 1.00 s of CPU time)\n\
             samples: 4 of cpu-clock at 997 Hz, 3 lost, 4 with unknown callers\n"
        );
        let verbose = heading(&one, true, &["legend".to_owned()], None);
        assert!(
            verbose.contains("coverage 99.0 %") && verbose.ends_with("\nlegend\n"),
            "{verbose}"
        );
        // The times survive on a narrow terminal.
        let long = summary(&run(&"x".repeat(200), 100_000_000));
        let text = heading(&long, false, &[], Some(60));
        assert!(text.lines().next().unwrap().ends_with("1.00 s of CPU time)"), "{text}");
        assert!(text.contains("coverage: the samples represent 10.0 % of the CPU time"), "{text}");
        // Without frame pointers no unwind table was wrong.
        let pointers = run("prog", 990_000_000)
            .replace("u,stack-truncated", "u,unwind-failed")
            .replace(" | frequency", " | unwind=fp | frequency");
        let pointers = summary(&pointers);
        let found = marks(pointers.events.iter());
        assert!(found.len() == 1 && found[0].contains("keeps no frame pointers"), "{found:?}");
        // A mark with one meaning in both ways is explained once.
        let truncated = run("prog", 1).replace(" | frequency", " | unwind=fp | frequency");
        let truncated = summary(&truncated);
        assert_eq!(marks(one.events.iter().chain(&truncated.events)).len(), 1);
        // One sample in place of 1.4, as of `sleep 1`.
        let short = run("sleep 1", 1_003_009).replace("task_ns=1000000000", "task_ns=1440000");
        assert!(!heading(&summary(&short), false, &[], None).contains("coverage"));
        let runs = ["a", "b", "a", "c"].map(|command| run(command, 990_000_000)).concat();
        let text = heading(&summary(&runs), false, &[], None);
        assert!(
            text.starts_with(
                "command: a  (2 runs, 2.00 s of CPU time)\ncommand: b  (2.00 s, 1.00 s of CPU \
                 time)\n         and 1 other command (-v)\n"
            ),
            "{text}"
        );
        // A run without end is truncated, or still being written.
        let mut live = summary(run("prog", 1).split("L | ").next().unwrap());
        assert!(heading(&live, false, &[], None).contains("incomplete input: in"));
        (live.live, live.watched) = (true, Some(std::time::Duration::from_millis(4200)));
        live.incomplete_inputs.clear();
        assert!(heading(&live, false, &[], None).starts_with("command: prog  (4.2 s so far)\n"));
    }

    #[test]
    fn marks_have_a_meaning_and_a_remedy() {
        let lines = marks(summary(&run("prog", 1)).events.iter());
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("[incomplete:stack-truncated]: the stack is deeper"),
            "{lines:?}"
        );
        assert!(lines[0].contains("--stack-size"), "{lines:?}");
    }

    #[test]
    fn missing_stack_has_advice_where_waits_are_read_from_outside() {
        let waits = |capture: &str| {
            let stream = run("prog", 1)
                .replace("u,stack-truncated", "u,no-stack")
                .replace("measure=cpu-time", &format!("measure=wait-time{capture}"));
            marks(summary(&stream).events.iter()).concat()
        };
        assert!(waits(" | capture=switches").contains("ended before it was read; root on Linux"));
        for capture in [" | capture=bpf", ""] {
            assert_eq!(waits(capture), "[incomplete:no-stack]: the stack could not be copied");
        }
    }

    #[test]
    fn lost_allocations_are_stated_beside_live_blocks_without_samples() {
        let stream = run("prog", 1).replace("name=cpu-clock", "name=heap.alloc");
        let live = "F | 1 | 0";
        let stream = stream.replace(live, &format!("@event | id=2 | name=heap.live\n{live}"));
        let text = heading(&summary(&stream), false, &[], None);
        let line =
            "lost:    records of allocations and releases were lost, so heap.live may be wrong\n";
        assert!(text.contains(line), "{text}");
        assert!(!heading(&summary(&run("prog", 1)), false, &[], None).contains(line));
    }
}
