//! Builds a [`Tree`] path by path, in bounded memory.
//!
//! A node takes 40 bytes, and its entry in the hash table of children 15 to 30. Before there are too many,
//! the owner folds the tree: [`TreeBuilder::fold`] keeps the heaviest nodes, and the samples of each
//! other subtree move to a node `(other)` below the caller of that subtree. This is lossy counting
//! (G. Manku and R. Motwani, VLDB 2002, pages 346-357) on a tree: totals stay, a path has at least
//! the samples that are shown, and lacks at most the heaviest subtree of each folding, since every
//! folding takes a path once at most. Which nodes are folded depends on the order of the input
//! alone.

use nprof_report::profile::{Sum, raise_bound};
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{
    Function, LineSum, Moments, NO_PARENT, Node, NodeIndex, Root, Tree, largest_first,
};

/// Builds a [`Tree`] path by path. Functions are numbers that the caller chooses.
#[derive(Clone, Debug, Default)]
pub struct TreeBuilder {
    nodes: Vec<NewNode>,
    /// Nodes by parent and function.
    children: FxHashMap<(u32, u32), u32>,
    /// Nodes by event and function.
    roots: FxHashMap<(usize, usize), NodeIndex>,
}

#[derive(Clone, Debug)]
struct NewNode {
    /// The parent, or [`NO_PARENT`].
    parent: u32,
    function: u32,
    self_: Sum,
}

/// The result of folding.
#[derive(Debug)]
pub struct Folding {
    /// By old node, the node that has its samples now.
    pub places: Vec<u32>,
    /// By node, whether it is `(other)`.
    pub is_folded: Vec<bool>,
    /// By event, the most samples and the most weight of a subtree that was folded.
    pub bounds: Vec<Sum>,
}

impl TreeBuilder {
    /// Returns the root of an event with this function; adds it if it is new.
    pub fn root(&mut self, event: usize, function: usize) -> NodeIndex {
        if let Some(&root) = self.roots.get(&(event, function)) {
            return root;
        }
        let root = self.push(NO_PARENT, function as u32) as NodeIndex;
        self.roots.insert((event, function), root);
        root
    }

    /// Returns the node of a function called from `parent`; adds it if it is new.
    pub fn child(&mut self, parent: NodeIndex, function: usize) -> NodeIndex {
        let (parent, function) = (parent as u32, function as u32);
        let next = self.nodes.len() as u32;
        // One lookup for known and new nodes.
        let child = *self.children.entry((parent, function)).or_insert(next);
        if child == next {
            self.push(parent, function);
        }
        child as NodeIndex
    }

    fn push(&mut self, parent: u32, function: u32) -> u32 {
        self.nodes.push(NewNode { parent, function, self_: Sum::default() });
        self.nodes.len() as u32 - 1
    }

    /// Adds samples with a stack that ends at `node`.
    pub fn add(&mut self, node: NodeIndex, sum: Sum) {
        self.nodes[node].self_.add(sum);
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of calls on all paths together: the length of a report that prints each path.
    pub fn path_size(&self) -> usize {
        let mut depths: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut sum = 0usize;
        for node in &self.nodes {
            let above = if node.parent == NO_PARENT { 0 } else { depths[node.parent as usize] };
            let depth = above + 1;
            depths.push(depth);
            if node.self_.samples > 0 {
                sum = sum.saturating_add(depth);
            }
        }
        sum
    }

    /// Keeps the `count` nodes with the largest shares of their events. All other samples move to a
    /// node of the function `other` below the last node of their path that is kept.
    pub fn fold(&mut self, count: usize, other: usize) -> Folding {
        let events = self.events();
        let totals = self.totals();
        let is_kept = self.heaviest(count, other as u32, &events, &totals);
        let mut folded = Self::default();
        let mut places: Vec<u32> = Vec::with_capacity(self.nodes.len());
        let mut bounds: Vec<Sum> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let event = events[index] as usize;
            let is_root = node.parent == NO_PARENT;
            let above =
                if is_root { None } else { Some(places[node.parent as usize] as NodeIndex) };
            let place = match above {
                None if is_kept[index] => folded.root(event, node.function as usize),
                Some(above) if folded.is_folded(above, other) => above,
                Some(above) if is_kept[index] => folded.child(above, node.function as usize),
                _ => {
                    let above = above.unwrap_or_else(|| folded.root(event, other));
                    // An earlier folding has counted the samples of its own `(other)`.
                    if is_root || node.function != other as u32 {
                        raise_bound(&mut bounds, event, totals[index]);
                    }
                    folded.child(above, other)
                }
            };
            folded.nodes[place].self_.add(node.self_);
            places.push(place as u32);
        }
        *self = folded;
        let is_folded = (0..self.len()).map(|node| self.is_folded(node, other)).collect();
        Folding { places, is_folded, bounds }
    }

    /// True if a node has the samples of folded calls. A root of this name is the place of folded
    /// commands: only the node below it has samples.
    fn is_folded(&self, node: NodeIndex, other: usize) -> bool {
        let node = &self.nodes[node];
        node.function == other as u32 && node.parent != NO_PARENT
    }

    /// Returns which nodes are among the `count` heaviest: by the share of their event, equal ones by
    /// number. The parent of such a node is one too: its share is as large, its number smaller.
    fn heaviest(&self, count: usize, other: u32, events: &[u32], totals: &[Sum]) -> Vec<bool> {
        let mut wholes: Vec<Sum> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if node.parent == NO_PARENT {
                let event = events[index] as usize;
                wholes.resize(wholes.len().max(event + 1), Sum::default());
                wholes[event].add(totals[index]);
            }
        }
        let share = |node: u32| {
            let (total, whole) = (totals[node as usize], wholes[events[node as usize] as usize]);
            match whole.weight {
                // Of an event that weighs nothing, samples are all there is.
                0 => total.samples as f64 / whole.samples.max(1) as f64,
                weight => total.weight as f64 / weight as f64,
            }
        };
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).collect();
        order.retain(|&node| {
            let node = &self.nodes[node as usize];
            node.function != other || node.parent == NO_PARENT
        });
        if count < order.len() {
            order.select_nth_unstable_by(count, |&a, &b| {
                share(b).total_cmp(&share(a)).then(a.cmp(&b))
            });
            order.truncate(count);
        }
        // Looked up for each node while the tree is copied.
        let mut is_kept = vec![false; self.nodes.len()];
        order.into_iter().for_each(|node| is_kept[node as usize] = true);
        is_kept
    }

    /// Returns the event of each node.
    fn events(&self) -> Vec<u32> {
        let mut events = vec![0; self.nodes.len()];
        for (&(event, _), &root) in &self.roots {
            events[root] = event as u32;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.parent != NO_PARENT {
                events[index] = events[node.parent as usize];
            }
        }
        events
    }

    /// Returns the samples on the paths through each node.
    fn totals(&self) -> Vec<Sum> {
        let mut totals: Vec<Sum> = self.nodes.iter().map(|node| node.self_).collect();
        // Children have higher indices than their parents, so going backwards every total is
        // complete before it is added to the parent's.
        for index in (0..totals.len()).rev() {
            let parent = self.nodes[index].parent;
            if parent != NO_PARENT {
                let total = totals[index];
                totals[parent as usize].add(total);
            }
        }
        totals
    }

    /// Returns the functions that nodes have.
    pub fn functions(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().map(|node| node.function as usize)
    }

    /// Gives each function another number. Different functions must stay different.
    pub fn renumber(&mut self, number: impl Fn(usize) -> usize) {
        for node in &mut self.nodes {
            node.function = number(node.function as usize) as u32;
        }
        let roots = std::mem::take(&mut self.roots).into_iter();
        self.roots = roots.map(|((event, old), node)| ((event, number(old)), node)).collect();
        // The keys have functions, too.
        self.children.clear();
        for (node, index) in self.nodes.iter().zip(0..).filter(|(node, _)| node.parent != NO_PARENT)
        {
            self.children.insert((node.parent, node.function), index);
        }
    }

    /// Returns the tree with its totals, sorted by name, without nodes that have no samples.
    ///
    /// `functions` are the functions by their numbers; `lines` the source lines, some perhaps in
    /// parts; `bounds` the samples that a path may lack, by event.
    pub fn finish(&self, functions: Vec<Function>, lines: Vec<LineSum>, bounds: Vec<Sum>) -> Tree {
        self.finish_with(functions, lines, bounds, |_| Moments::default())
    }

    /// Returns the tree as [`Self::finish`], with the samples by thread and time that `moments` returns
    /// for the new indices of all nodes; None if a node is dropped.
    pub(super) fn finish_with(
        &self,
        functions: Vec<Function>,
        lines: Vec<LineSum>,
        bounds: Vec<Sum>,
        moments: impl FnOnce(&[Option<u32>]) -> Moments,
    ) -> Tree {
        // Functions are numbered by name, so that sorting by number sorts by name.
        let mut by_name: Vec<(Function, usize)> = functions.into_iter().zip(0..).collect();
        by_name.sort();
        let mut new_number = vec![0; by_name.len()];
        for (new, (_, old)) in by_name.iter().enumerate() {
            new_number[*old] = new;
        }
        let functions = by_name.into_iter().map(|(function, _)| function).collect();
        let (nodes, new_index) = self.finish_nodes(&new_number);
        let mut roots = Vec::with_capacity(self.roots.len());
        for (&(event, _), &root) in &self.roots {
            roots.extend(new_index[root].map(|node| Root { event, node: node as NodeIndex }));
        }
        roots.sort_by_key(|root| (root.event, nodes[root.node].function));
        let mut tree = Tree { functions, nodes, roots, bounds, ..Tree::default() };
        tree.lines = sorted(lines, &new_index);
        tree.moments = moments(&new_index);
        set_children(&mut tree);
        tree
    }

    /// Returns the nodes that have samples, and the new index of every node, None if dropped.
    fn finish_nodes(&self, new_number: &[usize]) -> (Vec<Node>, Vec<Option<u32>>) {
        let totals = self.totals();
        let mut new_index: Vec<Option<u32>> = Vec::with_capacity(totals.len());
        let mut nodes: Vec<Node> = Vec::new();
        for (old, total) in self.nodes.iter().zip(totals) {
            let is_root = old.parent == NO_PARENT;
            // Filters leave nodes without samples; roots stay, so that an event keeps its place.
            if total.samples == 0 && !is_root {
                new_index.push(None);
                continue;
            }
            let parent = if is_root { None } else { new_index[old.parent as usize] };
            new_index.push(Some(nodes.len() as u32));
            nodes.push(Node {
                parent: parent.unwrap_or(NO_PARENT),
                first_child: 0,
                end_of_children: 0,
                function: new_number[old.function as usize],
                self_: old.self_,
                total,
            });
        }
        (nodes, new_index)
    }
}

/// Returns the lines under the new indices of their leaves, each line of a leaf once, sorted by leaf,
/// then by sum, then by name.
fn sorted(mut lines: Vec<LineSum>, new_index: &[Option<u32>]) -> Vec<LineSum> {
    lines.retain_mut(|line| {
        // Lines of a dropped node have no samples.
        let leaf = new_index[line.leaf];
        line.leaf = leaf.map_or(0, |leaf| leaf as NodeIndex);
        leaf.is_some()
    });
    lines.sort_by(|a, b| (a.leaf, &a.line).cmp(&(b.leaf, &b.line)));
    lines.dedup_by(|next, line| {
        let is_same = (next.leaf, &next.line) == (line.leaf, &line.line);
        if is_same {
            line.sum.add(next.sum);
        }
        is_same
    });
    lines.sort_by(|a, b| a.leaf.cmp(&b.leaf).then_with(|| largest_first(a.sum, b.sum)));
    lines
}

/// Sets the children of all nodes, sorted by function.
fn set_children(tree: &mut Tree) {
    let nodes = &mut tree.nodes;
    let mut children: Vec<u32> = (0..nodes.len() as u32).collect();
    children.retain(|&node| nodes[node as usize].parent != NO_PARENT);
    children.sort_by_key(|&node| (nodes[node as usize].parent, nodes[node as usize].function));
    for (&child, index) in children.iter().zip(0..) {
        let parent = nodes[child as usize].parent as usize;
        let parent = &mut nodes[parent];
        // No node has children yet: the first one begins the range.
        if parent.end_of_children == 0 {
            parent.first_child = index;
        }
        parent.end_of_children = index + 1;
    }
    tree.children = children;
}
