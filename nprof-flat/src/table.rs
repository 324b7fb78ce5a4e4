//! The report for people: heading, one table, and what was left out under it. Several events
//! stand side by side.

use nprof_format::escape::escaped;
use nprof_format::key::Key;
use nprof_format::labels::CallKey;
use nprof_format::layout::{self, Scale};
use nprof_format::profile::Sum;
use nprof_format::report::heading;
use nprof_format::summary::Summary;

use crate::args::Args;
use crate::flat::Row;
use crate::select::{Hidden, Selected, Shown};

/// On a terminal narrower than this names get the room of what another column tells as well.
const ROOMY: usize = 100;

/// How much wider it has to be for each further event.
const EVENT: usize = 28;

/// The base names of images are cut to this on a terminal, where functions need the room, and
/// further for each further event.
const IMAGE: usize = 14;
const IMAGE_EVENT: usize = 3;

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
    let further = selected.events.len() - 1;
    let is_narrow = width.is_some_and(|width| width < ROOMY + EVENT * further);
    let (mut cells, groups) = match &selected.events[..] {
        [shown] => (of_one(selected, shown, summary, args, is_narrow), Vec::new()),
        _ => of_several(selected, summary, args, is_narrow),
    };
    let numbers = cells[0].len();
    cells[0].extend(columns.iter().map(|column| column.name().to_owned()));
    for (line, row) in cells[1..].iter_mut().zip(&selected.rows) {
        line.extend(row.names.iter().cloned());
    }
    if width.is_some() {
        let most = IMAGE.saturating_sub(IMAGE_EVENT * further).max(IMAGE / 2);
        shorten_images(&mut cells, columns, numbers, most);
    }
    out.push_str(&layout::grouped(&cells, numbers, width, &groups));
    out.push_str(&footer(selected, args));
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

fn shorten_images(cells: &mut [Vec<String>], columns: &[Key], numbers: usize, most: usize) {
    let Some(column) = columns.iter().position(|&c| c == Key::Call(CallKey::ImageName)) else {
        return;
    };
    for line in cells {
        line[numbers + column] = layout::cut(&line[numbers + column], most);
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

/// The numbers of a table of one event.
fn of_one(
    selected: &Selected,
    shown: &Shown,
    summary: &Summary,
    args: &Args,
    is_narrow: bool,
) -> Vec<Vec<String>> {
    let scale = Scale::of(&summary.events[shown.event]);
    let weight = format!("{} {}", args.sort.what_decides(), scale.unit);
    let head: Vec<String> =
        ["self %", "±", "total %", "±", "samples", &weight].map(str::to_owned).into();
    let line = |row: &Row| {
        let tally = &row.tallies[shown.event];
        let margin = |sum: Sum| args.options.confidence().margin(sum.samples, shown.whole.samples);
        let decisive = args.sort.decisive(tally);
        vec![
            share(tally.own, shown.whole),
            format!("{:.2}", 100.0 * margin(tally.own)),
            share(tally.total, shown.whole),
            format!("{:.2}", 100.0 * margin(tally.total)),
            decisive.samples.to_string(),
            scale.print(decisive.weight),
        ]
    };
    let mut cells: Vec<Vec<String>> =
        [head].into_iter().chain(selected.rows.iter().map(line)).collect();
    if is_narrow {
        // The share tells the weight as well.
        cells.iter_mut().for_each(|line| line.truncate(5));
    }
    cells
}

/// Names of groups of columns.
type Groups = Vec<(std::ops::Range<usize>, String)>;

/// The numbers of a table of several events, and which columns are of which event.
fn of_several(
    selected: &Selected,
    summary: &Summary,
    args: &Args,
    is_narrow: bool,
) -> (Vec<Vec<String>>, Groups) {
    let columns: &[&str] =
        if is_narrow { &["self %", "total %"] } else { &["self %", "±", "total %", "samples"] };
    let mut head = vec!["weight".to_owned()];
    let mut groups = Vec::new();
    for shown in &selected.events {
        let name = escaped(&summary.events[shown.event].event.name);
        groups.push((head.len()..head.len() + columns.len(), name));
        head.extend(columns.iter().map(|&column| column.to_owned()));
    }
    let line = |row: &Row| {
        let mut line = vec![format!("{:.2}", selected.weight(row))];
        for shown in &selected.events {
            let tally = &row.tallies[shown.event];
            line.push(share(tally.own, shown.whole));
            if is_narrow {
                line.push(share(tally.total, shown.whole));
                continue;
            }
            let margin = args.options.confidence().margin(tally.own.samples, shown.whole.samples);
            line.push(format!("{:.2}", 100.0 * margin));
            line.push(share(tally.total, shown.whole));
            line.push(args.sort.decisive(tally).samples.to_string());
        }
        line
    };
    ([head].into_iter().chain(selected.rows.iter().map(line)).collect(), groups)
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
    line(&selected.dropped, "dropped", &args.choice().why(), true);
    line(&selected.more, "not shown", "-n 0 prints all", true);
    out
}
