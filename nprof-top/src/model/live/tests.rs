//! The sums of a live stream.

use super::*;
use nprof_report::rows::flat::FlatRow;
use nprof_tests::{any_stream, stream, waits};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// Returns a model of a stream, which is asked for a table after each record that `asks` selects.
fn live(stream: &[u8], asks: impl Fn(u64) -> bool) -> Live {
    let mut live = Live::new(5 * SECOND);
    live.begin("test");
    let mut reader = Reader::new(stream);
    while let Some(record) = reader.next().unwrap() {
        live.take(&record, 0);
        if asks(live.records()) {
            live.table(View::Functions, Span::Window, 0);
        }
    }
    live.end(&reader);
    live
}

/// Returns names, samples and weights of rows in each event, sorted.
type Row = (Vec<String>, Vec<(usize, u64, u64, u64, u64)>);

fn sorted(rows: Vec<FlatRow>) -> Vec<Row> {
    let row = |row: FlatRow| {
        let names = row.names.iter().map(ToString::to_string).collect();
        let tallies = row.tallies.into_iter().map(|(event, tally)| {
            let (own, total) = (tally.self_, tally.total);
            (event, own.samples, own.weight, total.samples, total.weight)
        });
        (names, tallies.collect())
    };
    let mut rows: Vec<Row> = rows.into_iter().map(row).collect();
    rows.sort();
    rows
}

/// Returns the rows of nprof-flat with the keys of a view.
fn flat_rows(stream: &[u8], view: View) -> Vec<Row> {
    let mut flat = view.flat();
    let mut profile = Profile::new(flat.group_by());
    profile
        .read("test", stream, |context, key, sum| {
            let event = &context.summary.events[key.event].event;
            if view.shows(&event.measure) {
                flat.add(context, key, sum);
            }
        })
        .unwrap();
    sorted(flat.rows(true))
}

fn rows_of(live: &mut Live, view: View, span: Span) -> Vec<Row> {
    sorted(live.table(view, span, 0).rows)
}

#[test]
fn waits_have_the_rows_of_nprof_flat() {
    let stream = waits();
    let mut live = live(&stream, |record| record % 3 == 0);
    for view in View::ALL {
        let rows = flat_rows(&stream, view);
        assert!(!rows.is_empty());
        assert_eq!(rows_of(&mut live, view, Span::SinceStart), rows, "{view:?}");
        assert_eq!(rows_of(&mut live, view, Span::Window), rows, "{view:?}");
    }
    let waits = rows_of(&mut live, View::Waits, Span::SinceStart);
    let causes: Vec<&str> = waits.iter().map(|(names, _)| &names[0][..]).collect();
    assert_eq!(causes, ["epoll_wait", "futex", "futex", "preempted"]);
}

/// The stream of a thread with a sample of 1 ms at each of these times, in its functions `a` and `b` in turn.
fn samples_at(times: &[u64]) -> Vec<u8> {
    let mut body = "I | 1 | elf | - | /bin/prog\nF | 1 | 1 | 0x10 | u\nF | 2 | 1 | 0x20 | u\n\
                    U | 1 | a | -\nU | 2 | b | -\nY | 1 | named | 1,0,0,0\nY | 2 | named | 2,0,0,0\n\
                    N | 1 | 0 | 1\nN | 2 | 0 | 2\nT | 1 | 0 | 10 | 10 | 0 | main\n"
        .to_owned();
    for (index, time) in times.iter().enumerate() {
        body += &format!("S | {time} | 1 | 1 | 0 | {} | 1000000 | 1\n", index % 2 + 1);
    }
    let stream = String::from_utf8(stream(&body)).unwrap();
    stream.replace("run=0x1\t", "run=0x1\ttime=0\t").into_bytes()
}

#[test]
fn window_has_the_last_seconds_and_start_has_all() {
    let times: Vec<u64> = (0..200).map(|tenth| tenth * SECOND / 10).collect();
    let mut live = live(&samples_at(&times), |_| false);
    let table = live.table(View::Functions, Span::Window, 0);
    // At 19.9 s slices of half a second, from 14.5 s on.
    assert_eq!((table.whole(0).samples, table.length_ns), (55, 5_400_000_000));
    let table = live.table(View::Functions, Span::SinceStart, 0);
    assert_eq!((table.whole(0).samples, table.length_ns), (200, 19_900_000_000));
    // No sample arrives for a minute.
    let table = live.table(View::Functions, Span::Window, 80 * SECOND);
    assert_eq!((table.whole(0).samples, table.rows.len()), (0, 0));
    let table = live.table(View::Functions, Span::SinceStart, 80 * SECOND);
    assert_eq!((table.whole(0).samples, table.length_ns), (200, 97_900_000_000));
}

#[test]
fn ended_recording_keeps_its_last_window() {
    let mut live = live(&samples_at(&[SECOND, 2 * SECOND]), |_| false);
    live.finish();
    assert_eq!(live.table(View::Threads, Span::Window, 90 * SECOND).whole(0).samples, 2);
    assert!(!live.passes(Span::Window));
}

#[test]
fn new_segment_begins_a_window_and_keeps_the_sums() {
    let segment = samples_at(&[SECOND, 2 * SECOND, 3 * SECOND]);
    let mut live = live(&[&segment[..], &segment[..]].concat(), |record| record % 2 == 0);
    assert_eq!(live.table(View::Functions, Span::Window, 0).whole(0).samples, 3);
    let table = live.table(View::Functions, Span::SinceStart, 0);
    assert_eq!((table.whole(0).samples, table.length_ns, table.rows.len()), (6, 6 * SECOND, 2));
}

#[test]
fn epoch_begins_a_window_and_keeps_the_sums() {
    let text = String::from_utf8(samples_at(&[SECOND, 2 * SECOND])).unwrap();
    let definitions = text.split_once("unit=count\n").unwrap().1.split_once("S\t").unwrap().0;
    let event = "@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n";
    let epoch =
        format!("@epoch\tnumber=1\n{event}{definitions}S\t3000000000\t1\t1\t0\t2\t1000000\t1\n");
    let mut live = live(format!("{text}{epoch}").as_bytes(), |_| false);
    let table = live.table(View::Functions, Span::Window, 0);
    assert_eq!((table.whole(0).samples, table.length_ns), (1, SECOND));
    let samples = rows_of(&mut live, View::Functions, Span::SinceStart);
    let totals: Vec<u64> = samples.iter().map(|(_, tallies)| tallies[0].3).collect();
    assert_eq!(totals, [1, 2]);
}

#[test]
fn name_that_comes_after_its_samples_counts() {
    let text = String::from_utf8(samples_at(&[SECOND, 2 * SECOND])).unwrap();
    let (before, after) =
        (text.replace("Y\t", "#\t"), "Y\t1\tnamed\t1,0,0,0\nY\t2\tnamed\t2,0,0,0\n");
    let mut live = live(format!("{before}{after}").as_bytes(), |_| true);
    for span in [Span::Window, Span::SinceStart] {
        let rows = rows_of(&mut live, View::Functions, span);
        let names: Vec<&str> = rows.iter().map(|(names, _)| &names[0][..]).collect();
        assert_eq!(names, ["a", "b"]);
    }
}

#[test]
fn facts_name_command_events_and_problems() {
    let stream = String::from_utf8(samples_at(&[SECOND])).unwrap();
    let lost = "L\t1000000000\t1\t0\t0\t7\tring\n";
    let mut live = live(format!("{stream}{lost}").as_bytes(), |_| false);
    let facts = live.facts();
    assert_eq!((&facts.command[..], &facts.events[0].name[..]), ("prog", "cpu-clock"));
    assert!(facts.events[0].has_samples && !facts.events[1].has_samples);
    assert_eq!(facts.problems[0], "7 samples lost");
    assert!(facts.problems[1].contains("truncated"), "{:?}", facts.problems);
}

proptest! {
    #[test]
    fn sums_since_start_equal_those_of_nprof_flat(
        streams in prop::collection::vec(any_stream(), 1..3), every in 1..20u64,
    ) {
        let stream = streams.concat();
        let mut live = live(&stream, |record| record % every == 0);
        for view in View::ALL {
            let rows = flat_rows(&stream, view);
            prop_assert_eq!(rows_of(&mut live, view, Span::SinceStart), rows);
        }
        // The times of these samples are equal, so that the window has the whole last stream.
        for view in View::ALL {
            let rows = flat_rows(streams.last().unwrap(), view);
            prop_assert_eq!(rows_of(&mut live, view, Span::Window), rows);
        }
    }
}
