//! Forwards records without decoding them into values: nodes, samples without extras (nearly all
//! records), and the frames and annotations that the filter selects. They are parsed, so that the
//! next record is understood and damage is found, but not rebuilt.

use super::records::read_body;
use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::kinds::encoded::Scratch;
use crate::codec::kinds::nodes::read_nodes;
use crate::codec::kinds::sample::{
    ALL_GIVEN, COUNT_GIVEN, CPU_GIVEN, EVENT_GIVEN, TASK_GIVEN, WEIGHT_GIVEN,
};
use crate::record::extras::Extras;
use crate::record::kind;
use crate::record::limits;
use crate::record::number::unzigzag;
use crate::record::{EventId, NodeId, Record, Sample, TaskId};

/// The treatment of a frame or an annotation that could be copied as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passthrough {
    /// Copied, and so are the nodes and samples after it.
    Forward,
    /// Copied, but the records after it are not, unless they are of this kind, too.
    ForwardAlone,
    /// Not copied.
    Drop,
}

/// The longest frame or annotation that is copied, bytes: the block that they are appended to stays
/// far from its limit.
const LONGEST: usize = 16 << 10;

/// Encoded records, one after the other.
pub(crate) struct RawRecords {
    /// Their length in bytes.
    pub(crate) length: usize,
    /// The number of those that are not annotations, and of samples.
    pub(crate) records: u64,
    pub(crate) samples: u64,
    /// Their latest time, 0 if none has one.
    pub(crate) latest: u64,
    /// The state that the last one leaves for the next one in its block.
    pub(crate) state: BlockState,
}

impl RawRecords {
    /// Reads the first records of `payload`, up to the one that reaches `room` bytes. `select` decides
    /// on frames and annotations; `pass` is its decision on the record before. Stops at a record that
    /// is not plain or malformed.
    pub(crate) fn read(
        payload: &[u8],
        room: usize,
        state: &mut BlockState,
        scratch: &mut Scratch,
        mut pass: Passthrough,
        mut select: impl FnMut(&Record<'_>) -> Passthrough,
    ) -> Self {
        let (mut records, mut samples, mut latest) = (0, 0, 0);
        let mut rest = payload;
        while payload.len() - rest.len() < room {
            // First, since nearly all records are plain samples.
            if pass == Passthrough::Forward
                && let Some((sample, behind)) = next_plain_sample(rest, state)
            {
                latest = sample.time.max(latest);
                samples += 1;
                records += 1;
                rest = behind;
                continue;
            }
            // Damage is left to the reader, which reports it and resynchronizes.
            let Some((kind, body, behind)) = split(rest) else { break };
            match kind {
                // Parsed although copied: a malformed record must not reach the output.
                kind::NODES
                    if pass == Passthrough::Forward
                        && read_nodes(Bytes(body), &mut scratch.frames).is_ok() =>
                {
                    records += 1;
                }
                kind::FRAME | kind::FUNCTION | kind::FILE | kind::LOCATION
                    if body.len() <= LONGEST =>
                {
                    // These kinds have no time: a failure leaves `state` unchanged.
                    let Ok(record) = read_body(kind, body, state, scratch) else { break };
                    pass = select(&record);
                    if pass == Passthrough::Drop {
                        break;
                    }
                    records += u64::from(!record.is_annotation());
                }
                // All others pass through the reader: some begin or end segments and epochs.
                _ => break,
            }
            rest = behind;
        }
        let length = payload.len() - rest.len();
        Self { length, records, samples, latest, state: *state }
    }
}

/// Returns the sample at the front of a payload and the rest, if it is plain and not among the last
/// bytes, see [`read_plain_sample`].
#[inline(always)] // see there
pub(crate) fn next_plain_sample<'a>(
    payload: &'a [u8],
    state: &mut BlockState,
) -> Option<(Sample<'static>, &'a [u8])> {
    // A length of two bytes has the high bit set; it exceeds any plain sample, so that the check
    // of the length below fails.
    let &[kind::SAMPLE, length, ref body @ ..] = payload else { return None };
    let length = usize::from(length);
    let sample = read_plain_sample(body, length, state)?;
    Some((sample, &body[length..]))
}

/// Returns the sample in the first `length` bytes of `rest`, if it is plain: without
/// extras and with no number of more than 8 bytes. Numbers are read as words, so that hardly any
/// branch depends on their length. None if [`read_body`] has to read it: it is not plain,
/// malformed, or among the last bytes of its block.
#[inline(always)] // fields that a caller does not use are not decoded
fn read_plain_sample(
    rest: &[u8],
    length: usize,
    state: &mut BlockState,
) -> Option<Sample<'static>> {
    let mut numbers = Words { bytes: rest.first_chunk()?, at: 1 };
    let flags = numbers.bytes[0];
    if flags & !ALL_GIVEN != 0 {
        return None;
    }
    // Most samples share all fields with the one before: no need to copy the state.
    if flags == 0 {
        let time = state.time.wrapping_add(unzigzag(numbers.next()?) as u64);
        let node = NodeId(numbers.id()?);
        if numbers.at != length {
            return None;
        }
        state.time = time;
        let BlockState { event, task, cpu, weight, .. } = *state;
        return Some(Sample {
            time,
            event,
            task,
            cpu,
            node,
            weight,
            count: 1,
            extras: Extras::NONE,
        });
    }
    // A copy: `state` must not change if the sample proves not to be plain.
    let mut next = *state;
    next.time = next.time.wrapping_add(unzigzag(numbers.next()?) as u64);
    let node = NodeId(numbers.id()?);
    if flags & EVENT_GIVEN != 0 {
        next.event = EventId(numbers.id()?);
    }
    if flags & TASK_GIVEN != 0 {
        next.task = TaskId(numbers.id()?);
    }
    if flags & CPU_GIVEN != 0 {
        next.cpu = u32::try_from(numbers.next()?).ok()?.wrapping_sub(1);
    }
    if flags & WEIGHT_GIVEN != 0 {
        next.weight = numbers.next()?;
    }
    let count = if flags & COUNT_GIVEN != 0 { numbers.next()? } else { 1 };
    // Remaining bytes are extras; with too few, a number belongs to the next record.
    if numbers.at != length {
        return None;
    }
    *state = next;
    let BlockState { time, event, task, cpu, weight } = next;
    Some(Sample { time, event, task, cpu, node, weight, count, extras: Extras::NONE })
}

/// Numbers one after the other, followed by bytes that belong to other fields.
struct Words<'a> {
    bytes: &'a [u8; 24],
    at: usize,
}

impl Words<'_> {
    /// Returns the next one. None if it takes more than 8 bytes or is not in its shortest form.
    #[inline]
    fn next(&mut self) -> Option<u64> {
        let word = u64::from_le_bytes(*self.bytes.get(self.at..)?.first_chunk()?);
        // The last byte of a varint is the first one with a clear high bit.
        let last = !word & 0x8080_8080_8080_8080;
        let bytes = word & (last ^ last.wrapping_sub(1));
        let high_bit = last & last.wrapping_neg();
        // No end within 8 bytes, or not the shortest form: the last of several bytes is 0.
        if last == 0 || bytes < high_bit >> 7 && high_bit != 0x80 {
            return None;
        }
        self.at += (high_bit.trailing_zeros() as usize + 1) / 8;
        // Joins seven bits of each byte, then 14 of two, 28 of four, 56 of eight.
        let pairs = bytes & 0x007f_007f_007f_007f | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
        let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        Some(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4)
    }

    #[inline]
    fn id(&mut self) -> Option<u32> {
        self.next().filter(|&id| id <= u64::from(limits::ID)).map(|id| id as u32)
    }
}

/// Returns the kind and the body of the record at the front of a payload, and the rest.
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
    use crate::codec::binary::push_record;
    use crate::codec::kinds::sample::read_sample;
    use crate::record::extras::ExtrasBuilder;
    use crate::record::*;
    use proptest::prelude::*;

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
            Record::Epoch(Box::default()),
            Record::Unknown(Unknown { kind: 100, body: b"x" }),
        ];
        for other in others {
            let (mut payload, mut state) = (Vec::new(), BlockState::new(1));
            for record in [sample(5, Extras::NONE), Record::Nodes(nodes), sample(9, Extras::NONE)] {
                push_record(&mut payload, &record, &mut state);
            }
            let (length, left) = (payload.len(), state);
            push_record(&mut payload, &other, &mut state);
            for time in [11, 12, 13] {
                push_record(&mut payload, &sample(time, Extras::NONE), &mut state);
            }
            let mut scratch = Scratch::default();
            let none = |_: &Record<'_>| Passthrough::Drop;
            let (mut state, on) = (BlockState::new(1), Passthrough::Forward);
            let plain = RawRecords::read(&payload, 4096, &mut state, &mut scratch, on, none);
            assert_eq!((plain.length, plain.state), (length, left));
            assert_eq!((plain.records, plain.samples, plain.latest), (3, 2, 9));
            // Only whole records count, wherever the payload is cut.
            let counts = (0..length).map(|end| {
                let (payload, mut state) = (&payload[..end], BlockState::new(1));
                let plain = RawRecords::read(payload, 4096, &mut state, &mut scratch, on, none);
                assert!(plain.length <= end);
                plain.records
            });
            assert!(counts.is_sorted());
            let one =
                RawRecords::read(&payload, 1, &mut BlockState::new(1), &mut scratch, on, none);
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
        let (mut payload, mut state) = (Vec::new(), BlockState::new(1));
        let mut lengths = vec![0];
        for record in
            [frame(1), file, nodes, sample(5, Extras::NONE), frame(2), sample(6, Extras::NONE)]
        {
            push_record(&mut payload, &record, &mut state);
            lengths.push(payload.len());
        }
        // A plain sample needs 24 bytes from its start, see `read_plain_sample`.
        payload.extend_from_slice(&[0; 32]);
        let read = |first, says: &[Passthrough]| {
            let mut says = says.iter().copied();
            let mut select = |_: &Record<'_>| says.next().unwrap();
            let (mut state, mut scratch) = (BlockState::new(1), Scratch::default());
            let plain =
                RawRecords::read(&payload, 4096, &mut state, &mut scratch, first, &mut select);
            let count = lengths.iter().position(|&length| length == plain.length).unwrap();
            (count, plain.records, plain.samples)
        };
        let long = vec![b'x'; LONGEST];
        let file = SourceFile { id: FileId(1), path: &long, extras: Extras::NONE };
        let mut payload = Vec::new();
        push_record(&mut payload, &Record::File(file), &mut BlockState::new(1));
        let (mut state, mut scratch) = (BlockState::new(1), Scratch::default());
        let all = |_: &Record<'_>| Passthrough::Forward;
        let plain =
            RawRecords::read(&payload, 4096, &mut state, &mut scratch, Passthrough::Forward, all);
        assert_eq!(plain.length, 0, "it is too long");
        use Passthrough::{Drop, Forward, ForwardAlone};
        assert_eq!(read(Forward, &[Drop]), (0, 0, 0));
        assert_eq!(read(Forward, &[ForwardAlone, Drop]), (1, 1, 0));
        assert_eq!(read(Forward, &[ForwardAlone, ForwardAlone]), (2, 1, 0), "nodes are held");
        assert_eq!(
            read(ForwardAlone, &[ForwardAlone, Forward, ForwardAlone]),
            (5, 4, 1),
            "so is a sample"
        );
        assert_eq!(read(Forward, &[ForwardAlone, Forward, Forward]), (6, 5, 2));
    }

    /// Bytes that encode numbers, and others.
    fn bodies() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0_u8), Just(0x80), 0..0x80_u8, any::<u8>()];
        // Mostly defined flags: of all bytes, seven in eight are refused at once.
        let flags = prop_oneof![9 => 0..0x20_u8, 1 => any::<u8>()];
        (flags, prop::collection::vec(byte, 0..40)).prop_map(|(flags, mut bytes)| {
            bytes.insert(0, flags);
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_plain_sample_is_read_as_any_other(bytes in bodies(), length in 0..24_usize) {
            let old = BlockState { time: 1 << 63, cpu: 3, weight: 5, ..BlockState::default() };
            let (mut plain, mut careful) = (old, old);
            let read = read_plain_sample(&bytes, length, &mut plain);
            let expected = bytes.get(..length).map(|body| read_sample(Bytes(body), &mut careful));
            match read {
                Some(sample) => prop_assert_eq!((Some(Ok(sample)), plain), (expected, careful)),
                None => {
                    prop_assert_eq!(plain, old);
                    // With bytes after it, only rare samples are left to the general decoder.
                    let is_left = |sample: &Sample<'_>| {
                        let numbers = bytes[1..length].split_inclusive(|&byte| byte < 0x80);
                        !sample.extras.is_empty() || numbers.into_iter().any(|n| n.len() > 8)
                    };
                    if let Some(Ok(sample)) = &expected {
                        let is_last = bytes.len() < 24 || length > 16;
                        prop_assert!(is_last || is_left(sample), "{:?}", sample);
                    }
                }
            }
        }
    }
}
