//! The laws of the stream (ARCHITECTURE.md) as properties of arbitrary streams: round trip, prefix,
//! flip, cat, strip, future, order, verdict. The law of bound needs an endless stream and whole
//! tools: see tests/memory_bound.rs.

use nprof_stream::{
    Encoding, EventId, Extras, NodeId, Passthrough, Reader, Record, Sample, TaskId, Verdict, Writer,
};
use nprof_tests::arbitrary::unknown_kind;
use nprof_tests::segment::{
    Item, Segment, damages, read, read_from, reencode, segment, undefined, write,
};
use proptest::prelude::*;

/// Returns the stream that a filter writes which decodes and encodes every record up to an error, and
/// the verdict of its reader.
fn copied(stream: &[u8], encoding: Encoding) -> (Vec<u8>, Verdict, u64) {
    let (mut reader, mut writer) = (Reader::new(stream), Writer::new(Vec::new(), encoding));
    while let Ok(Some(record)) = reader.next() {
        writer.write(&record).expect("writing to memory");
    }
    (writer.finish().expect("writing to memory"), reader.verdict(), reader.damage_count())
}

/// Returns the same from a filter that forwards raw records where it can, and answers randomly where
/// it may choose.
fn passed(stream: &[u8], encoding: Encoding) -> (Vec<u8>, Verdict, u64) {
    let (mut reader, mut writer) = (Reader::new(stream), Writer::new(Vec::new(), encoding));
    let mut says = [
        Passthrough::Forward,
        Passthrough::ForwardAlone,
        Passthrough::Forward,
        Passthrough::Forward,
        Passthrough::Drop,
    ]
    .into_iter()
    .cycle();
    while let Ok(Some(record)) = reader.next() {
        writer.write(&record).expect("writing to memory");
        let select = |_: &Record<'_>| says.next().unwrap_or(Passthrough::Drop);
        writer.copy_plain(&mut reader, Passthrough::Forward, select).expect("writing to memory");
    }
    (writer.finish().expect("writing to memory"), reader.verdict(), reader.damage_count())
}

/// A reader that returns one byte at a time, like a slow pipe.
struct Trickle<'a>(&'a [u8]);

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Some((&first, rest)) = self.0.split_first() else {
            return Ok(0);
        };
        buffer[0] = first;
        self.0 = rest;
        Ok(1)
    }
}

fn expected(segment: &Segment) -> Verdict {
    if segment.ended { Verdict::Complete } else { Verdict::Truncated }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn round_trip(segment in segment()) {
        let binary = write(&segment, Encoding::Binary);
        let text = reencode(&binary, Encoding::Text);
        let direct = write(&segment, Encoding::Text);
        prop_assert_eq!(String::from_utf8_lossy(&text), String::from_utf8_lossy(&direct));
        let again = reencode(&reencode(&text, Encoding::Binary), Encoding::Text);
        prop_assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&text));
        prop_assert_eq!(read(&binary), read(&text));
    }

    #[test]
    fn verdict(segment in segment()) {
        for encoding in [Encoding::Binary, Encoding::Text] {
            let reading = read(&write(&segment, encoding)).unwrap();
            prop_assert_eq!(reading.verdict, expected(&segment));
        }
    }

    #[test]
    fn prefix(segment in segment(), at in any::<prop::sample::Index>()) {
        for encoding in [Encoding::Binary, Encoding::Text] {
            let stream = write(&segment, encoding);
            let whole = read(&stream).unwrap();
            let cut = 1 + at.index(stream.len() - 1);
            let part = read(&stream[..cut]).unwrap();
            prop_assert_eq!(part.verdict, Verdict::Truncated, "{:?} cut at {}: {:?}", encoding, cut, damages(&stream[..cut]));
            prop_assert_eq!(&part.lines[..], &whole.lines[..part.lines.len()]);
        }
    }

    #[test]
    fn nothing_before_the_cut_is_lost(segment in segment(), at in any::<prop::sample::Index>()) {
        let stream = write(&segment, Encoding::Text);
        let cut = 1 + at.index(stream.len() - 1);
        let lines = stream[..cut].iter().filter(|&&byte| byte == b'\n').count();
        prop_assert_eq!(read(&stream[..cut]).unwrap().lines.len(), lines);
    }

    #[test]
    fn flip(segment in segment(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let stream = write(&segment, Encoding::Binary);
        let at = at.index(stream.len());
        let mut flipped = stream.clone();
        flipped[at] ^= 1 << bit;
        let whole = read(&stream).unwrap();
        // Every block begins with the magic; the flipped one ends where the next begins.
        let mut starts: Vec<usize> = blocks(&stream);
        starts.push(stream.len());
        let block = starts.partition_point(|&start| start <= at) - 1;
        let Ok(reading) = read(&flipped) else {
            // Without its first block the input is not recognized as a stream.
            prop_assert_eq!(block, 0);
            return Ok(());
        };
        prop_assert_ne!(reading.verdict, Verdict::Complete);
        let before = read(&stream[..starts[block]]).map_or(0, |reading| reading.lines.len());
        let upto = read(&stream[..starts[block + 1]]).unwrap().lines.len();
        let mut rest = whole.lines[..before].to_vec();
        rest.extend_from_slice(&whole.lines[upto..]);
        prop_assert_eq!(reading.lines, rest, "block {} of {}", block, starts.len() - 1);
    }

    #[test]
    fn a_flip_in_text_is_found(segment in segment(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        // A stream without its end is never complete, flipped or not.
        prop_assume!(segment.ended);
        let stream = write(&segment, Encoding::Text);
        let mut flipped = stream.clone();
        flipped[at.index(stream.len())] ^= 1 << bit;
        if let Ok(reading) = read(&flipped) {
            prop_assert_ne!(reading.verdict, Verdict::Complete);
        }
    }

    #[test]
    fn cat(a in segment(), b in segment(), encodings in any::<(bool, bool)>()) {
        let encoding = |binary| if binary { Encoding::Binary } else { Encoding::Text };
        let (one, two) = (write(&a, encoding(encodings.0)), write(&b, encoding(encodings.1)));
        let both = read(&[&one[..], &two[..]].concat()).unwrap();
        let (one, two) = (read(&one).unwrap(), read(&two).unwrap());
        prop_assert_eq!(both.lines, [one.lines, two.lines].concat());
        prop_assert_eq!(both.verdict, one.verdict.max(two.verdict));
        prop_assert_eq!(both.samples, one.samples + two.samples);
    }

    #[test]
    fn cat_of_a_prefix(
        a in segment(), b in segment(), encodings in any::<(bool, bool)>(), first in 1..40usize,
    ) {
        let encoding = |binary| if binary { Encoding::Binary } else { Encoding::Text };
        let (one, two) = (write(&a, encoding(encodings.0)), write(&b, encoding(encodings.1)));
        let whole = read(&two).unwrap();
        for cut in (first..one.len()).step_by(40) {
            if completes_a_block(&one, cut, &two) {
                continue;
            }
            let prefix = read(&one[..cut]).unwrap();
            let stream = [&one[..cut], &two[..]].concat();
            let both = read(&stream).unwrap();
            prop_assert_eq!(both.lines, [prefix.lines, whole.lines.clone()].concat(), "cut at {}", cut);
            let damages = damages(&stream);
            prop_assert_eq!(both.verdict, Verdict::Truncated, "cut at {}: {:?}", cut, damages);
        }
    }

    #[test]
    fn passing_on_is_reading_and_writing(
        segment in segment(), at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let whole = write(&segment, Encoding::Binary);
        let text = write(&segment, Encoding::Text);
        let cut = whole[..1 + at.index(whole.len())].to_vec();
        let twice = [&whole[..], &text[..], &cut, &whole].concat();
        let mut flipped = twice.clone();
        flipped[at.index(twice.len())] ^= 1 << bit;
        for stream in [whole, text, cut, twice, flipped] {
            for encoding in [Encoding::Binary, Encoding::Text] {
                prop_assert_eq!(passed(&stream, encoding), copied(&stream, encoding));
            }
        }
    }

    #[test]
    fn how_the_bytes_arrive_does_not_matter(segment in segment()) {
        for encoding in [Encoding::Binary, Encoding::Text] {
            let stream = write(&segment, encoding);
            prop_assert_eq!(read(&stream), read_from(Trickle(&stream)));
        }
    }

    #[test]
    fn how_the_bytes_of_a_cut_stream_arrive_does_not_matter(
        a in segment(), b in segment(), binary in any::<bool>(), at in any::<prop::sample::Index>(),
    ) {
        let one = write(&a, Encoding::Binary);
        let two = write(&b, if binary { Encoding::Binary } else { Encoding::Text });
        let stream = [&one[..1 + at.index(one.len())], &two[..]].concat();
        prop_assert_eq!(read(&stream), read_from(Trickle(&stream)));
    }

    #[test]
    fn future(segment in segment(), kind in unknown_kind(), body in prop::collection::vec(any::<u8>(), 0..40)) {
        // A record of a later version, with its number or as a line, survives both encodings
        // unchanged, in its place.
        let mut later = segment.clone();
        let middle = later.items.len() / 2;
        later.items.insert(middle, Item::unknown(kind, &body));
        for encoding in [Encoding::Binary, Encoding::Text] {
            let stream = reencode(&reencode(&write(&later, Encoding::Binary), encoding), Encoding::Binary);
            let mut reader = Reader::new(&stream[..]);
            let mut found = 0;
            while let Some(record) = reader.next().unwrap() {
                if let Record::Unknown(unknown) = record {
                    found += usize::from((unknown.kind, unknown.body) == (kind, &body[..]));
                }
            }
            let same = Item::unknown(kind, &body);
            prop_assert_eq!(found, later.items.iter().filter(|&item| *item == same).count());
        }
        // One that must be known is refused by name.
        later.items[middle] = Item::unknown(12 + kind % 20, &body);
        let message = read(&write(&later, Encoding::Binary)).unwrap_err();
        let name = format!("a record of kind {}", 12 + kind % 20);
        prop_assert!(message.contains(&name), "{}", message);
    }

    #[test]
    fn order(stacks in prop::collection::vec((1..9u32, 1..9u32, any::<bool>()), 1..60), lost in any::<prop::sample::Index>()) {
        // Every stack is defined right before its first sample, and again in each epoch.
        let mut lines = vec!["@nprof\t1.1\trun=0x1".to_owned()];
        let mut known = std::collections::BTreeSet::new();
        for (time, (frame, task, epoch)) in stacks.into_iter().enumerate() {
            if epoch {
                known.clear();
                lines.push(format!("@epoch\tnumber={time}"));
            }
            for line in [
                "@event\tid=1".to_owned(),
                format!("T\t{task}\t{time}\t1\t1\t0\ta"),
                "I\t1\telf\t-\ta".to_owned(),
                format!("F\t{frame}\t1\t0x1\tu"),
                format!("N\t{frame}\t0\t{frame}"),
            ] {
                let mut words = line.split('\t');
                if known.insert((words.next().map(str::to_owned), words.next().map(str::to_owned))) {
                    lines.push(line);
                }
            }
            lines.push(format!("S\t{time}\t1\t{task}\t0\t{frame}\t1\t1"));
        }
        prop_assert_eq!(undefined(&lines), 0);
        // Without any one of the definitions, some reference is undefined.
        let definitions: Vec<usize> =
            (0..lines.len()).filter(|&at| lines[at].starts_with(['T', 'I', 'F', 'N']) || lines[at].starts_with("@event")).collect();
        lines.remove(definitions[lost.index(definitions.len())]);
        prop_assert!(undefined(&lines) > 0);
    }

    #[test]
    fn strip(segment in segment()) {
        // Annotations are not counted: without them the stream is complete as well.
        let stream = write(&segment, Encoding::Binary);
        let mut reader = Reader::new(&stream[..]);
        let mut writer = Writer::new(Vec::new(), Encoding::Binary);
        while let Some(record) = reader.next().unwrap() {
            if !record.is_annotation() {
                writer.write(&record).unwrap();
            }
        }
        let stripped = read(&writer.finish().unwrap()).unwrap();
        prop_assert_eq!(stripped.verdict, expected(&segment));
        let mut bare = segment.clone();
        bare.items.retain(|item| !matches!(item, Item::Record(record) if record.is_annotation()));
        prop_assert_eq!(stripped.lines, read(&write(&bare, Encoding::Binary)).unwrap().lines);
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600), text in any::<bool>()) {
        let start: &[u8] = if text { b"@nprof\t1.1\n" } else { b"" };
        let _ = read(&[start, &bytes[..]].concat());
    }

    #[test]
    fn a_changed_stream_never_panics(
        segment in segment(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        text in any::<bool>(),
    ) {
        let mut stream = write(&segment, if text { Encoding::Text } else { Encoding::Binary });
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        if let Ok(reading) = read(&stream) {
            // A stream that was read can be written and read again.
            let again = read(reading.lines.iter().map(|l| format!("{l}\n")).collect::<String>().as_bytes());
            if reading.lines.first().is_some_and(|line| line.starts_with("@nprof")) {
                prop_assert_eq!(again.unwrap().lines, reading.lines);
            }
        }
    }
}

/// Returns the offsets of the blocks of a stream.
#[allow(clippy::unwrap_used)]
fn blocks(stream: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        starts.push(at);
        let length = u32::from_le_bytes(stream[at + 12..at + 16].try_into().unwrap());
        at += 48 + length as usize + 4;
    }
    starts
}

/// True if a cut is right before the end of a block, and the appended bytes begin with the byte that
/// was cut off.
fn completes_a_block(stream: &[u8], cut: usize, joined: &[u8]) -> bool {
    let is_binary = stream.starts_with(b"\x89NPF");
    is_binary && stream[cut] == joined[0] && {
        let mut ends = blocks(stream).into_iter().skip(1).chain([stream.len()]);
        ends.any(|end| cut + 1 == end)
    }
}

#[test]
fn an_unknown_required_kind_is_refused_by_name() {
    let mut stream = write(&Segment { run: 1, items: Vec::new(), ended: false }, Encoding::Binary);
    stream.extend_from_slice(&write(
        &Segment { run: 1, items: vec![Item::unknown(63, &[1, 2])], ended: true },
        Encoding::Binary,
    ));
    let message = read(&stream).unwrap_err();
    assert!(message.contains("a record of kind 63"), "{message}");
    assert!(message.contains("use a newer nprof"), "{message}");
}

#[test]
fn what_is_no_stream_is_told_with_a_hint() {
    for (start, hint) in [
        (&b""[..], "empty"),
        (b"\x1f\x8b\x08", "zcat"),
        (b"\x28\xb5\x2f\xfd", "zstdcat"),
        (b"PERFILE2", "perf.data"),
        (b"\x7fELF", "nprof-record"),
        (b"\x89NPF\n\x1a\n", "line ends"),
        (b"hello\n", "not an nprof stream"),
    ] {
        let message = read(start).unwrap_err();
        assert!(message.contains(hint), "{start:?}: {message}");
    }
}

#[test]
fn another_major_version_is_refused_by_name() {
    let message = read(b"@nprof\t9.4\trun=0x1\n").unwrap_err();
    assert!(message.contains("9.4"), "{message}");
}

#[test]
fn an_optional_line_of_a_later_version_passes_through_both_spellings() {
    let text = b"@nprof\t1.7\trun=0x1\tclock=monotonic\nwaker\t12\tx=1\n@end\tsamples=0\trecords=0\tlost=0\n";
    let binary = reencode(text, Encoding::Binary);
    let back = String::from_utf8(reencode(&binary, Encoding::Text)).unwrap();
    assert!(back.contains("\nwaker\t12\tx=1\n"), "{back}");
    assert_eq!(read(&binary).unwrap().verdict, Verdict::Complete);
}

#[test]
fn an_edited_text_is_not_complete() {
    let sample = |time| {
        let (event, task, node, extras) = (EventId(1), TaskId(1), NodeId(1), Extras::NONE);
        let sample = Sample { time, event, task, cpu: 0, node, weight: 10, count: 1, extras };
        Item::Record(Record::Sample(sample))
    };
    let segment = Segment { run: 7, items: vec![sample(5), sample(6)], ended: true };
    let text = write(&segment, Encoding::Text);
    let text = String::from_utf8(text).unwrap();
    let fewer: String =
        text.lines().filter(|line| !line.starts_with("S\t6")).map(|l| format!("{l}\n")).collect();
    assert_eq!(read(fewer.as_bytes()).unwrap().verdict, Verdict::Damaged);
}

#[test]
fn a_long_string_is_cut_and_still_read() {
    let name = vec![b'x'; 100_000];
    let mut writer = Writer::new(Vec::new(), Encoding::Binary);
    let function = nprof_stream::Function {
        id: nprof_stream::FunctionId(1),
        name: &name,
        linkage: b"",
        extras: nprof_stream::Extras::NONE,
    };
    writer.write(&Record::Head(Box::default())).unwrap();
    writer.write(&Record::Function(function)).unwrap();
    let stream = writer.finish().unwrap();
    let mut reader = Reader::new(&stream[..]);
    reader.next().unwrap();
    match reader.next().unwrap() {
        Some(Record::Function(function)) => {
            assert_eq!(function.name.len(), nprof_stream::limits::STRING);
            assert!(function.name.ends_with(b"x..."));
        }
        other => panic!("{other:?}"),
    }
}
