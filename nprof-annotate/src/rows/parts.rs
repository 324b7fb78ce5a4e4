//! The parts of a function with their sums: instructions, lines, blocks or loops. The sums of instructions,
//! lines and blocks are those of the function; loops contain each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use nprof_code::disassembly::{Decoded, Flow, instructions};
use nprof_code::function::Function;
use nprof_report::profile::Sum;

use crate::args::By;
use crate::code::blocks::{Graph, graph};
use crate::rows::annotation::{FunctionSums, add_to};

/// A part of a function, and its sums by event.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) kind: PartKind,
    pub(crate) sums: Vec<Sum>,
}

/// The properties of a part. Offsets count from the function's first byte.
#[derive(Clone, Debug)]
pub(crate) enum PartKind {
    /// An instruction.
    Instruction(InstructionPart),
    /// A line of the function.
    Line(LinePart),
    /// A basic block, or a loop.
    Block(BlockPart),
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct InstructionPart {
    pub(crate) offset: u32,
    pub(crate) text: String,
    pub(crate) callee: Option<Arc<str>>,
    /// The functions that samples have below a call through a register or memory.
    pub(crate) called: Vec<Arc<str>>,
    /// The instruction that it may jump to, within the function.
    pub(crate) target: Option<u32>,
    /// The function that it was compiled from: an inlined one, or the function itself.
    pub(crate) inlined: Option<Arc<str>>,
    /// The line in that function.
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: u32,
}

/// A line of the function that was compiled.
#[derive(Clone, Debug)]
pub(crate) struct LinePart {
    pub(crate) file: Option<Arc<str>>,
    /// 0 if it is unknown.
    pub(crate) line: u32,
    /// The part of the sums in calls that were inlined there.
    pub(crate) inlined: Vec<Sum>,
}

/// A basic block, or a loop.
#[derive(Clone, Debug)]
pub(crate) struct BlockPart {
    /// The offsets of its first byte and of the byte after the last. A loop may have gaps.
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) instructions: usize,
    /// The start of the innermost loop with the block; of a loop, its own.
    pub(crate) in_loop: Option<u32>,
    /// The number of loops with it. None if the function has too many jumps back to find them.
    pub(crate) depth: Option<usize>,
    /// The lines of its first and last instruction, 0 if unknown.
    pub(crate) lines: (u32, u32),
}

/// True if the loops of a function are not known, as it has too many jumps back.
pub(crate) fn lacks_loops(function: &Function) -> bool {
    graph(&instructions(function)).lacks_loops
}

/// Returns the parts of a function in order.
pub(crate) fn parts(sums: &FunctionSums, by: By) -> Vec<Part> {
    let function = &*sums.function;
    let decoded = instructions(function);
    let mut of_instructions = vec![Vec::new(); decoded.len()];
    for (&(offset, event), &sum) in &sums.sums {
        // Instructions cover all bytes: a sample may lie within one if the stream is damaged.
        let after = decoded.partition_point(|instruction| instruction.offset <= offset);
        if let Some(of_instruction) = of_instructions.get_mut(after.saturating_sub(1)) {
            add_to(of_instruction, event, sum);
        }
    }
    match by {
        By::Instruction => {
            let end = function.bytes.len() as u32;
            let ends: Vec<u32> = decoded.iter().skip(1).map(|it| it.offset).chain([end]).collect();
            let parts = decoded.into_iter().zip(ends).zip(of_instructions);
            let part = |((decoded, end), of_instruction): ((Decoded, u32), _)| {
                let called =
                    sums.called.get(&end.wrapping_sub(1)).filter(|_| decoded.is_indirect_call);
                let called = called.cloned().unwrap_or_default();
                instruction(function, decoded, called, of_instruction)
            };
            parts.map(part).collect()
        }
        By::Line => lines(function, &decoded, &of_instructions),
        By::Block => {
            let graph = graph(&decoded);
            let blocks = 0..graph.blocks.len();
            blocks
                .map(|block| {
                    let in_loop = graph.blocks[block].innermost;
                    let depth = Some(graph.blocks[block].depth).filter(|_| !graph.lacks_loops);
                    let part =
                        Extent { function, decoded: &decoded, graph: &graph, in_loop, depth };
                    part.of(&[block], &of_instructions)
                })
                .collect()
        }
        By::Loop => {
            let graph = graph(&decoded);
            let of_loop = |index: usize| {
                let found = &graph.loops[index];
                let (in_loop, depth) = (Some(index), Some(found.depth));
                let part = Extent { function, decoded: &decoded, graph: &graph, in_loop, depth };
                part.of(&found.blocks, &of_instructions)
            };
            let mut parts: Vec<Part> = (0..graph.loops.len()).map(of_loop).collect();
            // In the order of addresses, a loop before those within it.
            parts.sort_by_key(|part| match &part.kind {
                PartKind::Block(block) => (block.in_loop, block.depth),
                _ => (None, None),
            });
            parts
        }
    }
}

fn instruction(
    function: &Function,
    decoded: Decoded,
    called: Vec<Arc<str>>,
    sums: Vec<Sum>,
) -> Part {
    let target = match decoded.flow {
        Flow::Branch(target) | Flow::Jump(target) => target,
        Flow::Next | Flow::End => None,
    };
    // The innermost call has the instruction in its source.
    let place = function.places(decoded.offset).first().cloned().unwrap_or_default();
    let kind = PartKind::Instruction(InstructionPart {
        offset: decoded.offset,
        callee: function.callee(decoded.offset).cloned(),
        called,
        text: decoded.text,
        target,
        inlined: place.function,
        file: place.file,
        line: place.line,
    });
    Part { kind, sums }
}

/// Adds up instructions by the line of the function that was compiled: calls that were inlined count at
/// the line of the outermost of them.
fn lines(function: &Function, decoded: &[Decoded], sums: &[Vec<Sum>]) -> Vec<Part> {
    type Sums = (Vec<Sum>, Vec<Sum>);
    let mut lines: BTreeMap<(Option<Arc<str>>, u32), Sums> = BTreeMap::new();
    for (instruction, sums) in decoded.iter().zip(sums) {
        let places = function.places(instruction.offset);
        let (file, line) = match places.last() {
            Some(place) => (place.file.clone(), place.line),
            None => (None, 0),
        };
        let (all, inlined) = lines.entry((file, line)).or_default();
        for (event, &sum) in sums.iter().enumerate() {
            add_to(all, event, sum);
            // All places but the last are calls that were inlined.
            if places.len() > 1 {
                add_to(inlined, event, sum);
            }
        }
    }
    let part = |((file, line), (sums, inlined))| Part {
        kind: PartKind::Line(LinePart { file, line, inlined }),
        sums,
    };
    lines.into_iter().map(part).collect()
}

/// The input for the part of some blocks.
struct Extent<'a> {
    function: &'a Function,
    decoded: &'a [Decoded],
    graph: &'a Graph,
    in_loop: Option<usize>,
    depth: Option<usize>,
}

impl Extent<'_> {
    /// Returns the part of blocks in order, of which there is at least one.
    fn of(&self, blocks: &[usize], of_instructions: &[Vec<Sum>]) -> Part {
        let Self { function, decoded, graph, in_loop, depth } = *self;
        let mut sums = Vec::new();
        let mut instructions = 0;
        for block in blocks.iter().map(|&block| &graph.blocks[block]) {
            instructions += block.end - block.first;
            for of_instruction in &of_instructions[block.first..block.end] {
                for (event, &sum) in of_instruction.iter().enumerate() {
                    add_to(&mut sums, event, sum);
                }
            }
        }
        let start_of = |block: usize| decoded[graph.blocks[block].first].offset;
        let end_of = |block: usize| match decoded.get(graph.blocks[block].end) {
            Some(next) => next.offset,
            None => function.bytes.len() as u32,
        };
        let lines_of = |index: usize| {
            function.places(decoded[index].offset).last().map_or(0, |place| place.line)
        };
        let (first, last) = (blocks[0], blocks[blocks.len() - 1]);
        let kind = PartKind::Block(BlockPart {
            start: start_of(first),
            end: end_of(last),
            instructions,
            in_loop: in_loop.map(|index| start_of(graph.loops[index].header)),
            depth,
            lines: (lines_of(graph.blocks[first].first), lines_of(graph.blocks[last].end - 1)),
        });
        Part { kind, sums }
    }
}
