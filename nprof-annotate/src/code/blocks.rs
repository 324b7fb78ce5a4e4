//! Basic blocks and loops. The instructions of a block are executed equally often, so that the sum of a
//! block does not depend on the distance between an event and the instruction of its sample.

use nprof_code::disassembly::{Decoded, Flow};

/// Instructions that are executed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The index of its first instruction.
    pub(crate) first: usize,
    /// The index after its last instruction.
    pub(crate) end: usize,
    /// The innermost loop with the block. None if it is in no loop.
    pub(crate) innermost: Option<usize>,
    /// The number of loops with the block.
    pub(crate) depth: usize,
}

/// A loop: a block, and those from which it is reached again without leaving the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// The block at which it is entered, which need not have the lowest address.
    pub(crate) header: usize,
    /// Its blocks in order.
    pub(crate) blocks: Vec<usize>,
    /// The number of loops that contain it, and itself.
    pub(crate) depth: usize,
}

/// The blocks of a function in order, and its loops: those that contain others come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    pub(crate) blocks: Vec<Block>,
    pub(crate) loops: Vec<Loop>,
    /// True if there are too many jumps back to find the loops: then it has none.
    pub(crate) lacks_loops: bool,
}

/// The most blocks that are visited to find loops: a hostile function of 64 KiB has 32,000 jumps back.
const MAX_VISITS: usize = 1 << 22;

/// Returns the blocks and loops of instructions.
pub(crate) fn graph(instructions: &[Decoded]) -> Graph {
    let mut blocks = blocks(instructions);
    let successors = successors(instructions, &blocks);
    let found = loops(&successors);
    let lacks_loops = found.is_none();
    let mut loops = found.unwrap_or_default();
    loops.sort_by_key(|found| (std::cmp::Reverse(found.blocks.len()), found.header));
    for (index, found) in loops.iter().enumerate() {
        for &block in &found.blocks {
            // Later loops are the smaller ones.
            blocks[block].innermost = Some(index);
            blocks[block].depth += 1;
        }
    }
    for found in &mut loops {
        let contains = |block: usize| found.blocks.binary_search(&block).is_ok();
        found.depth = if contains(found.header) { blocks[found.header].depth } else { 0 };
    }
    Graph { blocks, loops, lacks_loops }
}

/// Returns the index of the instruction that begins at an offset. None if none does.
fn index_at(instructions: &[Decoded], offset: u32) -> Option<usize> {
    instructions.binary_search_by_key(&offset, |instruction| instruction.offset).ok()
}

fn blocks(instructions: &[Decoded]) -> Vec<Block> {
    let mut is_first = vec![false; instructions.len() + 1];
    is_first[0] = true;
    for (index, instruction) in instructions.iter().enumerate() {
        let target = match instruction.flow {
            // Also a call: it returns to the next instruction.
            Flow::Next => continue,
            Flow::Branch(target) | Flow::Jump(target) => target,
            Flow::End => None,
        };
        is_first[index + 1] = true;
        // A jump into the middle of an instruction is none that the decoder understood.
        if let Some(target) = target.and_then(|target| index_at(instructions, target)) {
            is_first[target] = true;
        }
    }
    let firsts = (0..instructions.len()).filter(|&index| is_first[index]);
    let mut blocks: Vec<Block> =
        firsts.map(|first| Block { first, end: first, innermost: None, depth: 0 }).collect();
    let mut end = instructions.len();
    for block in blocks.iter_mut().rev() {
        block.end = end;
        end = block.first;
    }
    blocks
}

/// Returns the blocks that may follow each block.
fn successors(instructions: &[Decoded], blocks: &[Block]) -> Vec<Vec<usize>> {
    let block_at = |target: Option<u32>| {
        let index = index_at(instructions, target?)?;
        blocks.binary_search_by_key(&index, |block| block.first).ok()
    };
    let of_block = |(index, block): (usize, &Block)| {
        let next = Some(index + 1).filter(|&next| next < blocks.len());
        let found = match instructions[block.end - 1].flow {
            Flow::Next => [next, None],
            Flow::Branch(target) => [next, block_at(target)],
            Flow::Jump(target) => [block_at(target), None],
            Flow::End => [None, None],
        };
        found.into_iter().flatten().collect()
    };
    blocks.iter().enumerate().map(of_block).collect()
}

/// Returns the natural loops: an edge to a block through which all paths to its origin lead, and all
/// blocks on the way back. Edges to one block make one loop. None if that takes more than [`MAX_VISITS`]:
/// a part of the loops would make inner ones look like outer ones.
fn loops(successors: &[Vec<usize>]) -> Option<Vec<Loop>> {
    let mut predecessors = vec![Vec::new(); successors.len()];
    for (block, next) in successors.iter().enumerate() {
        for &next in next {
            predecessors[next].push(block);
        }
    }
    // By header, so that the edges of one loop follow each other.
    let mut edges_back = edges_back(successors);
    edges_back.sort_unstable();
    edges_back.dedup();
    let mut visits = MAX_VISITS;
    let mut loops: Vec<Loop> = Vec::new();
    for (header, origin) in edges_back {
        let found = body(header, origin, &predecessors, &mut visits);
        if visits == 0 {
            return None;
        }
        let Some(blocks) = found else { continue };
        match loops.last_mut().filter(|last| last.header == header) {
            Some(last) => {
                last.blocks.extend(blocks);
                last.blocks.sort_unstable();
                last.blocks.dedup();
            }
            None => loops.push(Loop { header, blocks, depth: 0 }),
        }
    }
    Some(loops)
}

/// Returns the edges that can close a loop, each as its target and its origin: those to a block on the way
/// from the entry to their origin, and jumps back to blocks that only a jump to an address in a register
/// reaches.
fn edges_back(successors: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let mut edges = Vec::new();
    let mut is_seen = vec![false; successors.len()];
    let mut is_on_way = vec![false; successors.len()];
    // A block, and the number of its edges that were followed. A list, since a function may have more
    // blocks than the stack of this program holds calls.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for root in 0..successors.len() {
        if !std::mem::replace(&mut is_seen[root], true) {
            is_on_way[root] = true;
            way.push((root, 0));
        }
        while let Some((block, followed)) = way.last_mut() {
            let block = *block;
            let Some(&next) = successors[block].get(*followed) else {
                is_on_way[block] = false;
                way.pop();
                continue;
            };
            *followed += 1;
            // Compilers place the condition of a loop after its body, and enter the loop there: the first
            // block of a loop can have the highest address.
            if is_on_way[next] || next <= block {
                edges.push((next, block));
            }
            if !std::mem::replace(&mut is_seen[next], true) {
                is_on_way[next] = true;
                way.push((next, 0));
            }
        }
    }
    edges
}

/// Returns the blocks from which `origin` is reached without `header`, and both, in order. None if the
/// function can be entered there: then it is no loop of this header; or if no visits are left.
fn body(
    header: usize,
    origin: usize,
    predecessors: &[Vec<usize>],
    visits: &mut usize,
) -> Option<Vec<usize>> {
    let mut is_found = vec![false; predecessors.len()];
    is_found[header] = true;
    let (mut blocks, mut open) = (vec![header], vec![origin]);
    while let Some(block) = open.pop() {
        *visits = visits.saturating_sub(1);
        if *visits == 0 {
            return None;
        }
        if std::mem::replace(&mut is_found[block], true) {
            continue;
        }
        // The entry of the function, which is reached without the header.
        if block == 0 {
            return None;
        }
        blocks.push(block);
        open.extend_from_slice(&predecessors[block]);
    }
    blocks.sort_unstable();
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Instructions of one byte each.
    fn code(flows: &[Flow]) -> Vec<Decoded> {
        let decoded = |(offset, &flow): (usize, &Flow)| Decoded {
            offset: offset as u32,
            text: String::new(),
            flow,
            is_indirect_call: false,
        };
        flows.iter().enumerate().map(decoded).collect()
    }

    #[test]
    fn nested_loops_are_found_by_their_jumps_back() {
        use Flow::{Branch, End, Jump, Next};
        // 0; outer 1..=5 with the inner loop 2..=3 and a way around 4; a jump to itself at 6.
        let flows = [
            Next,
            Branch(Some(5)),
            Next,
            Branch(Some(2)),
            Next,
            Branch(Some(1)),
            Branch(Some(6)),
            End,
            Jump(None),
        ];
        let found = graph(&code(&flows));
        let firsts: Vec<usize> = found.blocks.iter().map(|block| block.first).collect();
        assert_eq!(firsts, [0, 1, 2, 4, 5, 6, 7, 8]);
        let loops: Vec<(usize, usize, usize)> = found
            .loops
            .iter()
            .map(|found| (found.header, found.blocks.len(), found.depth))
            .collect();
        assert_eq!(loops, [(1, 4, 1), (2, 1, 2), (5, 1, 1)]);
        let depths: Vec<usize> = found.blocks.iter().map(|block| block.depth).collect();
        assert_eq!(depths, [0, 1, 2, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn loop_that_is_entered_at_its_condition_is_found() {
        use Flow::{Branch, End, Jump, Next};
        // 0 jumps to the condition at 5; 1..=5 has the inner loop 2..=3, entered at 3.
        let flows =
            [Jump(Some(5)), Jump(Some(3)), Next, Branch(Some(2)), Next, Branch(Some(1)), End];
        let found = graph(&code(&flows));
        // Each instruction is a block.
        let loops: Vec<(usize, &[usize], usize)> =
            found.loops.iter().map(|found| (found.header, &*found.blocks, found.depth)).collect();
        assert_eq!(loops, [(5, &[1, 2, 3, 4, 5][..], 1), (3, &[2, 3][..], 2)]);
    }

    #[test]
    fn way_into_the_middle_makes_no_loop() {
        use Flow::{Branch, End, Next};
        let flows = [Branch(Some(2)), Next, Branch(Some(1)), End];
        assert!(graph(&code(&flows)).loops.is_empty());
    }

    #[test]
    fn function_with_too_many_jumps_back_lacks_loops() {
        // Each branch closes a loop from the start: the visits grow with the square of their number.
        let nested = |count: u32| {
            let mut flows = vec![Flow::Next; count as usize];
            flows.extend((0..count).map(|index| Flow::Branch(Some(count - 1 - index))));
            graph(&code(&flows))
        };
        let found = nested(100);
        assert!(!found.lacks_loops && found.loops.len() >= 99, "{}", found.loops.len());
        let found = nested(4000);
        assert!(found.lacks_loops && found.loops.is_empty());
        assert!(found.blocks.iter().all(|block| block.depth == 0 && block.innermost.is_none()));
    }

    proptest! {
        #[test]
        fn blocks_cover_all_instructions(
            flows in prop::collection::vec((0..4, 0..40_u32), 0..40),
        ) {
            let flow = |&(kind, target): &(i32, u32)| match kind {
                0 => Flow::Next,
                1 => Flow::Branch(Some(target)),
                2 => Flow::Jump(Some(target)),
                _ => Flow::End,
            };
            let code = code(&flows.iter().map(flow).collect::<Vec<_>>());
            let found = graph(&code);
            let mut end = 0;
            for block in &found.blocks {
                prop_assert!(block.first == end && block.end > end);
                end = block.end;
            }
            prop_assert_eq!(end, code.len());
            for found in &found.loops {
                prop_assert!(found.blocks.contains(&found.header) && found.depth > 0);
            }
        }
    }
}
