//! Prints a report with the printer of its view and format.

use std::io::Write;

use nprof_report::args::StackFormat;
use nprof_report::heading::{heading, marks};
use nprof_report::layout::wrapped;
use nprof_report::legend::nothing_counted;
use nprof_report::machine_formats::{csv, tsv};
use nprof_report::ratio::Per;
use nprof_report::report::Failure;

use crate::args::View;
use crate::print::context::PrintContext;
use crate::print::{delimited, flamegraph, folded, graph_text, json, page, paths, tree_text};
use crate::rows::graph::graph_rows;
use crate::rows::paths::path_rows;
use crate::rows::ratios::ratio_paths;
use crate::rows::stacks::{drawn_rows, stack_rows};
use crate::rows::tree::{inverted, tree_rows};

/// Prints the report of the command line's view, in its format.
///
/// # Errors
///
/// Fails if the output does, or if a row cannot be represented in the format.
pub(crate) fn report(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let is_empty = context.events.iter().all(|event| event.counted.samples == 0);
    // With no events at all the heading says that there are no samples.
    if context.args.format == StackFormat::Table && is_empty && !context.events.is_empty() {
        return Ok(out.write_all(nothing(context).as_bytes())?);
    }
    if context.args.format == StackFormat::Html {
        return Ok(page::write(context, out)?);
    }
    if context.args.format.is_stacks() {
        return print_stacks(context, out);
    }
    match context.args.view {
        View::Paths => print_paths(context, out),
        View::Tree => print_tree(context, out),
        View::Callers => print_inverted_tree(context, out),
        View::Graph => print_graph(context, out),
    }?;
    if context.args.format == StackFormat::Table {
        print_marks(context, out)?;
    }
    Ok(())
}

/// Prints the meaning of the marks that are on paths.
fn print_marks(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let events = &context.summary.events;
    let marks = marks(context.events.iter().map(|event| &events[event.event]));
    // An entry of the graph ends in an empty line.
    if !marks.is_empty() && context.args.view != View::Graph {
        writeln!(out)?;
    }
    for line in marks.iter().flat_map(|line| wrapped(line, context.width.unwrap_or(usize::MAX))) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Returns the text that replaces a table if no sample counts.
fn nothing(context: &PrintContext<'_>) -> String {
    let is_verbose = context.args.options.verbose;
    let heading = heading(context.summary, is_verbose, &context.counted(), context.width);
    heading + &nothing_counted(&context.args.rules())
}

fn print_stacks(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let limits = context.args.row_limits();
    let inverted = (context.args.view == View::Callers)
        .then(|| inverted(context.tree, context.events, &limits));
    let tree = inverted.as_ref().unwrap_or(context.tree);
    match context.args.format {
        StackFormat::Folded => {
            folded::write(tree, &stack_rows(tree, context.events, &limits), out)?;
        }
        _ => {
            let (events, limits) = drawn_rows(tree, context.events, &limits);
            out.write_all(&flamegraph::draw(context, tree, &events, &limits)?)?;
        }
    }
    Ok(())
}

fn print_paths(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    // The rows are then the paths of the divisor.
    if let Some(per) = context.per {
        return print_ratios(context, per, out);
    }
    let events = path_rows(context.tree, context.events, &context.args.row_limits());
    match context.args.format {
        StackFormat::Tsv => tsv(delimited::paths(context, &events), out)?,
        StackFormat::Csv => csv(delimited::paths(context, &events), out)?,
        StackFormat::Json => json::paths(context, &events, out)?,
        // Folded stacks and flame graphs are printed by print_stacks.
        _ => paths::print(context, &events, out)?,
    }
    Ok(())
}

/// Prints the paths of the divisor.
fn print_ratios(context: &PrintContext<'_>, per: Per, out: &mut dyn Write) -> Result<(), Failure> {
    let events =
        ratio_paths(context.tree, context.summary, context.events, per, &context.args.row_limits());
    match context.args.format {
        StackFormat::Tsv => tsv(delimited::ratios(context, &events), out)?,
        StackFormat::Csv => csv(delimited::ratios(context, &events), out)?,
        StackFormat::Json => json::ratios(context, &events, out)?,
        _ => paths::print_ratios(context, &events, per, out)?,
    }
    Ok(())
}

fn print_inverted_tree(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let inverted = inverted(context.tree, context.events, &context.args.row_limits());
    print_tree(&PrintContext { tree: &inverted, ..*context }, out)
}

fn print_tree(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let events = tree_rows(context.tree, context.events, &context.args.row_limits());
    match context.args.format {
        StackFormat::Tsv => tsv(delimited::tree(context, &events), out)?,
        StackFormat::Csv => csv(delimited::tree(context, &events), out)?,
        StackFormat::Json => json::tree(context, &events, out)?,
        // The command line refuses folded stacks and flame graphs of a tree.
        _ => tree_text::print(context, &events, out)?,
    }
    Ok(())
}

fn print_graph(context: &PrintContext<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let events = graph_rows(context.tree, context.events, &context.args.row_limits());
    match context.args.format {
        StackFormat::Tsv => tsv(delimited::graph(context, &events), out)?,
        StackFormat::Csv => csv(delimited::graph(context, &events), out)?,
        StackFormat::Json => json::graph(context, &events, out)?,
        // The command line refuses folded stacks and flame graphs of a graph.
        _ => graph_text::print(context, &events, out)?,
    }
    Ok(())
}
