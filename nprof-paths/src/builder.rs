//! Grows the call tree from sums of samples per stack.
//!
//! Stacks share their beginnings, and the stream says so: its nodes are a tree of frames. Each
//! of the stream's nodes is therefore looked at once per epoch, however many stacks it is on.

use nprof_format::escape::escaped;
use nprof_format::labels::{CallKey, Labels};
use nprof_format::profile::{Cell, Split, Sum};
use nprof_format::tables::{Call, NameId, Tables};
use nprof_format::{FrameId, NodeId};
use rustc_hash::FxHashMap;

use crate::tree::{Function, Node, Top, Tree};

/// The name of what a sample without a stack ran.
const NO_STACK: &[u8] = b"[no stack]";

/// The name of a task that no record defines.
const UNKNOWN: &[u8] = b"[unknown]";

/// Name and image.
type FunctionKey = (NameId, NameId);

/// Index of a node of the tree.
type At = usize;

#[derive(Debug)]
struct Entry {
    parent: Option<At>,
    function: usize,
    own: Sum,
}

/// Grows a call tree.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    /// Whether paths begin with the command.
    commands: bool,
    labels: Labels,
    functions: Vec<FunctionKey>,
    function_ids: FxHashMap<FunctionKey, usize>,
    nodes: Vec<Entry>,
    node_ids: FxHashMap<(At, usize), At>,
    tops: FxHashMap<(usize, NameId), At>,
    lines: FxHashMap<(At, NameId), Sum>,
    /// What is known of the epoch at hand: functions of calls, and per top, nodes of the tree
    /// by nodes of the stream.
    generation: u64,
    calls: FxHashMap<Call, usize>,
    seen: FxHashMap<(At, NodeId), At>,
}

impl Builder {
    /// No paths yet.
    pub(crate) fn new(commands: bool) -> Self {
        Self { commands, ..Self::default() }
    }

    /// What the profile must keep apart.
    pub(crate) fn split(&self) -> Split {
        Split { task: self.commands, ..Split::default() }
    }

    /// Adds what fell on a stack.
    pub(crate) fn add(&mut self, tables: &Tables, cell: &Cell, sum: Sum) {
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.calls.clear();
            self.seen.clear();
        }
        let top = self.top(tables, cell);
        let (at, leaf) = if cell.node.is_none() {
            let name = self.labels.names.intern(NO_STACK);
            let function = self.function((name, name));
            (self.child(top, function), None)
        } else {
            (self.path(tables, top, cell.node), leaf_call(tables, cell.node))
        };
        self.nodes[at].own.add(sum);
        let line = leaf.and_then(|call| self.line(tables, call));
        if let Some(line) = line {
            self.lines.entry((at, line)).or_default().add(sum);
        }
    }

    fn top(&mut self, tables: &Tables, cell: &Cell) -> At {
        let comm = match tables.task(cell.task).map(|_| tables.names.get(cell.comm)) {
            _ if !self.commands => b"",
            None | Some(b"") => UNKNOWN,
            Some(comm) => comm,
        };
        let name = self.labels.names.intern(comm);
        if let Some(&at) = self.tops.get(&(cell.event, name)) {
            return at;
        }
        let function = self.function((name, name));
        let at = self.push(None, function);
        self.tops.insert((cell.event, name), at);
        at
    }

    /// The tree's node for one of the stream's.
    fn path(&mut self, tables: &Tables, top: At, leaf: NodeId) -> At {
        let mut pending = Vec::new();
        let mut next = leaf;
        let mut at = loop {
            if next.is_none() {
                break top;
            }
            if let Some(&at) = self.seen.get(&(top, next)) {
                break at;
            }
            // A node that was lost to damage is a call without a frame, and the root.
            let (parent, frame) = tables.node(next).unwrap_or((NodeId::NONE, FrameId::NONE));
            pending.push((next, frame));
            next = parent;
        };
        let mut calls = Vec::new();
        for (node, frame) in pending.into_iter().rev() {
            calls.clear();
            calls.extend(tables.calls(frame));
            for &call in calls.iter().rev() {
                let function = self.call(tables, call);
                at = self.child(at, function);
            }
            self.seen.insert((top, node), at);
        }
        at
    }

    fn call(&mut self, tables: &Tables, call: Call) -> usize {
        if let Some(&function) = self.calls.get(&call) {
            return function;
        }
        let name = self.labels.label(tables, call, CallKey::Function);
        let image = self.labels.label(tables, call, CallKey::ImageName);
        let function = self.function((name, image));
        self.calls.insert(call, function);
        function
    }

    /// The line a leaf is in; where that is unknown, the place in the image. None for a mark.
    fn line(&mut self, tables: &Tables, call: Call) -> Option<NameId> {
        let known = call.line.line > 0 && tables.file(call.line.file).is_some();
        let key = if known { CallKey::Line } else { CallKey::Address };
        tables.frame(call.frame)?;
        Some(self.labels.label(tables, call, key))
    }

    fn function(&mut self, key: FunctionKey) -> usize {
        let next = self.functions.len();
        let id = *self.function_ids.entry(key).or_insert(next);
        if id == next {
            self.functions.push(key);
        }
        id
    }

    fn child(&mut self, parent: At, function: usize) -> At {
        if let Some(&at) = self.node_ids.get(&(parent, function)) {
            return at;
        }
        let at = self.push(Some(parent), function);
        self.node_ids.insert((parent, function), at);
        at
    }

    fn push(&mut self, parent: Option<At>, function: usize) -> At {
        self.nodes.push(Entry { parent, function, own: Sum::default() });
        self.nodes.len() - 1
    }

    /// The tree, with its totals, everything in the order of names.
    pub(crate) fn finish(&self) -> Tree {
        let name = |id: NameId| escaped(self.labels.names.get(id));
        let mut by_name: Vec<(Function, usize)> = self
            .functions
            .iter()
            .enumerate()
            .map(|(i, &(function, image))| {
                (Function { name: name(function), image: name(image) }, i)
            })
            .collect();
        by_name.sort();
        let mut renumbered = vec![0; by_name.len()];
        for (new, (_, old)) in by_name.iter().enumerate() {
            renumbered[*old] = new;
        }
        let nodes = self.finish_nodes(&renumbered);
        let mut tops: Vec<Top> =
            self.tops.iter().map(|(&(event, _), &node)| Top { event, node }).collect();
        tops.sort_by_key(|top| (top.event, nodes[top.node].function));
        let mut lines: FxHashMap<At, Vec<(String, Sum)>> = FxHashMap::default();
        for (&(at, line), &sum) in &self.lines {
            lines.entry(at).or_default().push((name(line), sum));
        }
        for lines in lines.values_mut() {
            lines.sort_by(|(a_name, a), (b_name, b)| {
                (b.weight, b.samples).cmp(&(a.weight, a.samples)).then_with(|| a_name.cmp(b_name))
            });
        }
        let functions = by_name.into_iter().map(|(function, _)| function).collect();
        Tree { functions, nodes, tops, lines }
    }

    fn finish_nodes(&self, renumbered: &[usize]) -> Vec<Node> {
        let node = |entry: &Entry| Node {
            parent: entry.parent,
            function: renumbered[entry.function],
            own: entry.own,
            total: entry.own,
            children: Vec::new(),
        };
        let mut nodes: Vec<Node> = self.nodes.iter().map(node).collect();
        // Children come after their parents: from the back, every total is whole when it is
        // handed up.
        for at in (0..nodes.len()).rev() {
            if let Some(parent) = nodes[at].parent {
                let total = nodes[at].total;
                nodes[parent].total.add(total);
                nodes[parent].children.push(at);
            }
        }
        let functions: Vec<usize> = nodes.iter().map(|node| node.function).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|&child| functions[child]);
        }
        nodes
    }
}

/// The innermost call of a stack.
fn leaf_call(tables: &Tables, node: NodeId) -> Option<Call> {
    tables.stack_calls(node).next()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::args::Choice;

    use crate::{folded, outline, select};
    use nprof_format::profile::{Context, Profile};
    use nprof_format::summary::Summary;
    use nprof_tests::{any_stream, stream};
    use proptest::prelude::*;

    const ALL: Choice = Choice { limit: None, min_percent: 0.0, paths: None };

    fn grow(streams: &[Vec<u8>], commands: bool) -> (Tree, Summary) {
        let mut builder = Builder::new(commands);
        let mut profile = Profile::new(builder.split());
        for stream in streams {
            profile.read("test", &stream[..], |t, c, s| builder.add(t, c, s)).unwrap();
        }
        (builder.finish(), profile.summary)
    }

    fn folded(streams: &[Vec<u8>], event: usize) -> String {
        let (tree, summary) = grow(streams, true);
        folded::print(&tree, &select::paths(&tree, &[event], &summary, &ALL))
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
        let (tree, _) = grow(&streams, false);
        let (_, lines) = tree.lines.iter().find(|(_, lines)| lines[0].1.samples == 5).unwrap();
        assert_eq!(lines[0].0, "/src/p.c:20");
    }

    #[test]
    fn a_stack_of_thousands_is_one_path() {
        let mut body = PROGRAM.to_owned();
        let frames = " | 3".repeat(20_000);
        body += &format!("N | 100 | 1{frames}\nS | 1 | 1 | 1 | 0 | 20099 | 1 | 1\n");
        let (tree, summary) = grow(&[stream(&body)], false);
        let sections = select::paths(&tree, &[0], &summary, &ALL);
        assert_eq!(tree.stack(sections[0].paths[0]).count(), 40_001);
        let text = outline::print(&tree, &[0], &summary, &ALL, Some(80));
        assert!(String::from_utf8(text).unwrap().contains("×40000"));
    }

    proptest! {
        #[test]
        fn every_view_adds_up(streams in proptest::collection::vec(any_stream(), 1..3)) {
            let (tree, summary) = grow(&streams, false);
            let by_leaf = self_by_leaf(&streams);
            for (i, event) in summary.events.iter().enumerate() {
                let mut roots = Sum::default();
                for top in tree.tops.iter().filter(|top| top.event == i) {
                    tree.nodes[top.node].children.iter().for_each(|&root| roots.add(tree.nodes[root].total));
                }
                prop_assert_eq!(roots, event.sum);
                let mut leaves: BTreeMap<String, Sum> = BTreeMap::new();
                for &leaf in &select::paths(&tree, &[i], &summary, &ALL)[0].paths {
                    let key = format!("{i} {} {}", tree.function(leaf).name, tree.function(leaf).image);
                    leaves.entry(key).or_default().add(tree.nodes[leaf].own);
                    let lines = tree.lines.get(&leaf).into_iter().flatten();
                    let on_lines: u64 = lines.map(|(_, sum)| sum.samples).sum();
                    prop_assert!(on_lines == 0 || on_lines == tree.nodes[leaf].own.samples);
                }
                let prefix = format!("{i} ");
                let expected: BTreeMap<String, Sum> =
                    by_leaf.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(key, sum)| (key.clone(), *sum)).collect();
                prop_assert_eq!(leaves, expected);
                let text = folded(&streams, i);
                let count = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
                let counted: u64 = text.lines().filter_map(count).sum();
                prop_assert_eq!(counted, event.sum.samples);
                prop_assert_eq!(outline::kept(&tree, i, event.sum, &ALL).len(), tree.in_order(i).len());
            }
        }

        #[test]
        fn inferno_reads_every_folded_stack(streams in proptest::collection::vec(any_stream(), 1..3)) {
            let text = folded(&streams, 0);
            prop_assume!(!text.is_empty());
            let svg = String::from_utf8(crate::flamegraph::draw(&text, "x").unwrap()).unwrap();
            let samples: u64 = grow(&streams, true).1.events[0].sum.samples;
            let all = format!("all ({samples} sample");
            prop_assert!(svg.contains(&all), "{} not in {}", all, svg);
        }
    }

    /// What flat calls self: what fell on the innermost call of every stack.
    fn self_by_leaf(streams: &[Vec<u8>]) -> BTreeMap<String, Sum> {
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        let mut labels = Labels::new();
        let mut profile = Profile::new(Split::default());
        for stream in streams {
            let sink = |tables: &Context<'_>, cell: &Cell, sum: Sum| {
                let mut name = |key| match tables.stack_calls(cell.node).next() {
                    None => "[no stack]".to_owned(),
                    Some(call) => {
                        let label = labels.label(tables, call, key);
                        escaped(labels.names.get(label))
                    }
                };
                let (function, image) = (name(CallKey::Function), name(CallKey::ImageName));
                let key = format!("{} {function} {image}", cell.event);
                sums.entry(key).or_default().add(sum);
            };
            profile.read("test", &stream[..], sink).unwrap();
        }
        sums
    }
}
