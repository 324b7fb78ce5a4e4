//! Runs the tool: from the command line to the printed report.

use std::io::Write;
use std::process::ExitCode;

use nprof_cli::usage;
use nprof_report::args::TableFormat;
use nprof_report::machine_formats::{csv, tsv};
use nprof_report::profile::{Context, GroupBy, GroupKey, Sum};
use nprof_report::report::{self, Failure, Report};
use nprof_report::summary::Summary;
use nprof_report::time::TimeSplit;

use crate::args::{Args, TOOL};
use crate::print::context::PrintContext;
use crate::print::{machine, table};
use crate::rows::annotation::Annotation;
use crate::rows::select::{Selected, select};

/// Runs nprof-annotate with the arguments of the process; returns its exit status.
pub fn run() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let time = TimeSplit { slice: None, span: args.options.time };
    let annotation = Annotation::new(time, args.options.filter());
    let report = AnnotateReport { annotation, args: &args };
    report::run(TOOL, &args.options, report, &|rows: &_, summary: &_, width, out: &mut _| {
        render(&args, rows, summary, width, out)
    })
}

/// The samples by function and offset, and the options that select functions.
#[derive(Clone)]
struct AnnotateReport<'a> {
    annotation: Annotation,
    args: &'a Args,
}

impl Report for AnnotateReport<'_> {
    type Rows = Selected;

    fn group_by(&self) -> GroupBy {
        self.annotation.group_by()
    }

    fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        self.annotation.add(context, group, sum);
    }

    fn rows(&self, summary: &Summary) -> Result<Selected, Failure> {
        let args = self.args;
        // A live stream may get its code later.
        let is_without_code = self.annotation.functions().is_empty()
            && !self.annotation.without_code().is_empty()
            && !summary.live;
        if is_without_code && summary.is_complete() {
            return Err("the stream has no code; pipe it through nprof-symbolize --code".into());
        }
        Ok(select(&self.annotation, summary, &args.limits(), args.options.rebase))
    }

    fn notes(&self, _: &Summary) -> Vec<String> {
        self.annotation.notes()
    }
}

/// Prints the functions in the format of the command line.
fn render(
    args: &Args,
    selected: &Selected,
    summary: &Summary,
    width: Option<usize>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let context = PrintContext { selected, summary, args, width };
    match args.format {
        TableFormat::Table => out.write_all(table::print(&context).as_bytes())?,
        TableFormat::Tsv => tsv(machine::lines(context), out)?,
        TableFormat::Csv => csv(machine::lines(context), out)?,
        TableFormat::Json => machine::json(context, out)?,
    }
    Ok(())
}
