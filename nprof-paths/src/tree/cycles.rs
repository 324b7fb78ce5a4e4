//! Call cycles, found on one path at a time (uProfiler, section 8.3): functions that call each
//! other in a circle on one stack are one vertex. Circles that exist only in the sum of several
//! stacks are not cycles.
//!
//! A path is a walk through the graph of its calls. A strongly connected component of that graph
//! is a contiguous part of the walk: from the first call of any of its functions to the last one.
//! So no graph search is needed.
//!
//! A function that calls only itself is not a cycle here, although uProfiler calls it one: it would
//! become two vertices, with and without its recursion, and the difference is rarely of interest.

use rustc_hash::FxHashMap;

/// A vertex of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Vertex {
    /// A function.
    Function(usize),
    /// The functions of a cycle in the order of their first call on this path: the function by
    /// which the path entered the cycle comes first.
    Cycle(Box<[usize]>),
}

/// Returns the vertices of a path of functions, outermost first. Each vertex comes once.
pub fn vertices(path: &[usize]) -> Vec<Vertex> {
    let mut last_call = FxHashMap::default();
    for (index, &function) in path.iter().enumerate() {
        last_call.insert(function, index);
    }
    let mut vertices = Vec::new();
    let mut start = 0;
    while start < path.len() {
        let mut end = last_call[&path[start]];
        let mut index = start;
        // Each function up to the end may itself be called later, which moves the end.
        while index < end {
            end = end.max(last_call[&path[index]]);
            index += 1;
        }
        vertices.push(vertex(&path[start..=end]));
        start = end + 1;
    }
    vertices
}

/// Returns the vertex of a strongly connected part of a path.
fn vertex(calls: &[usize]) -> Vertex {
    let mut members: Vec<usize> = Vec::new();
    let mut known = rustc_hash::FxHashSet::default();
    members.extend(calls.iter().filter(|&&function| known.insert(function)));
    // Direct recursion is one member, however often the function is called.
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
    fn cycles_are_found_on_each_path() {
        assert_eq!(vertices(&[1, 2, 3]), [Function(1), Function(2), Function(3)]);
        assert_eq!(vertices(&[1, 2, 3, 2, 4]), [Function(1), cycle(&[2, 3]), Function(4)]);
        assert_eq!(vertices(&[1, 3, 2, 3, 4]), [Function(1), cycle(&[3, 2]), Function(4)]);
        assert_eq!(vertices(&[1, 1, 1, 2]), [Function(1), Function(2)]);
        assert_eq!(vertices(&[1, 2, 1, 3, 4, 3]), [cycle(&[1, 2]), cycle(&[3, 4])]);
        assert_eq!(vertices(&[1, 2, 3, 1, 4, 3, 5]), [cycle(&[1, 2, 3, 4]), Function(5)]);
    }

    proptest! {
        /// Compares with the definition: two functions are in one cycle if each reaches the other.
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
            let vertex_of = |function: usize| vertices.iter().position(|vertex| match vertex {
                Vertex::Function(only) => *only == function,
                Vertex::Cycle(members) => members.contains(&function),
            });
            for &a in &path {
                for &b in &path {
                    let together = a == b || reaches[a][b] && reaches[b][a];
                    prop_assert_eq!(vertex_of(a) == vertex_of(b), together, "{} {} in {:?}", a, b, path);
                }
            }
        }
    }
}
