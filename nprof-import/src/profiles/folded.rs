//! Folded stacks: a line `command;root;...;leaf N` for each stack.
//!
//! Names that are escaped as in streams, as nprof-paths writes them, are restored.

use std::io::{BufRead, Read, Write};

use nprof_stream::escape::unescaped;
use nprof_stream::{Event, Head, RunId, Sample, Step, Writer, limits};
use rustc_hash::FxHashMap;

use super::error::Error;
use crate::output::{CallDef, ImageDef, Output, Place, TaskDef, plain_sample};

/// Imports folded stacks as one segment; the number of each line is its number of samples.
///
/// # Errors
///
/// At the first line without a number at its end, and if the output fails.
pub(crate) fn import<W: Write>(
    mut input: impl BufRead,
    command: &[u8],
    run: RunId,
    step: Step,
    writer: Writer<W>,
) -> anyhow::Result<Writer<W>> {
    let head = Head { run, command: command.to_vec(), ..Head::default() };
    let mut output = Output::begin(writer, head, step)?;
    // Their unit is not in the file.
    let event = Event { name: b"samples".to_vec(), unit: b"count".to_vec(), ..Event::default() };
    let event = output.event(event)?;
    let image = output.image(ImageDef::file(Vec::new(), b"[folded]".to_vec()));
    let mut places: FxHashMap<Vec<u8>, Place> = FxHashMap::default();
    let mut tasks: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if input.by_ref().take(limits::LINE as u64).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        let text = line.trim_ascii();
        // A comment of FlameGraph and inferno.
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        let problem = "it has no number of samples at its end";
        let (stack, count) = split(text).ok_or(Error::Line { line: number, problem })?;
        let mut names = stack.split(|&byte| byte == b';').map(name);
        let comm = names.next().unwrap_or_default();
        let task = match tasks.get(&comm) {
            Some(&task) => task,
            None => {
                let task = TaskDef { comm: comm.as_slice().into(), ..TaskDef::default() };
                *tasks.entry(comm).or_insert(output.task(task))
            }
        };
        let mut stack = Vec::new();
        for name in names {
            let next = places.len() as u64;
            let place = match places.get(&name) {
                Some(&place) => place,
                None => {
                    let call = CallDef { name: output.text(&name), ..CallDef::default() };
                    let calls = output.calls(&[call]);
                    // The number of the function in the place of an address.
                    let place = Place { calls, ..Place::in_image(image, next) };
                    *places.entry(name).or_insert(place)
                }
            };
            stack.push(place);
        }
        output.sample(Sample { count, ..plain_sample(event, count) }, task, &stack)?;
    }
    Ok(output.end(true)?)
}

/// Returns the stack and the number of a line.
fn split(line: &[u8]) -> Option<(&[u8], u64)> {
    let space = line.iter().rposition(|&byte| byte == b' ')?;
    let count = std::str::from_utf8(&line[space + 1..]).ok()?.parse().ok()?;
    Some((&line[..space], count))
}

fn name(text: &[u8]) -> Vec<u8> {
    // Other programs write names as they are.
    unescaped(text).unwrap_or_else(|| text.to_vec())
}

/// True if the beginning of an input looks like folded stacks.
pub(crate) fn begins(start: &[u8]) -> bool {
    let mut lines = start.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let is_text = !start.contains(&0);
    is_text
        && lines
            .find(|line| !line.is_empty() && !line.starts_with(b"#"))
            .is_some_and(|line| split(line).is_some())
}
