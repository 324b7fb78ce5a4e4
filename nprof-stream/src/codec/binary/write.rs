//! Encodes records, and holds the state between the records of a block.

use crate::record::limits::{self, clip};
use crate::record::number::{push_varint, push_varints, zigzag};
use crate::record::*;

/// The state that a record leaves for the next one in its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockState {
    /// The time of the last record that has one; before the first, the block's.
    pub(crate) time: u64,
    pub(super) event: EventId,
    pub(super) task: TaskId,
    pub(super) cpu: u32,
    pub(super) weight: u64,
}

impl BlockState {
    /// Returns the state at the beginning of a block.
    pub(crate) fn new(time: u64) -> Self {
        // Before the first sample the fields are 0, 0, absent, 0 (nprof-format(5), BINARY).
        Self { time, cpu: NO_CPU, ..Self::default() }
    }
}

pub(super) const EVENT_GIVEN: u8 = 1;
pub(super) const TASK_GIVEN: u8 = 2;
pub(super) const CPU_GIVEN: u8 = 4;
pub(super) const WEIGHT_GIVEN: u8 = 8;
pub(super) const COUNT_GIVEN: u8 = 16;
pub(super) const ALL_GIVEN: u8 = 31;

pub(super) const KERNEL: u8 = 1;
pub(super) const RETURN_ADDRESS: u8 = 2;

/// Appends a record: kind, length, body.
pub(crate) fn push_record(out: &mut Vec<u8>, record: &Record<'_>, state: &mut BlockState) {
    let start = out.len();
    // Nearly every body is shorter than 128 bytes, so that its length takes one byte.
    out.extend_from_slice(&[record.kind(), 0]);
    push_body(out, record, state);
    let length = out.len() - start - 2;
    if length < 0x80 {
        out[start + 1] = length as u8;
        return;
    }
    // Moves the body to make room: only long records pay for it.
    let mut encoded = Vec::with_capacity(4);
    push_varint(&mut encoded, length as u64);
    out.splice(start + 1..start + 2, encoded);
}

/// Appends a record's body.
pub(crate) fn push_body(out: &mut Vec<u8>, record: &Record<'_>, state: &mut BlockState) {
    match record {
        Record::Sample(sample) => push_sample(out, sample, state),
        Record::Nodes(nodes) => {
            push_varint(out, u64::from(nodes.first.0));
            push_varint(out, u64::from(nodes.parent.0));
            for frame in nodes.frames {
                push_varint(out, u64::from(frame.0));
            }
        }
        Record::Frame(frame) => {
            push_varint(out, u64::from(frame.id.0));
            push_varint(out, u64::from(frame.image.0));
            push_varint(out, frame.offset);
            out.push(
                if frame.kernel { KERNEL } else { 0 }
                    | if frame.return_address { RETURN_ADDRESS } else { 0 },
            );
            out.push(frame.mark.number());
            // Extras have the same bytes in both encodings.
            out.extend_from_slice(frame.extras.encoded());
        }
        Record::Task(task) => {
            push_varint(out, u64::from(task.id.0));
            push_time(out, task.time, state);
            push_varint(out, u64::from(task.pid));
            push_varint(out, u64::from(task.tid));
            push_varint(out, u64::from(task.parent.0));
            push_string(out, task.comm);
            out.extend_from_slice(task.extras.encoded());
        }
        Record::Change(change) => {
            push_time(out, change.time, state);
            push_varint(out, u64::from(change.task.0));
            out.push(change.kind.number());
            push_string(out, change.value);
            out.extend_from_slice(change.extras.encoded());
        }
        Record::Lost(lost) => {
            push_time(out, lost.time, state);
            push_varint(out, u64::from(lost.event.0));
            push_cpu(out, lost.cpu);
            push_varint(out, u64::from(lost.task.0));
            push_varint(out, lost.count);
            out.push(lost.cause.number());
            out.extend_from_slice(lost.extras.encoded());
        }
        Record::Image(image) => {
            push_varint(out, u64::from(image.id.0));
            out.push(image.kind.number());
            // A reader refuses a longer one.
            push_string(out, &image.build_id[..image.build_id.len().min(limits::BUILD_ID)]);
            push_string(out, image.path);
            out.extend_from_slice(image.extras.encoded());
        }
        Record::Function(function) => {
            push_varint(out, u64::from(function.id.0));
            push_string(out, function.name);
            push_string(out, function.linkage);
            out.extend_from_slice(function.extras.encoded());
        }
        Record::File(file) => {
            push_varint(out, u64::from(file.id.0));
            push_string(out, file.path);
            out.extend_from_slice(file.extras.encoded());
        }
        Record::Location(location) => push_location(out, location),
        // Optional bodies depend on no other record, so that they are valid in any block.
        Record::Unknown(unknown) => out.extend_from_slice(unknown.body),
        // All other kinds consist of pairs.
        pairs => pairs.push_pairs(out),
    }
}

fn push_sample(out: &mut Vec<u8>, sample: &Sample<'_>, state: &mut BlockState) {
    // Samples in a row mostly share these fields: a cleared bit replaces a varint.
    let flags = if sample.event != state.event { EVENT_GIVEN } else { 0 }
        | if sample.task != state.task { TASK_GIVEN } else { 0 }
        | if sample.cpu != state.cpu { CPU_GIVEN } else { 0 }
        | if sample.weight != state.weight { WEIGHT_GIVEN } else { 0 }
        | if sample.count != 1 { COUNT_GIVEN } else { 0 };
    out.push(flags);
    push_time(out, sample.time, state);
    push_varint(out, u64::from(sample.node.0));
    if flags & EVENT_GIVEN != 0 {
        push_varint(out, u64::from(sample.event.0));
    }
    if flags & TASK_GIVEN != 0 {
        push_varint(out, u64::from(sample.task.0));
    }
    if flags & CPU_GIVEN != 0 {
        push_cpu(out, sample.cpu);
    }
    if flags & WEIGHT_GIVEN != 0 {
        push_varint(out, sample.weight);
    }
    if flags & COUNT_GIVEN != 0 {
        push_varint(out, sample.count);
    }
    out.extend_from_slice(sample.extras.encoded());
    state.event = sample.event;
    state.task = sample.task;
    state.cpu = sample.cpu;
    state.weight = sample.weight;
}

fn push_location(out: &mut Vec<u8>, location: &Location<'_>) {
    push_varint(out, u64::from(location.frame.0));
    out.push(location.status.number());
    push_varint(out, location.lines.len() as u64);
    for line in location.lines {
        push_varints(out, [line.function.0, line.file.0, line.line, line.column]);
    }
    out.extend_from_slice(location.extras.encoded());
}

fn push_time(out: &mut Vec<u8>, time: u64, state: &mut BlockState) {
    // Late samples have negative differences: zigzag keeps these short, too.
    push_varint(out, zigzag(time.wrapping_sub(state.time) as i64));
    state.time = time;
}

/// Appends a CPU: its number plus one, so that 0 is "unknown".
fn push_cpu(out: &mut Vec<u8>, cpu: u32) {
    push_varint(out, u64::from(cpu.wrapping_add(1)));
}

fn push_string(out: &mut Vec<u8>, string: &[u8]) {
    let string = clip(string);
    push_varint(out, string.len() as u64);
    out.extend_from_slice(&string);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::extras::Extras;

    #[test]
    fn a_sample_like_the_one_before_takes_few_bytes() {
        let sample = Sample {
            time: 81_230_000_000_000,
            event: EventId(1),
            task: TaskId(300),
            cpu: 1,
            node: NodeId(70_000),
            weight: 1_003_009,
            count: 1,
            extras: Extras::NONE,
        };
        let next = Sample { time: sample.time + 1_003_009, ..sample };
        let (mut out, mut state) = (Vec::new(), BlockState::new(sample.time));
        push_record(&mut out, &Record::Sample(sample), &mut state);
        let first = out.len();
        push_record(&mut out, &Record::Sample(next), &mut state);
        assert_eq!(out.len() - first, 2 + 1 + 3 + 3);
    }
}
