//! The lines of a tree.

use super::*;
use unicode_width::UnicodeWidthStr;

use crate::rows::tree::{TreeRow, tree_rows};
use crate::tree::builder::TreeBuilder;
use crate::tree::call_tree::Function;
use nprof_report::profile::ReportedEvent;

const ONE_PERCENT: RowLimits = RowLimits { min_percent: 1.0, rows: None };

/// Creates a tree of calls: the number of the caller (index into the list plus one, 0 for none),
/// the function, its samples.
fn tree(calls: &[(usize, &str, u64)]) -> Tree {
    let mut names: Vec<&str> = calls.iter().map(|call| call.1).chain([""]).collect();
    names.sort_unstable();
    names.dedup();
    let number = |name: &str| names.iter().position(|&other| other == name).unwrap();
    let mut builder = TreeBuilder::default();
    let mut nodes = vec![builder.root(0, number(""))];
    for &(parent, name, samples) in calls {
        let node = builder.child(nodes[parent], number(name));
        builder.add(node, Sum::of(samples, samples));
        nodes.push(node);
    }
    let function = |name: &&str| Function {
        name: (*name).to_owned(),
        image: "p".into(),
        raw_name: Box::default(),
    };
    builder.finish(names.iter().map(function).collect(), Vec::new(), Vec::new())
}

fn rows(tree: &Tree, limits: &RowLimits) -> TreeRows {
    let whole = tree.nodes[0].total;
    let event = ReportedEvent { event: 0, whole, counted: whole };
    tree_rows(tree, &[event], limits).remove(0)
}

fn printed(tree: &Tree, limits: &RowLimits) -> Vec<String> {
    let rows = rows(tree, limits);
    let mut outline = Outline::new(tree, &rows, limits);
    outline.add_all();
    let line = |line: &Line| format!("{}{}{}", line.guides, line.name, line.suffix);
    outline.lines.iter().map(line).collect()
}

#[test]
fn indents_only_branches() {
    let calls = [(0, "start", 0), (1, "main", 0), (2, "b", 30), (2, "a", 50), (4, "c", 20)];
    assert_eq!(
        printed(&tree(&calls), &ONE_PERCENT),
        ["start  (p)", "main", "├ a", "│ c", "└ b"],
        "the largest total first, a chain straight down"
    );
}

#[test]
fn folds_small_subtrees_into_one_line_if_large_together() {
    let mut calls = vec![(0, "main", 100), (1, "big", 50)];
    calls.extend([(1, "s1", 1), (1, "s2", 1), (2, "t", 1)]);
    // 153 samples: s1 and s2 are 1.3 % together, t alone is less than 1 %.
    assert_eq!(printed(&tree(&calls), &ONE_PERCENT), ["main  (p)", "(2 smaller)", "big"]);
    assert_eq!(rows(&tree(&calls), &ONE_PERCENT).omitted_subtrees(), 3);
    calls.push((1, "other", 40));
    assert_eq!(
        printed(&tree(&calls), &ONE_PERCENT),
        ["main  (p)", "├ big", "├ other", "└ (2 smaller)"]
    );
    let all = RowLimits { min_percent: 0.0, ..ONE_PERCENT };
    assert_eq!(printed(&tree(&calls), &all).len(), 6);
}

#[test]
fn number_of_rows_keeps_the_heaviest_paths_and_all_totals() {
    let calls = [
        (0, "main", 0),
        (1, "a", 0),
        (2, "x", 40),
        // Two paths of 45 samples together, each lighter than x.
        (1, "b", 0),
        (4, "y", 20),
        (4, "z", 25),
        (1, "c", 15),
    ];
    let tree = tree(&calls);
    let two = RowLimits { min_percent: 0.0, rows: Some(2) };
    assert_eq!(
        printed(&tree, &two),
        ["main  (p)", "├ b", "│ (1 other)", "│ z", "├ a", "│ x", "└ (1 other)"]
    );
    let rows_of_two = rows(&tree, &two);
    assert_eq!(tree.nodes[rows_of_two.rows[0].node].total.samples, 100);
    assert_eq!(rows_of_two.omitted_subtrees(), 2);
    assert_eq!(rows_of_two.rows[0].omitted.total.samples, 15);
    let one = RowLimits { min_percent: 0.0, rows: Some(1) };
    assert_eq!(printed(&tree, &one), ["main  (p)", "(2 other)", "a", "x"]);
    assert_eq!(
        footer(2, &RowLimits { min_percent: 1.0, rows: Some(1) }),
        "\n2 other calls omitted, with their callees (--min-percent 1 -n 1)\n"
    );
}

#[test]
fn recursion_is_one_line_and_deep_branches_keep_their_width() {
    let calls = [(0, "f", 1), (1, "f", 1), (2, "f", 1), (3, "g", 1), (4, "f", 1)];
    assert_eq!(printed(&tree(&calls), &ONE_PERCENT), ["f  ×3  (p)", "g", "f"]);
    let mut calls = Vec::new();
    for level in 0..100 {
        let caller = if level == 0 { 0 } else { 2 * level - 1 };
        calls.extend([(caller, "f", 1), (caller, "g", 1)]);
    }
    let all = RowLimits { min_percent: 0.0, ..ONE_PERCENT };
    let lines = printed(&tree(&calls), &all);
    assert_eq!(lines.len(), 199 + 1);
    assert!(lines.iter().all(|line| line.width() <= MAX_GUIDES + 6), "{lines:#?}");
}

#[test]
fn mutual_recursion_is_bracketed_with_the_sum_of_all_occurrences() {
    let calls = [(0, "main", 0), (1, "a", 1), (2, "b", 1), (3, "a", 1), (4, "b", 1), (5, "c", 1)];
    let tree = tree(&calls);
    assert_eq!(printed(&tree, &ONE_PERCENT), ["main  (p)", "╭ a  ×2", "╰ b", "c"]);
    let rows = rows(&tree, &ONE_PERCENT);
    let mut outline = Outline::new(&tree, &rows, &ONE_PERCENT);
    outline.add_all();
    let self_: Vec<u64> =
        outline.lines.iter().filter_map(|line| Some(line.self_?.samples)).collect();
    assert_eq!(self_, [0, 2, 2, 1]);
}

#[test]
fn rows_are_depth_first_largest_first() {
    let calls = [(0, "main", 0), (1, "b", 1), (1, "a", 2), (3, "c", 1)];
    let tree = tree(&calls);
    let rows = rows(&tree, &ONE_PERCENT);
    let row = |row: &TreeRow| (&tree.function(row.node).name[..], row.parent, row.depth);
    let found: Vec<_> = rows.rows.iter().map(row).collect();
    let expected = [("main", None, 0), ("a", Some(0), 1), ("c", Some(1), 2), ("b", Some(0), 1)];
    assert_eq!(found, expected);
}
