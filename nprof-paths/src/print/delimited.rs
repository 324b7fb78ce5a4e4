//! Paths, trees and graphs for scripts: a line each, after a line of column names, in full
//! precision. Columns are only ever added, at the end. Names are escaped, so that no field holds a
//! tab or a newline.

use nprof_report::machine::Lines;
use nprof_report::profile::Sum;

use crate::print::context::Input;
use crate::print::folded;
use crate::print::tree_text::kept;
use crate::select::{Section, Shown};
use crate::tree::graph::{Chosen, Passing};

fn head(columns: &str) -> Lines {
    vec![columns.split_whitespace().map(str::to_owned).collect()]
}

/// A line per path.
pub(crate) fn paths(input: &Input<'_>, sections: &[Section]) -> Lines {
    let tree = input.tree;
    let mut lines = head("event samples weight percent margin depth leaf image path");
    for section in sections {
        let whole = section.shown.whole;
        for &leaf in &section.paths {
            let own = tree.nodes[leaf].own;
            let margin = input.args.options.confidence().margin(own.samples, whole.samples);
            let function = tree.function(leaf);
            lines.push(vec![
                input.event_name(&section.shown),
                own.samples.to_string(),
                own.weight.to_string(),
                own.percent_of(whole).to_string(),
                (100.0 * margin).to_string(),
                tree.stack(leaf).count().to_string(),
                function.name.clone(),
                function.image.clone(),
                folded::stack(tree, leaf, false),
            ]);
        }
    }
    lines
}

/// Samples, weights and shares of self and total.
fn numbers(own: Sum, total: Sum, shown: &Shown) -> [String; 6] {
    [
        own.samples.to_string(),
        total.samples.to_string(),
        own.weight.to_string(),
        total.weight.to_string(),
        own.percent_of(shown.whole).to_string(),
        total.percent_of(shown.whole).to_string(),
    ]
}

/// A line per node, callers first (in a tree that is turned over, what they call).
pub(crate) fn tree(input: &Input<'_>) -> Lines {
    let mut lines = head(
        "event node parent depth self_samples total_samples self total self_percent \
         total_percent function image",
    );
    let choice = input.args.row_limits();
    for shown in input.shown {
        for kept in kept(input.tree, shown, &choice) {
            let node = &input.tree.nodes[kept.node];
            let function = input.tree.function(kept.node);
            let mut line = vec![
                input.event_name(shown),
                kept.number.to_string(),
                kept.parent.to_string(),
                kept.depth.to_string(),
            ];
            line.extend(numbers(node.own, node.total, shown));
            line.extend([function.name.clone(), function.image.clone()]);
            lines.push(line);
        }
    }
    lines
}

/// A line per function, then one for each function of a cycle, for each caller and for each callee.
pub(crate) fn graph(input: &Input<'_>, graphs: &[Chosen]) -> Lines {
    let mut lines = head(
        "event index kind other self_samples total_samples self total self_percent \
         total_percent paths function image",
    );
    let functions = &input.tree.functions;
    for chosen in graphs {
        let entries = chosen.graph.entries[..chosen.count].iter();
        for (at, entry) in entries.enumerate() {
            let mut push = |kind: &str, other: usize, passing: &Passing| {
                lines.push(vertex(input, chosen, [at, other], kind, passing));
            };
            push("function", at, &entry.passing);
            entry.callers.iter().for_each(|edge| push("caller", edge.other, &edge.passing));
            entry.callees.iter().for_each(|edge| push("callee", edge.other, &edge.passing));
            for &(member, own) in &entry.members {
                let passing = Passing { own, total: own, paths: 0 };
                let mut line = vertex(input, chosen, [at, at], "member", &passing);
                line.truncate(line.len() - 2);
                line.extend([functions[member].name.clone(), functions[member].image.clone()]);
                lines.push(line);
            }
        }
    }
    lines
}

fn vertex(
    input: &Input<'_>,
    chosen: &Chosen,
    [at, other]: [usize; 2],
    kind: &str,
    passing: &Passing,
) -> Vec<String> {
    let functions = &input.tree.functions;
    let name = input.event_name(&chosen.shown);
    let mut line = vec![name, (at + 1).to_string(), kind.to_owned(), (other + 1).to_string()];
    line.extend(numbers(passing.own, passing.total, &chosen.shown));
    line.push(passing.paths.to_string());
    line.push(chosen.graph.name(other, functions));
    line.push(chosen.graph.image(other, functions).to_owned());
    line
}
