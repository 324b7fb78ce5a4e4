//! Several streams as one: one segment, one space of ids, one order of time.
//!
//! Every input has a dictionary of its own. What a sample refers to is defined in the output by
//! what it means, right before it is used for the first time, so that equal images, functions
//! and stacks of different inputs become one; tasks never do. Memory is bounded by the
//! dictionaries of the inputs' epochs at hand and of the output's.
//!
//! Times become times of day. The runs keep their identity: the segment tells the head and the
//! end of each ([`Record::Run`](nprof_stream::Record::Run), [`Record::RunEnd`](nprof_stream::Record::RunEnd)), and
//! tasks tell which run they are of.

mod meanings;
mod output;
mod source;
#[cfg(test)]
mod tests;
mod translate;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};

use nprof_stream::{Head, RunId, Step, Trouble, Writer};

use output::Output;
use source::{Item, Source};
use translate::Translator;

/// Why streams cannot be merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input cannot be read.
    #[error("{input}")]
    Read {
        /// The input, as the user named it.
        input: String,
        /// Why.
        source: nprof_stream::Error,
    },
    /// The times of a run cannot be compared with those of others.
    #[error(
        "{input}: run {run} does not tell the time of day (time, utc), by which runs are put in one order: give the streams to the reports side by side instead"
    )]
    NoTimeOfDay {
        /// The input, as the user named it.
        input: String,
        /// The run.
        run: RunId,
    },
    /// The output cannot be written.
    #[error("the merged stream")]
    Write(#[from] io::Error),
}

/// What there is to say of a merged segment.
#[derive(Debug, Default)]
pub struct Merged {
    /// The inputs that were not complete.
    pub troubles: Vec<Trouble>,
    /// Runs that came more than once: so do their samples.
    pub repeated: Vec<RunId>,
    /// How many optional records were left out because this version does not know them: nobody
    /// can tell which ids they hold.
    pub unknown: u64,
}

/// A new epoch begins when more ids of a kind are in use.
const EPOCH: usize = 1 << 20;

/// How many steps and runs at an input's beginning are written before all else.
const PREAMBLE: usize = 1 << 12;

/// Merges streams, each given with what messages call it, into one segment. `step` is what the
/// segment says of the program that does it. The writer is not flushed at the end.
///
/// # Errors
///
/// See [`Error`]. What was read before has been written, without an end.
pub fn merge<R: Read, W: Write>(
    inputs: Vec<(String, R)>,
    step: &Step,
    writer: &mut Writer<W>,
) -> Result<Merged, Error> {
    merge_within(EPOCH, inputs, step, writer)
}

/// As [`merge`], with epochs of another size.
fn merge_within<R: Read, W: Write>(
    limit: usize,
    inputs: Vec<(String, R)>,
    step: &Step,
    writer: &mut Writer<W>,
) -> Result<Merged, Error> {
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
    while let Some(mut top) = order.peek_mut() {
        let Reverse((_, i)) = *top;
        let source = &mut sources[i];
        if let Some((_, item)) = next[i].take() {
            Translator::new(&mut output, &mut source.intake).write(&item)?;
        }
        next[i] = source.next(|| output.flush())?;
        match &next[i] {
            Some((time, _)) => *top = Reverse((*time, i)),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
    }
    output.end()?;
    Ok(Merged {
        troubles: sources.iter().filter_map(Source::trouble).collect(),
        repeated: output.repeated,
        unknown: sources.iter().map(|source| source.intake.unknown).sum(),
    })
}

/// Writes what is known before the first sample: the head, the steps, the runs.
fn begin<R: Read, W: Write>(
    sources: &mut [Source<R>],
    step: &Step,
    output: &mut Output<'_, W>,
) -> Result<(), Error> {
    let (mut steps, mut runs): (Vec<Box<Step>>, Vec<Box<Head>>) = Default::default();
    for source in sources {
        for _ in 0..PREAMBLE {
            match source.next(|| Ok(()))? {
                Some((_, Item::Step(step))) => steps.push(step),
                Some((_, Item::Run(head))) => runs.push(head),
                Some(other) => {
                    source.put_back(other);
                    break;
                }
                None => break,
            }
        }
    }
    output.begin(&runs)?;
    for step in steps.iter().map(|step| &**step).chain([step]) {
        output.step(step)?;
    }
    for head in runs {
        output.run(&head)?;
    }
    Ok(())
}
