//! The call tree: every distinct call path once, from the roots down, with what fell on it.

use nprof_format::profile::Sum;
use rustc_hash::FxHashMap;

/// A function, as paths tell them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// Its shown name, escaped.
    pub(crate) name: String,
    /// Its image's base name, escaped.
    pub(crate) image: String,
}

/// A function called by way of the path above it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The caller; `None` for a top.
    pub(crate) parent: Option<usize>,
    /// Index into [`Tree::functions`].
    pub(crate) function: usize,
    /// What fell on the path that ends here.
    pub(crate) own: Sum,
    /// What fell on it and on all paths below.
    pub(crate) total: Sum,
    /// The nodes it is the parent of, by function.
    pub(crate) children: Vec<usize>,
}

/// Where the trees of an event begin. The node of a top stands for no call: the roots are its
/// children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top {
    /// Index into the summary's events.
    pub(crate) event: usize,
    /// Its node. Its function is the command, where paths begin with one.
    pub(crate) node: usize,
}

/// The call tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Every function, by name and image.
    pub(crate) functions: Vec<Function>,
    /// Every node; parents come before their children.
    pub(crate) nodes: Vec<Node>,
    /// By event and command.
    pub(crate) tops: Vec<Top>,
    /// For a leaf, what fell on which source line (or address), most first.
    pub(crate) lines: FxHashMap<usize, Vec<(String, Sum)>>,
}

impl Tree {
    /// What a node's function is.
    pub(crate) fn function(&self, node: usize) -> &Function {
        &self.functions[self.nodes[node].function]
    }

    /// The nodes of a path, leaf first, without the top.
    pub(crate) fn stack(&self, leaf: usize) -> impl Iterator<Item = usize> + '_ {
        let up = |&node: &usize| self.nodes[node].parent;
        let stack = std::iter::successors(Some(leaf), up);
        stack.take_while(|&node| self.nodes[node].parent.is_some())
    }

    /// All nodes under the tops of an event, each after its parent and after all that is called
    /// by functions of smaller name.
    pub(crate) fn in_order(&self, event: usize) -> Vec<usize> {
        let mut order = Vec::new();
        let mut open = Vec::new();
        for top in self.tops.iter().filter(|top| top.event == event) {
            open.extend(self.nodes[top.node].children.iter().rev().copied());
            while let Some(node) = open.pop() {
                order.push(node);
                open.extend(self.nodes[node].children.iter().rev().copied());
            }
        }
        order
    }
}
