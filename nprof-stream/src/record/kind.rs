//! The kinds of record: their numbers in binary, their words in text, their fields.
//!
//! Kinds 1 to 63 are the recording: a reader refuses one that it does not know. Kinds 64 to 127 are
//! optional: a reader copies one that it does not know. Of these, 112 to 127 are for private use
//! and will never get a meaning.

/// A kind of record.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its number in the binary encoding.
    pub number: u8,
    /// Its first field in the text encoding.
    pub word: &'static str,
    /// Its name in messages and in the manual.
    pub name: &'static str,
    /// Its required fields, in order; "key=value ..." means any number of pairs.
    pub fields: &'static str,
}

/// Passes the table of kinds to a macro: the one place that lists them.
///
/// An entry is the constant, number, word, name and fields, then the variant of
/// [`Record`](crate::Record): `pairs` with the type whose pairs it consists of, or `fields` with an
/// encoding of its own. Dispatch and the codecs of pairs are generated from it: a new kind of pairs
/// is an entry here, a type in `pairs.rs`, and a variant.
macro_rules! with_kinds {
    ($callback:ident) => {
        $callback! {
            HEAD = 1 "@nprof" "head" "version key=value ..." pairs Head(Head)
            EVENT = 2 "@event" "event" "key=value ..." pairs Event(Event)
            EPOCH = 3 "@epoch" "epoch" "key=value ..." pairs Epoch(Epoch)
            END = 4 "@end" "end" "key=value ..." pairs End(End)
            RUN = 5 "@run" "run" "key=value ..." pairs Run(Head)
            RUN_END = 6 "@run_end" "run_end" "key=value ..." pairs RunEnd(RunEnd)
            IMAGE = 8 "I" "image" "id kind build_id path" fields Image
            TASK = 9 "T" "task" "id time pid tid parent comm" fields Task
            FRAME = 10 "F" "frame" "id image offset flags" fields Frame
            NODES = 11 "N" "nodes" "first parent frame ..." fields Nodes
            SAMPLE = 32 "S" "sample" "time event task cpu node weight count" fields Sample
            CHANGE = 33 "X" "change" "time task kind value" fields Change
            LOST = 34 "L" "lost" "time event cpu task count cause" fields Lost
            STEP = 64 "@step" "step" "key=value ..." pairs Step(Step)
            FUNCTION = 65 "U" "function" "id name linkage" fields Function
            FILE = 66 "D" "file" "id path" fields File
            LOCATION = 67 "Y" "location" "frame status function,file,line,column ..." fields Location
            NAMING = 68 "@naming" "naming" "key=value ..." pairs Naming(Naming)
        }
    };
}
pub(crate) use with_kinds;

macro_rules! kinds {
    ($($constant:ident = $number:literal $word:literal $name:literal $fields:literal
       $encoding:ident $variant:ident $(($type:ident))?)*) => {
        $(
            #[doc = concat!("The number of the kind \"", $name, "\".")]
            pub const $constant: u8 = $number;
        )*

        /// The kinds that this version knows, by number.
        pub const KINDS: &[Kind] = &[
            $(Kind { number: $number, word: $word, name: $name, fields: $fields },)*
        ];
    };
}

with_kinds!(kinds);

/// The first kind that is optional.
pub const FIRST_OPTIONAL: u8 = 64;

/// The last valid kind.
pub const LAST: u8 = 127;

/// Returns the kind with this word. None if there is none.
pub(crate) fn by_word(word: &[u8]) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.word.as_bytes() == word)
}

/// Returns the word of the kind with this number; empty if this version does not know it.
pub(crate) fn word(number: u8) -> &'static str {
    KINDS.iter().find(|kind| kind.number == number).map_or("", |kind| kind.word)
}

/// Returns the name of the kind with this number; `unknown` if this version does not know it.
pub fn name(number: u8) -> &'static str {
    KINDS.iter().find(|kind| kind.number == number).map_or("unknown", |kind| kind.name)
}

/// True if this version knows the kind.
pub(crate) fn is_known(number: u8) -> bool {
    KINDS.iter().any(|kind| kind.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_are_unique_and_in_order() {
        assert!(KINDS.windows(2).all(|pair| pair[0].number < pair[1].number));
        for kind in KINDS {
            assert_eq!(by_word(kind.word.as_bytes()).map(|k| k.number), Some(kind.number));
            assert!(kind.number < 112, "{} is in the private range", kind.name);
        }
    }
}
