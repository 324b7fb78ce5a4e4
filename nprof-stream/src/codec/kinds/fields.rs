//! Records of fields: their codecs, made from the table of kinds.

use super::encoded::{Encoded, Scratch};
use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::field::formats::{self, Format};
use crate::codec::field::text::{TextFields, push_extras};
use crate::record::error::Malformed;
use crate::record::kind::with_kinds;
use crate::record::*;

macro_rules! codec {
    (fields $type:ident { $($($member:ident)|+ : $format:ident),+ }) => {
        // Parentheses make a tuple of several members, and are not needed around one.
        #[allow(unused_parens)]
        impl<'a> Encoded<'a> for $type<'a> {
            #[inline] // into the dispatch, the only caller
            fn push_binary(&self, out: &mut Vec<u8>, state: &mut BlockState) {
                $(formats::$format::push_binary(out, ($(self.$member),+), state);)+
                // Extras have the same bytes in both encodings.
                out.extend_from_slice(self.extras.encoded());
            }

            #[inline]
            fn read_binary(
                mut from: Bytes<'a>,
                state: &mut BlockState,
                _: &'a mut Scratch,
            ) -> Result<Self, Malformed> {
                $(let ($($member),+) = formats::$format::read_binary(&mut from, state)?;)+
                Ok(Self { $($($member),+,)+ extras: from.extras()? })
            }

            #[inline]
            fn push_text(&self, out: &mut Vec<u8>) {
                $(formats::$format::push_text(out, ($(self.$member),+));)+
                push_extras(out, self.extras);
            }

            #[inline]
            fn read_text(
                mut from: TextFields<'a>,
                _: &'a mut Scratch,
            ) -> Result<Self, Malformed> {
                $(let ($($member),+) = formats::$format::read_text(&mut from)?;)+
                Ok(Self { $($($member),+,)+ extras: from.extras()? })
            }

            fn time(&self) -> Option<u64> {
                None $(.or(formats::$format::time(($(self.$member),+))))+
            }
        }
    };
    ($encoding:ident $type:ident $fields:tt) => {};
}

macro_rules! codecs {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        $(codec!($encoding $type $fields);)*
    };
}

with_kinds!(codecs);
