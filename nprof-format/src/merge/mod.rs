//! Merges several streams into one segment with one space of ids and one order of time.
//!
//! Every input has definitions of its own. The output defines the images, functions and frames of
//! a sample by content, right before their first use, so that equal ones of different inputs
//! become one; tasks never do. Memory is bounded by the definitions in the current epochs of the
//! inputs and of the output.
//!
//! Times become times of day. The runs keep their identity: the segment contains the head and the
//! end of each ([`Record::Run`](nprof_stream::Record::Run), [`Record::RunEnd`](nprof_stream::Record::RunEnd)), and
//! tasks name their run.

mod definitions;
mod error;
mod output;
mod source;
#[cfg(test)]
mod tests;
mod translate;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Write};

use nprof_stream::{Head, Step, Writer};

pub use error::{Error, Merged};
use output::Output;
use source::{Item, Source};
use translate::Translator;

/// Most ids of a kind in an epoch of the output.
const EPOCH: usize = 1 << 20;

/// Most steps and runs at the beginning of an input that are written before all other records.
const PREAMBLE: usize = 1 << 12;

/// Merges streams, each with its name in messages, into one segment. `step` describes the merging
/// program. The writer is not flushed at the end.
///
/// # Errors
///
/// See [`Error`]. Records read before the error have been written, without an end.
pub fn merge<R: Read, W: Write>(
    inputs: Vec<(String, R)>,
    step: &Step,
    writer: &mut Writer<W>,
) -> Result<Merged, Error> {
    merge_within(EPOCH, inputs, step, writer)
}

/// Merges like [`merge`], with epochs of `limit` ids.
fn merge_within<R: Read, W: Write>(
    limit: usize,
    inputs: Vec<(String, R)>,
    step: &Step,
    writer: &mut Writer<W>,
) -> Result<Merged, Error> {
    // One item of each source is in the heap: memory does not grow with the length of the inputs.
    let mut sources: Vec<Source<R>> =
        inputs.into_iter().map(|(name, input)| Source::new(name, input)).collect();
    let mut output = Output::new(writer, limit);
    begin(&mut sources, step, &mut output)?;
    let mut next = Vec::with_capacity(sources.len());
    let mut order = BinaryHeap::with_capacity(sources.len());
    for (i, source) in sources.iter_mut().enumerate() {
        let due = source.next(|| output.flush())?;
        order.extend(due.as_ref().map(|due| Reverse((due.0, i))));
        next.push(due);
    }
    // Changing the top of the heap in place costs one sift instead of a pop and a push.
    while let Some(mut top) = order.peek_mut() {
        let Reverse((_, i)) = *top;
        let source = &mut sources[i];
        if let Some((_, item)) = next[i].take() {
            Translator::new(&mut output, &mut source.state).write(&item)?;
        }
        next[i] = source.next(|| output.flush())?;
        match &next[i] {
            Some((time, _)) => *top = Reverse((*time, i)),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
    }
    output.end()?;
    Ok(Merged {
        incomplete_inputs: sources.iter().filter_map(Source::incomplete_input).collect(),
        repeated: output.repeated,
        unknown: sources.iter().map(|source| source.state.unknown).sum(),
    })
}

/// Writes the head of the output, and the steps and runs at the beginning of the inputs.
fn begin<R: Read, W: Write>(
    sources: &mut [Source<R>],
    step: &Step,
    output: &mut Output<'_, W>,
) -> Result<(), Error> {
    let (mut steps, mut runs): (Vec<Box<Step>>, Vec<Box<Head>>) = Default::default();
    for source in sources {
        // Bounded, as an input could consist of steps only.
        for _ in 0..PREAMBLE {
            match source.next(|| Ok(()))? {
                Some((_, Item::Step(step))) => steps.push(step),
                Some((_, Item::Run(head))) => runs.push(head),
                // The first other record ends the beginning of the input.
                Some(other) => {
                    source.put_back(other);
                    break;
                }
                None => break,
            }
        }
    }
    output.begin(&runs)?;
    // The merge itself is the last step.
    for step in steps.iter().map(|step| &**step).chain([step]) {
        output.step(step)?;
    }
    for head in runs {
        output.run(&head)?;
    }
    Ok(())
}
