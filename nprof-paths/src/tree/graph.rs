//! The call graph: for each function its callers and its callees, each with the samples on the
//! paths that go through both, as in IgProf and uProfiler. The sums are measured per path: a
//! caller is charged with the samples seen below it, not with its share of all calls (gprof).

use nprof_report::profile::Sum;
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{Function, Tree, largest_first};
use crate::tree::cycles::{Vertex, vertices};

/// The samples on the paths through a vertex, or through two neighbouring vertices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeSums {
    /// Samples on paths that end at the vertex; of two, at the callee.
    pub self_: Sum,
    /// Samples on all these paths.
    pub total: Sum,
    /// Number of distinct paths.
    pub paths: u64,
}

impl EdgeSums {
    fn add(&mut self, sum: Sum, is_last: bool) {
        self.total.add(sum);
        self.paths += 1;
        if is_last {
            self.self_.add(sum);
        }
    }
}

/// A caller or a callee of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of the caller's or callee's entry.
    pub other: usize,
    /// The samples on paths through both.
    pub sums: EdgeSums,
}

/// A function of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index into [`Tree::functions`].
    pub function: usize,
    /// Samples on paths that end in this function, within this cycle.
    pub self_: Sum,
}

/// A vertex of the graph with its neighbours.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The function or cycle.
    pub vertex: Vertex,
    /// The samples on paths through it.
    pub sums: EdgeSums,
    /// The callers, the largest total first.
    pub callers: Vec<Edge>,
    /// The callees, the largest total first.
    pub callees: Vec<Edge>,
    /// The functions of a cycle in its order; empty for a function.
    pub members: Vec<Member>,
}

/// The samples by caller and callee, as vertex ids.
type EdgeMap = FxHashMap<(usize, usize), EdgeSums>;

/// The call graph of an event.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The vertices, the largest total first.
    pub entries: Vec<Entry>,
}

/// A vertex while its graph is being built.
struct NewVertex {
    vertex: Vertex,
    sums: EdgeSums,
}

/// Builds a [`Graph`] path by path.
#[derive(Default)]
struct GraphBuilder {
    ids: FxHashMap<Vertex, usize>,
    vertices: Vec<NewVertex>,
    calls: EdgeMap,
    /// Samples by cycle and by the function in which their path ends.
    members: FxHashMap<(usize, usize), Sum>,
}

impl GraphBuilder {
    fn id(&mut self, vertex: Vertex) -> usize {
        // One lookup for known and new vertices.
        let next = self.vertices.len();
        let id = *self.ids.entry(vertex.clone()).or_insert(next);
        if id == next {
            self.vertices.push(NewVertex { vertex, sums: EdgeSums::default() });
        }
        id
    }

    /// Adds the samples of a path of functions, outermost first.
    fn add(&mut self, path: &[usize], sum: Sum) {
        let walk: Vec<usize> = vertices(path).into_iter().map(|vertex| self.id(vertex)).collect();
        for (i, &id) in walk.iter().enumerate() {
            let is_last = i + 1 == walk.len();
            self.vertices[id].sums.add(sum, is_last);
            if i > 0 {
                self.calls.entry((walk[i - 1], id)).or_default().add(sum, is_last);
            }
        }
        if let (Some(&last), Some(&leaf)) = (walk.last(), path.last())
            && matches!(self.vertices[last].vertex, Vertex::Cycle(_))
        {
            // Only at the end of a path: the entries of callees count the samples further down.
            self.members.entry((last, leaf)).or_default().add(sum);
        }
    }

    fn finish(self) -> Graph {
        let order = self.largest_first();
        let mut new_index = vec![0; order.len()];
        order.iter().enumerate().for_each(|(index, &id)| new_index[id] = index);
        let mut entries: Vec<Entry> = order.iter().map(|&id| self.entry(id)).collect();
        for (&(caller, callee), &sums) in &self.calls {
            let (caller, callee) = (new_index[caller], new_index[callee]);
            entries[caller].callees.push(Edge { other: callee, sums });
            entries[callee].callers.push(Edge { other: caller, sums });
        }
        for entry in &mut entries {
            for edges in [&mut entry.callers, &mut entry.callees] {
                edges.sort_by(|a, b| {
                    largest_first(a.sums.total, b.sums.total).then(a.other.cmp(&b.other))
                });
            }
        }
        Graph { entries }
    }

    /// Returns the vertex ids by total, then by own samples, then by name.
    fn largest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.vertices.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.vertices[a], &self.vertices[b]);
            largest_first(a.sums.total, b.sums.total)
                .then_with(|| largest_first(a.sums.self_, b.sums.self_))
                // Function numbers are in the order of names.
                .then_with(|| a.vertex.cmp(&b.vertex))
        });
        order
    }

    /// Returns the entry of a vertex, without neighbours.
    fn entry(&self, id: usize) -> Entry {
        let NewVertex { vertex, sums } = &self.vertices[id];
        let functions = match vertex {
            Vertex::Function(_) => &[][..],
            Vertex::Cycle(functions) => functions,
        };
        let members = functions.iter().map(|&function| {
            let self_ = self.members.get(&(id, function)).copied().unwrap_or_default();
            Member { function, self_ }
        });
        Entry {
            vertex: vertex.clone(),
            sums: *sums,
            members: members.collect(),
            callers: Vec::new(),
            callees: Vec::new(),
        }
    }
}

impl Graph {
    /// Builds the graph of an event's paths.
    pub fn from_tree(tree: &Tree, event: usize) -> Self {
        let mut builder = GraphBuilder::default();
        let mut path = Vec::new();
        for leaf in tree.leaves(event) {
            path.clear();
            path.extend(tree.stack(leaf).map(|node| tree.nodes[node].function));
            // Tree::stack is leaf first; a cycle is entered from its callers.
            path.reverse();
            builder.add(&path, tree.nodes[leaf].self_);
        }
        builder.finish()
    }

    /// Returns the name of an entry. A cycle is named by its functions, with the first one repeated
    /// at the end.
    pub fn name(&self, entry: usize, functions: &[Function]) -> String {
        match &self.entries[entry].vertex {
            Vertex::Function(function) => functions[*function].name.clone(),
            Vertex::Cycle(members) => {
                let circle = members.iter().chain(members.first());
                let names: Vec<&str> = circle.map(|&member| &functions[member].name[..]).collect();
                format!("cycle {}", names.join(" -> "))
            }
        }
    }

    /// Returns the image of an entry; of a cycle, the image of the function that enters it.
    pub fn image<'a>(&self, entry: usize, functions: &'a [Function]) -> &'a str {
        match &self.entries[entry].vertex {
            Vertex::Function(function) => &functions[*function].image,
            Vertex::Cycle(members) => &functions[members[0]].image,
        }
    }
}
