//! Which printer a report goes to, and what stands above a table.

use nprof_format::escape::escaped;
use nprof_format::machine::{csv, tsv};
use nprof_format::report::{Failure, heading};
use nprof_format::summary::Summary;

use crate::args::{Args, Format, View};
use crate::select::Shown;
use crate::tree::Tree;
use crate::{entries, flamegraph, folded, graph, invert, json, outline, paths, select, separated};

/// What a report is made of.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) shown: &'a [Shown],
    pub(crate) summary: &'a Summary,
    pub(crate) args: &'a Args,
    /// The terminal's, if it goes to one.
    pub(crate) width: Option<usize>,
}

impl Input<'_> {
    /// The name of an event, safe for print.
    pub(crate) fn event_name(&self, shown: &Shown) -> String {
        escaped(&self.summary.events[shown.event].event.name)
    }

    /// What stands above the table of an event.
    pub(crate) fn title(&self, shown: &Shown) -> String {
        match self.shown {
            [_] => "\n".to_owned(),
            _ => format!("\n{}:\n", self.event_name(shown)),
        }
    }

    /// How many samples count, if not all.
    fn counted(&self) -> Vec<String> {
        let rules = self.args.rules().join(" ");
        let line = |shown: &Shown| {
            let name = match self.shown {
                [_] => String::new(),
                _ => format!(" of {}", self.event_name(shown)),
            };
            let all = self.summary.events[shown.event].sum;
            let (some, share) = (shown.counted.samples, shown.counted.percent_of(all));
            let all = all.samples;
            format!("counted: {some} of {all} samples{name}, {share:.2} % ({rules})")
        };
        if rules.is_empty() { Vec::new() } else { self.shown.iter().map(line).collect() }
    }

    /// The lines above a table: the facts, what is counted, and what 100 % and all else is.
    pub(crate) fn heading(&self, legend: &str) -> String {
        let mut lines = self.counted();
        if !self.shown.is_empty() {
            let (whole, end) = match self.args.options.rebase {
                false => ("100 % is all samples of the event", " "),
                true => ("100 % is the samples of the event that are counted (--rebase)", "\n"),
            };
            let legend = if legend.is_empty() { "" } else { &format!(";{end}{legend}") };
            lines.extend(format!("{whole}{legend}").lines().map(|line| line.trim_end().to_owned()));
        }
        heading(self.summary, &lines, self.width)
    }
}

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
            let inverted = invert::invert(input.tree, input.shown, &input.args.choice());
            of_tree(&Input { tree: &inverted, ..*input })
        }
        View::Graph => of_graph(input),
    }
}

fn of_paths(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    let sections = select::paths(input.tree, input.shown, &input.args.choice());
    let reverse = input.args.reverse;
    Ok(match input.args.format {
        Format::Table => paths::print(input, &sections),
        Format::Folded => folded::print(input.tree, &sections, reverse).into_bytes(),
        Format::Flamegraph => {
            let folded = folded::print(input.tree, &sections, reverse);
            flamegraph::draw(&folded, input.summary, &input.args.rules(), reverse)?
        }
        Format::Tsv => tsv(&separated::paths(input, &sections)),
        Format::Csv => csv(&separated::paths(input, &sections))?,
        Format::Json => json::paths(input, &sections)?,
    })
}

fn of_tree(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    Ok(match input.args.format {
        Format::Tsv => tsv(&separated::tree(input)),
        Format::Csv => csv(&separated::tree(input))?,
        Format::Json => json::tree(input)?,
        _ => outline::print(input),
    })
}

fn of_graph(input: &Input<'_>) -> Result<Vec<u8>, Failure> {
    let choice = input.args.choice();
    let graphs: Vec<graph::Chosen> = input
        .shown
        .iter()
        .map(|&shown| graph::choose(graph::Graph::of(input.tree, shown.event), shown, &choice))
        .collect();
    Ok(match input.args.format {
        Format::Tsv => tsv(&separated::graph(input, &graphs)),
        Format::Csv => csv(&separated::graph(input, &graphs))?,
        Format::Json => json::graph(input, &graphs)?,
        _ => entries::print(input, &graphs),
    })
}
