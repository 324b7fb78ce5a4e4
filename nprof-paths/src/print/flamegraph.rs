//! Flame graphs of the samples' stacks.

use std::io;

use nprof_report::args::StackFormat;
use nprof_report::flamegraph::{self, Picture};
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

use crate::args::View;
use crate::print::context::PrintContext;
use crate::print::folded;
use crate::rows::stacks::StackRows;
use crate::tree::call_tree::Tree;

/// The most commands in the title.
const COMMANDS: usize = 3;

/// Draws the stacks of `tree`, which is inverted if the view is `callers`, within these limits.
///
/// # Errors
///
/// Fails if the library cannot parse a line.
pub(crate) fn draw(
    context: &PrintContext<'_>,
    tree: &Tree,
    events: &[StackRows],
    limits: &RowLimits,
) -> io::Result<Vec<u8>> {
    let args = context.args;
    let title = title(context.summary);
    let folded = folded::print(tree, events);
    if folded.is_empty() {
        let reason = match &args.rules()[..] {
            [] => "no samples: run it for longer".to_owned(),
            rules => format!("no samples are left by {}", escaped(rules.join(" ").as_bytes())),
        };
        return Ok(flamegraph::empty(&title, &reason));
    }
    let picture = Picture {
        title,
        subtitle: subtitle(context, events, limits),
        icicle: args.format == StackFormat::Icicle,
        min_percent: limits.min_percent,
        unit: events
            .first()
            .map_or_else(String::new, |rows| rows.event.stack_unit(context.summary)),
    };
    flamegraph::draw(&picture, &folded)
}

/// Returns the title: the commands, each once.
fn title(summary: &Summary) -> String {
    let mut commands: Vec<String> = Vec::new();
    for head in summary.runs.iter().filter_map(|run| run.head.as_ref()) {
        let command = escaped(&head.command);
        if commands.contains(&command) {
            continue;
        }
        if commands.len() == COMMANDS {
            commands.push("...".to_owned());
            break;
        }
        commands.push(command);
    }
    format!("nprof: {}", commands.join(", "))
}

/// Returns the subtitle: the filters, the order of the functions if it is not the usual one, and the
/// samples that are not drawn apart.
fn subtitle(context: &PrintContext<'_>, events: &[StackRows], limits: &RowLimits) -> String {
    let args = context.args;
    let mut parts = Vec::new();
    let rules = args.rules();
    if !rules.is_empty() {
        parts.push(escaped(rules.join(" ").as_bytes()));
    }
    if args.view == View::Callers {
        let below = if args.format == StackFormat::Icicle { "below" } else { "above" };
        parts.push(format!("callers are {below} their callees"));
    }
    let other: u64 = events.iter().map(|rows| rows.other.samples).sum();
    if other > 0 {
        let limits = limits.spelled_all();
        parts.push(format!("(other) is {other} samples of smaller calls ({limits})"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;
    use nprof_report::summary::Run;
    use nprof_stream::Head;

    #[test]
    fn title_has_each_command_once() {
        let mut summary = Summary::default();
        for command in ["a", "b", "a"] {
            let head = Head { command: command.into(), ..Head::default() };
            summary.runs.push(Run { head: Some(head), ..Run::default() });
        }
        assert_eq!(title(&summary), "nprof: a, b");
        for command in ["c", "d", "e"] {
            let head = Head { command: command.into(), ..Head::default() };
            summary.runs.push(Run { head: Some(head), ..Run::default() });
        }
        assert_eq!(title(&summary), "nprof: a, b, c, ...");
    }

    #[test]
    fn picture_without_samples_gives_the_reason() {
        let drawn = |args: &[&str]| {
            let args = Args::try_parse_from(["nprof-paths"].iter().chain(args)).unwrap();
            let (tree, summary) = (Tree::default(), Summary::default());
            let context = PrintContext {
                tree: &tree,
                events: &[],
                folded: &[],
                per: None,
                summary: &summary,
                args: &args,
                width: None,
            };
            String::from_utf8(draw(&context, &tree, &[], &args.row_limits()).unwrap()).unwrap()
        };
        assert!(drawn(&[]).contains("no samples: run it for longer"));
        assert!(drawn(&["--match", "function=<x>"]).contains("left by --match function=&lt;x&gt;"));
    }
}
