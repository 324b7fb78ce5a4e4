//! The labels of samples under the keys that are properties of a sample. Pure.

use std::borrow::Cow;

use nprof_stream::labels::{OTHER, UNKNOWN};
use nprof_stream::tables::{NameId, Tables};
use nprof_stream::{Extras, NO_CPU, TaskId};

use crate::profile::group::GroupKey;
use crate::profile::key::{Key, SampleExtra};
use crate::profile::stack_sums::Context;
use crate::profile::time::TimeSplit;

/// The label of a sample without the extra.
const ABSENT: &[u8] = b"-";

/// Returns the label of a sample under a key that is a property of samples; empty for other keys.
pub fn sample_label(context: &Context<'_>, group: &GroupKey, key: Key, time: TimeSplit) -> Vec<u8> {
    let tables = context.tables;
    match key {
        Key::Event => context
            .summary
            .events
            .get(group.event)
            .map_or(UNKNOWN.into(), |event| event.event.name.clone()),
        Key::Run => run(context, group.run),
        Key::Process => process(tables, group.task),
        Key::Thread => thread(tables, group),
        Key::Command => command(tables, group),
        Key::Cpu if group.cpu == NO_CPU => UNKNOWN.into(),
        Key::Cpu => group.cpu.to_string().into_bytes(),
        Key::Extra(extra) => extra_of(tables, group, extra),
        Key::Slice => group.slice.map_or(UNKNOWN.into(), |slice| time.label(slice).into_bytes()),
        // Properties of calls: a sample has many calls.
        Key::Path | Key::Call(_) => Vec::new(),
    }
}

fn extra_of(tables: &Tables, group: &GroupKey, extra: SampleExtra) -> Vec<u8> {
    let Some(id) = group.extras else {
        return ABSENT.into();
    };
    match Extras::from_encoded(tables.names.get(id)) {
        Some(extras) => extras.get(extra.name()).map_or(ABSENT.into(), Cow::into_owned),
        // There were too many different extras.
        None => OTHER.into(),
    }
}

fn run(context: &Context<'_>, run: usize) -> Vec<u8> {
    let head = context.summary.runs.get(run).and_then(|run| run.head.as_ref());
    // From 1, as in the heading.
    let mut name = format!("{} ", run + 1).into_bytes();
    name.extend_from_slice(head.map_or(UNKNOWN, |head| &head.command));
    name
}

fn comm(tables: &Tables, comm: NameId) -> &[u8] {
    match tables.names.get(comm) {
        b"" => UNKNOWN,
        name => name,
    }
}

/// Returns the label of an undefined task: it is lost, or beyond the memory of the tables.
fn undefined(tables: &Tables) -> Vec<u8> {
    if tables.has_omissions() { OTHER.into() } else { UNKNOWN.into() }
}

fn command(tables: &Tables, group: &GroupKey) -> Vec<u8> {
    match tables.task(group.task) {
        None => undefined(tables),
        // The name at the time of the samples, which exec can change.
        Some(_) => comm(tables, group.comm).to_vec(),
    }
}

fn thread(tables: &Tables, group: &GroupKey) -> Vec<u8> {
    let Some(task) = tables.task(group.task) else {
        return undefined(tables);
    };
    let mut name = format!("{}/{} ", task.pid, task.tid).into_bytes();
    name.extend_from_slice(comm(tables, group.comm));
    name
}

/// Returns pid and name of a process: the latest name of its first thread, as ps(1) shows it.
fn process(tables: &Tables, id: TaskId) -> Vec<u8> {
    let Some(task) = tables.task(id) else {
        return undefined(tables);
    };
    // The parent of a thread is the first thread of its process; that of a process is another one.
    let parent = tables.task(task.parent).filter(|parent| parent.pid == task.pid);
    let first = if task.pid == task.tid { task } else { parent.unwrap_or(task) };
    let mut name = format!("{} ", task.pid).into_bytes();
    name.extend_from_slice(comm(tables, first.comm));
    name
}
