//! The data of the page: facts, names, the rows of functions and source lines, and the tree of call paths.

use std::collections::BTreeSet;

use nprof_report::heading::marks;
use nprof_report::page::{Numbers, shorten};
use nprof_stream::escape::escaped;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::compare::fail_on::{self, Bound};
use crate::compare::row::{Row, RowChange};
use crate::input::event::{AmountUnit, ComparedEvent};
use crate::input::key::RowKey;
use crate::input::side::Side;
use crate::print::heading;
use crate::print::page::metrics::{CHANGES, push_row};
use crate::print::page::tree::{Node, heaviest};
use crate::print::report::{DiffReport, DiffRows};
use crate::print::text::{confidence, min_growth};

/// The most functions, source lines and paths. A page of 2 MB has room for them unless their numbers are long.
const MAX_FUNCTIONS: usize = 5_000;
const MAX_SOURCE_LINES: usize = 1_000;
const MAX_PATHS: usize = 15_000;

/// The length of the numbers of functions, of functions and source lines, and of all numbers. The other parts of
/// 2 MB are names, facts and notes, 60 kB of style and script, and up to 6 bytes for the image of each function.
const ROW_BYTES: usize = 700_000;
const LINE_BYTES: usize = 900_000;
const NUMBER_BYTES: usize = 1_100_000;

/// The length of the names of functions, of source lines, of images, and of facts and notes.
const FUNCTION_BYTES: usize = 450_000;
const LINE_NAME_BYTES: usize = 100_000;
const IMAGE_BYTES: usize = 50_000;
const FACT_BYTES: usize = 50_000;

/// The length of the commands in the title.
const COMMAND_BYTES: usize = 2_000;

/// The most facts and notes of a kind.
const MAX_LINES: usize = 50;

/// Returns the data. The file `assets/comparison.js` reads it.
pub(super) fn data(report: &DiffReport<'_>) -> Value {
    let rows = report.sorted_rows();
    let mut rows = &rows[..rows.len().min(report.row_limit).min(MAX_FUNCTIONS)];
    let mut names = Names::default();
    let mut functions = Numbers::default();
    // The script takes the number of a row for that of its function: rows come first.
    for (index, row) in rows.iter().enumerate() {
        if functions.text_bytes() > ROW_BYTES {
            rows = &rows[..index];
            break;
        }
        names.number(report.keys.get(row.key));
        push_row(&mut functions, row, true);
    }
    let room = LINE_BYTES.saturating_sub(functions.text_bytes());
    let (lines, mut line_names) = lines(report, room);
    let room = NUMBER_BYTES.saturating_sub(functions.text_bytes() + lines.text_bytes());
    let (tree, paths) = tree_within(room, report.paths.as_ref(), &mut names);
    let root = names.number(&RowKey::of_name(b"all samples"));
    let mut notes = notes(report);
    notes.extend(left_out(report, [rows.len(), line_names.len(), paths]));
    let shortened = shorten(&mut names.functions, FUNCTION_BYTES)
        + shorten(&mut names.images, IMAGE_BYTES)
        + shorten(&mut line_names, LINE_NAME_BYTES);
    if shortened > 0 {
        notes.push(format!("{shortened} long names are cut in the middle"));
    }
    let unit = report.event.and_then(ComparedEvent::amount_unit);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "command": command(report),
        "confidence": confidence(report.diff.criteria.alpha),
        "facts": facts(report),
        "notes": notes,
        "changes": CHANGES.map(RowChange::word),
        "has_amounts": unit.is_some(),
        "unit": unit.map(|unit| match unit {
            AmountUnit::Ns => "ns",
            AmountUnit::Bytes => "bytes",
            AmountUnit::Count => "count",
        }),
        "names": names.functions,
        "images": names.images,
        "image_of": names.image_of,
        "root": root,
        "rows": functions.text(),
        "line_names": line_names,
        "lines": lines.text(),
        "nodes": tree.text(),
    })
}

/// Returns the numbers and the names of the source lines with the largest differences, as long as they take at
/// most `bytes`.
fn lines(report: &DiffReport<'_>, bytes: usize) -> (Numbers, Vec<String>) {
    let (mut numbers, mut names) = (Numbers::default(), Vec::new());
    let Some(lines) = &report.lines else { return (numbers, names) };
    for row in lines.sorted_rows(report.sort).into_iter().take(MAX_SOURCE_LINES) {
        if names.len() == report.row_limit || numbers.text_bytes() > bytes {
            break;
        }
        names.push(lines.keys.name(row.key));
        push_row(&mut numbers, row, true);
    }
    (numbers, names)
}

/// Returns the numbers of the heaviest paths, and how many there are: [`MAX_PATHS`], or fewer if these are longer
/// than `bytes`.
fn tree_within(bytes: usize, paths: Option<&DiffRows<'_>>, names: &mut Names) -> (Numbers, usize) {
    let Some(all) = paths else { return (Numbers::default(), 0) };
    let mut limit = MAX_PATHS;
    loop {
        let nodes = heaviest(all, limit);
        let mut with_paths = names.clone();
        let numbers = tree(paths, &nodes, &mut with_paths);
        let length = numbers.text_bytes();
        if length <= bytes || nodes.is_empty() {
            *names = with_paths;
            return (numbers, nodes.len());
        }
        // The paths that remain may be the longer ones: it takes two or three times.
        limit = (nodes.len() * bytes / length).min(nodes.len() - 1);
    }
}

/// Returns for each path by how much its depth is below the deepest possible, its function and its row.
fn tree(paths: Option<&DiffRows<'_>>, nodes: &[Node<'_>], names: &mut Names) -> Numbers {
    let mut numbers = Numbers::default();
    // The root of the page has all samples.
    let mut deepest = 1;
    for node in nodes {
        let Some(paths) = paths else { break };
        numbers.push(deepest - node.depth);
        numbers.push(names.number(paths.keys.get(node.row.key)) as u64);
        push_row(&mut numbers, node.row, false);
        deepest = node.depth + 1;
    }
    numbers
}

/// The names of functions and images, by number.
#[derive(Clone, Debug, Default)]
struct Names {
    functions: Vec<String>,
    images: Vec<String>,
    image_of: Vec<usize>,
    by_key: FxHashMap<RowKey, usize>,
    by_image: FxHashMap<Vec<u8>, usize>,
}

impl Names {
    /// Returns the number of a function; adds it if it is new.
    fn number(&mut self, key: &RowKey) -> usize {
        // Of a path, the function at its end.
        let key = RowKey { caller: None, ..key.clone() };
        if let Some(&number) = self.by_key.get(&key) {
            return number;
        }
        let image = *self.by_image.entry(key.image.to_vec()).or_insert_with(|| {
            self.images.push(escaped(&key.image));
            self.images.len() - 1
        });
        let number = self.functions.len();
        self.functions.push(escaped(&key.name));
        self.image_of.push(image);
        self.by_key.insert(key, number);
        number
    }
}

/// Returns the commands of both sides; once if they are equal.
fn command(report: &DiffReport<'_>) -> String {
    let [base, new] = [report.base, report.new].map(heading::subject);
    let mut commands = if base == new { vec![base] } else { vec![format!("{base} → {new}")] };
    shorten(&mut commands, COMMAND_BYTES);
    commands.concat()
}

/// Returns facts as pairs of name and value.
fn facts<'a>(report: &DiffReport<'a>) -> Vec<[String; 2]> {
    let mut facts: Vec<(&str, String)> = Vec::new();
    let sides: [(&Side, _); 2] = [(report.base, report.diff.base), (report.new, report.diff.new)];
    for (side, totals) in sides {
        let lines = heading::recordings(report.event, side, totals);
        facts.extend(lines.into_iter().map(|line| (side.name, line)));
    }
    let [base, new] =
        [report.base, report.new].map(|side| heading::circumstances(report.event, side));
    if base == new {
        facts.extend(base.into_iter().map(|line| ("both", line)));
    } else {
        facts.extend(base.into_iter().map(|line| ("base", line)));
        facts.extend(new.into_iter().map(|line| ("new", line)));
    }
    let unit = report.event.and_then(ComparedEvent::amount_unit);
    facts.extend(unit.map(|unit| ("run", heading::run_amount(report, unit))));
    facts.extend(
        report.moved_directories.iter().map(|moved| ("files", heading::moved_directory(moved))),
    );
    facts.push(("method", heading::method(report)));
    facts.push(("result", fail_on::result(report.diff, report.bounds).word().to_owned()));
    let rows =
        |bound: &'a Bound| report.rows_beyond(bound).into_iter().map(move |row| (bound, row));
    let beyond: Vec<(&Bound, &Row)> = report.bounds.iter().flat_map(rows).collect();
    facts.extend(beyond.iter().take(MAX_LINES).map(|(bound, row)| {
        let name = report.keys.name(row.key);
        ("beyond", format!("{bound}: {name}{}", min_growth(bound, row)))
    }));
    if beyond.len() > MAX_LINES {
        facts.push(("beyond", format!("{} more", beyond.len() - MAX_LINES)));
    }
    facts.retain(|(_, text)| !text.is_empty());
    let (names, mut texts): (Vec<&str>, Vec<String>) = facts.into_iter().unzip();
    shorten(&mut texts, FACT_BYTES);
    names.into_iter().zip(texts).map(|(name, text)| [name.to_owned(), text]).collect()
}

/// Returns sentences on the comparison: warnings, names, marks of incomplete stacks, possible renames.
fn notes(report: &DiffReport<'_>) -> Vec<String> {
    let DiffReport { base, new, event, keys, .. } = *report;
    let mut notes: Vec<String> =
        report.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    notes.extend(fail_on::missing(report.diff, report.bounds));
    notes.extend(heading::unnamed(event, &[base, new]));
    for pair in report.rename_candidates {
        let [old, new] = [pair.old, pair.new].map(|row| keys.name(row.key));
        notes.push(format!("possible rename: {old} to {new} (--rename FILE joins them)"));
    }
    let sides = [base, new];
    let events = event.iter().flat_map(|event| sides.iter().flat_map(|side| event.summaries(side)));
    // The sides have mostly the same marks.
    notes.extend(marks(events).into_iter().collect::<BTreeSet<String>>());
    let more = notes.len().saturating_sub(MAX_LINES);
    notes.truncate(MAX_LINES);
    if more > 0 {
        notes.push(format!("{more} more notes"));
    }
    shorten(&mut notes, FACT_BYTES);
    notes
}

/// Returns sentences on the functions, lines and paths that are not on the page, from the numbers of those that are.
fn left_out(report: &DiffReport<'_>, [rows, lines, nodes]: [usize; 3]) -> Vec<String> {
    let functions = report.diff.rows.len() - rows;
    let lines = report.lines.as_ref().map_or(0, |all| all.diff.rows.len() - lines);
    let paths = report.paths.as_ref().map_or(0, |paths| paths.diff.rows.len() - nodes);
    let kinds = [
        (functions, "further functions"),
        (lines, "further lines"),
        (paths, "call paths with smaller shares"),
    ];
    kinds
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, rows)| format!("{number} {rows} are not on this page"))
        .collect()
}
