//! Laws of the filter, for any stream.

use nprof_stream::{Encoding, Reader, Step, Validator, Verdict, Writer};
use nprof_tests::segment::{Reading, read, segment, write};
use proptest::collection::vec;
use proptest::prelude::*;

use super::error::Error;
use super::filter::Filter;
use crate::charge::Limits;

const LIMITS: Limits = Limits { depth: 8, window_ns: 500, activities: 100 };

/// Filters a stream. The output up to an error is returned with it.
fn filter(stream: &[u8], encoding: Encoding) -> (Vec<u8>, Option<Error>) {
    let mut output = Vec::new();
    let step = Step { tool: b"nprof-blame".into(), ..Step::default() };
    let mut filter = Filter::new(Writer::new(&mut output, encoding), step, LIMITS);
    let mut reader = Reader::new(stream);
    let mut copy = || {
        while let Some(record) = reader.next().expect("the stream was just written") {
            filter.process(&record)?;
        }
        filter.flush()
    };
    let error = copy().err();
    if error.is_some() {
        filter.flush().expect("memory can be written");
        return (output, error);
    }
    let error = filter.finish().err();
    (output, error)
}

/// Returns the sums of weights and counts of an event in lines of text.
fn sums(lines: &[String], event: &str) -> (u64, u64) {
    let samples = lines.iter().filter(|line| line.starts_with("S\t"));
    let fields = samples.map(|line| line.split('\t').collect::<Vec<_>>());
    fields.filter(|fields| fields[2] == event).fold((0, 0), |sum, fields| {
        let number = |field: usize| fields[field].parse::<u64>().expect("a number");
        (sum.0 + number(6), sum.1 + number(7))
    })
}

/// Asserts that `output` has the lines of `input` in their order, except the ends.
fn assert_keeps(output: &Reading, input: &Reading) -> Result<(), TestCaseError> {
    let mut copies = output.lines.iter();
    for line in input.lines.iter().filter(|line| !line.starts_with("@end")) {
        prop_assert!(copies.any(|copy| copy == line), "{} is missing", line);
    }
    Ok(())
}

/// Generates the body of a segment: definitions, then samples of all roles and epochs in any order.
fn body() -> impl Strategy<Value = String> {
    let definitions = "@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
        @event\tid=2\tname=blocked\tunit=ns\tmeasure=wait-time\n\
        @event\tid=3\tname=runnable\tunit=ns\tmeasure=wait-time\n\
        @event\tid=4\tname=wakes\tunit=ns\tmeasure=wait-time\n\
        I\t1\telf\t-\ta\nF\t1\t1\t0x1\tu\nF\t2\t0\t0x0\tu,max-depth\nN\t1\t0\t1\t1\nN\t3\t0\t2\t1\n\
        T\t1\t0\t1\t1\t0\ta\nT\t2\t0\t1\t2\t1\tb\nT\t3\t0\t3\t3\t0\tc\n";
    let sample = (0..1000u64, 1..5u32, 0..4u32, 0..5u32, 0..500u64, 0..9u64, 0..400u64, 0..20u64);
    vec(prop_oneof![30 => sample.prop_map(Some), 1 => Just(None)], 0..60).prop_map(move |items| {
        let mut body = definitions.to_owned();
        for (number, item) in items.into_iter().enumerate() {
            match item {
                Some((time, event, task, node, weight, count, lasted, pair)) => {
                    let pair = if pair < 4 { String::new() } else { format!("\tpair={pair}") };
                    let time = 10 * number as u64 + time / 50;
                    body += &format!(
                        "S\t{time}\t{event}\t{task}\t0\t{node}\t{weight}\t{count}\tlasted={lasted}{pair}\n"
                    );
                }
                None => body += &format!("@epoch\tnumber={number}\n{definitions}"),
            }
        }
        body
    })
}

proptest! {
    #[test]
    fn output_is_the_input_with_charges(body in body()) {
        let counted = |kinds: &[&str]| {
            body.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind))).count()
        };
        let samples = counted(&["S\t"]);
        let records = body.lines().count();
        // The disorder of arbitrary samples is declared, so that only that of charges is found.
        let stream = format!(
            "@nprof\t1.1\trun=0x1\n{body}@end\tsamples={samples}\trecords={records}\tlost=0\tlate={samples}\n"
        );
        let input = read(stream.as_bytes()).expect("a stream");
        prop_assert_eq!(input.verdict, Verdict::Complete);
        let (binary, error) = filter(stream.as_bytes(), Encoding::Binary);
        prop_assert!(error.is_none(), "{:?}", error);
        let output = read(&binary).expect("a stream");
        prop_assert_eq!(output.verdict, Verdict::Complete);
        assert_keeps(&output, &input)?;
        prop_assert_eq!(sums(&output.lines, "33554433"), sums(&input.lines, "2"));
        let mut order = Validator::new();
        let mut reader = Reader::new(&binary[..]);
        while let Some(record) = reader.next().expect("a stream") {
            order.take(&record);
        }
        prop_assert_eq!((order.undefined, order.disorder), (0, 0));
        // The filter is deterministic, and the same in both encodings.
        let (text, _) = filter(&binary_of(&stream), Encoding::Text);
        prop_assert_eq!(read(&text).expect("a stream").lines, output.lines);
    }

    #[test]
    fn any_stream_is_copied(segment in segment()) {
        let stream = write(&segment, Encoding::Binary);
        let input = read(&stream).expect("a stream");
        let (output, error) = filter(&stream, Encoding::Binary);
        match error {
            Some(Error::NoWaits) => {
                let output = read(&output).expect("a stream");
                prop_assert_eq!(output.verdict, input.verdict);
                assert_keeps(&output, &input)?;
            }
            None | Some(Error::NoWakes | Error::Blamed | Error::Ids { .. }) => {}
            Some(Error::Write(error)) => prop_assert!(false, "{}", error),
        }
    }
}

fn binary_of(text: &str) -> Vec<u8> {
    nprof_tests::segment::reencode(text.as_bytes(), Encoding::Binary)
}
