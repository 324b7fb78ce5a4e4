//! Encodes and decodes records of any kind.

use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::kinds::encoded::{Encoded, Scratch};
use crate::codec::kinds::location::read_location_again;
use crate::codec::kinds::nodes::read_nodes_again;
use crate::record::error::Malformed;
use crate::record::kind::{self, with_kinds};
use crate::record::number::push_varint;
use crate::record::*;

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

macro_rules! bodies {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        /// Appends a record's body.
        pub(crate) fn push_body(out: &mut Vec<u8>, record: &Record<'_>, state: &mut BlockState) {
            match record {
                $(Record::$variant(content) => content.push_binary(out, state),)*
                // Optional bodies depend on no other record, so that they are valid in any block.
                Record::Unknown(unknown) => out.extend_from_slice(unknown.body),
            }
        }

        /// Decodes a record's body.
        pub(crate) fn read_body<'a>(
            kind: u8,
            body: &'a [u8],
            state: &mut BlockState,
            scratch: &'a mut Scratch,
        ) -> Result<Record<'a>, Malformed> {
            let from = Bytes(body);
            match kind {
                $(kind::$constant => {
                    Encoded::read_binary(from, state, scratch).map(Record::$variant)
                })*
                // The reader has refused unknown kinds below 64; the others are copied
                // (nprof-format(5), VERSIONS).
                kind => Ok(Record::Unknown(Unknown { kind, body })),
            }
        }

        impl Record<'_> {
            /// Returns the record's time, on the segment's clock. None if its kind has none; those of
            /// pairs have not, their times are of another clock or of another moment.
            pub fn time(&self) -> Option<u64> {
                match self {
                    $(Record::$variant(content) => content.time(),)*
                    Record::Unknown(_) => None,
                }
            }
        }
    };
}

with_kinds!(bodies);

/// Decodes the body that was decoded last a second time: its list is still in the scratch.
pub(crate) fn read_again<'a>(
    kind: u8,
    body: &'a [u8],
    state: &mut BlockState,
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    match kind {
        kind::NODES => read_nodes_again(Bytes(body), scratch).map(Record::Nodes),
        kind::LOCATION => read_location_again(Bytes(body), scratch).map(Record::Location),
        // Without a list the second pass costs as little as the first.
        _ => read_body(kind, body, state, scratch),
    }
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
