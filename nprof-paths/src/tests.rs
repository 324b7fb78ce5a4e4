//! Compares the views of one stream with each other, with the stream, and with programs that read
//! them.

use nprof_report::profile::{Context, GroupBy, GroupKey, Profile, ReportedEvent, Sum};
use std::collections::BTreeMap;
use std::io::Cursor;

use clap::Parser;
use nprof_report::filter::Filter;
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_tests::{any_stream, stream};
use proptest::prelude::*;

use crate::args::Args;
use crate::print::context::PrintContext;
use crate::print::dispatch::report;
use crate::print::folded;
use crate::rows::paths::path_rows;
use crate::rows::stacks::{drawn_rows, stack_rows};
use crate::rows::tree::{inverted, tree_rows};
use crate::tree::aggregate::{Aggregator, Budget};
use crate::tree::call_tree::Tree;
use crate::tree::cycles::Vertex;
use crate::tree::graph::{Edge, Graph};
use crate::tree::path_filter::PathFilterKind::{Focus, Through, Until};
use crate::tree::path_filter::{PathFilter, PathFilterKind, PathPattern, apply_filters};

const ALL: RowLimits = RowLimits { min_percent: 0.0, rows: None };

fn aggregate(streams: &[Vec<u8>], by_command: bool, filter: &Filter) -> (Tree, Summary) {
    aggregate_within(Budget::default(), streams, by_command, filter)
}

fn aggregate_within(
    budget: Budget,
    streams: &[Vec<u8>],
    by_command: bool,
    filter: &Filter,
) -> (Tree, Summary) {
    let mut aggregator = Aggregator::new(by_command, filter.clone());
    aggregator.budget = budget;
    let mut group_by = filter.group_by();
    group_by.task |= aggregator.group_by().task;
    let mut profile = Profile::new(group_by);
    for stream in streams {
        profile.read("test", &stream[..], |c, group, s| aggregator.add(c, group, s)).unwrap();
    }
    (aggregator.finish(), profile.summary)
}

fn reported(tree: &Tree, summary: &Summary, event: usize) -> ReportedEvent {
    ReportedEvent { event, whole: summary.events[event].sum, counted: tree.total(event) }
}

fn folded(streams: &[Vec<u8>], event: usize) -> String {
    let (tree, summary) = aggregate(streams, true, &Filter::default());
    folded::print(&tree, &stack_rows(&tree, &[reported(&tree, &summary, event)], &ALL))
}

fn filtered(tree: &Tree, filters: &[(PathFilterKind, &str)]) -> Tree {
    let filter = |&(kind, text): &(PathFilterKind, &str)| PathFilter {
        kind,
        pattern: text.parse().unwrap(),
    };
    let filters: Vec<PathFilter> = filters.iter().map(filter).collect();
    apply_filters(tree.clone(), &filters)
}

/// Returns the paths of the first event, folded without commands.
fn paths(tree: &Tree) -> Vec<String> {
    paths_within(tree, &ALL)
}

/// Like [`paths`], with limits.
fn paths_within(tree: &Tree, limits: &RowLimits) -> Vec<String> {
    let counted = tree.total(0);
    let shown = ReportedEvent { event: 0, whole: counted, counted };
    let text = folded::print(tree, &stack_rows(tree, &[shown], limits));
    text.lines().map(str::to_owned).collect()
}

/// Creates a stream with these folded stacks as samples.
fn stacks(folded: &[&str]) -> Vec<u8> {
    let mut names: Vec<&str> =
        folded.iter().flat_map(|line| line.rsplit_once(' ').unwrap().0.split(';')).collect();
    names.sort_unstable();
    names.dedup();
    let mut body = "I | 1 | elf | - | /bin/p\n".to_owned();
    for (name, id) in names.iter().zip(1..) {
        body += &format!(
            "U | {id} | {name} | -\nF | {id} | 1 | 0x{id:x} | u\nY | {id} | named | {id},0,0,0\n"
        );
    }
    let mut next = 1;
    for line in folded {
        let (stack, samples) = line.rsplit_once(' ').unwrap();
        body += &format!("N | {next} | 0");
        for name in stack.split(';') {
            body += &format!(" | {}", names.binary_search(&name).unwrap() + 1);
            next += 1;
        }
        body += &format!(
            "\nS | 1 | 1 | 0 | 0 | {} | {} | {samples}\n",
            next - 1,
            10 * samples.parse::<u64>().unwrap()
        );
    }
    stream(&body)
}

fn tree_of(folded: &[&str]) -> Tree {
    aggregate(&[stacks(folded)], false, &Filter::default()).0
}

// Stacks by node: 2 and 4 main, then a function with an inlined call, from two addresses of main;
// 5 main, then a function of the same name in another image; 6 the mark of a truncated stack;
// 7 the mark, main.
const PROGRAM: &str = "\
I | 1 | elf | - | /bin/prog
I | 2 | elf | - | /lib/libx.so
D | 1 | /src/p.c
U | 1 | main | -
U | 2 | f;\\n\\x1b, 1 | -
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x18 | u,ra
F | 3 | 1 | 0x20 | u
F | 4 | 2 | 0x20 | u
F | 5 | 0 | 0x0 | u,max-depth
Y | 1 | named | 1,1,10,0
Y | 2 | named | 1,1,11,0
Y | 3 | named | 2,1,20,0 | 2,1,21,0
Y | 4 | named | 2,0,0,0
N | 1 | 0 | 1 | 3
N | 3 | 0 | 2 | 3
N | 5 | 1 | 4
N | 6 | 0 | 5 | 2
T | 1 | 0 | 7 | 7 | 0 | a;b (c) [d] 1
";

#[test]
fn merges_calls_from_different_addresses_of_a_function() {
    let samples = "S | 1 | 1 | 1 | 0 | 2 | 9 | 2\nS | 1 | 1 | 1 | 0 | 4 | 9 | 3\n\
                   S | 1 | 1 | 1 | 0 | 6 | 9 | 1\nS | 1 | 1 | 1 | 0 | 7 | 9 | 1\n\
                   S | 1 | 1 | 1 | 0 | 5 | 9 | 1\nS | 1 | 1 | 0 | 0 | 0 | 9 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    let f = "f\\x3b\\n\\x1b,";
    // Samples weigh differently, so that the lines have weights.
    assert_eq!(
        folded(&streams, 0),
        format!(
            "[unknown];[no stack] 9\n\
             a\\x3bb (c) [d] 1;[incomplete:max-depth] 9\n\
             a\\x3bb (c) [d] 1;[incomplete:max-depth];main 9\n\
             a\\x3bb (c) [d] 1;main;{f}\\x201 9\n\
             a\\x3bb (c) [d] 1;main;{f} 1;{f}\\x201 18\n"
        )
    );
    let (tree, _) = aggregate(&streams, false, &Filter::default());
    let leaves = tree.leaves(0).into_iter().map(|leaf| tree.lines(leaf));
    let line = leaves.flatten().find(|line| line.sum.samples == 5).unwrap();
    assert_eq!(&*line.line, "/src/p.c:20");
}

#[test]
fn stack_of_20000_frames_is_one_path_in_every_view() {
    let mut body = PROGRAM.to_owned();
    let frames = " | 3".repeat(20_000);
    body += &format!("N | 100 | 1{frames}\nS | 1 | 1 | 1 | 0 | 20099 | 1 | 1\n");
    let (tree, summary) = aggregate(&[stream(&body)], false, &Filter::default());
    let shown = [reported(&tree, &summary, 0)];
    let sections = path_rows(&tree, &shown, &ALL);
    assert_eq!(tree.stack(sections[0].paths[0]).count(), 40_001);
    for view in ["paths", "tree", "callers"] {
        let args = Args::try_parse_from(["nprof-paths", "--view", view]).unwrap();
        let input = PrintContext {
            tree: &tree,
            events: &shown,
            folded: &[],
            per: None,
            summary: &summary,
            args: &args,
            width: Some(80),
        };
        let mut text = Vec::new();
        report(&input, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("×40000"), "{text}");
    }
    // main, and one entry for the recursive function.
    assert_eq!(Graph::from_tree(&tree, 0).entries.len(), 2);
}

#[test]
fn path_filters_select_and_cut_paths() {
    let all = ["m;a;c 4", "m;a;c;d 1", "m;b;c 2", "m;b;x;c 8", "m;d 16"];
    let tree = tree_of(&all);
    let left = |refinements: &[(PathFilterKind, &str)]| paths(&filtered(&tree, refinements));
    assert_eq!(left(&[]), all);
    assert_eq!(left(&[(Through, "^c$")]), all[..4]);
    // c called by b, directly or indirectly.
    assert_eq!(left(&[(Through, "b;c")]), ["m;b;c 2"]);
    assert_eq!(left(&[(Through, "b;...;c")]), ["m;b;c 2", "m;b;x;c 8"]);
    assert_eq!(left(&[(Focus, "c")]), ["c 14", "c;d 1"]);
    assert_eq!(left(&[(Focus, "a;c")]), ["c 4", "c;d 1"]);
    assert_eq!(left(&[(Until, "c")]), ["m;a;c 5", "m;b;c 2", "m;b;x;c 8", "m;d 16"]);
    // Each filter works on the paths that the previous one left.
    let (through_d, until_c) = ((Through, "d"), (Until, "c"));
    assert_eq!(left(&[through_d, until_c]), ["m;a;c 1", "m;d 16"]);
    assert_eq!(left(&[until_c, through_d]), ["m;d 16"]);
    assert_eq!(left(&[(Focus, "a"), (Until, "c")]), ["a;c 5"]);
    assert_eq!(left(&[(Through, "nowhere")]), [""; 0]);
    // Invalid expression, no last call, too many calls.
    for wrong in ["a;(", "a;...", "...", &"a;".repeat(70)] {
        assert!(wrong.parse::<PathPattern>().is_err(), "{wrong}");
    }
}

#[test]
fn pattern_without_match_lists_similar_names() {
    let filter = |text: &str| PathFilter { kind: Through, pattern: text.parse().unwrap() };
    let names = ["main", "__libc_malloc", "free"].map(str::as_bytes);
    assert_eq!(filter("main;...;malloc").note(names.into_iter()), None);
    assert_eq!(
        filter("main;...;^malloc$").note(names.into_iter()).unwrap(),
        "--through ^malloc$ matches nothing; similar names: __libc_malloc"
    );
}

#[test]
fn inverted_tree_begins_with_leaves() {
    let tree = tree_of(&["m;a;c 4", "m;a;c;d 1", "m;b;c 2"]);
    let shown = ReportedEvent { event: 0, whole: tree.total(0), counted: tree.total(0) };
    let callers = inverted(&tree, &[shown], &ALL);
    assert_eq!(paths(&callers), ["c;a;m 4", "c;b;m 2", "d;c;a;m 1"]);
    // The callers of a function, which has the samples of its callees.
    let until = filtered(&tree, &[(Through, "c"), (Until, "c")]);
    assert_eq!(paths(&inverted(&until, &[shown], &ALL)), ["c;a;m 5", "c;b;m 2"]);
    let few = RowLimits { min_percent: 20.0, ..ALL };
    assert_eq!(paths(&inverted(&tree, &[shown], &few)), ["c;a;m 4", "c;b;m 2", "d 1"]);
}

/// A picture of a part must not pass for the whole.
#[test]
fn limits_merge_small_calls_and_keep_the_samples_of_all_others() {
    let tree = tree_of(&["m;a;c 40", "m;a;x 1", "m;a;y;z 2", "m;b 7", "n 50"]);
    let within = |min_percent: f64, rows: usize| {
        paths_within(&tree, &RowLimits { min_percent, rows: Some(rows).filter(|&rows| rows > 0) })
    };
    assert_eq!(within(5.0, 0), ["m;a;(other) 3", "m;a;c 40", "m;b 7", "n 50"]);
    assert_eq!(within(45.0, 0), ["m;(other) 50", "n 50"]);
    assert_eq!(within(0.0, 2), ["m;(other) 7", "m;a;(other) 3", "m;a;c 40", "n 50"]);
    assert_eq!(within(0.0, 1), ["(other) 50", "n 50"]);
    assert_eq!(within(60.0, 1), ["(other) 100"]);
}

#[test]
fn callers_of_folded_stacks_end_in_the_command() {
    let streams = [stacks(&["m;a;c 4", "m;b;c 2", "m;d 1"])];
    let (tree, summary) = aggregate(&streams, true, &Filter::default());
    let shown = [reported(&tree, &summary, 0)];
    let command = &tree.functions[tree.nodes[tree.roots[0].node].function].name;
    let lines = |limits: &RowLimits| {
        let callers = inverted(&tree, &shown, limits);
        folded::print(&callers, &stack_rows(&callers, &shown, limits)).replace(command, "COMMAND")
    };
    assert_eq!(lines(&ALL), "c;a;m;COMMAND 4\nc;b;m;COMMAND 2\nd;m;COMMAND 1\n");
    let large = RowLimits { min_percent: 30.0, ..ALL };
    assert_eq!(lines(&large), "(other) 1\nc;(other) 2\nc;a;m;COMMAND 4\n");
}

/// Returns the name, self samples and total samples of each entry.
fn entries(graph: &Graph, tree: &Tree) -> Vec<(String, u64, u64)> {
    let entry = |at: usize| {
        let sums = &graph.entries[at].sums;
        (graph.name(at, &tree.functions), sums.self_.samples, sums.total.samples)
    };
    (0..graph.entries.len()).map(entry).collect()
}

/// The second program of uProfiler, section 8.4.4, without its root.
#[test]
fn cycles_differ_by_the_path_that_enters_them() {
    let tree = tree_of(&["m;a;q;d;q;x 1", "m;b;q;e;q;y 2", "m;c;q;f;q;z 3"]);
    let graph = Graph::from_tree(&tree, 0);
    let of = |name: &str, total| (name.to_owned(), 0, total);
    let all = entries(&graph, &tree);
    for cycle in
        [of("cycle q -> f -> q", 3), of("cycle q -> e -> q", 2), of("cycle q -> d -> q", 1)]
    {
        assert!(all.contains(&cycle), "{all:?}");
    }
    for entry in &graph.entries {
        let only = if entry.sums.total == tree.total(0) { 3 } else { 1 };
        assert!(entry.callees.len() <= only && entry.callers.len() <= 1, "{entry:?}");
    }
    let name = |at| graph.name(at, &tree.functions);
    let d = graph
        .entries
        .iter()
        .position(|entry| {
            matches!(&entry.vertex, Vertex::Cycle(_)) && entry.sums.total.samples == 1
        })
        .unwrap();
    assert_eq!(name(graph.entries[d].callers[0].other), "a");
    assert_eq!(name(graph.entries[d].callees[0].other), "x");
}

/// A caller is charged with the samples seen below it (csprof, section 1).
#[test]
fn edges_have_the_sums_of_their_paths() {
    let tree = tree_of(&["m;a;c 5", "m;a;c;d 1", "m;b;c 5", "m;b;c;d 3", "m;c;c 2"]);
    let graph = Graph::from_tree(&tree, 0);
    let c = (0..graph.entries.len()).find(|&at| graph.name(at, &tree.functions) == "c").unwrap();
    let edges = |edges: &[Edge]| -> Vec<(String, u64, u64, u64)> {
        let edge = |edge: &Edge| {
            let sums = &edge.sums;
            let name = graph.name(edge.other, &tree.functions);
            (name, sums.self_.samples, sums.total.samples, sums.paths)
        };
        edges.iter().map(edge).collect()
    };
    let of = |name: &str, self_, total, paths| (name.to_owned(), self_, total, paths);
    let entry = &graph.entries[c];
    assert_eq!((entry.sums.self_.samples, entry.sums.total.samples), (12, 16));
    assert_eq!(entry.sums.paths, 5);
    assert_eq!(edges(&entry.callers), [of("b", 5, 8, 2), of("a", 5, 6, 2), of("m", 2, 2, 1)]);
    assert_eq!(edges(&entry.callees), [of("d", 4, 4, 2)]);
}

/// Returns the self samples of nprof-flat, by event and function: those of the innermost calls.
fn self_by_leaf(streams: &[Vec<u8>]) -> BTreeMap<(usize, String), Sum> {
    let mut sums: BTreeMap<(usize, String), Sum> = BTreeMap::new();
    let mut labels = Labels::new();
    let mut profile = Profile::new(GroupBy::default());
    for stream in streams {
        let sink = |context: &Context<'_>, group: &GroupKey, sum: Sum| {
            let call = context.stack_calls(group.node).next();
            let mut name = |key| {
                let label = match call {
                    None => labels.no_stack(),
                    Some(call) => labels.label(context, call, key),
                };
                escaped(labels.names.get(label))
            };
            let (function, image) = (name(CallKey::Function), name(CallKey::ImageName));
            sums.entry((group.event, format!("{function} {image}"))).or_default().add(sum);
        };
        profile.read("test", &stream[..], sink).unwrap();
    }
    sums
}

/// Sums samples by function.
fn by_function(tree: &Tree, parts: impl Iterator<Item = (usize, Sum)>) -> BTreeMap<String, Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (function, sum) in parts.filter(|(_, sum)| sum.samples > 0) {
        let function = &tree.functions[function];
        sums.entry(format!("{} {}", function.name, function.image)).or_default().add(sum);
    }
    sums
}

/// Returns the self samples by function in a graph.
fn self_of_graph(tree: &Tree, graph: &Graph) -> BTreeMap<String, Sum> {
    let parts = graph.entries.iter().flat_map(|entry| match &entry.vertex {
        Vertex::Function(function) => vec![(*function, entry.sums.self_)],
        Vertex::Cycle(_) => {
            entry.members.iter().map(|member| (member.function, member.self_)).collect()
        }
    });
    by_function(tree, parts)
}

/// Sums of self and total by path of functions, for paths without `(other)`.
fn sums_by_path(tree: &Tree, event: usize) -> BTreeMap<Vec<String>, (Sum, Sum)> {
    let mut sums = BTreeMap::new();
    for node in tree.depth_first(event) {
        let name = |node| format!("{} {}", tree.function(node).name, tree.function(node).image);
        let mut path: Vec<String> = tree.stack(node).map(name).collect();
        path.reverse();
        if !tree.function(node).is_other() {
            sums.insert(path, (tree.nodes[node].self_, tree.nodes[node].total));
        }
    }
    sums
}

#[test]
fn picture_of_many_calls_has_the_larger_ones() {
    // 40,000 functions with a sample, every tenth with two.
    let lines: Vec<String> =
        (0..40_000).map(|i| format!("f{i} {}", 1 + usize::from(i % 10 == 0))).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let tree = tree_of(&lines);
    let event = ReportedEvent { event: 0, whole: tree.total(0), counted: tree.total(0) };
    let (rows, limits) = drawn_rows(&tree, &[event], &ALL);
    assert_eq!((rows[0].stacks.len(), rows[0].other.samples), (4001, 36_000));
    assert_eq!(limits.spelled(), "--min-percent 0.0028");
}

const SMALL: Budget = Budget {
    nodes: 9,
    kept_nodes: 3,
    lines: 4,
    name_bytes: 2_000,
    path_calls: 15,
    finished_nodes: 8,
};

proptest! {
    #[test]
    fn folded_tree_keeps_totals_and_bounds_every_path(
        streams in proptest::collection::vec(any_stream(), 1..6),
        nodes in 2..30usize,
        name_bytes in 0..2_000usize,
        path_calls in 0..60usize,
    ) {
        let budget = Budget { nodes, kept_nodes: nodes / 4, name_bytes, path_calls, ..SMALL };
        let (tree, summary) = aggregate(&streams, false, &Filter::default());
        let small = aggregate_within(budget, &streams, false, &Filter::default()).0;
        prop_assert!(small.nodes.len() <= tree.nodes.len() + 2 * summary.events.len());
        for event in 0..summary.events.len() {
            prop_assert_eq!(small.total(event), tree.total(event));
            let bound = small.folded(event).map_or(Sum::default(), |sums| sums.bound);
            let shown = sums_by_path(&small, event);
            let exact = sums_by_path(&tree, event);
            prop_assert!(shown.keys().all(|path| exact.contains_key(path)));
            for (path, &(self_, total)) in &exact {
                let (shown_self, shown_total) = shown.get(path).copied().unwrap_or_default();
                for (shown, exact) in [(shown_self, self_), (shown_total, total)] {
                    // Also: a path with more samples than the bound is shown.
                    prop_assert!(shown.samples <= exact.samples);
                    prop_assert!(exact.samples <= shown.samples + bound.samples);
                    prop_assert!(exact.weight <= shown.weight + bound.weight);
                }
            }
            let event = reported(&small, &summary, event);
            let inverted = inverted(&small, &[event], &ALL);
            prop_assert_eq!(inverted.total(event.event), tree.total(event.event));
        }
        let again = aggregate_within(budget, &streams, false, &Filter::default()).0;
        prop_assert_eq!(paths(&small), paths(&again));
    }

    #[test]
    fn every_view_has_the_sums_of_the_stream(streams in proptest::collection::vec(any_stream(), 1..3)) {
        let (tree, summary) = aggregate(&streams, false, &Filter::default());
        let by_leaf = self_by_leaf(&streams);
        for (i, event) in summary.events.iter().enumerate() {
            let shown = reported(&tree, &summary, i);
            prop_assert_eq!(tree.total(i), event.sum);
            let flat: BTreeMap<String, Sum> = by_leaf
                .iter()
                .filter(|((event, _), sum)| *event == i && sum.samples > 0)
                .map(|((_, name), sum)| (name.clone(), *sum))
                .collect();
            let node = |&at: &usize| (tree.nodes[at].function, tree.nodes[at].self_);
            let paths = path_rows(&tree, &[shown], &ALL);
            prop_assert_eq!(&by_function(&tree, paths[0].paths.iter().map(node)), &flat);
            for leaf in &paths[0].paths {
                let on_lines: u64 = tree.lines(*leaf).iter().map(|line| line.sum.samples).sum();
                prop_assert!(on_lines == 0 || on_lines == tree.nodes[*leaf].self_.samples);
            }
            // Callers: the outermost functions of the inverted tree are the leaves.
            let callers = inverted(&tree, &[shown], &ALL);
            let roots = callers.roots.iter().filter(|root| root.event == i);
            let roots = roots.flat_map(|root| callers.children(root.node));
            let root = |at: usize| (callers.nodes[at].function, callers.nodes[at].total);
            prop_assert_eq!(&by_function(&callers, roots.map(root)), &flat);
            // Graph: self samples of functions, alone and in cycles; edges.
            let graph = Graph::from_tree(&tree, i);
            prop_assert_eq!(&self_of_graph(&tree, &graph), &flat);
            for entry in &graph.entries {
                let sum = |edges: &[Edge]| edges.iter().map(|edge| edge.sums.total.samples).sum::<u64>();
                let total = entry.sums.total.samples;
                prop_assert!(total <= event.sum.samples);
                prop_assert!(sum(&entry.callers) <= total);
                prop_assert_eq!(sum(&entry.callees) + entry.sums.self_.samples, total);
                let self_: u64 = entry.callers.iter().map(|edge| edge.sums.self_.samples).sum();
                prop_assert!(self_ <= entry.sums.self_.samples);
                let members: u64 = entry.members.iter().map(|member| member.self_.samples).sum();
                prop_assert!(entry.members.is_empty() || members == entry.sums.self_.samples);
            }
            // Folded stacks, and the rows of the tree.
            let text = folded(&streams, i);
            let count = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
            let counted: u64 = text.lines().filter_map(count).sum();
            prop_assert_eq!(counted, shown.stack_number(event.sum));
            for limits in [RowLimits { min_percent: 20.0, ..ALL }, RowLimits { rows: Some(1), ..ALL }] {
                let rows = stack_rows(&tree, &[shown], &limits);
                let counted: u64 = rows[0].stacks.iter().map(|row| row.sum.samples).sum();
                prop_assert_eq!(counted, event.sum.samples);
            }
            prop_assert_eq!(tree_rows(&tree, &[shown], &ALL)[0].rows.len(), tree.depth_first(i).len());
        }
    }

    #[test]
    fn path_filters_keep_the_sums(
        streams in proptest::collection::vec(any_stream(), 1..3),
        pattern in proptest::sample::select(vec!["^a$", "a;b", "e;...;a", "copy;", "."]),
    ) {
        let (tree, summary) = aggregate(&streams, false, &Filter::default());
        let through = filtered(&tree, &[(Through, pattern)]);
        let focus = filtered(&tree, &[(Focus, pattern)]);
        let until = filtered(&tree, &[(Until, pattern)]);
        let both = filtered(&through, &[(Until, pattern), (Focus, pattern)]);
        for event in 0..summary.events.len() {
            prop_assert_eq!(focus.total(event), through.total(event));
            prop_assert_eq!(until.total(event), tree.total(event));
            prop_assert_eq!(both.total(event), through.total(event));
            // Paths that begin and end at the same match are one call.
            prop_assert!(both.leaves(event).iter().all(|&leaf| both.stack(leaf).count() == 1));
        }
    }

    #[test]
    fn match_of_a_call_equals_through(streams in proptest::collection::vec(any_stream(), 1..3)) {
        let rule = || "function=^a$".parse().unwrap();
        let (with, _) = aggregate(&streams, false, &Filter::new(&[rule()], &[]));
        let (without, _) = aggregate(&streams, false, &Filter::new(&[], &[rule()]));
        let (tree, summary) = aggregate(&streams, false, &Filter::default());
        let through = filtered(&tree, &[(Through, "^a$")]);
        prop_assert_eq!(paths(&with), paths(&through));
        for event in 0..summary.events.len() {
            let mut sum = with.total(event);
            sum.add(without.total(event));
            prop_assert_eq!(sum, tree.total(event));
        }
    }

    #[test]
    fn inferno_draws_every_folded_stack(streams in proptest::collection::vec(any_stream(), 1..3)) {
        let text = folded(&streams, 0);
        prop_assume!(!text.is_empty());
        let (tree, summary) = aggregate(&streams, true, &Filter::default());
        let args = Args::try_parse_from(["nprof-paths", "--format", "flamegraph"]).unwrap();
        let events = [reported(&tree, &summary, 0)];
        let context =
            PrintContext { tree: &tree, events: &events, folded: &[], per: None, summary: &summary, args: &args, width: None };
        let mut svg = Vec::new();
        report(&context, &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let count = events[0].stack_number(summary.events[0].sum);
        // The outermost box of the picture has the sum of all lines that were parsed.
        let all = format!("all ({count} {}", events[0].stack_unit(&summary));
        // The picture separates thousands.
        prop_assert!(svg.replace(',', "").contains(&all), "{} not in {}", all, svg);
    }

    /// inferno parses every line of two files of folded stacks for a differential flame graph.
    #[test]
    fn inferno_compares_folded_stacks(one in any_stream(), other in any_stream()) {
        let (before, after) = (folded(&[one], 0), folded(&[other], 0));
        let mut both = Vec::new();
        let options = inferno::differential::Options::default();
        inferno::differential::from_readers(options, Cursor::new(&before), Cursor::new(&after), &mut both).unwrap();
        let both = String::from_utf8(both).unwrap();
        let sum = |text: &str, nth| -> u64 {
            text.lines().filter_map(|line| line.rsplit(' ').nth(nth)?.parse::<u64>().ok()).sum()
        };
        prop_assert_eq!(sum(&both, 1), sum(&before, 0));
        prop_assert_eq!(sum(&both, 0), sum(&after, 0));
    }
}
