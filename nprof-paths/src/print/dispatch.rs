//! Prints a report with the printer of its view and format.

use nprof_report::args::StackFormat;
use nprof_report::legend::nothing_counted;
use nprof_report::machine_formats::{csv, tsv};
use nprof_report::report::{Failure, heading};

use crate::args::View;
use crate::print::context::PrintContext;
use crate::print::folded::PathOrder;
use crate::print::{delimited, flamegraph, folded, graph_text, json, paths, tree_text};
use crate::rows::graph::graph_rows;
use crate::rows::paths::path_rows;
use crate::rows::tree::{inverted, tree_rows};

/// Prints the report of the command line's view, in its format.
///
/// # Errors
///
/// Fails if a row cannot be represented in the format.
pub(crate) fn report(context: &PrintContext<'_>) -> Result<Vec<u8>, Failure> {
    let is_empty = context.events.iter().all(|event| event.counted.samples == 0);
    // With no events at all the heading says that there are no samples.
    if context.args.format == StackFormat::Table && is_empty && !context.events.is_empty() {
        return Ok(nothing(context).into_bytes());
    }
    match context.args.view {
        View::Paths => print_paths(context, PathOrder::RootFirst),
        View::Callers if context.args.format.is_stacks() => {
            print_paths(context, PathOrder::LeafFirst)
        }
        View::Tree => print_tree(context),
        View::Callers => print_inverted_tree(context),
        View::Graph => print_graph(context),
    }
}

/// Returns the text that replaces a table if no sample counts.
fn nothing(context: &PrintContext<'_>) -> String {
    let heading = heading(context.summary, &context.counted(), context.width);
    heading + &nothing_counted(&context.args.rules())
}

fn print_paths(context: &PrintContext<'_>, order: PathOrder) -> Result<Vec<u8>, Failure> {
    let events = path_rows(context.tree, context.events, &context.args.row_limits());
    Ok(match context.args.format {
        StackFormat::Table => paths::print(context, &events),
        StackFormat::Folded => folded::print(context.tree, &events, order).into_bytes(),
        StackFormat::Flamegraph => {
            let folded = folded::print(context.tree, &events, order);
            flamegraph::draw(&folded, context.summary, &context.args.rules(), order)?
        }
        StackFormat::Tsv => tsv(&delimited::paths(context, &events)),
        StackFormat::Csv => csv(&delimited::paths(context, &events))?,
        StackFormat::Json => json::paths(context, &events)?,
    })
}

fn print_inverted_tree(context: &PrintContext<'_>) -> Result<Vec<u8>, Failure> {
    let inverted = inverted(context.tree, context.events, &context.args.row_limits());
    print_tree(&PrintContext { tree: &inverted, ..*context })
}

fn print_tree(context: &PrintContext<'_>) -> Result<Vec<u8>, Failure> {
    let events = tree_rows(context.tree, context.events, &context.args.row_limits());
    Ok(match context.args.format {
        StackFormat::Tsv => tsv(&delimited::tree(context, &events)),
        StackFormat::Csv => csv(&delimited::tree(context, &events))?,
        StackFormat::Json => json::tree(context, &events)?,
        // The command line refuses folded stacks and flame graphs of a tree.
        StackFormat::Table | StackFormat::Folded | StackFormat::Flamegraph => {
            tree_text::print(context, &events)
        }
    })
}

fn print_graph(context: &PrintContext<'_>) -> Result<Vec<u8>, Failure> {
    let events = graph_rows(context.tree, context.events, &context.args.row_limits());
    Ok(match context.args.format {
        StackFormat::Tsv => tsv(&delimited::graph(context, &events)),
        StackFormat::Csv => csv(&delimited::graph(context, &events))?,
        StackFormat::Json => json::graph(context, &events)?,
        // The command line refuses folded stacks and flame graphs of a graph.
        StackFormat::Table | StackFormat::Folded | StackFormat::Flamegraph => {
            graph_text::print(context, &events)
        }
    })
}
