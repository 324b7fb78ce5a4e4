//! The call tree: every distinct call path once, from the outermost function down, with its sums.
//! Every view is computed from this tree, so all views agree.

use std::cmp::Ordering;
use std::sync::Arc;

use nprof_report::profile::{FoldedSums, Sum};
use nprof_stream::labels::OTHER;

/// A function: two functions are the same if their names and their images are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// The shown name, escaped.
    pub name: String,
    /// The base name of the image, escaped. Shared: functions are many, images are few.
    pub image: Arc<str>,
    /// The shown name as in the stream, for regular expressions.
    pub raw_name: Box<[u8]>,
}

impl Function {
    /// Returns the function of calls that were folded to bound memory.
    pub fn other() -> Self {
        let name = String::from_utf8_lossy(OTHER).into_owned();
        Self { name, image: "".into(), raw_name: OTHER.into() }
    }

    /// True if it is the function of calls that were folded to bound memory. Functions of programs have an image.
    pub fn is_other(&self) -> bool {
        self.image.is_empty() && *self.raw_name == *OTHER
    }
}

/// Index into [`Tree::nodes`].
pub type NodeIndex = usize;

/// The parent of a root's node, which has none.
pub(super) const NO_PARENT: u32 = u32::MAX;

/// A function, called along the path of the nodes above it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The caller's node, or [`NO_PARENT`].
    pub(super) parent: u32,
    /// The range of the node's children in [`Tree::children`].
    pub(super) first_child: u32,
    pub(super) end_of_children: u32,
    /// Index into [`Tree::functions`].
    pub function: usize,
    /// The samples with a stack that ends here.
    pub self_: Sum,
    /// The samples with a stack that goes through this node.
    pub total: Sum,
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
    /// The leaf's node.
    pub leaf: NodeIndex,
    /// The line, or the address, escaped. Shared: a line is on many paths.
    pub line: Arc<str>,
    /// Its samples.
    pub sum: Sum,
}

/// The samples of a thread in a slice of time, with stacks that end at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The node at which the stacks end.
    pub node: NodeIndex,
    /// Index into [`Moments::threads`].
    pub thread: u32,
    /// The number of the slice.
    pub slice: u32,
    /// The samples.
    pub sum: Sum,
}

/// The samples of a tree by thread and time.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    /// The length of a slice.
    pub slice_ns: u64,
    /// The number of slices; 0 without samples.
    pub slices: u32,
    /// The labels of threads, escaped.
    pub threads: Vec<String>,
    /// By node, thread and slice.
    pub moments: Vec<Moment>,
}

/// A function with its code.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// The function.
    pub function: Arc<nprof_code::function::Function>,
    /// Its samples by event.
    pub sums: Vec<Sum>,
}

/// The samples of a thread in a slice of time at one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeMoment {
    /// Index into [`Code::functions`].
    pub function: usize,
    /// The distance from the function's first byte.
    pub offset: u32,
    /// Index into the summary's events.
    pub event: usize,
    /// Index into [`Moments::threads`]; their number for threads that were joined in the code.
    pub thread: u32,
    /// The number of the slice of [`Code::slice_ns`].
    pub slice: u32,
    /// The samples.
    pub sum: Sum,
}

/// The code of functions, and the samples at their instructions.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The functions with the largest shares of an event, the largest first.
    pub functions: Vec<FunctionCode>,
    /// True if the stream has code with samples.
    pub is_found: bool,
    /// The length of a slice: that of [`Moments::slice_ns`], or longer.
    pub slice_ns: u64,
    /// The samples.
    pub moments: Vec<CodeMoment>,
}

/// The call tree of all events.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// All functions, sorted by name and image.
    pub functions: Vec<Function>,
    /// All nodes, parents before their children. Only roots may have no samples.
    pub nodes: Vec<Node>,
    /// The roots, by event and command.
    pub roots: Vec<Root>,
    /// The children of all nodes, each node's by function.
    pub(super) children: Vec<u32>,
    /// The source lines by leaf, the largest sum of each leaf first.
    pub(super) lines: Vec<LineSum>,
    /// By event, the most samples, and the most weight, that a path may lack because its calls were
    /// folded to bound memory. Absent for events without folded calls.
    pub(super) bounds: Vec<Sum>,
    /// The samples by thread and time; empty unless they were requested.
    pub moments: Moments,
    /// The code of functions; empty unless it was requested.
    pub code: Code,
}

impl Tree {
    /// Returns the function of a node.
    pub fn function(&self, node: NodeIndex) -> &Function {
        &self.functions[self.nodes[node].function]
    }

    /// Returns the caller's node. None for the node of a [`Root`].
    pub fn parent(&self, node: NodeIndex) -> Option<NodeIndex> {
        let parent = self.nodes[node].parent;
        (parent != NO_PARENT).then_some(parent as NodeIndex)
    }

    /// Returns the nodes that this one is the parent of, by function.
    pub fn children(&self, node: NodeIndex) -> impl DoubleEndedIterator<Item = NodeIndex> + '_ {
        let Node { first_child, end_of_children, .. } = self.nodes[node];
        let children = &self.children[first_child as usize..end_of_children as usize];
        children.iter().map(|&child| child as NodeIndex)
    }

    /// Returns the source lines of a leaf, the largest sum first.
    pub fn lines(&self, leaf: NodeIndex) -> &[LineSum] {
        let start = self.lines.partition_point(|line| line.leaf < leaf);
        let count = self.lines[start..].partition_point(|line| line.leaf == leaf);
        &self.lines[start..start + count]
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
        std::iter::successors(Some(leaf), |&node| self.parent(node))
            .take_while(|&node| self.nodes[node].parent != NO_PARENT)
    }

    /// Returns all nodes below an event's roots in depth-first order, siblings by function.
    pub fn depth_first(&self, event: usize) -> Vec<NodeIndex> {
        let mut order = Vec::new();
        // A stack of its own: paths are too deep for recursion (20,000 frames are tested).
        let mut pending = Vec::new();
        for root in self.roots_of(event) {
            pending.extend(self.children(root).rev());
            while let Some(node) = pending.pop() {
                order.push(node);
                pending.extend(self.children(node).rev());
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

    /// Returns the samples of an event in calls that were folded to bound memory, with the most
    /// that any one path lacks. None if no calls were.
    pub fn folded(&self, event: usize) -> Option<FoldedSums> {
        let bound = *self.bounds.get(event).filter(|bound| bound.samples > 0)?;
        let mut other = Sum::default();
        for node in self.depth_first(event) {
            if self.function(node).is_other() {
                other.add(self.nodes[node].self_);
            }
        }
        Some(FoldedSums { other, bound })
    }
}

/// Orders sums by weight, then by samples, the larger first.
pub fn largest_first(a: Sum, b: Sum) -> Ordering {
    (b.weight, b.samples).cmp(&(a.weight, a.samples))
}
