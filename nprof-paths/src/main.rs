//! nprof-paths: how the programs of a recording got where they were. Reads streams, writes call
//! paths, call trees, call graphs, folded stacks or a flame graph.
//!
//!     nprof-record -o - -- ./prog | nprof-symbolize | nprof-paths --view tree

mod args;
mod builder;
mod cycles;
mod entries;
mod flamegraph;
mod folded;
mod graph;
mod input;
mod invert;
mod json;
mod outline;
mod paths;
mod refine;
mod repeats;
mod select;
mod separated;
#[cfg(test)]
mod tests;
mod tree;
mod view;

use std::process::ExitCode;

use nprof_format::profile::{Cell, Context, Split, Sum};
use nprof_format::report::{self, Failure, Report};
use nprof_format::summary::Summary;

use args::Args;
use builder::Builder;

/// What messages begin with.
const TOOL: &str = "nprof-paths";

fn main() -> ExitCode {
    let args = match Args::get(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    let builder = Builder::new(args.format.is_folded(), args.options.filter());
    report::run(TOOL, &args.options, Printed { builder, args: &args })
}

/// The paths, and how they are to be printed.
#[derive(Clone)]
struct Printed<'a> {
    builder: Builder,
    args: &'a Args,
}

impl Report for Printed<'_> {
    fn split(&self) -> Split {
        self.builder.split()
    }

    fn add(&mut self, context: &Context<'_>, cell: &Cell, sum: Sum) {
        self.builder.add(context, cell, sum);
    }

    fn print(&self, summary: &Summary, width: Option<usize>) -> Result<Vec<u8>, Failure> {
        let tree = self.builder.finish();
        let tree = refine::refine(&tree, &self.args.refinements).unwrap_or(tree);
        let events = select::events(summary, self.args)?;
        let shown = select::shown(&tree, &events, summary, self.args);
        view::report(&input::Input { tree: &tree, shown: &shown, summary, args: self.args, width })
    }

    fn notes(&self, summary: &Summary) -> Vec<String> {
        select::note(summary, self.args).into_iter().collect()
    }
}
