//! Records of `key=value` pairs, which have the same bytes in both encodings.

use super::encoded::{Encoded, Scratch};
use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::field::text::TextFields;
use crate::record::error::Malformed;
use crate::record::pairs::PairRecord;

impl<'a, P: PairRecord> Encoded<'a> for Box<P> {
    fn push_binary(&self, out: &mut Vec<u8>, _: &mut BlockState) {
        self.encode(out);
    }

    fn read_binary(
        from: Bytes<'a>,
        _: &mut BlockState,
        _: &'a mut Scratch,
    ) -> Result<Self, Malformed> {
        P::read(from.0).map(Self::new)
    }

    fn push_text(&self, out: &mut Vec<u8>) {
        let before = out.len();
        out.push(b'\t');
        self.encode(out);
        // A TAB without a field after it is malformed.
        if out.len() == before + 1 {
            out.truncate(before);
        }
    }

    fn read_text(mut from: TextFields<'a>, _: &'a mut Scratch) -> Result<Self, Malformed> {
        P::read(from.rest()?).map(Self::new)
    }
}
