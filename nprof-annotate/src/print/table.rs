//! Functions as tables: a heading for all, then a table for each function.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use nprof_code::function::Function;
use nprof_code::source;
use nprof_report::heading::heading;
use nprof_report::layout;
use nprof_report::legend;
use nprof_report::profile::{OmittedRows, ReportedEvent, Sum};

use crate::args::By;
use crate::print::arrows::arrows;
use crate::print::colour;
use crate::print::context::PrintContext;
use crate::print::sampling::place_of_samples;
use crate::rows::annotation::FunctionSums;
use crate::rows::parts::{InstructionPart, Part, PartKind, lacks_loops, parts};
use crate::rows::select::sum_of;

/// Rows without samples that are shown before and after one with samples.
const NEAR: usize = 3;

/// Prints the tables with their heading.
pub(crate) fn print(context: &PrintContext<'_>) -> String {
    let PrintContext { selected, summary, args, width } = *context;
    let mut out = heading(summary, args.options.verbose, &legend(context), width);
    if selected.events.is_empty() {
        // With no samples at all the heading says so.
        if !selected.all_events.is_empty() && selected.functions.is_empty() {
            out.push_str(&legend::nothing_counted(&args.rules()));
        }
        return out;
    }
    let mut mismatches = BTreeSet::new();
    for function in &selected.functions {
        out.push('\n');
        out.push_str(&heading_of(context, function));
        if matches!(args.by, By::Block | By::Loop) && lacks_loops(&function.function) {
            out.push_str("  its loops are not known: it has too many jumps back\n");
        }
        out.push_str(&table(context, function, &mut mismatches));
    }
    let below = footer(context) + &mismatches.into_iter().collect::<String>();
    if !below.is_empty() {
        out.push('\n');
    }
    // A terminal would break long lines in the middle of a word.
    for line in below.lines().flat_map(|line| layout::wrapped(line, width.unwrap_or(usize::MAX))) {
        out.push_str(&(line + "\n"));
    }
    out
}

/// Returns the lines above the tables.
fn legend(context: &PrintContext<'_>) -> Vec<String> {
    let PrintContext { selected, summary, args, width } = *context;
    let rules =
        [args.options.sample_rules(), args.options.filter().spelled_excludes_of_calls()].concat();
    let mut lines = legend::counted(&selected.all_events, summary, &rules);
    for event in &selected.events {
        let place = place_of_samples(&summary.events[event.event].event);
        let sentence = format!("{}: {place}", context.event_name(event));
        lines.extend(layout::wrapped(&sentence, width.unwrap_or(100)));
    }
    let confidence = args.options.confidence().percent();
    let rest = format!("± is the margin of error at {confidence} % confidence");
    lines.extend(legend::whole(args.options.rebase, args.options.verbose, &rest));
    lines
}

/// Returns the lines above the table of a function.
fn heading_of(context: &PrintContext<'_>, function: &FunctionSums) -> String {
    let of = &function.function;
    let address = format!("{}+{:#x}", of.image, of.start);
    let mut out =
        layout::fit(&of.name, &format!("  {address}"), context.width.unwrap_or(usize::MAX));
    out.push('\n');
    for event in &context.selected.events {
        let sum = sum_of(&function.total, event.event);
        let (share, margin) = (sum.percent_of(event.whole), context.margin(sum, event));
        let name = context.event_name(event);
        let margin = margin.map_or(String::new(), |margin| format!(" ±{margin:.2}"));
        out.push_str(&format!("  {name}: {} samples, {share:.2} %{margin}\n", sum.samples));
    }
    out
}

/// A line of a table before its layout.
struct TableLine<'a> {
    /// None for a source line without instructions.
    part: Option<&'a Part>,
    names: Vec<String>,
}

/// Returns the table of a function. Adds lines on source files of another version.
fn table(
    context: &PrintContext<'_>,
    function: &FunctionSums,
    mismatches: &mut BTreeSet<String>,
) -> String {
    let parts = parts(function, context.args.by);
    let start = function.function.start;
    let lines = match context.args.by {
        By::Instruction => instruction_lines(&parts, start),
        By::Line => source_lines(context, &function.function, &parts, mismatches),
        By::Block | By::Loop => block_lines(&parts, start),
    };
    // Loops are few, and their nesting would be lost.
    let lines = if context.args.by == By::Loop { lines } else { near_samples(lines) };
    let events = &context.selected.events;
    let mut header: Vec<String> = Vec::new();
    let mut groups = Vec::new();
    for event in events {
        groups.push((header.len()..header.len() + 3, context.event_name(event)));
        header.extend(["samples", "self %", "±"].map(str::to_owned));
    }
    // The name of a single event is above the table.
    if events.len() == 1 {
        groups.clear();
    }
    let numbers = header.len();
    header.extend(name_columns(context.args.by).iter().map(|&name| name.to_owned()));
    let mut cells = vec![header];
    for line in &lines {
        let sums = line.part.map_or(&[][..], |part| &part.sums);
        let mut row = Vec::with_capacity(numbers + line.names.len());
        for event in events {
            row.extend(event_cells(context, event, sum_of(sums, event.event)));
        }
        row.extend(line.names.iter().cloned());
        cells.push(row);
    }
    let text = layout::grouped(&cells, numbers, context.width, &groups);
    let above = usize::from(!groups.is_empty()) + 1;
    let is_coloured = context.width.is_some() && allows_colour();
    let Some(event) = events.first().filter(|_| is_coloured) else { return text };
    let total = sum_of(&function.total, event.event);
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        let part = index.checked_sub(above).and_then(|index| lines.get(index)?.part);
        let sum = part.map_or(Sum::default(), |part| sum_of(&part.sums, event.event));
        out.push_str(&(colour::of_share(line, sum.percent_of(total)) + "\n"));
    }
    out
}

/// True unless the user wants no colours (no-color.org).
fn allows_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the numbers of a part in an event; empty without samples.
fn event_cells(context: &PrintContext<'_>, event: &ReportedEvent, sum: Sum) -> [String; 3] {
    if sum.samples == 0 {
        return Default::default();
    }
    let share = format!("{:.2}", sum.percent_of(event.whole));
    let margin = context.margin(sum, event).map_or("-".to_owned(), |margin| format!("{margin:.2}"));
    [sum.samples.to_string(), share, margin]
}

fn name_columns(by: By) -> &'static [&'static str] {
    match by {
        By::Instruction => &["address", "instruction", "line"],
        By::Line => &["inlined", "line", "source"],
        By::Block | By::Loop => &["addresses", "instructions", "loop", "lines"],
    }
}

/// Returns the lines of instructions; addresses count from `start`.
fn instruction_lines(parts: &[Part], start: u64) -> Vec<TableLine<'_>> {
    let instruction = |part: &Part| match &part.kind {
        PartKind::Instruction(instruction) => Some(instruction.clone()),
        _ => None,
    };
    let instructions: Vec<InstructionPart> = parts.iter().filter_map(instruction).collect();
    let index_of = |offset: u32| {
        instructions.binary_search_by_key(&offset, |instruction| instruction.offset).ok()
    };
    let jump = |(from, instruction): (usize, &InstructionPart)| {
        Some((from, index_of(instruction.target?)?))
    };
    let jumps: Vec<(usize, usize)> = instructions.iter().enumerate().filter_map(jump).collect();
    let drawn = arrows(instructions.len(), &jumps);
    let mut last_line = None;
    let mut lines = Vec::new();
    for ((part, it), arrows) in parts.iter().zip(&instructions).zip(drawn) {
        let place = (it.file.clone(), it.line);
        let file = it.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
        // Repeated in each row, it would hide the changes.
        let line = match file.filter(|_| it.line > 0 && last_line.as_ref() != Some(&place)) {
            Some(file) => format!("{file}:{}", it.line),
            None => String::new(),
        };
        last_line = Some(place);
        let space = if arrows.is_empty() { "" } else { " " };
        let address = format!("{:#x}", start.wrapping_add(it.offset.into()));
        let text = match &it.called[..] {
            [] => it.text.clone(),
            called => format!("{}  ({})", it.text, called.join(", ")),
        };
        let names = vec![address, format!("{arrows}{space}{text}"), line];
        lines.push(TableLine { part: Some(part), names });
    }
    lines
}

/// Returns the lines of blocks or loops; addresses count from `start`.
fn block_lines(parts: &[Part], start: u64) -> Vec<TableLine<'_>> {
    let mut lines_of_table = Vec::new();
    for part in parts {
        let PartKind::Block(block) = &part.kind else { continue };
        let address = |offset: u32| format!("{:#x}", start.wrapping_add(offset.into()));
        let in_loop = match block.in_loop {
            Some(header) => {
                let outer = block.depth.unwrap_or(0).saturating_sub(1);
                format!("{}{}", "· ".repeat(outer), address(header))
            }
            None => String::new(),
        };
        let lines = match block.lines {
            (0, 0) => String::new(),
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}..{last}"),
        };
        let addresses = format!("{}..{}", address(block.start), address(block.end));
        let names = vec![addresses, block.instructions.to_string(), in_loop, lines];
        lines_of_table.push(TableLine { part: Some(part), names });
    }
    lines_of_table
}

/// Returns the lines of a function; with its source, all between the first and the last.
fn source_lines<'a>(
    context: &PrintContext<'_>,
    function: &Function,
    parts: &'a [Part],
    mismatches: &mut BTreeSet<String>,
) -> Vec<TableLine<'a>> {
    let mut files: BTreeMap<&str, BTreeMap<u32, &Part>> = BTreeMap::new();
    for part in parts {
        let PartKind::Line(line) = &part.kind else { continue };
        files.entry(line.file.as_deref().unwrap_or("")).or_default().insert(line.line, part);
    }
    let event = context.selected.events.first().map_or(0, |event| event.event);
    // The first of several recordings: the program was built before it.
    let starts = context.summary.runs.iter().filter_map(|run| run.head.as_ref()?.utc);
    let recorded = starts.min().map(|utc| SystemTime::UNIX_EPOCH + Duration::from_nanos(utc));
    let mut lines = Vec::new();
    for (file, parts) in files {
        let name = file.rsplit('/').next().unwrap_or(file);
        let last = parts.keys().next_back().copied().unwrap_or(0);
        let md5 = function.md5(file);
        let found = source::find(&context.args.source_dir, file, md5, last, recorded);
        mismatches.extend(found.mismatch.map(|mismatch| mismatch + "\n"));
        let source = found.lines;
        let first = parts.keys().copied().find(|&line| line > 0).unwrap_or(0);
        // Text between lines with code, such as comments, helps to read it.
        let all: Vec<u32> = match &source {
            Some(_) => {
                parts.keys().copied().filter(|&line| line == 0).chain(first..=last).collect()
            }
            None => parts.keys().copied().collect(),
        };
        for number in all {
            let part = parts.get(&number).copied();
            let inlined = part.map_or(Sum::default(), |part| match &part.kind {
                PartKind::Line(line) => sum_of(&line.inlined, event),
                _ => Sum::default(),
            });
            // Zeros would hide the few lines with inlined calls.
            let inlined =
                if inlined.samples > 0 { inlined.samples.to_string() } else { String::new() };
            let place = match (name, number) {
                ("", _) => "(unknown)".to_owned(),
                (name, 0) => name.to_owned(),
                (name, number) => format!("{name}:{number}"),
            };
            let text =
                source.as_ref().and_then(|source| source.get(number.checked_sub(1)? as usize));
            let names = vec![inlined, place, text.cloned().unwrap_or_default()];
            lines.push(TableLine { part, names });
        }
    }
    lines
}

/// Replaces long runs of lines without samples by one that counts them.
fn near_samples(lines: Vec<TableLine<'_>>) -> Vec<TableLine<'_>> {
    let has_samples = |line: &TableLine<'_>| {
        line.part.is_some_and(|part| part.sums.iter().any(|sum| sum.samples > 0))
    };
    let is_hot: Vec<bool> = lines.iter().map(has_samples).collect();
    let is_near = |index: usize| {
        let range = index.saturating_sub(NEAR)..(index + NEAR + 1).min(is_hot.len());
        is_hot[range].contains(&true)
    };
    let mut shown = Vec::new();
    let mut hidden: Vec<TableLine<'_>> = Vec::new();
    for (index, line) in lines.into_iter().enumerate() {
        if is_near(index) {
            end_run(&mut shown, &mut hidden);
            shown.push(line);
        } else {
            hidden.push(line);
        }
    }
    end_run(&mut shown, &mut hidden);
    shown
}

/// Appends lines without samples, or one line that counts them.
fn end_run<'a>(shown: &mut Vec<TableLine<'a>>, hidden: &mut Vec<TableLine<'a>>) {
    // A line in the place of two saves nothing.
    if hidden.len() <= 2 {
        shown.append(hidden);
        return;
    }
    let mut names = vec![String::new(); hidden[0].names.len()];
    names[1] = format!("... {} without samples", hidden.len());
    hidden.clear();
    shown.push(TableLine { part: None, names });
}

/// Returns the lines below the tables: the omitted functions.
fn footer(context: &PrintContext<'_>) -> String {
    let PrintContext { selected, args, .. } = *context;
    let filter = args.options.filter().spelled_matches_of_calls().join(" ");
    let mut out = omitted(context, &selected.uncounted, "not counted", &filter);
    out += &omitted(context, &selected.dropped, "dropped", &args.limits().spelled());
    out += &omitted(context, &selected.not_shown, "not shown", "-n 0 prints all");
    let largest = selected.largest_without_code.as_deref().unwrap_or_default();
    let generated = match selected.lacks_generated_code {
        true => "; nprof-record --code records code generated at run time",
        false => "",
    };
    let reason =
        format!("such as {largest}; see the messages of nprof-symbolize --code{generated}");
    out += &omitted(context, &selected.without_code, "without code", &reason);
    out
}

/// Returns the line about functions omitted for one reason. Empty if there are none.
fn omitted(context: &PrintContext<'_>, omitted: &OmittedRows, verb: &str, reason: &str) -> String {
    let shares: Vec<String> = context
        .selected
        .events
        .iter()
        .map(|event| format!("{:.2} %", omitted.sum(event.event).percent_of(event.whole)))
        .collect();
    legend::omitted(omitted, "function", verb, &format!(", {} of self", shares.join(", ")), reason)
}
