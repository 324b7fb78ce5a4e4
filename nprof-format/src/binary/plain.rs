//! The records a filter passes on as they are spelled: nodes, and samples without extras, which
//! are nearly all there are. They are read, so that the next one is understood and damage is
//! found, and not put together.

use super::Delta;
use super::read::{Bytes, Scratch, read_nodes, read_sample};
use crate::kind;

/// Records as they are spelled, one behind the other.
pub(crate) struct Plain {
    /// How many bytes they take.
    pub(crate) length: usize,
    /// How many there are, and how many of them are samples.
    pub(crate) records: u64,
    pub(crate) samples: u64,
    /// The latest time of them, 0 when none has one.
    pub(crate) latest: u64,
    /// What the last one leaves for the next one in its block.
    pub(crate) delta: Delta,
}

impl Plain {
    /// Reads what `payload` begins with, up to the record that reaches `room` bytes; what is not
    /// plain or not well formed is left to others.
    pub(crate) fn read(
        payload: &[u8],
        room: usize,
        delta: &mut Delta,
        scratch: &mut Scratch,
    ) -> Self {
        let (mut records, mut samples, mut latest) = (0, 0, 0);
        let mut rest = payload;
        while payload.len() - rest.len() < room {
            let Some((kind, body, behind)) = split(rest) else { break };
            match kind {
                kind::SAMPLE => {
                    let mut next = *delta;
                    match read_sample(Bytes(body), &mut next) {
                        Ok(sample) if sample.extras.is_empty() => latest = sample.time.max(latest),
                        _ => break,
                    }
                    *delta = next;
                    samples += 1;
                }
                kind::NODES if read_nodes(Bytes(body), &mut scratch.frames).is_ok() => {}
                _ => break,
            }
            records += 1;
            rest = behind;
        }
        let length = payload.len() - rest.len();
        Self { length, records, samples, latest, delta: *delta }
    }
}

/// The kind and the body of the record at the front of a payload, and what is behind it.
#[inline]
fn split(payload: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = payload.split_first()?;
    let mut rest = Bytes(rest);
    let length = usize::try_from(rest.varint().ok()?).ok()?;
    let (body, behind) = rest.0.split_at_checked(length)?;
    Some((kind, body, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::push_record;
    use crate::extras::{Extras, ExtrasBuilder};
    use crate::record::*;

    fn sample(time: u64, extras: Extras<'_>) -> Record<'_> {
        let (event, task, node) = (EventId(1), TaskId(time as u32), NodeId(7));
        Record::Sample(Sample { time, event, task, cpu: 1, node, weight: 5, count: 1, extras })
    }

    #[test]
    fn what_is_not_plain_ends_it() {
        let mut builder = ExtrasBuilder::new();
        builder.add("stitched", b"3");
        let nodes = Nodes { first: NodeId(3), parent: NodeId(2), frames: &[FrameId(9); 100] };
        let others = [
            sample(8, builder.extras()),
            Record::Epoch(crate::Epoch::default()),
            Record::Unknown(Unknown { kind: 100, body: b"x" }),
        ];
        for other in others {
            let (mut payload, mut delta) = (Vec::new(), Delta::new(1));
            for record in [sample(5, Extras::NONE), Record::Nodes(nodes), sample(9, Extras::NONE)] {
                push_record(&mut payload, &record, &mut delta);
            }
            let (length, left) = (payload.len(), delta);
            push_record(&mut payload, &other, &mut delta);
            push_record(&mut payload, &sample(11, Extras::NONE), &mut delta);
            let mut scratch = Scratch::default();
            let plain = Plain::read(&payload, 4096, &mut Delta::new(1), &mut scratch);
            assert_eq!((plain.length, plain.delta), (length, left));
            assert_eq!((plain.records, plain.samples, plain.latest), (3, 2, 9));
            // Whatever is cut off, nothing but whole records counts.
            let counts = (0..length).map(|end| {
                let plain = Plain::read(&payload[..end], 4096, &mut Delta::new(1), &mut scratch);
                assert!(plain.length <= end);
                plain.records
            });
            assert!(counts.is_sorted());
            let one = Plain::read(&payload, 1, &mut Delta::new(1), &mut scratch);
            assert_eq!(one.records, 1);
        }
    }
}
