//! Call cycles, found in one path at a time (uProfiler, section 8.3): functions that call each
//! other in a circle on this very stack are one vertex. Cycles that only the sum of many stacks
//! has are none.
//!
//! A path is a walk, and a strongly connected part of a walk's graph is a piece of the walk
//! without gaps: from the first call of any of its functions to the last one. So no search of the
//! graph is needed.
//!
//! A function that calls itself and no other is no cycle here, though uProfiler calls it one: it
//! would be two vertices, one with and one without its recursion, that nobody asked to be told
//! apart.

use rustc_hash::FxHashMap;

/// What a path goes by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Vertex {
    /// A function.
    Function(usize),
    /// The functions of a cycle, in the order in which this path first called them: the one it
    /// was entered by comes first.
    Cycle(Box<[usize]>),
}

/// The vertices of a path of functions, root first. No vertex comes twice.
pub(crate) fn vertices(path: &[usize]) -> Vec<Vertex> {
    let mut last = FxHashMap::default();
    for (at, &function) in path.iter().enumerate() {
        last.insert(function, at);
    }
    let mut vertices = Vec::new();
    let mut start = 0;
    while start < path.len() {
        let mut end = last[&path[start]];
        let mut at = start;
        while at < end {
            end = end.max(last[&path[at]]);
            at += 1;
        }
        vertices.push(vertex(&path[start..=end]));
        start = end + 1;
    }
    vertices
}

/// The vertex of calls that go round.
fn vertex(calls: &[usize]) -> Vertex {
    let mut members: Vec<usize> = Vec::new();
    let mut known = rustc_hash::FxHashSet::default();
    members.extend(calls.iter().filter(|&&function| known.insert(function)));
    match members[..] {
        [only] => Vertex::Function(only),
        _ => Vertex::Cycle(members.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Vertex::Function;
    use proptest::prelude::*;

    fn cycle(members: &[usize]) -> Vertex {
        Vertex::Cycle(members.into())
    }

    #[test]
    fn cycles_are_those_of_the_path() {
        assert_eq!(vertices(&[1, 2, 3]), [Function(1), Function(2), Function(3)]);
        assert_eq!(vertices(&[1, 2, 3, 2, 4]), [Function(1), cycle(&[2, 3]), Function(4)]);
        assert_eq!(vertices(&[1, 3, 2, 3, 4]), [Function(1), cycle(&[3, 2]), Function(4)]);
        assert_eq!(vertices(&[1, 1, 1, 2]), [Function(1), Function(2)]);
        assert_eq!(vertices(&[1, 2, 1, 3, 4, 3]), [cycle(&[1, 2]), cycle(&[3, 4])]);
        assert_eq!(vertices(&[1, 2, 3, 1, 4, 3, 5]), [cycle(&[1, 2, 3, 4]), Function(5)]);
    }

    proptest! {
        /// Against the definition: two functions are in one cycle if each reaches the other.
        #[test]
        fn cycles_are_strongly_connected(path in proptest::collection::vec(0..6usize, 1..20)) {
            let mut reaches = [[false; 6]; 6];
            path.windows(2).for_each(|call| reaches[call[0]][call[1]] = true);
            for by in 0..6 {
                for from in 0..6 {
                    for to in 0..6 {
                        reaches[from][to] |= reaches[from][by] && reaches[by][to];
                    }
                }
            }
            let vertices = vertices(&path);
            let of = |function: usize| vertices.iter().position(|vertex| match vertex {
                Vertex::Function(only) => *only == function,
                Vertex::Cycle(members) => members.contains(&function),
            });
            for &a in &path {
                for &b in &path {
                    let together = a == b || reaches[a][b] && reaches[b][a];
                    prop_assert_eq!(of(a) == of(b), together, "{} {} in {:?}", a, b, path);
                }
            }
        }
    }
}
