//! The records a filter passes on as they are spelled: nodes, samples without extras, which are
//! nearly all there are, and of frames and annotations those it says. They are read, so that the
//! next one is understood and damage is found, and not put together.

use super::Delta;
use super::read::{Bytes, Scratch, read_body, read_nodes, read_plain_sample};
use crate::kind;
use crate::record::{Record, Sample};

/// What becomes of a frame or an annotation that could be passed on as it is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It is passed on, and so are nodes and samples behind it.
    On,
    /// It is passed on, but what is behind it is not unless it is one of these as well.
    Hold,
    /// It is not passed on.
    Not,
}

/// The longest frame or annotation that is passed on, bytes: a block they are put behind others in
/// stays far from the limit.
const LONGEST: usize = 16 << 10;

/// Records as they are spelled, one behind the other.
pub(crate) struct Plain {
    /// How many bytes they take.
    pub(crate) length: usize,
    /// How many there are that are no annotations, and how many of them are samples.
    pub(crate) records: u64,
    pub(crate) samples: u64,
    /// The latest time of them, 0 when none has one.
    pub(crate) latest: u64,
    /// What the last one leaves for the next one in its block.
    pub(crate) delta: Delta,
}

impl Plain {
    /// Reads what `payload` begins with, up to the record that reaches `room` bytes, as `judge` says
    /// of frames and annotations, and `pass` of what came before them. What is not plain or not well
    /// formed is left to others.
    pub(crate) fn read(
        payload: &[u8],
        room: usize,
        delta: &mut Delta,
        scratch: &mut Scratch,
        mut pass: Pass,
        mut judge: impl FnMut(&Record<'_>) -> Pass,
    ) -> Self {
        let (mut records, mut samples, mut latest) = (0, 0, 0);
        let mut rest = payload;
        while payload.len() - rest.len() < room {
            if pass == Pass::On
                && let Some((sample, behind)) = next_plain_sample(rest, delta)
            {
                latest = sample.time.max(latest);
                samples += 1;
                records += 1;
                rest = behind;
                continue;
            }
            let Some((kind, body, behind)) = split(rest) else { break };
            match kind {
                kind::NODES
                    if pass == Pass::On && read_nodes(Bytes(body), &mut scratch.frames).is_ok() =>
                {
                    records += 1;
                }
                kind::FRAME | kind::FUNCTION | kind::FILE | kind::LOCATION
                    if body.len() <= LONGEST =>
                {
                    let Ok(record) = read_body(kind, body, delta, scratch) else { break };
                    pass = judge(&record);
                    if pass == Pass::Not {
                        break;
                    }
                    records += u64::from(!record.is_annotation());
                }
                _ => break,
            }
            rest = behind;
        }
        let length = payload.len() - rest.len();
        Self { length, records, samples, latest, delta: *delta }
    }
}

/// The sample at the front of a payload and what is behind it, if it is plain and not among the
/// last bytes, see [`read_plain_sample`].
#[inline(always)] // see there
pub(crate) fn next_plain_sample<'a>(
    payload: &'a [u8],
    delta: &mut Delta,
) -> Option<(Sample<'static>, &'a [u8])> {
    let &[kind::SAMPLE, length, ref body @ ..] = payload else { return None };
    let length = usize::from(length);
    let sample = read_plain_sample(body, length, delta)?;
    Some((sample, &body[length..]))
}

/// The kind and the body of the record at the front of a payload, and what is behind it.
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
            for time in [11, 12, 13] {
                push_record(&mut payload, &sample(time, Extras::NONE), &mut delta);
            }
            let mut scratch = Scratch::default();
            let none = |_: &Record<'_>| Pass::Not;
            let (mut delta, on) = (Delta::new(1), Pass::On);
            let plain = Plain::read(&payload, 4096, &mut delta, &mut scratch, on, none);
            assert_eq!((plain.length, plain.delta), (length, left));
            assert_eq!((plain.records, plain.samples, plain.latest), (3, 2, 9));
            // Whatever is cut off, nothing but whole records counts.
            let counts = (0..length).map(|end| {
                let (payload, mut delta) = (&payload[..end], Delta::new(1));
                let plain = Plain::read(payload, 4096, &mut delta, &mut scratch, on, none);
                assert!(plain.length <= end);
                plain.records
            });
            assert!(counts.is_sorted());
            let one = Plain::read(&payload, 1, &mut Delta::new(1), &mut scratch, on, none);
            assert_eq!(one.records, 1);
        }
    }

    #[test]
    fn frames_and_annotations_pass_as_the_filter_says() {
        let frame = |id| {
            let (id, image, extras) = (FrameId(id), ImageId(1), Extras::NONE);
            let (kernel, return_address, mark) = (false, false, Mark::None);
            Record::Frame(Frame { id, image, offset: 1, kernel, return_address, mark, extras })
        };
        let file = Record::File(SourceFile { id: FileId(1), path: b"/a", extras: Extras::NONE });
        let nodes =
            Record::Nodes(Nodes { first: NodeId(1), parent: NodeId(0), frames: &[FrameId(1)] });
        let (mut payload, mut delta) = (Vec::new(), Delta::new(1));
        let mut lengths = vec![0];
        for record in
            [frame(1), file, nodes, sample(5, Extras::NONE), frame(2), sample(6, Extras::NONE)]
        {
            push_record(&mut payload, &record, &mut delta);
            lengths.push(payload.len());
        }
        payload.extend_from_slice(&[0; 32]);
        let read = |first, says: &[Pass]| {
            let mut says = says.iter().copied();
            let mut judge = |_: &Record<'_>| says.next().unwrap();
            let (mut delta, mut scratch) = (Delta::new(1), Scratch::default());
            let plain = Plain::read(&payload, 4096, &mut delta, &mut scratch, first, &mut judge);
            let count = lengths.iter().position(|&length| length == plain.length).unwrap();
            (count, plain.records, plain.samples)
        };
        let long = vec![b'x'; LONGEST];
        let file = SourceFile { id: FileId(1), path: &long, extras: Extras::NONE };
        let mut payload = Vec::new();
        push_record(&mut payload, &Record::File(file), &mut Delta::new(1));
        let (mut delta, mut scratch) = (Delta::new(1), Scratch::default());
        let all = |_: &Record<'_>| Pass::On;
        let plain = Plain::read(&payload, 4096, &mut delta, &mut scratch, Pass::On, all);
        assert_eq!(plain.length, 0, "it is too long");
        use Pass::{Hold, Not, On};
        assert_eq!(read(On, &[Not]), (0, 0, 0));
        assert_eq!(read(On, &[Hold, Not]), (1, 1, 0));
        assert_eq!(read(On, &[Hold, Hold]), (2, 1, 0), "nodes are held");
        assert_eq!(read(Hold, &[Hold, On, Hold]), (5, 4, 1), "so is a sample");
        assert_eq!(read(On, &[Hold, On, On]), (6, 5, 2));
    }
}
