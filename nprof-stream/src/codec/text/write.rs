//! Encodes records as lines.

use super::line::{LINE, is_unknown_line};
use crate::codec::field::text::push_display;
use crate::codec::kinds::encoded::Encoded;
use crate::record::kind::{self, with_kinds};
use crate::record::number::{push_decimal, push_hex_bytes};
use crate::record::version::{MAJOR, MINOR};
use crate::record::*;

macro_rules! lines {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        /// Appends a record's line, with its newline.
        pub(crate) fn push_line(out: &mut Vec<u8>, record: &Record<'_>) {
            match record {
                $(Record::$variant(content) => {
                    out.extend_from_slice($word.as_bytes());
                    if kind::$constant == kind::HEAD {
                        // Our own version, also for a copied head (nprof-format(5), VERSIONS).
                        push_display(out, format_args!("{MAJOR}.{MINOR}"));
                    }
                    content.push_text(out);
                })*
                Record::Unknown(unknown) => push_unknown(out, unknown),
            }
            out.push(b'\n');
        }
    };
}

with_kinds!(lines);

fn push_unknown(out: &mut Vec<u8>, unknown: &Unknown<'_>) {
    // Any other body of this kind is written as `?111`.
    if unknown.kind == LINE && is_unknown_line(unknown.body) {
        out.extend_from_slice(unknown.body);
        return;
    }
    out.push(b'?');
    push_decimal(out, u64::from(unknown.kind));
    out.push(b'\t');
    push_hex_bytes(out, unknown.body);
}
