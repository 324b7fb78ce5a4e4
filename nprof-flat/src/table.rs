//! The report for people: heading, one table per event, and what was left out under it.

use nprof_format::escape::escaped;
use nprof_format::labels::CallKey;
use nprof_format::layout::{self, Scale};
use nprof_format::margin::Confidence;
use nprof_format::profile::Sum;
use nprof_format::summary::{EventSummary, Summary};

use crate::args::Args;
use crate::key::Column;
use crate::select::{Choice, Section, Sort, percent};

/// The whole report. `width` is the terminal's, if it goes to one.
pub(crate) fn print(
    columns: &[Column],
    sections: &[Section],
    summary: &Summary,
    args: &Args,
    width: Option<usize>,
) -> Vec<u8> {
    let mut out = String::new();
    for line in summary.heading() {
        out.push_str(&line);
        out.push('\n');
    }
    if !sections.is_empty() {
        out.push_str(&format!(
            "100 % is all samples of the event; ± is the margin of error at {} % confidence\n",
            args.confidence.percent(),
        ));
    }
    let choice = args.choice();
    for section in sections {
        let event = &summary.events[section.event];
        out.push('\n');
        if sections.len() > 1 {
            out.push_str(&format!("{}:\n", escaped(&event.event.name)));
        }
        let mut cells = cells(columns, section, event, &choice, args.confidence);
        let mut numbers = NUMBERS;
        if let Some(width) = width {
            shorten_images(&mut cells, columns);
            if width < ROOMY {
                numbers -= 1;
                cells.iter_mut().for_each(|line| drop(line.remove(numbers)));
            }
        }
        out.push_str(&layout::lines(&cells, numbers, width));
        out.push_str(&footer(section, event.sum, &choice));
    }
    out.into_bytes()
}

/// How many columns of numbers stand before the names. The last one is the weight, which a
/// share tells as well.
const NUMBERS: usize = 6;

/// On a terminal narrower than this names get the room of the weight.
const ROOMY: usize = 100;

/// The base names of images are cut to this on a terminal, where functions need the room.
const IMAGE: usize = 14;

fn shorten_images(cells: &mut [Vec<String>], columns: &[Column]) {
    let Some(column) = columns.iter().position(|&c| c == Column::Call(CallKey::ImageName)) else {
        return;
    };
    for line in cells {
        line[NUMBERS + column] = layout::cut(&line[NUMBERS + column], IMAGE);
    }
}

fn cells(
    columns: &[Column],
    section: &Section,
    event: &EventSummary,
    choice: &Choice,
    confidence: Confidence,
) -> Vec<Vec<String>> {
    let scale = Scale::of(event);
    let which = if choice.sort == Sort::Total { "total" } else { "self" };
    let weight = format!("{which} {}", scale.unit);
    let mut head: Vec<String> =
        ["self %", "±", "total %", "±", "samples", &weight].map(str::to_owned).into();
    head.extend(columns.iter().map(|column| column.name().to_owned()));
    let mut cells = vec![head];
    for row in &section.rows {
        let decisive = choice.decisive(row);
        let mut line = Vec::new();
        for sum in [row.own, row.total] {
            let margin = confidence.margin(sum.samples, event.sum.samples);
            line.push(format!("{:.2}", percent(sum, event.sum)));
            line.push(format!("{:.2}", 100.0 * margin));
        }
        line.push(decisive.samples.to_string());
        line.push(scale.print(decisive.weight));
        line.extend(row.names.iter().cloned());
        cells.push(line);
    }
    cells
}

/// The lines under a table: what is not in it.
fn footer(section: &Section, whole: Sum, choice: &Choice) -> String {
    let mut out = String::new();
    let dropped = &section.dropped;
    if dropped.rows > 0 {
        let share = percent(dropped.own, whole);
        let (rows, why) = (count(dropped.rows), choice.why());
        out.push_str(&format!("{rows} dropped, {share:.2} % of self ({why})\n"));
    }
    if section.more.rows > 0 {
        let share = percent(section.more.own, whole);
        let rows = count(section.more.rows);
        out.push_str(&format!("{rows} not shown, {share:.2} % of self (-n 0 prints all)\n"));
    }
    out
}

fn count(rows: usize) -> String {
    format!("{rows} row{}", if rows == 1 { "" } else { "s" })
}
