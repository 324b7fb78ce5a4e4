//! The nodes of two events that are on the same path. Pure.

use rustc_hash::FxHashMap;

use crate::tree::call_tree::{NodeIndex, Tree};

/// Returns for each node below the roots of `event` the node of `other` on the same path: the same
/// functions from roots of the same name. Absent if `other` has no samples on it.
pub fn same_paths(tree: &Tree, event: usize, other: usize) -> FxHashMap<NodeIndex, NodeIndex> {
    let function = |node: NodeIndex| tree.nodes[node].function;
    let roots: FxHashMap<usize, NodeIndex> =
        tree.roots_of(other).map(|root| (function(root), root)).collect();
    let mut same = FxHashMap::default();
    let mut pending: Vec<(NodeIndex, NodeIndex)> = tree
        .roots_of(event)
        .filter_map(|root| Some((root, *roots.get(&function(root))?)))
        .collect();
    // A stack of its own: paths are too deep for recursion.
    while let Some((node, twin)) = pending.pop() {
        same.insert(node, twin);
        // Children are in the order of their functions: one walk through both lists finds all pairs.
        let mut twins = tree.children(twin).peekable();
        for child in tree.children(node) {
            while twins.next_if(|&twin| function(twin) < function(child)).is_some() {}
            if let Some(twin) = twins.next_if(|&twin| function(twin) == function(child)) {
                pending.push((child, twin));
            }
        }
    }
    same
}
