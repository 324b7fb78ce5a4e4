//! The call tree: every distinct call path once, from the outermost function down, with its sums.
//! Every view is computed from this tree, so all views agree.

use std::cmp::Ordering;

use nprof_report::profile::Sum;
use rustc_hash::FxHashMap;

/// A function: two functions are the same if their names and their images are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// The shown name, escaped.
    pub name: String,
    /// The base name of the image, escaped.
    pub image: String,
    /// The shown name as in the stream, for regular expressions.
    pub raw_name: Box<[u8]>,
}

/// Index into [`Tree::nodes`].
pub type NodeIndex = usize;

/// A function, called along the path of the nodes above it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The caller's node; None for the node of a [`Root`].
    pub parent: Option<NodeIndex>,
    /// Index into [`Tree::functions`].
    pub function: usize,
    /// The samples with a stack that ends here.
    pub self_: Sum,
    /// The samples with a stack that goes through this node.
    pub total: Sum,
    /// The nodes that this one is the parent of, by function.
    pub children: Vec<NodeIndex>,
}

/// The root of an event's call paths. Its node is not a call: the outermost functions are its
/// children.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// Index into the summary's events.
    pub event: usize,
    /// The root's node. Its function is the command if the tree has one root per command, else a
    /// function with an empty name.
    pub node: NodeIndex,
}

/// The samples on one source line of a leaf, or at one address if the line is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSum {
    /// The line, or the address, escaped.
    pub line: String,
    /// Its samples.
    pub sum: Sum,
}

/// The source lines of each leaf.
pub type LeafLines = FxHashMap<NodeIndex, Vec<LineSum>>;

/// The call tree of all events.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// All functions, sorted by name and image.
    pub functions: Vec<Function>,
    /// All nodes, parents before their children. Only roots may have no samples.
    pub nodes: Vec<Node>,
    /// The roots, by event and command.
    pub roots: Vec<Root>,
    /// The source lines of each leaf, the largest sum first.
    pub lines: LeafLines,
}

impl Tree {
    /// Returns the function of a node.
    pub fn function(&self, node: NodeIndex) -> &Function {
        &self.functions[self.nodes[node].function]
    }

    /// Returns the nodes of an event's roots.
    pub fn roots_of(&self, event: usize) -> impl Iterator<Item = NodeIndex> + '_ {
        self.roots.iter().filter(move |root| root.event == event).map(|root| root.node)
    }

    /// Returns the samples on all paths of an event.
    pub fn total(&self, event: usize) -> Sum {
        let mut total = Sum::default();
        self.roots_of(event).for_each(|root| total.add(self.nodes[root].total));
        total
    }

    /// Returns the nodes of a path, leaf first, without the root.
    pub fn stack(&self, leaf: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        std::iter::successors(Some(leaf), |&node| self.nodes[node].parent)
            .take_while(|&node| self.nodes[node].parent.is_some())
    }

    /// Returns all nodes below an event's roots in depth-first order, siblings by function.
    pub fn depth_first(&self, event: usize) -> Vec<NodeIndex> {
        let mut order = Vec::new();
        // A stack of its own: paths are too deep for recursion (20,000 frames are tested).
        let mut pending = Vec::new();
        for root in self.roots_of(event) {
            pending.extend(self.nodes[root].children.iter().rev().copied());
            while let Some(node) = pending.pop() {
                order.push(node);
                pending.extend(self.nodes[node].children.iter().rev().copied());
            }
        }
        order
    }

    /// Returns the leaves of an event's paths in depth-first order: the nodes at which stacks end.
    pub fn leaves(&self, event: usize) -> Vec<NodeIndex> {
        let mut leaves = self.depth_first(event);
        leaves.retain(|&node| self.nodes[node].self_.samples > 0);
        leaves
    }
}

/// Orders sums by weight, then by samples, the larger first.
pub fn largest_first(a: Sum, b: Sum) -> Ordering {
    (b.weight, b.samples).cmp(&(a.weight, a.samples))
}

/// Builds a [`Tree`] path by path. Functions are numbers that the caller chooses.
#[derive(Clone, Debug, Default)]
pub struct TreeBuilder {
    nodes: Vec<NewNode>,
    /// Nodes by parent and function.
    children: FxHashMap<(NodeIndex, usize), NodeIndex>,
    /// Nodes by event and function.
    roots: FxHashMap<(usize, usize), NodeIndex>,
}

#[derive(Clone, Debug)]
struct NewNode {
    parent: Option<NodeIndex>,
    function: usize,
    self_: Sum,
}

impl TreeBuilder {
    /// Returns the root of an event with this function; adds it if it is new.
    pub fn root(&mut self, event: usize, function: usize) -> NodeIndex {
        if let Some(&root) = self.roots.get(&(event, function)) {
            return root;
        }
        let root = self.push(None, function);
        self.roots.insert((event, function), root);
        root
    }

    /// Returns the node of a function called from `parent`; adds it if it is new.
    pub fn child(&mut self, parent: NodeIndex, function: usize) -> NodeIndex {
        if let Some(&child) = self.children.get(&(parent, function)) {
            return child;
        }
        let child = self.push(Some(parent), function);
        self.children.insert((parent, function), child);
        child
    }

    fn push(&mut self, parent: Option<NodeIndex>, function: usize) -> NodeIndex {
        self.nodes.push(NewNode { parent, function, self_: Sum::default() });
        self.nodes.len() - 1
    }

    /// Adds samples with a stack that ends at `node`.
    pub fn add(&mut self, node: NodeIndex, sum: Sum) {
        self.nodes[node].self_.add(sum);
    }

    /// Returns the tree with its totals, sorted by name, without nodes that have no samples.
    ///
    /// `functions` are the functions by their numbers, `lines` the source lines by node.
    pub fn finish(&self, functions: Vec<Function>, lines: LeafLines) -> Tree {
        // Functions are numbered by name, so that sorting by number sorts by name.
        let mut by_name: Vec<(Function, usize)> = functions.into_iter().zip(0..).collect();
        by_name.sort();
        let mut new_number = vec![0; by_name.len()];
        for (new, (_, old)) in by_name.iter().enumerate() {
            new_number[*old] = new;
        }
        let (nodes, new_index) = self.finish_nodes(&new_number);
        let mut roots = Vec::with_capacity(self.roots.len());
        for (&(event, _), &root) in &self.roots {
            roots.extend(new_index[root].map(|node| Root { event, node }));
        }
        roots.sort_by_key(|root| (root.event, nodes[root.node].function));
        let mut leaf_lines = LeafLines::default();
        for (leaf, mut lines) in lines {
            // Lines of a dropped node have no samples.
            let Some(leaf) = new_index[leaf] else { continue };
            lines.sort_by(|a, b| largest_first(a.sum, b.sum).then_with(|| a.line.cmp(&b.line)));
            leaf_lines.insert(leaf, lines);
        }
        let functions = by_name.into_iter().map(|(function, _)| function).collect();
        Tree { functions, nodes, roots, lines: leaf_lines }
    }

    /// Returns the nodes that have samples, and the new index of every node, None if dropped.
    fn finish_nodes(&self, new_number: &[usize]) -> (Vec<Node>, Vec<Option<NodeIndex>>) {
        // Children have higher indices than their parents, so going backwards every total is
        // complete before it is added to the parent's.
        let mut totals: Vec<Sum> = self.nodes.iter().map(|node| node.self_).collect();
        for node in (0..totals.len()).rev() {
            if let Some(parent) = self.nodes[node].parent {
                let total = totals[node];
                totals[parent].add(total);
            }
        }
        let mut new_index: Vec<Option<NodeIndex>> = Vec::with_capacity(totals.len());
        let mut nodes: Vec<Node> = Vec::new();
        for (old, total) in self.nodes.iter().zip(totals) {
            // Filters leave nodes without samples; roots stay, so that an event keeps its place.
            if total.samples == 0 && old.parent.is_some() {
                new_index.push(None);
                continue;
            }
            let parent = old.parent.and_then(|parent| new_index[parent]);
            let index = nodes.len();
            if let Some(parent) = parent {
                nodes[parent].children.push(index);
            }
            let (function, self_) = (new_number[old.function], old.self_);
            nodes.push(Node { parent, function, self_, total, children: Vec::new() });
            new_index.push(Some(index));
        }
        // A copy, as the nodes are borrowed mutably below.
        let functions: Vec<usize> = nodes.iter().map(|node| node.function).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|&child| functions[child]);
        }
        (nodes, new_index)
    }
}
