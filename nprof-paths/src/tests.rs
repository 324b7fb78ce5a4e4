//! The views of one stream against each other, against the stream, and against programs that read
//! them.

use std::collections::BTreeMap;
use std::io::Cursor;

use clap::Parser;
use nprof_report::filter::Filter;
use nprof_report::profile::{Cell, Context, Profile, Split, Sum};
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_tests::{any_stream, stream};
use proptest::prelude::*;

use crate::args::Args;
use crate::print::context::Input;
use crate::print::dispatch::report;
use crate::print::{flamegraph, folded, tree_text};
use crate::select;
use crate::select::Shown;
use crate::tree::aggregate::Builder;
use crate::tree::call_tree::Tree;
use crate::tree::cycles::Vertex;
use crate::tree::graph::Graph;
use crate::tree::invert;
use crate::tree::path_filter::{Kind, Refinement, refine};

const ALL: RowLimits = RowLimits { min_percent: 0.0, rows: None };

fn grow(streams: &[Vec<u8>], commands: bool, filter: &Filter) -> (Tree, Summary) {
    let mut builder = Builder::new(commands, filter.clone());
    let mut split = filter.split();
    split.task |= builder.split().task;
    let mut profile = Profile::new(split);
    for stream in streams {
        profile.read("test", &stream[..], |c, cell, s| builder.add(c, cell, s)).unwrap();
    }
    (builder.finish(), profile.summary)
}

fn shown(tree: &Tree, summary: &Summary, event: usize) -> Shown {
    Shown { event, whole: summary.events[event].sum, counted: tree.total(event) }
}

fn folded(streams: &[Vec<u8>], event: usize) -> String {
    let (tree, summary) = grow(streams, true, &Filter::default());
    folded::print(&tree, &select::paths(&tree, &[shown(&tree, &summary, event)], &ALL), false)
}

fn refined(tree: &Tree, refinements: &[(Kind, &str)]) -> Tree {
    let refinement =
        |&(kind, text): &(Kind, &str)| Refinement { kind, pattern: text.parse().unwrap() };
    let refinements: Vec<Refinement> = refinements.iter().map(refinement).collect();
    refine(tree, &refinements).unwrap_or_else(|| tree.clone())
}

/// The paths of the first event, folded without commands.
fn paths(tree: &Tree) -> Vec<String> {
    let counted = tree.total(0);
    let shown = Shown { event: 0, whole: counted, counted };
    let text = folded::print(tree, &select::paths(tree, &[shown], &ALL), false);
    text.lines().map(str::to_owned).collect()
}

/// A stream whose samples are these folded stacks.
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
    grow(&[stacks(folded)], false, &Filter::default()).0
}

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
F | 5 | 0 | 0x0 | u,depth
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
fn calls_from_different_places_of_a_function_are_one_path() {
    let samples = "S | 1 | 1 | 1 | 0 | 2 | 9 | 2\nS | 1 | 1 | 1 | 0 | 4 | 9 | 3\n\
                   S | 1 | 1 | 1 | 0 | 6 | 9 | 1\nS | 1 | 1 | 1 | 0 | 7 | 9 | 1\n\
                   S | 1 | 1 | 1 | 0 | 5 | 9 | 1\nS | 1 | 1 | 0 | 0 | 0 | 9 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    let f = "f\\x3b\\n\\x1b,";
    assert_eq!(
        folded(&streams, 0),
        format!(
            "[unknown];[no stack] 1\n\
             a\\x3bb (c) [d] 1;[truncated:depth] 1\n\
             a\\x3bb (c) [d] 1;[truncated:depth];main 1\n\
             a\\x3bb (c) [d] 1;main;{f} 1;{f}\\x201 5\n\
             a\\x3bb (c) [d] 1;main;{f}\\x201 1\n"
        )
    );
    let (tree, _) = grow(&streams, false, &Filter::default());
    let (_, lines) = tree.lines.iter().find(|(_, lines)| lines[0].1.samples == 5).unwrap();
    assert_eq!(lines[0].0, "/src/p.c:20");
}

#[test]
fn a_stack_of_thousands_is_one_path_in_every_view() {
    let mut body = PROGRAM.to_owned();
    let frames = " | 3".repeat(20_000);
    body += &format!("N | 100 | 1{frames}\nS | 1 | 1 | 1 | 0 | 20099 | 1 | 1\n");
    let (tree, summary) = grow(&[stream(&body)], false, &Filter::default());
    let shown = [shown(&tree, &summary, 0)];
    let sections = select::paths(&tree, &shown, &ALL);
    assert_eq!(tree.stack(sections[0].paths[0]).count(), 40_001);
    for view in ["paths", "tree", "callers"] {
        let args = Args::try_parse_from(["nprof-paths", "--view", view]).unwrap();
        let input =
            Input { tree: &tree, shown: &shown, summary: &summary, args: &args, width: Some(80) };
        let text = String::from_utf8(report(&input).unwrap()).unwrap();
        assert!(text.contains("×40000"), "{text}");
    }
    assert_eq!(Graph::of(&tree, 0).entries.len(), 2);
}

/// Lines of the paths with the samples of each; a call path refinement takes paths as they are.
#[test]
fn refinements_choose_and_cut_paths() {
    let all = ["m;a;c 4", "m;a;c;d 1", "m;b;c 2", "m;b;x;c 8", "m;d 16"];
    let tree = tree_of(&all);
    let left = |refinements: &[(Kind, &str)]| paths(&refined(&tree, refinements));
    assert_eq!(left(&[]), all);
    assert_eq!(left(&[(Kind::Through, "^c$")]), all[..4]);
    // On paths, and not on names alone: c called by b, directly or not.
    assert_eq!(left(&[(Kind::Through, "b;c")]), ["m;b;c 2"]);
    assert_eq!(left(&[(Kind::Through, "b;...;c")]), ["m;b;c 2", "m;b;x;c 8"]);
    assert_eq!(left(&[(Kind::Focus, "c")]), ["c 14", "c;d 1"]);
    assert_eq!(left(&[(Kind::Focus, "a;c")]), ["c 4", "c;d 1"]);
    assert_eq!(left(&[(Kind::Until, "c")]), ["m;a;c 5", "m;b;c 2", "m;b;x;c 8", "m;d 16"]);
    // Each works on what the one before left.
    let (through_d, until_c) = ((Kind::Through, "d"), (Kind::Until, "c"));
    assert_eq!(left(&[through_d, until_c]), ["m;a;c 1", "m;d 16"]);
    assert_eq!(left(&[until_c, through_d]), ["m;d 16"]);
    assert_eq!(left(&[(Kind::Focus, "a"), (Kind::Until, "c")]), ["a;c 5"]);
    assert_eq!(left(&[(Kind::Through, "nowhere")]), [""; 0]);
    for wrong in ["a;(", "a;...", "...", &"a;".repeat(70)] {
        assert!(wrong.parse::<crate::tree::path_filter::Pattern>().is_err(), "{wrong}");
    }
}

#[test]
fn callers_are_found_from_the_leaf_up() {
    let tree = tree_of(&["m;a;c 4", "m;a;c;d 1", "m;b;c 2"]);
    let shown = Shown { event: 0, whole: tree.total(0), counted: tree.total(0) };
    let inverted = invert::invert(&tree, &[shown], &ALL);
    assert_eq!(paths(&inverted), ["c;a;m 4", "c;b;m 2", "d;c;a;m 1"]);
    // A function with all below it, and who called it.
    let until = refined(&tree, &[(Kind::Through, "c"), (Kind::Until, "c")]);
    assert_eq!(paths(&invert::invert(&until, &[shown], &ALL)), ["c;a;m 5", "c;b;m 2"]);
    let few = RowLimits { min_percent: 20.0, ..ALL };
    assert_eq!(paths(&invert::invert(&tree, &[shown], &few)), ["c;a;m 4", "c;b;m 2", "d 1"]);
}

/// The name of a vertex, and its self and total samples.
fn entries(graph: &Graph, tree: &Tree) -> Vec<(String, u64, u64)> {
    let entry = |at: usize| {
        let passing = &graph.entries[at].passing;
        (graph.name(at, &tree.functions), passing.own.samples, passing.total.samples)
    };
    (0..graph.entries.len()).map(entry).collect()
}

/// The second program of uProfiler, section 8.4.4, without its root.
#[test]
fn cycles_are_kept_apart_by_the_path_that_entered() {
    let tree = tree_of(&["m;a;q;d;q;x 1", "m;b;q;e;q;y 2", "m;c;q;f;q;z 3"]);
    let graph = Graph::of(&tree, 0);
    let of = |name: &str, total| (name.to_owned(), 0, total);
    let all = entries(&graph, &tree);
    for cycle in
        [of("cycle q -> f -> q", 3), of("cycle q -> e -> q", 2), of("cycle q -> d -> q", 1)]
    {
        assert!(all.contains(&cycle), "{all:?}");
    }
    for entry in &graph.entries {
        let only = if entry.passing.total == tree.total(0) { 3 } else { 1 };
        assert!(entry.callees.len() <= only && entry.callers.len() <= 1, "{entry:?}");
    }
    let name = |at| graph.name(at, &tree.functions);
    let d = graph
        .entries
        .iter()
        .position(|entry| {
            matches!(&entry.vertex, Vertex::Cycle(_)) && entry.passing.total.samples == 1
        })
        .unwrap();
    assert_eq!(name(graph.entries[d].callers[0].other), "a");
    assert_eq!(name(graph.entries[d].callees[0].other), "x");
}

/// What the caller of a function is charged with is what was seen below it (csprof, section 1).
#[test]
fn edges_have_self_and_total_of_their_own_paths() {
    let tree = tree_of(&["m;a;c 5", "m;a;c;d 1", "m;b;c 5", "m;b;c;d 3", "m;c;c 2"]);
    let graph = Graph::of(&tree, 0);
    let c = (0..graph.entries.len()).find(|&at| graph.name(at, &tree.functions) == "c").unwrap();
    let edges = |edges: &[crate::tree::graph::Edge]| -> Vec<(String, u64, u64, u64)> {
        let edge = |edge: &crate::tree::graph::Edge| {
            let passing = &edge.passing;
            let name = graph.name(edge.other, &tree.functions);
            (name, passing.own.samples, passing.total.samples, passing.paths)
        };
        edges.iter().map(edge).collect()
    };
    let of = |name: &str, own, total, paths| (name.to_owned(), own, total, paths);
    let entry = &graph.entries[c];
    assert_eq!((entry.passing.own.samples, entry.passing.total.samples), (12, 16));
    assert_eq!(entry.passing.paths, 5);
    assert_eq!(edges(&entry.callers), [of("b", 5, 8, 2), of("a", 5, 6, 2), of("m", 2, 2, 1)]);
    assert_eq!(edges(&entry.callees), [of("d", 4, 4, 2)]);
}

/// What flat calls self: what fell on the innermost call of every stack, by event and function.
fn self_by_leaf(streams: &[Vec<u8>]) -> BTreeMap<(usize, String), Sum> {
    let mut sums: BTreeMap<(usize, String), Sum> = BTreeMap::new();
    let mut labels = Labels::new();
    let mut profile = Profile::new(Split::default());
    for stream in streams {
        let sink = |context: &Context<'_>, cell: &Cell, sum: Sum| {
            let call = context.stack_calls(cell.node).next();
            let mut name = |key| {
                let label = match call {
                    None => labels.no_stack(),
                    Some(call) => labels.label(context, call, key),
                };
                escaped(labels.names.get(label))
            };
            let (function, image) = (name(CallKey::Function), name(CallKey::ImageName));
            sums.entry((cell.event, format!("{function} {image}"))).or_default().add(sum);
        };
        profile.read("test", &stream[..], sink).unwrap();
    }
    sums
}

/// What each of some things has, summed by function.
fn by_function(tree: &Tree, parts: impl Iterator<Item = (usize, Sum)>) -> BTreeMap<String, Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for (function, sum) in parts.filter(|(_, sum)| sum.samples > 0) {
        let function = &tree.functions[function];
        sums.entry(format!("{} {}", function.name, function.image)).or_default().add(sum);
    }
    sums
}

/// Self by function as a graph has it.
fn self_of_graph(tree: &Tree, graph: &Graph) -> BTreeMap<String, Sum> {
    let parts = graph.entries.iter().flat_map(|entry| match &entry.vertex {
        Vertex::Function(function) => vec![(*function, entry.passing.own)],
        Vertex::Cycle(_) => entry.members.clone(),
    });
    by_function(tree, parts)
}

proptest! {
    #[test]
    fn every_view_adds_up(streams in proptest::collection::vec(any_stream(), 1..3)) {
        let (tree, summary) = grow(&streams, false, &Filter::default());
        let by_leaf = self_by_leaf(&streams);
        for (i, event) in summary.events.iter().enumerate() {
            let shown = shown(&tree, &summary, i);
            prop_assert_eq!(tree.total(i), event.sum);
            let flat: BTreeMap<String, Sum> = by_leaf
                .iter()
                .filter(|((event, _), sum)| *event == i && sum.samples > 0)
                .map(|((_, name), sum)| (name.clone(), *sum))
                .collect();
            let node = |&at: &usize| (tree.nodes[at].function, tree.nodes[at].own);
            let paths = select::paths(&tree, &[shown], &ALL);
            prop_assert_eq!(&by_function(&tree, paths[0].paths.iter().map(node)), &flat);
            for leaf in &paths[0].paths {
                let on_lines: u64 = tree.lines.get(leaf).into_iter().flatten().map(|(_, sum)| sum.samples).sum();
                prop_assert!(on_lines == 0 || on_lines == tree.nodes[*leaf].own.samples);
            }
            // Callers: the roots of the tree that is turned over.
            let inverted = invert::invert(&tree, &[shown], &ALL);
            let roots = inverted.tops.iter().filter(|top| top.event == i);
            let roots = roots.flat_map(|top| &inverted.nodes[top.node].children);
            let root = |&at: &usize| (inverted.nodes[at].function, inverted.nodes[at].total);
            prop_assert_eq!(&by_function(&inverted, roots.map(root)), &flat);
            // Graph: self of functions, alone and in cycles; ways in and out.
            let graph = Graph::of(&tree, i);
            prop_assert_eq!(&self_of_graph(&tree, &graph), &flat);
            for entry in &graph.entries {
                let sum = |edges: &[crate::tree::graph::Edge]| edges.iter().map(|edge| edge.passing.total.samples).sum::<u64>();
                let total = entry.passing.total.samples;
                prop_assert!(total <= event.sum.samples);
                prop_assert!(sum(&entry.callers) <= total);
                prop_assert_eq!(sum(&entry.callees) + entry.passing.own.samples, total);
                let own: u64 = entry.callers.iter().map(|edge| edge.passing.own.samples).sum();
                prop_assert!(own <= entry.passing.own.samples);
                let members: u64 = entry.members.iter().map(|(_, sum)| sum.samples).sum();
                prop_assert!(entry.members.is_empty() || members == entry.passing.own.samples);
            }
            // Folded, and the tree for scripts.
            let text = folded(&streams, i);
            let count = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
            let counted: u64 = text.lines().filter_map(count).sum();
            prop_assert_eq!(counted, event.sum.samples);
            prop_assert_eq!(tree_text::kept(&tree, &shown, &ALL).len(), tree.in_order(i).len());
        }
    }

    #[test]
    fn what_a_refinement_keeps_and_what_it_does_not_are_all(
        streams in proptest::collection::vec(any_stream(), 1..3),
        pattern in proptest::sample::select(vec!["^a$", "a;b", "e;...;a", "copy;", "."]),
    ) {
        let (tree, summary) = grow(&streams, false, &Filter::default());
        let through = refined(&tree, &[(Kind::Through, pattern)]);
        let focus = refined(&tree, &[(Kind::Focus, pattern)]);
        let until = refined(&tree, &[(Kind::Until, pattern)]);
        let both = refined(&through, &[(Kind::Until, pattern), (Kind::Focus, pattern)]);
        for event in 0..summary.events.len() {
            prop_assert_eq!(focus.total(event), through.total(event));
            prop_assert_eq!(until.total(event), tree.total(event));
            prop_assert_eq!(both.total(event), through.total(event));
            // What is focused on and cut there is one call.
            prop_assert!(both.leaves(event).iter().all(|&leaf| both.stack(leaf).count() == 1));
        }
    }

    #[test]
    fn a_rule_about_calls_is_a_refinement(streams in proptest::collection::vec(any_stream(), 1..3)) {
        let rule = || "function=^a$".parse().unwrap();
        let (with, _) = grow(&streams, false, &Filter::new(&[rule()], &[]));
        let (without, _) = grow(&streams, false, &Filter::new(&[], &[rule()]));
        let (tree, summary) = grow(&streams, false, &Filter::default());
        let through = refined(&tree, &[(Kind::Through, "^a$")]);
        prop_assert_eq!(paths(&with), paths(&through));
        for event in 0..summary.events.len() {
            let mut sum = with.total(event);
            sum.add(without.total(event));
            prop_assert_eq!(sum, tree.total(event));
        }
    }

    #[test]
    fn inferno_reads_every_folded_stack(streams in proptest::collection::vec(any_stream(), 1..3)) {
        let text = folded(&streams, 0);
        prop_assume!(!text.is_empty());
        let (_, summary) = grow(&streams, true, &Filter::default());
        let svg = flamegraph::draw(&text, &summary, &[], false).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        let samples: u64 = summary.events[0].sum.samples;
        let all = format!("all ({samples} sample");
        prop_assert!(svg.contains(&all), "{} not in {}", all, svg);
    }

    /// Two files of folded stacks make a differential flame graph: every line is understood.
    #[test]
    fn folded_stacks_can_be_compared(one in any_stream(), other in any_stream()) {
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
