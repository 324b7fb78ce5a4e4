//! The call graph: for each function what called it and what it called, each with what came by
//! that way, as IgProf and uProfiler have it. It is the sum of the paths, so that what a caller is
//! said to have caused is what was seen below it, and not its part of all calls.

use nprof_report::profile::Sum;
use nprof_report::report::RowLimits;
use rustc_hash::FxHashMap;

use crate::select::{Hidden, Shown, descending};
use crate::tree::call_tree::{Function, Tree};
use crate::tree::cycles::{Vertex, vertices};

/// What fell on some of the paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passing {
    /// On those that end with what is spoken of.
    pub(crate) own: Sum,
    /// On all that go by it.
    pub(crate) total: Sum,
    /// How many distinct paths these are.
    pub(crate) paths: u64,
}

impl Passing {
    fn add(&mut self, sum: Sum, is_last: bool) {
        self.total.add(sum);
        self.paths += 1;
        if is_last {
            self.own.add(sum);
        }
    }
}

/// One vertex next to another, and what came by way of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Index of the other vertex's entry.
    pub(crate) other: usize,
    /// The paths by this way; own is that of the one that is called.
    pub(crate) passing: Passing,
}

/// A vertex, and what is next to it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) vertex: Vertex,
    pub(crate) passing: Passing,
    /// What called it, the most important first.
    pub(crate) callers: Vec<Edge>,
    /// What it called, likewise.
    pub(crate) callees: Vec<Edge>,
    /// What fell on each function of a cycle itself, in the order of the cycle.
    pub(crate) members: Vec<(usize, Sum)>,
}

/// A vertex and one next to it, by their numbers, and what came by this way.
type Ways = FxHashMap<(usize, usize), Passing>;

/// The vertices of an event's paths, the largest total first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) entries: Vec<Entry>,
}

/// A graph as it grows.
#[derive(Default)]
struct Growing {
    ids: FxHashMap<Vertex, usize>,
    vertices: Vec<(Vertex, Passing)>,
    /// By caller and callee.
    calls: Ways,
    /// What fell on the functions of cycles.
    members: FxHashMap<(usize, usize), Sum>,
}

impl Growing {
    fn id(&mut self, vertex: Vertex) -> usize {
        let next = self.vertices.len();
        let id = *self.ids.entry(vertex.clone()).or_insert(next);
        if id == next {
            self.vertices.push((vertex, Passing::default()));
        }
        id
    }

    fn add(&mut self, path: &[usize], sum: Sum) {
        let walk: Vec<usize> = vertices(path).into_iter().map(|vertex| self.id(vertex)).collect();
        for (i, &id) in walk.iter().enumerate() {
            let is_last = i + 1 == walk.len();
            self.vertices[id].1.add(sum, is_last);
            if i > 0 {
                self.calls.entry((walk[i - 1], id)).or_default().add(sum, is_last);
            }
        }
        if let (Some(&last), Some(&leaf)) = (walk.last(), path.last())
            && matches!(self.vertices[last].0, Vertex::Cycle(_))
        {
            self.members.entry((last, leaf)).or_default().add(sum);
        }
    }
}

impl Graph {
    /// The graph of an event's paths.
    pub(crate) fn of(tree: &Tree, event: usize) -> Self {
        let mut growing = Growing::default();
        let mut path = Vec::new();
        for leaf in tree.leaves(event) {
            path.clear();
            path.extend(tree.stack(leaf).map(|node| tree.nodes[node].function));
            path.reverse();
            growing.add(&path, tree.nodes[leaf].own);
        }
        growing.finish()
    }

    /// What a vertex is called; a cycle by its functions, and the first one again at the end.
    pub(crate) fn name(&self, entry: usize, functions: &[Function]) -> String {
        match &self.entries[entry].vertex {
            Vertex::Function(function) => functions[*function].name.clone(),
            Vertex::Cycle(members) => {
                let round = members.iter().chain(members.first());
                let names: Vec<&str> = round.map(|&member| &functions[member].name[..]).collect();
                format!("cycle {}", names.join(" -> "))
            }
        }
    }

    /// The image of a vertex: that of the function it is entered by.
    pub(crate) fn image<'a>(&self, entry: usize, functions: &'a [Function]) -> &'a str {
        match &self.entries[entry].vertex {
            Vertex::Function(function) => &functions[*function].image,
            Vertex::Cycle(members) => &functions[members[0]].image,
        }
    }
}

impl Growing {
    fn finish(self) -> Graph {
        let mut order: Vec<usize> = (0..self.vertices.len()).collect();
        order.sort_by(|&a, &b| {
            let ((a, a_passing), (b, b_passing)) = (&self.vertices[a], &self.vertices[b]);
            // Functions are numbered by name.
            descending(a_passing.total, b_passing.total)
                .then_with(|| descending(a_passing.own, b_passing.own))
                .then_with(|| a.cmp(b))
        });
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &id)| places[id] = place);
        let entry = |&id: &usize| {
            let (vertex, passing) = self.vertices[id].clone();
            let members = match &vertex {
                Vertex::Function(_) => Vec::new(),
                Vertex::Cycle(members) => members
                    .iter()
                    .map(|&member| {
                        (member, self.members.get(&(id, member)).copied().unwrap_or_default())
                    })
                    .collect(),
            };
            Entry { vertex, passing, members, callers: Vec::new(), callees: Vec::new() }
        };
        let mut entries: Vec<Entry> = order.iter().map(entry).collect();
        for (&(caller, callee), &passing) in &self.calls {
            let (caller, callee) = (places[caller], places[callee]);
            entries[caller].callees.push(Edge { other: callee, passing });
            entries[callee].callers.push(Edge { other: caller, passing });
        }
        for entry in &mut entries {
            for edges in [&mut entry.callers, &mut entry.callees] {
                edges.sort_by(|a, b| {
                    descending(a.passing.total, b.passing.total).then(a.other.cmp(&b.other))
                });
            }
        }
        Graph { entries }
    }
}

/// A graph, and how many of its entries are printed.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) graph: Graph,
    pub(crate) shown: Shown,
    /// The entries before this one are printed.
    pub(crate) count: usize,
    /// What `--min-percent` dropped.
    pub(crate) dropped: Hidden,
    /// What is past the last entry to print.
    pub(crate) more: Hidden,
}

/// Chooses the entries to print. They are in the order of their totals, so that all that are too
/// small come last but for ties in one of weight and samples.
pub(crate) fn choose(mut graph: Graph, shown: Shown, choice: &RowLimits) -> Chosen {
    let is_small = |entry: &Entry| choice.is_small(entry.passing.total, shown.whole);
    let (mut dropped, mut more) = (Hidden::default(), Hidden::default());
    let small: Vec<bool> = graph.entries.iter().map(is_small).collect();
    let kept = move_back(&mut graph, &small);
    let count = choice.rows.map_or(kept, |rows| rows.min(kept));
    graph.entries[kept..].iter().for_each(|entry| dropped.add(entry.passing.own));
    graph.entries[count..kept].iter().for_each(|entry| more.add(entry.passing.own));
    Chosen { graph, shown, count, dropped, more }
}

/// Moves some entries behind all others, and gives how many others there are.
fn move_back(graph: &mut Graph, back: &[bool]) -> usize {
    let mut order: Vec<usize> = (0..back.len()).collect();
    order.sort_by_key(|&place| back[place]);
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &old)| places[old] = place);
    let mut entries: Vec<Option<Entry>> = graph.entries.drain(..).map(Some).collect();
    graph.entries = order.iter().filter_map(|&old| entries[old].take()).collect();
    for entry in &mut graph.entries {
        for edge in entry.callers.iter_mut().chain(&mut entry.callees) {
            edge.other = places[edge.other];
        }
    }
    back.iter().filter(|back| !**back).count()
}
