//! Which printer a report goes to.

use nprof_report::machine::{csv, tsv};
use nprof_report::report::{Failure, heading};

use crate::args::{Format, View};
use crate::print::context::Input;
use crate::print::{delimited, flamegraph, folded, graph_text, json, paths, tree_text};
use crate::select;
use crate::tree::{graph, invert};

/// What stands in place of a table where no sample counts.
fn nothing(input: &Input<'_>) -> String {
    let rules = input.args.rules().join(" ");
    format!(
        "{}\nnothing is counted ({rules})\n",
        heading(input.summary, &input.counted(), input.width)
    )
}

/// The report that was asked for.
///
/// # Errors
///
/// When it cannot be spelled.
pub(crate) fn report(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    let is_nothing = input.shown.iter().all(|shown| shown.counted.samples == 0);
    if input.args.format == Format::Table && is_nothing && !input.shown.is_empty() {
        return Ok(nothing(input).into_bytes());
    }
    match input.args.view {
        View::Paths => of_paths(input),
        View::Tree => of_tree(input),
        View::Callers => {
            let inverted = invert::invert(input.tree, input.shown, &input.args.row_limits());
            of_tree(&Input { tree: &inverted, ..*input })
        }
        View::Graph => of_graph(input),
    }
}

fn of_paths(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    let sections = select::paths(input.tree, input.shown, &input.args.row_limits());
    let reverse = input.args.reverse;
    Ok(match input.args.format {
        Format::Table => paths::print(input, &sections),
        Format::Folded => folded::print(input.tree, &sections, reverse).into_bytes(),
        Format::Flamegraph => {
            let folded = folded::print(input.tree, &sections, reverse);
            flamegraph::draw(&folded, input.summary, &input.args.rules(), reverse)?
        }
        Format::Tsv => tsv(&delimited::paths(input, &sections)),
        Format::Csv => csv(&delimited::paths(input, &sections))?,
        Format::Json => json::paths(input, &sections)?,
    })
}

fn of_tree(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    Ok(match input.args.format {
        Format::Tsv => tsv(&delimited::tree(input)),
        Format::Csv => csv(&delimited::tree(input))?,
        Format::Json => json::tree(input)?,
        _ => tree_text::print(input),
    })
}

fn of_graph(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    let choice = input.args.row_limits();
    let graphs: Vec<graph::Chosen> = input
        .shown
        .iter()
        .map(|&shown| graph::choose(graph::Graph::of(input.tree, shown.event), shown, &choice))
        .collect();
    Ok(match input.args.format {
        Format::Tsv => tsv(&delimited::graph(input, &graphs)),
        Format::Csv => csv(&delimited::graph(input, &graphs))?,
        Format::Json => json::graph(input, &graphs)?,
        _ => graph_text::print(input, &graphs),
    })
}
