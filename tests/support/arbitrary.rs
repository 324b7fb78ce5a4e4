//! Generates arbitrary records of every kind, from the tables of the library: a new kind needs no
//! entry here.

use nprof_stream::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;

/// A type with arbitrary values.
trait Generate: Sized {
    fn values() -> BoxedStrategy<Self>;
}

fn bytes() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..12),
        "[a-z/;,<&\"\t\n\r\u{1b}\u{9b}\\\\ -]{0,12}".prop_map(String::into_bytes),
    ]
    .boxed()
}

/// Generates ids: mostly small ones as in real streams, some up to the limit.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1..40u32, 1 => 1..=limits::ID]
}

fn id_or_none() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0u32), 8 => id()]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..2_000_000u64, 1 => any::<u64>()]
}

fn cpu() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..4u32, 1 => Just(NO_CPU)]
}

/// Generates extras, mostly none. Records borrow them: their bytes are leaked, a few MiB in a test.
fn extras() -> impl Strategy<Value = Extras<'static>> {
    prop_oneof![
        3 => Just(Extras::NONE),
        1 => bytes().prop_map(|note| {
            Box::leak(Box::new(ExtrasBuilder::new())).add("note", &note).extras()
        }),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    (id_or_none(), id_or_none(), any::<u32>(), any::<u32>()).prop_map(
        |(function, file, line, column)| Line {
            function: FunctionId(function),
            file: FileId(file),
            line,
            column,
        },
    )
}

/// The formats of fields, under the names that they have in the table of kinds.
mod formats {
    use super::*;

    /// A format with arbitrary values of type `T`.
    pub(super) trait Format<T> {
        fn values() -> BoxedStrategy<T>;
    }

    pub(super) struct Id;
    impl<T: From<u32> + std::fmt::Debug + 'static> Format<T> for Id {
        fn values() -> BoxedStrategy<T> {
            id().prop_map(T::from).boxed()
        }
    }

    pub(super) struct IdOrNone;
    impl<T: From<u32> + std::fmt::Debug + 'static> Format<T> for IdOrNone {
        fn values() -> BoxedStrategy<T> {
            id_or_none().prop_map(T::from).boxed()
        }
    }

    pub(super) struct Number;
    impl Format<u32> for Number {
        fn values() -> BoxedStrategy<u32> {
            any::<u32>().boxed()
        }
    }
    impl Format<u64> for Number {
        fn values() -> BoxedStrategy<u64> {
            number().boxed()
        }
    }

    pub(super) struct Offset;
    impl Format<u64> for Offset {
        fn values() -> BoxedStrategy<u64> {
            number().boxed()
        }
    }

    pub(super) struct Time;
    impl Format<u64> for Time {
        fn values() -> BoxedStrategy<u64> {
            number().boxed()
        }
    }

    pub(super) struct Cpu;
    impl Format<u32> for Cpu {
        fn values() -> BoxedStrategy<u32> {
            cpu().boxed()
        }
    }

    pub(super) struct ByteString;
    impl Format<&'static [u8]> for ByteString {
        fn values() -> BoxedStrategy<&'static [u8]> {
            bytes().prop_map(|bytes| &*bytes.leak()).boxed()
        }
    }

    pub(super) struct BuildId;
    impl Format<&'static [u8]> for BuildId {
        fn values() -> BoxedStrategy<&'static [u8]> {
            vec(any::<u8>(), 0..21).prop_map(|bytes| &*bytes.leak()).boxed()
        }
    }

    pub(super) struct HexBytes;
    impl Format<&'static [u8]> for HexBytes {
        fn values() -> BoxedStrategy<&'static [u8]> {
            BuildId::values()
        }
    }

    pub(super) struct Rows;
    impl Format<CodeRows<'static>> for Rows {
        fn values() -> BoxedStrategy<CodeRows<'static>> {
            let row = (0..90_u32, line()).prop_map(|(offset, line)| CodeRow { offset, line });
            vec(row, 0..6)
                .prop_map(|mut rows| {
                    rows.sort_by_key(|row| row.offset);
                    let mut encoded = Vec::new();
                    CodeRows::encode(&rows, &mut encoded);
                    CodeRows::from_encoded(encoded.leak()).expect("they were encoded just now")
                })
                .boxed()
        }
    }

    pub(super) struct Enumeration;
    impl<T: From<u8> + std::fmt::Debug + 'static> Format<T> for Enumeration {
        fn values() -> BoxedStrategy<T> {
            any::<u8>().prop_map(T::from).boxed()
        }
    }

    pub(super) struct FrameFlags;
    impl Format<(bool, bool, Mark)> for FrameFlags {
        fn values() -> BoxedStrategy<(bool, bool, Mark)> {
            (any::<bool>(), any::<bool>(), Enumeration::values()).boxed()
        }
    }
}

impl Generate for Sample<'static> {
    fn values() -> BoxedStrategy<Self> {
        let ids = (id_or_none(), id_or_none(), id_or_none());
        (ids, cpu(), number(), number(), number(), extras())
            .prop_map(|((event, task, node), cpu, time, weight, count, extras)| Sample {
                time,
                event: EventId(event),
                task: TaskId(task),
                cpu,
                node: NodeId(node),
                weight,
                count,
                extras,
            })
            .boxed()
    }
}

impl Generate for Nodes<'static> {
    fn values() -> BoxedStrategy<Self> {
        (1..=limits::ID - 70, id_or_none(), vec(id().prop_map(FrameId), 1..60))
            .prop_map(|(first, parent, frames)| Nodes {
                first: NodeId(first),
                parent: NodeId(parent.min(first - 1)),
                frames: frames.leak(),
            })
            .boxed()
    }
}

impl Generate for Location<'static> {
    fn values() -> BoxedStrategy<Self> {
        (id(), any::<u8>(), vec(line(), 0..4), extras())
            .prop_map(|(frame, status, lines, extras)| Location {
                frame: FrameId(frame),
                status: Status::from_number(status),
                lines: lines.leak(),
                extras,
            })
            .boxed()
    }
}

impl Generate for u64 {
    fn values() -> BoxedStrategy<Self> {
        number().boxed()
    }
}

impl Generate for Option<u64> {
    fn values() -> BoxedStrategy<Self> {
        proptest::option::of(number()).boxed()
    }
}

impl Generate for Vec<u8> {
    fn values() -> BoxedStrategy<Self> {
        bytes()
    }
}

impl Generate for EventId {
    fn values() -> BoxedStrategy<Self> {
        id().prop_map(Self).boxed()
    }
}

impl Generate for RunId {
    fn values() -> BoxedStrategy<Self> {
        any::<u64>().prop_map(Self).boxed()
    }
}

impl Generate for Measure {
    fn values() -> BoxedStrategy<Self> {
        let known: Vec<Self> = Self::all().collect();
        prop_oneof![
            proptest::sample::select(known),
            bytes().prop_map(|word| if word.is_empty() {
                Self::Count
            } else {
                Self::from_word(&word)
            }),
        ]
        .boxed()
    }
}

impl Generate for RunEnd {
    fn values() -> BoxedStrategy<Self> {
        (RunId::values(), End::values()).prop_map(|(run, end)| Self { run, end }).boxed()
    }
}

/// Implements [`Generate`] for records of pairs.
macro_rules! pairs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        impl Generate for $name {
            fn values() -> BoxedStrategy<Self> {
                // One field after the other: tuples of strategies have at most twelve.
                let record = Just(Self::default()).boxed();
                $(let record = (record, <$type>::values())
                    .prop_map(|(record, $field)| Self { $field, ..record })
                    .boxed();)*
                (record, proptest::option::of(bytes()))
                    .prop_map(|(record, later)| {
                        let more = later.map(|value| ("later".to_owned(), value));
                        Self { more: more.into_iter().collect(), ..record }
                    })
                    .boxed()
            }
        }
    )*};
}

with_pairs!(pairs);

/// Implements [`Generate`] for records of fields.
macro_rules! fields {
    (fields $type:ident { $($($member:ident)|+ : $format:ident),+ }) => {
        impl Generate for $type<'static> {
            fn values() -> BoxedStrategy<Self> {
                use formats::Format;
                // Parentheses make a tuple of several members, and are not needed around one.
                #[allow(unused_parens)]
                ($(formats::$format::values(),)+ extras())
                    .prop_map(|($(($($member),+),)+ extras)| Self { $($($member,)+)+ extras })
                    .boxed()
            }
        }
    };
    ($encoding:ident $type:ident $fields:tt) => {};
}

macro_rules! content {
    (pairs $type:ident) => {
        <$type>::values().prop_map(Box::new)
    };
    ($encoding:ident $type:ident) => {
        <$type<'static>>::values()
    };
}

macro_rules! records {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        $(fields!($encoding $type $fields);)*

        /// Returns a generator for each kind that may be anywhere in a segment, with its number.
        fn kinds() -> Vec<(u8, BoxedStrategy<Record<'static>>)> {
            let kinds = vec![
                $((kind::$constant, content!($encoding $type).prop_map(Record::$variant).boxed()),)*
            ];
            // These begin and end a segment.
            kinds.into_iter().filter(|(kind, _)| ![kind::HEAD, kind::END].contains(kind)).collect()
        }
    };
}

with_kinds!(records);

/// Generates the numbers of optional kinds that this version does not know.
pub fn unknown_kind() -> impl Strategy<Value = u8> {
    let kinds = kind::FIRST_OPTIONAL..=kind::LAST;
    let unknown = kinds.filter(|&number| kind::KINDS.iter().all(|kind| kind.number != number));
    proptest::sample::select(unknown.collect::<Vec<u8>>())
}

/// Generates records that may be anywhere in a segment, with frequencies close to those of real
/// streams.
pub fn record() -> impl Strategy<Value = Record<'static>> {
    let unknown = (unknown_kind(), bytes())
        .prop_map(|(kind, body)| Record::Unknown(Unknown { kind, body: body.leak() }));
    let weight = |kind| match kind {
        kind::SAMPLE => 12,
        kind::NODES | kind::FRAME => 3,
        _ => 1,
    };
    let known = kinds().into_iter().map(|(kind, records)| (weight(kind), records));
    Union::new_weighted(known.chain([(1, unknown.boxed())]).collect())
}
