//! The walk along a stack that finds its call path. Pure.
//!
//! Stacks share their callers: a walk begins at the leaf, goes up to the first node with a known path,
//! and comes down again from there.

use std::ops::ControlFlow::{self, Break, Continue};

use nprof_stream::tables::{Call, Tables};
use nprof_stream::{FrameId, NodeId};

/// The distance of the nodes with a path that is kept, besides leaves. Where all stacks are different,
/// the path of no other node is needed again.
const STRIDE: usize = 16;

/// The call paths of a report.
pub trait PathBuilder {
    /// The end of a path.
    type End: Copy;

    /// Returns the path of a node. None if it is new.
    fn known(&mut self, tables: &Tables, node: NodeId) -> Option<Self::End>;

    /// Extends a path by a call. `Break` if the path ends there and the rest of the stack is left out.
    fn extend(
        &mut self,
        tables: &Tables,
        path: Self::End,
        call: Call,
    ) -> ControlFlow<Self::End, Self::End>;

    /// Keeps the path of a node.
    fn remember(&mut self, node: NodeId, path: Self::End);
}

/// Returns the path of a leaf; `root` is the path without a call.
pub fn path_of<B: PathBuilder>(
    builder: &mut B,
    tables: &Tables,
    root: B::End,
    leaf: NodeId,
) -> B::End {
    let mut pending = Vec::new();
    let mut next = leaf;
    let mut path = loop {
        if next.is_none() {
            break root;
        }
        if let Some(path) = builder.known(tables, next) {
            break path;
        }
        // The record of this node was damaged: the path begins with a call without a frame.
        let (parent, frame) = tables.node(next).unwrap_or((NodeId::NONE, FrameId::NONE));
        pending.push((next, frame));
        next = parent;
    };
    // One buffer for the inlined calls of all frames.
    let mut calls: Vec<Call> = Vec::new();
    // From the known caller down to the leaf.
    for ((node, frame), number) in pending.into_iter().rev().zip(1..) {
        calls.clear();
        calls.extend(tables.calls(frame));
        // A frame's calls are innermost first; inlined calls are further from the root.
        for &call in calls.iter().rev() {
            match builder.extend(tables, path, call) {
                Continue(longer) => path = longer,
                Break(cut) => return cut,
            }
        }
        if node == leaf || number % STRIDE == 0 {
            builder.remember(node, path);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::Reader;
    use std::collections::BTreeMap;

    /// Paths as text, and the number of calls that were added.
    #[derive(Default)]
    struct Texts {
        texts: Vec<String>,
        known: BTreeMap<u32, usize>,
        extended: usize,
        limit: usize,
    }

    impl PathBuilder for Texts {
        type End = usize;

        fn known(&mut self, _: &Tables, node: NodeId) -> Option<usize> {
            self.known.get(&node.0).copied()
        }

        fn extend(
            &mut self,
            tables: &Tables,
            path: usize,
            call: Call,
        ) -> ControlFlow<usize, usize> {
            let name = tables
                .function(call.line.function)
                .map_or(&b"?"[..], |function| tables.names.get(function));
            self.texts.push(format!("{};{}", self.texts[path], String::from_utf8_lossy(name)));
            self.extended += 1;
            let end = self.texts.len() - 1;
            if self.extended == self.limit { Break(end) } else { Continue(end) }
        }

        fn remember(&mut self, node: NodeId, path: usize) {
            self.known.insert(node.0, path);
        }
    }

    #[test]
    fn path_continues_that_of_a_known_caller() {
        // main calls f, into which g is inlined; the inlined call is first.
        let stream = "@nprof\t1.1\trun=0x1\nI\t1\telf\t-\t/x\nF\t1\t1\t0x1\tu\nF\t2\t1\t0x2\tu\n\
                      U\t1\tmain\t-\nU\t2\tf\t-\nU\t3\tg\t-\nY\t1\tnamed\t1,0,0,0\n\
                      Y\t2\tnamed\t3,0,0,0\t2,0,0,0\nN\t1\t0\t1\t2\nN\t4\t2\t1\n";
        let mut tables = Tables::new();
        let mut reader = Reader::new(stream.as_bytes());
        while let Some(record) = reader.next().unwrap() {
            tables.apply(&record);
        }
        let texts = || Texts { texts: vec!["root".to_owned()], ..Texts::default() };
        let mut builder = texts();
        let end = path_of(&mut builder, &tables, 0, NodeId(2));
        assert_eq!(builder.texts[end], "root;main;f;g");
        let end = path_of(&mut builder, &tables, 0, NodeId(4));
        assert_eq!((&builder.texts[end][..], builder.extended), ("root;main;f;g;main", 4));
        assert_eq!(path_of(&mut builder, &tables, 0, NodeId::NONE), 0);
        let mut cut = Texts { limit: 2, ..texts() };
        let end = path_of(&mut cut, &tables, 0, NodeId(4));
        // The path of node 2 is not complete, so that it is not remembered.
        assert_eq!((&cut.texts[end][..], cut.known.len()), ("root;main;f", 0));
    }
}
