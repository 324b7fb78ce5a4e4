//! Samples: nearly all records of a stream, so that their codecs are written for speed. In binary a
//! sample omits the fields that it shares with the one before it in its block.

use super::encoded::{Encoded, Scratch};
use crate::codec::field::binary::{self, BlockState, Bytes};
use crate::codec::field::text::{self, TextFields};
use crate::record::error::Malformed;
use crate::record::number::{ShortBytes, push_decimal};
use crate::record::*;

pub(crate) const EVENT_GIVEN: u8 = 1;
pub(crate) const TASK_GIVEN: u8 = 2;
pub(crate) const CPU_GIVEN: u8 = 4;
pub(crate) const WEIGHT_GIVEN: u8 = 8;
pub(crate) const COUNT_GIVEN: u8 = 16;
pub(crate) const ALL_GIVEN: u8 = 31;

impl<'a> Encoded<'a> for Sample<'a> {
    fn push_binary(&self, out: &mut Vec<u8>, state: &mut BlockState) {
        // Samples in a row mostly share these fields: a cleared bit replaces a varint.
        let flags = if self.event != state.event { EVENT_GIVEN } else { 0 }
            | if self.task != state.task { TASK_GIVEN } else { 0 }
            | if self.cpu != state.cpu { CPU_GIVEN } else { 0 }
            | if self.weight != state.weight { WEIGHT_GIVEN } else { 0 }
            | if self.count != 1 { COUNT_GIVEN } else { 0 };
        let mut body = ShortBytes::default();
        body.push(flags);
        body.push_varint(binary::time_delta(self.time, state));
        body.push_varint(u64::from(self.node.0));
        if flags & EVENT_GIVEN != 0 {
            body.push_varint(u64::from(self.event.0));
        }
        if flags & TASK_GIVEN != 0 {
            body.push_varint(u64::from(self.task.0));
        }
        if flags & CPU_GIVEN != 0 {
            body.push_varint(binary::cpu_number(self.cpu));
        }
        if flags & WEIGHT_GIVEN != 0 {
            body.push_varint(self.weight);
        }
        if flags & COUNT_GIVEN != 0 {
            body.push_varint(self.count);
        }
        out.extend_from_slice(body.bytes());
        if !self.extras.is_empty() {
            out.extend_from_slice(self.extras.encoded());
        }
        state.event = self.event;
        state.task = self.task;
        state.cpu = self.cpu;
        state.weight = self.weight;
    }

    fn read_binary(
        from: Bytes<'a>,
        state: &mut BlockState,
        _: &'a mut Scratch,
    ) -> Result<Self, Malformed> {
        read_sample(from, state)
    }

    fn push_text(&self, out: &mut Vec<u8>) {
        out.push(b'\t');
        push_decimal(out, self.time);
        out.push(b'\t');
        push_decimal(out, u64::from(self.event.0));
        out.push(b'\t');
        push_decimal(out, u64::from(self.task.0));
        text::push_cpu(out, self.cpu);
        out.push(b'\t');
        push_decimal(out, u64::from(self.node.0));
        out.push(b'\t');
        push_decimal(out, self.weight);
        out.push(b'\t');
        push_decimal(out, self.count);
        text::push_extras(out, self.extras);
    }

    fn read_text(mut from: TextFields<'a>, _: &'a mut Scratch) -> Result<Self, Malformed> {
        Ok(Self {
            time: from.number()?,
            event: EventId(from.id_or_none()?),
            task: TaskId(from.id_or_none()?),
            cpu: from.cpu()?,
            node: NodeId(from.id_or_none()?),
            weight: from.number()?,
            count: from.number()?,
            extras: from.extras()?,
        })
    }

    fn time(&self) -> Option<u64> {
        Some(self.time)
    }
}

/// Decodes the body of a sample.
pub(crate) fn read_sample<'a>(
    mut from: Bytes<'a>,
    state: &mut BlockState,
) -> Result<Sample<'a>, Malformed> {
    let flags = from.byte()?;
    // An undefined bit may mean another field: the rest could not be parsed.
    if flags & !ALL_GIVEN != 0 {
        return Err(Malformed::Field("known sample flags"));
    }
    let time = from.time(state)?;
    let node = NodeId(from.id_or_none()?);
    // An absent field equals that of the sample before (nprof-format(5), BINARY).
    if flags & EVENT_GIVEN != 0 {
        state.event = EventId(from.id_or_none()?);
    }
    if flags & TASK_GIVEN != 0 {
        state.task = TaskId(from.id_or_none()?);
    }
    if flags & CPU_GIVEN != 0 {
        state.cpu = from.cpu()?;
    }
    if flags & WEIGHT_GIVEN != 0 {
        state.weight = from.varint()?;
    }
    // Not taken from the sample before: a count other than 1 is rare.
    let count = if flags & COUNT_GIVEN != 0 { from.varint()? } else { 1 };
    Ok(Sample {
        time,
        event: state.event,
        task: state.task,
        cpu: state.cpu,
        node,
        weight: state.weight,
        count,
        extras: from.extras()?,
    })
}
