//! The report for people: heading, one table, and what was left out under it.

use nprof_report::key::Key;
use nprof_report::layout;
use nprof_report::profile::Sum;
use nprof_report::report::heading;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;
use nprof_stream::labels::CallKey;

use crate::args::Args;
use crate::print::numbers::Table;
use crate::rows::select::{Hidden, Selected, Shown};

/// The base names of images are cut to this on a terminal, where functions need the room.
const IMAGE: usize = 14;

/// The whole report. `width` is the terminal's, if it goes to one.
pub(crate) fn print(
    columns: &[Key],
    selected: &Selected,
    summary: &Summary,
    args: &Args,
    width: Option<usize>,
) -> Vec<u8> {
    let mut out = heading(summary, &legend(selected, summary, args), width);
    if selected.events.is_empty() {
        out.push_str(&nothing(selected, args));
        return out.into_bytes();
    }
    out.push('\n');
    let head = columns.iter().map(|column| column.name().to_owned()).collect();
    let rows = selected.rows.iter().map(|row| row.names.clone());
    let mut names: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    if width.is_some() {
        shorten_images(&mut names, columns);
    }
    let table = Table { selected, summary, args, names: &names };
    let columns = table.fitting(width);
    out.push_str(&layout::grouped(&columns.cells, columns.numbers, width, &columns.groups));
    let mut below = footer(selected, args);
    if !columns.left_out.is_empty() {
        let left_out = columns.left_out.join(", ");
        below.push_str(&format!("no room for {left_out} (a wider terminal or a file has them)\n"));
    }
    for line in below.lines().flat_map(|line| layout::wrapped(line, width.unwrap_or(usize::MAX))) {
        out.push_str(&(line + "\n"));
    }
    out.into_bytes()
}

/// What is counted, what the shares are of, and what `±` or a weight is.
fn legend(selected: &Selected, summary: &Summary, args: &Args) -> Vec<String> {
    let mut lines = counted(selected, summary, args);
    let whole = match args.options.rebase {
        false => "100 % is all samples of the event; ",
        true => "100 % is the samples of the event that are counted (--rebase);\n",
    };
    let confidence = args.options.confidence().percent();
    let text = match &selected.events[..] {
        [] => String::new(),
        [_] => format!("{whole}± is the margin of error at {confidence} % confidence"),
        _ => format!("{whole}weight is the mean of a row's total shares"),
    };
    lines.extend(text.lines().map(str::to_owned));
    lines
}

/// How many samples count, if not all.
fn counted(selected: &Selected, summary: &Summary, args: &Args) -> Vec<String> {
    let rules = args.options.sample_rules().join(" ");
    let line = |shown: &Shown| {
        let event = &summary.events[shown.event];
        let name = match &selected.all[..] {
            [_] => String::new(),
            _ => format!(" of {}", escaped(&event.event.name)),
        };
        let counted = shown.uncounted.rest_of(event.sum);
        let (some, all, share) = (counted.samples, event.sum.samples, share(counted, event.sum));
        format!("counted: {some} of {all} samples{name}, {share} % ({rules})")
    };
    if rules.is_empty() { Vec::new() } else { selected.all.iter().map(line).collect() }
}

fn shorten_images(names: &mut [Vec<String>], columns: &[Key]) {
    let Some(column) = columns.iter().position(|&c| c == Key::Call(CallKey::ImageName)) else {
        return;
    };
    for line in names {
        line[column] = layout::cut(&line[column], IMAGE);
    }
}

fn share(sum: Sum, whole: Sum) -> String {
    format!("{:.2}", sum.percent_of(whole))
}

/// What stands in place of a table where no sample counts.
fn nothing(selected: &Selected, args: &Args) -> String {
    if selected.all.is_empty() {
        return String::new();
    }
    let rules = [args.options.sample_rules(), args.options.filter().spelled(true)].concat();
    format!("\nnothing is counted ({})\n", rules.join(" "))
}

/// The lines under a table: what is not in it.
fn footer(selected: &Selected, args: &Args) -> String {
    let mut out = String::new();
    let mut line = |hidden: &Hidden, what: &str, why: &str, of_whole: bool| {
        if hidden.rows == 0 {
            return;
        }
        let shares = selected.events.iter().filter(|_| of_whole).map(|shown| {
            let own = hidden.own.get(shown.event).copied().unwrap_or_default();
            format!("{} %", share(own, shown.whole))
        });
        let s = if hidden.rows == 1 { "" } else { "s" };
        let shares = shares.collect::<Vec<_>>().join(", ");
        let shares = if of_whole { format!(", {shares} of self") } else { shares };
        out.push_str(&format!("{} row{s} {what}{shares} ({why})\n", hidden.rows));
    };
    // With --rebase they are no part of the 100 %.
    let filter = args.options.filter().spelled(true).join(" ");
    line(&selected.uncounted, "not counted", &filter, !args.options.rebase);
    line(&selected.dropped, "dropped", &args.row_limits().spelled(), true);
    line(&selected.more, "not shown", "-n 0 prints all", true);
    out
}
