//! What a tree looks like.

use super::*;
use crate::tree::call_tree::{Function, Node, Top};

const ONE_PERCENT: RowLimits = RowLimits { min_percent: 1.0, rows: None };

/// A tree of calls: the number of the caller (0 for a root, else a place in the list, from
/// 1), the function, its samples.
fn tree(calls: &[(usize, &str, u64)]) -> Tree {
    let mut names: Vec<&str> = calls.iter().map(|call| call.1).chain([""]).collect();
    names.sort_unstable();
    names.dedup();
    let node = |parent, name: &str, samples| Node {
        parent,
        function: names.iter().position(|&other| other == name).unwrap(),
        own: Sum { samples, weight: samples },
        total: Sum { samples, weight: samples },
        children: Vec::new(),
    };
    let mut nodes = vec![node(None, "", 0)];
    nodes.extend(calls.iter().map(|&(parent, name, samples)| node(Some(parent), name, samples)));
    for at in (1..nodes.len()).rev() {
        let (parent, total) = (calls[at - 1].0, nodes[at].total);
        nodes[parent].total.add(total);
        nodes[parent].children.insert(0, at);
    }
    let function = |name: &&str| Function {
        name: (*name).to_owned(),
        image: "p".to_owned(),
        bytes: Box::default(),
    };
    let functions = names.iter().map(function).collect();
    Tree { functions, nodes, tops: vec![Top { event: 0, node: 0 }], ..Tree::default() }
}

fn shown(tree: &Tree, choice: &RowLimits) -> Vec<String> {
    let whole = tree.nodes[0].total;
    let mut outline = Outline::new(tree, whole, choice);
    outline.grow(0);
    let line = |line: &Line| format!("{}{}{}", line.guides, line.name, line.suffix);
    outline.lines.iter().map(line).collect()
}

#[test]
fn only_branches_are_indented() {
    let calls = [(0, "start", 0), (1, "main", 0), (2, "b", 30), (2, "a", 50), (4, "c", 20)];
    assert_eq!(
        shown(&tree(&calls), &ONE_PERCENT),
        ["start  (p)", "main", "├ a", "│ c", "└ b"],
        "the largest total first, a chain straight down"
    );
}

#[test]
fn small_subtrees_are_one_line_where_they_matter() {
    let mut calls = vec![(0, "main", 100), (1, "big", 50)];
    calls.extend([(1, "s1", 1), (1, "s2", 1), (2, "t", 1)]);
    // 153 samples: s1 and s2 are 1.3 % together, t alone is less than 1 %.
    assert_eq!(shown(&tree(&calls), &ONE_PERCENT), ["main  (p)", "(2 smaller)", "big"]);
    calls.push((1, "other", 40));
    assert_eq!(
        shown(&tree(&calls), &ONE_PERCENT),
        ["main  (p)", "├ big", "├ other", "└ (2 smaller)"]
    );
    let all = RowLimits { min_percent: 0.0, ..ONE_PERCENT };
    assert_eq!(shown(&tree(&calls), &all).len(), 6);
}

#[test]
fn recursion_is_one_line_and_deep_branches_stay_on_the_screen() {
    let calls = [(0, "f", 1), (1, "f", 1), (2, "f", 1), (3, "g", 1), (4, "f", 1)];
    assert_eq!(shown(&tree(&calls), &ONE_PERCENT), ["f  ×3  (p)", "g", "f"]);
    let mut calls = Vec::new();
    for level in 0..100 {
        let caller = if level == 0 { 0 } else { 2 * level - 1 };
        calls.extend([(caller, "f", 0), (caller, "g", 1)]);
    }
    let all = RowLimits { min_percent: 0.0, ..ONE_PERCENT };
    let lines = shown(&tree(&calls), &all);
    assert_eq!(lines.len(), 199 + 1);
    assert!(lines.iter().all(|line| line.width() <= GUIDES + 6), "{lines:#?}");
}

#[test]
fn functions_that_call_each_other_are_told_once() {
    let calls = [(0, "main", 0), (1, "a", 1), (2, "b", 1), (3, "a", 1), (4, "b", 1), (5, "c", 1)];
    let tree = tree(&calls);
    assert_eq!(shown(&tree, &ONE_PERCENT), ["main  (p)", "╭ a  ×2", "╰ b", "c"]);
    let mut outline = Outline::new(&tree, tree.nodes[0].total, &ONE_PERCENT);
    outline.grow(0);
    let own: Vec<u64> = outline.lines.iter().filter_map(|line| Some(line.own?.samples)).collect();
    assert_eq!(own, [0, 2, 2, 1], "what fell on them is that of all times");
}

#[test]
fn scripts_get_callers_first() {
    let calls = [(0, "main", 0), (1, "b", 1), (1, "a", 2), (3, "c", 1)];
    let tree = tree(&calls);
    let whole = tree.nodes[0].total;
    let kept = kept(&tree, &Shown { event: 0, whole, counted: whole }, &ONE_PERCENT);
    let line = |kept: &Kept| (tree.function(kept.node).name.clone(), kept.parent, kept.depth);
    let lines: Vec<_> = kept.iter().map(line).collect();
    let expected = [("main", 0, 0), ("a", 1, 1), ("c", 2, 2), ("b", 1, 1)];
    assert_eq!(lines, expected.map(|(name, parent, depth)| (name.to_owned(), parent, depth)));
}
