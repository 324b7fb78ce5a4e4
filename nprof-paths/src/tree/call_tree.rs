//! The call tree: every distinct call path once, from the roots down, with what fell on it. All
//! views are made from it, and so agree.

use nprof_report::profile::Sum;
use rustc_hash::FxHashMap;

/// A function, as paths tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// Its shown name, escaped.
    pub(crate) name: String,
    /// Its image's base name, escaped.
    pub(crate) image: String,
    /// Its shown name as it is.
    pub(crate) bytes: Box<[u8]>,
}

/// Index of a node.
pub(crate) type At = usize;

/// A function called by way of the path above it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The caller; `None` for a top.
    pub(crate) parent: Option<At>,
    /// Index into [`Tree::functions`].
    pub(crate) function: usize,
    /// What fell on the path that ends here.
    pub(crate) own: Sum,
    /// What fell on it and on all paths below.
    pub(crate) total: Sum,
    /// The nodes it is the parent of, by function.
    pub(crate) children: Vec<At>,
}

/// Where the trees of an event begin. The node of a top stands for no call: the roots are its
/// children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top {
    /// Index into the summary's events.
    pub(crate) event: usize,
    /// Its node. Its function is the command, where paths begin with one.
    pub(crate) node: At,
}

/// For a leaf, what fell on which source line (or address).
pub(crate) type LeafLines = FxHashMap<At, Vec<(String, Sum)>>;

/// The call tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Every function, by name and image.
    pub(crate) functions: Vec<Function>,
    /// Every node; parents come before their children. Nothing but a top is without samples.
    pub(crate) nodes: Vec<Node>,
    /// By event and command.
    pub(crate) tops: Vec<Top>,
    /// The most comes first.
    pub(crate) lines: LeafLines,
}

impl Tree {
    /// What a node's function is.
    pub(crate) fn function(&self, node: At) -> &Function {
        &self.functions[self.nodes[node].function]
    }

    /// What fell on all paths of an event.
    pub(crate) fn total(&self, event: usize) -> Sum {
        let mut total = Sum::default();
        let tops = self.tops.iter().filter(|top| top.event == event);
        tops.for_each(|top| total.add(self.nodes[top.node].total));
        total
    }

    /// The nodes of a path, leaf first, without the top.
    pub(crate) fn stack(&self, leaf: At) -> impl Iterator<Item = At> + '_ {
        let up = |&node: &At| self.nodes[node].parent;
        let stack = std::iter::successors(Some(leaf), up);
        stack.take_while(|&node| self.nodes[node].parent.is_some())
    }

    /// All nodes under the tops of an event, each after its parent and after all that is called
    /// by functions of smaller name.
    pub(crate) fn in_order(&self, event: usize) -> Vec<At> {
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

    /// The leaves of an event's paths: the nodes that samples fell on, in the same order.
    pub(crate) fn leaves(&self, event: usize) -> Vec<At> {
        let mut leaves = self.in_order(event);
        leaves.retain(|&node| self.nodes[node].own.samples > 0);
        leaves
    }
}

/// A tree that is being grown. Its functions are numbers that the grower knows the meaning of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growing {
    nodes: Vec<Growth>,
    children: FxHashMap<(At, usize), At>,
    /// By event and function.
    tops: FxHashMap<(usize, usize), At>,
}

#[derive(Clone, Debug)]
struct Growth {
    parent: Option<At>,
    function: usize,
    own: Sum,
}

impl Growing {
    /// The top of an event whose function is this.
    pub(crate) fn top(&mut self, event: usize, function: usize) -> At {
        if let Some(&at) = self.tops.get(&(event, function)) {
            return at;
        }
        let at = self.push(None, function);
        self.tops.insert((event, function), at);
        at
    }

    /// The node for a function called from another node.
    pub(crate) fn child(&mut self, parent: At, function: usize) -> At {
        if let Some(&at) = self.children.get(&(parent, function)) {
            return at;
        }
        let at = self.push(Some(parent), function);
        self.children.insert((parent, function), at);
        at
    }

    fn push(&mut self, parent: Option<At>, function: usize) -> At {
        self.nodes.push(Growth { parent, function, own: Sum::default() });
        self.nodes.len() - 1
    }

    /// Adds what fell on a path.
    pub(crate) fn add(&mut self, at: At, sum: Sum) {
        self.nodes[at].own.add(sum);
    }

    /// The tree, with its totals, everything in the order of names, without what no sample is on.
    pub(crate) fn finish(&self, functions: Vec<Function>, lines: LeafLines) -> Tree {
        let mut by_name: Vec<(Function, usize)> = functions.into_iter().zip(0..).collect();
        by_name.sort();
        let mut renumbered = vec![0; by_name.len()];
        for (new, (_, old)) in by_name.iter().enumerate() {
            renumbered[*old] = new;
        }
        let (nodes, places) = self.finish_nodes(&renumbered);
        let top = |(&(event, _), &at): (&(usize, usize), &At)| Some((event, places[at]?));
        let tops = self.tops.iter().filter_map(top);
        let mut tops: Vec<Top> = tops.map(|(event, node)| Top { event, node }).collect();
        tops.sort_by_key(|top| (top.event, nodes[top.node].function));
        let place = |(at, lines): (At, Vec<(String, Sum)>)| Some((places[at]?, lines));
        let mut lines: LeafLines = lines.into_iter().filter_map(place).collect();
        for lines in lines.values_mut() {
            lines.sort_by(|(a_name, a), (b_name, b)| {
                (b.weight, b.samples).cmp(&(a.weight, a.samples)).then_with(|| a_name.cmp(b_name))
            });
        }
        let functions = by_name.into_iter().map(|(function, _)| function).collect();
        Tree { functions, nodes, tops, lines }
    }

    /// The nodes that have samples, and the places of all in them.
    fn finish_nodes(&self, renumbered: &[usize]) -> (Vec<Node>, Vec<Option<At>>) {
        // Children come after their parents: from the back, every total is whole when it is
        // handed up.
        let mut totals: Vec<Sum> = self.nodes.iter().map(|node| node.own).collect();
        for at in (0..totals.len()).rev() {
            if let Some(parent) = self.nodes[at].parent {
                let total = totals[at];
                totals[parent].add(total);
            }
        }
        let mut places: Vec<Option<At>> = Vec::with_capacity(totals.len());
        let mut nodes: Vec<Node> = Vec::new();
        for (growth, total) in self.nodes.iter().zip(totals) {
            if total.samples == 0 && growth.parent.is_some() {
                places.push(None);
                continue;
            }
            let parent = growth.parent.and_then(|parent| places[parent]);
            let at = nodes.len();
            if let Some(parent) = parent {
                nodes[parent].children.push(at);
            }
            let (function, own) = (renumbered[growth.function], growth.own);
            nodes.push(Node { parent, function, own, total, children: Vec::new() });
            places.push(Some(at));
        }
        let functions: Vec<usize> = nodes.iter().map(|node| node.function).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|&child| functions[child]);
        }
        (nodes, places)
    }
}
