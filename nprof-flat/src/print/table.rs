//! The report as a table: heading, one table, and below it the omitted rows.

use nprof_report::heading::{heading, marks};
use nprof_report::key::Key;
use nprof_report::layout;
use nprof_report::legend;
use nprof_report::profile::OmittedRows;
use nprof_stream::labels::CallKey;

use crate::print::context::PrintContext;
use crate::print::number_columns::TableColumns;
use crate::print::ratio_columns;

/// Maximum width of an image's base name on a terminal: functions need the room.
const IMAGE_WIDTH: usize = 14;

/// Prints the table with its heading.
pub(crate) fn print(context: &PrintContext<'_>) -> Vec<u8> {
    let PrintContext { selected, summary, args, width, .. } = *context;
    let mut out = heading(summary, args.options.verbose, &legend(context), width);
    if selected.events.is_empty() {
        // With no samples at all the heading says so.
        if !selected.all_events.is_empty() {
            out.push_str(&legend::nothing_counted(&args.rules()));
        }
        return out.into_bytes();
    }
    out.push('\n');
    let names = names(context);
    let table = TableColumns { context, names: &names }.fit();
    out.push_str(&layout::grouped(&table.cells, table.numbers, width, &table.groups));
    let mut below = footer(context);
    if !table.left_out.is_empty() {
        let left_out = table.left_out.join(", ");
        // Without a terminal only the memory of the table bounds it; lines of TSV need none.
        let remedy = if width.is_some() {
            "use a wider terminal, or -o FILE"
        } else {
            "print fewer rows (-n N), or use --format tsv"
        };
        below.push_str(&format!("no room for {left_out}: {remedy}\n"));
    }
    for line in marks(selected.events.iter().map(|event| &summary.events[event.event])) {
        below.push_str(&(line + "\n"));
    }
    // A terminal would break long lines in the middle of a word.
    for line in below.lines().flat_map(|line| layout::wrapped(line, width.unwrap_or(usize::MAX))) {
        out.push_str(&(line + "\n"));
    }
    out.into_bytes()
}

/// Returns the lines above a table: counted samples, the meaning of 100 % and of `±`.
fn legend(context: &PrintContext<'_>) -> Vec<String> {
    let args = context.args;
    // Rules that select rows have a line below the table.
    let rules =
        [args.options.sample_rules(), args.options.filter().spelled_excludes_of_calls()].concat();
    let mut lines = legend::counted(&context.selected.all_events, context.summary, &rules);
    let confidence = args.options.confidence().percent();
    let rest = match &context.selected.events[..] {
        [] => return lines,
        _ => format!("± is the margin of error at {confidence} % confidence"),
    };
    if let Some(per) = context.selected.per {
        lines.push(ratio_columns::legend(context, per));
    }
    lines.extend(legend::whole(args.options.rebase, args.options.verbose, &rest));
    lines.extend(context.folded_lines());
    lines
}

/// Returns the names of the columns, then those of each row.
fn names(context: &PrintContext<'_>) -> Vec<Vec<String>> {
    let mut names = vec![context.columns.iter().map(|&column| heading_of(column)).collect()];
    names.extend(
        context.selected.rows.iter().map(|row| row.names.iter().map(ToString::to_string).collect()),
    );
    // Files and pipes get complete names.
    if context.width.is_some() {
        shorten_images(&mut names, context.columns);
    }
    names
}

/// Returns the head of a column of names, with its unit.
fn heading_of(column: Key) -> String {
    match column {
        Key::Slice => format!("{} s", column.name()),
        _ => column.name().to_owned(),
    }
}

fn shorten_images(names: &mut [Vec<String>], columns: &[Key]) {
    let Some(column) = columns.iter().position(|&c| c == Key::Call(CallKey::ImageName)) else {
        return;
    };
    for line in names {
        line[column] = layout::cut(&line[column], IMAGE_WIDTH);
    }
}

/// Returns the lines below a table: the omitted rows.
fn footer(context: &PrintContext<'_>) -> String {
    let PrintContext { selected, args, .. } = *context;
    let filter = args.options.filter().spelled_matches_of_calls().join(" ");
    // With --rebase uncounted rows are not part of the 100 %, so they have no share.
    let mut out =
        omitted(context, &selected.uncounted, "not counted", &filter, !args.options.rebase);
    out += &omitted(context, &selected.dropped, "dropped", &args.row_limits().spelled(), true);
    out += &omitted(context, &selected.not_shown, "not shown", "-n 0 prints all", true);
    out
}

/// Returns the line about rows omitted for one reason, with their share of self if `has_share`.
/// Empty if there are none.
fn omitted(
    context: &PrintContext<'_>,
    omitted: &OmittedRows,
    verb: &str,
    reason: &str,
    has_share: bool,
) -> String {
    let mut shares = Vec::new();
    for event in &context.selected.events {
        let share = omitted.sum(event.event).percent_of(event.whole);
        shares.push(format!("{share:.2} %"));
    }
    let shares = if has_share { format!(", {} of self", shares.join(", ")) } else { String::new() };
    legend::omitted(omitted, "row", verb, &shares, reason)
}
