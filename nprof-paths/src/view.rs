//! Which printer a report goes to.

use anyhow::Context;
use nprof_format::escape::escaped;
use nprof_format::summary::Summary;

use crate::args::{Args, Format};
use crate::tree::Tree;
use crate::{flamegraph, folded, json, outline, paths, select, separated};

/// The report that was asked for. `width` is the terminal's, if it goes to one.
pub(crate) fn report(
    tree: &Tree,
    events: &[usize],
    summary: &Summary,
    args: &Args,
    width: Option<usize>,
) -> anyhow::Result<Vec<u8>> {
    let choice = args.choice();
    if args.has_tree() {
        return match args.format {
            Format::Json => json::tree(tree, events, summary, &choice),
            Format::Tsv => Ok(separated::tsv(&separated::tree(tree, events, summary, &choice))),
            Format::Csv => separated::csv(&separated::tree(tree, events, summary, &choice)),
            _ => Ok(outline::print(tree, events, summary, &choice, width)),
        };
    }
    let sections = select::paths(tree, events, summary, &choice);
    match args.format {
        Format::Table => Ok(paths::print(tree, &sections, summary, &choice, width)),
        Format::Folded => Ok(folded::print(tree, &sections).into_bytes()),
        Format::Flamegraph => {
            let commands: Vec<String> = summary
                .runs
                .iter()
                .filter_map(|run| run.head.as_ref())
                .map(|head| escaped(&head.command))
                .collect();
            let folded = folded::print(tree, &sections);
            flamegraph::draw(&folded, &commands.join(", ")).context("drawing the flame graph")
        }
        Format::Tsv => Ok(separated::tsv(&separated::paths(tree, &sections, summary))),
        Format::Csv => separated::csv(&separated::paths(tree, &sections, summary)),
        Format::Json => json::paths(tree, &sections, summary),
    }
}

/// The lines above a table.
pub(crate) fn heading(summary: &Summary, legend: &str) -> String {
    let mut out = summary.heading().join("\n");
    out.push('\n');
    if summary.samples() > 0 {
        out.push_str(legend);
        out.push('\n');
    }
    out
}
