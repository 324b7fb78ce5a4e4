//! From the command line to the report.

use std::process::ExitCode;

use nprof_report::profile::{Cell, Context, Split, Sum};
use nprof_report::report::{self, Failure, Renderer, Report};
use nprof_report::summary::Summary;

use crate::args::{Args, TOOL};
use crate::print::context::Input;
use crate::print::dispatch;
use crate::select::{self, Shown};
use crate::tree::aggregate::Builder;
use crate::tree::call_tree::Tree;
use crate::tree::path_filter;

/// Runs the tool on the process's arguments.
pub fn run() -> ExitCode {
    let args = match Args::get(TOOL) {
        Ok(args) => args,
        Err(end) => return end,
    };
    let builder = Builder::new(args.format.is_folded(), args.options.filter());
    report::run(
        TOOL,
        &args.options,
        PathsReport { builder, args: &args },
        &PathsRenderer { args: &args },
    )
}

/// The samples by path, and the options that select paths.
#[derive(Clone)]
struct PathsReport<'a> {
    builder: Builder,
    args: &'a Args,
}

impl Report for PathsReport<'_> {
    type Rows = Paths;

    fn split(&self) -> Split {
        self.builder.split()
    }

    fn add(&mut self, context: &Context<'_>, cell: &Cell, sum: Sum) {
        self.builder.add(context, cell, sum);
    }

    fn rows(&self, summary: &Summary) -> Result<Paths, Failure> {
        let tree = self.builder.finish();
        let tree = path_filter::refine(&tree, &self.args.refinements).unwrap_or(tree);
        let events = select::events(summary, self.args)?;
        let shown = select::shown(&tree, &events, summary, self.args);
        Ok(Paths { tree, shown })
    }

    fn notes(&self, summary: &Summary) -> Vec<String> {
        select::note(summary, self.args).into_iter().collect()
    }
}

/// The call tree, and the events that are reported on.
struct Paths {
    tree: Tree,
    shown: Vec<Shown>,
}

/// Prints the view of the command line.
struct PathsRenderer<'a> {
    args: &'a Args,
}

impl Renderer<Paths> for PathsRenderer<'_> {
    fn render(
        &self,
        paths: &Paths,
        summary: &Summary,
        width: Option<usize>,
    ) -> Result<Vec<u8>, Failure> {
        let Paths { tree, shown } = paths;
        dispatch::report(&Input { tree, shown, summary, args: self.args, width })
    }
}
