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
/// An entry is the documentation, constant, number, word and name of a kind, its encoding, the variant
/// of [`Record`](crate::Record) with its type, and the required fields. The encodings are
///
/// - `pairs`: a type of `pairs.rs`, which consists of `key=value` pairs;
/// - `fields`: a struct of `records.rs`. Each field has a format of `codec/field/formats.rs`, which reads and
///   writes it in both encodings. A format may cover several members, `a|b: Format`. Optional pairs
///   follow in `extras`;
/// - `own`: a struct with an implementation of its own in `codec/kinds`, for lists and for speed.
///
/// The table generates the variants of `Record`, the codecs of pairs and fields, the dispatch, and in
/// tests the arbitrary records.
#[doc(hidden)]
#[macro_export]
macro_rules! with_kinds {
    ($callback:ident) => {
        $callback! {
            /// `@nprof`: begins a segment.
            HEAD = 1 "@nprof" "head" pairs Head(Head) "version key=value ..."
            /// `@event`: an event, as it was opened.
            EVENT = 2 "@event" "event" pairs Event(Event) "key=value ..."
            /// `@epoch`: invalidates all ids; those still in use are defined again.
            EPOCH = 3 "@epoch" "epoch" pairs Epoch(Epoch) "key=value ..."
            /// `@end`: ends the segment, with its totals.
            END = 4 "@end" "end" pairs End(End) "key=value ..."
            /// `@run`: the head of a run that was merged into this segment.
            RUN = 5 "@run" "run" pairs Run(Head) "key=value ..."
            /// `@run_end`: the end of such a run, as its producer wrote it.
            RUN_END = 6 "@run_end" "run_end" pairs RunEnd(RunEnd) "key=value ..."
            /// `I`: an ELF object, the kernel, a module, the vDSO, a generated function.
            IMAGE = 8 "I" "image" fields Image(Image) {
                id: Id, kind: Enumeration, build_id: BuildId, path: ByteString
            }
            /// `T`: a process or thread.
            TASK = 9 "T" "task" fields Task(Task) {
                id: Id, time: Time, pid: Number, tid: Number, parent: IdOrNone, comm: ByteString
            }
            /// `F`: a place in an image.
            FRAME = 10 "F" "frame" fields Frame(Frame) {
                id: Id, image: IdOrNone, offset: Offset, kernel|return_address|mark: FrameFlags
            }
            /// `N`: a branch of the calling context tree.
            NODES = 11 "N" "nodes" own Nodes(Nodes) "first parent frame ..."
            /// `S`: a sample.
            SAMPLE = 32 "S" "sample" own Sample(Sample) "time event task cpu node weight count"
            /// `X`: a task took another name, executed another image, or ended.
            CHANGE = 33 "X" "change" fields Change(Change) {
                time: Time, task: IdOrNone, kind: Enumeration, value: ByteString
            }
            /// `L`: samples that were not taken or not kept.
            LOST = 34 "L" "lost" fields Lost(Lost) {
                time: Time, event: IdOrNone, cpu: Cpu, task: IdOrNone, count: Number,
                cause: Enumeration
            }
            /// `@step`: a program that touched the stream.
            STEP = 64 "@step" "step" pairs Step(Step) "key=value ..."
            /// `U`: a function.
            FUNCTION = 65 "U" "function" fields Function(Function) {
                id: Id, name: ByteString, linkage: ByteString
            }
            /// `D`: a source file.
            FILE = 66 "D" "file" fields File(SourceFile) { id: Id, path: ByteString }
            /// `Y`: the names of a frame, or the reason for their absence.
            LOCATION = 67 "Y" "location" own Location(Location)
                "frame status function,file,line,column ..."
            /// `@naming`: the counts of named and unnamed frames of an image.
            NAMING = 68 "@naming" "naming" pairs Naming(Naming) "key=value ..."
            /// `C`: the code around a frame.
            CODE = 69 "C" "code" fields Code(Code) {
                frame: Id, offset: Offset, arch: ByteString, bytes: HexBytes, rows: Rows,
                callees: Rows
            }
        }
    };
}
pub(crate) use with_kinds;

macro_rules! field_name {
    // The members share one field.
    (FrameFlags $($member:ident)+) => {
        "flags"
    };
    ($format:ident $member:ident) => {
        stringify!($member)
    };
}

macro_rules! field_names {
    ($names:literal) => {
        $names
    };
    ({ $($first:ident)|+ : $format:ident $(, $($member:ident)|+ : $formats:ident)* }) => {
        concat!(
            field_name!($format $($first)+)
            $(, " ", field_name!($formats $($member)+))*
        )
    };
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        $(
            #[doc = concat!("The number of the kind \"", $name, "\".")]
            pub const $constant: u8 = $number;
        )*

        /// The kinds that this version knows, by number.
        pub const KINDS: &[Kind] = &[
            $(Kind { number: $number, word: $word, name: $name, fields: field_names!($fields) },)*
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
