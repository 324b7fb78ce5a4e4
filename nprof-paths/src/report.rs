//! From the command line to the report.

use std::process::ExitCode;

use nprof_report::profile::{Cell, Context, Split, Sum};
use nprof_report::report::{self, Failure, Report};
use nprof_report::summary::Summary;

use crate::args::{Args, TOOL};
use crate::print::context::Input;
use crate::print::dispatch;
use crate::select;
use crate::tree::aggregate::Builder;
use crate::tree::path_filter;

/// Runs the tool on the process's arguments.
pub fn run() -> ExitCode {
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
        let tree = path_filter::refine(&tree, &self.args.refinements).unwrap_or(tree);
        let events = select::events(summary, self.args)?;
        let shown = select::shown(&tree, &events, summary, self.args);
        dispatch::report(&Input { tree: &tree, shown: &shown, summary, args: self.args, width })
    }

    fn notes(&self, summary: &Summary) -> Vec<String> {
        select::note(summary, self.args).into_iter().collect()
    }
}
