//! The sums of rows.

use super::*;
use crate::profile::Profile;
use crate::profile::filter::Rule;
use crate::profile::key::By;
use crate::profile::summary::Summary;
use crate::rows::columns::columns;
use nprof_tests::{any_stream, stream};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn sums(streams: &[Vec<u8>], keys: &[&str], filter: Filter) -> (Flat, Summary) {
    sums_within(None, streams, keys, filter)
}

fn sums_within(
    budget: Option<Budget>,
    streams: &[Vec<u8>],
    keys: &[&str],
    filter: Filter,
) -> (Flat, Summary) {
    let by: Vec<By> = keys.iter().map(|key| key.parse().unwrap()).collect();
    let slice = by.iter().find_map(|by| by.slice);
    let time = TimeSplit { slice, span: None };
    let mut group_by = filter.group_by();
    let mut flat = Flat::new(columns(&by), time, filter);
    flat.budget = budget.unwrap_or(flat.budget);
    group_by.task |= flat.group_by().task;
    group_by.cpu |= flat.group_by().cpu;
    let mut profile = Profile::new(GroupBy { time, ..group_by });
    for stream in streams {
        profile.read("test", &stream[..], |c, group, s| flat.add(c, group, s)).unwrap();
    }
    (flat, profile.summary)
}

fn rows(flat: &Flat, kept: bool) -> Vec<FlatRow> {
    let mut rows = flat.rows(kept);
    rows.sort_by(|a, b| a.names.cmp(&b.names));
    rows
}

/// Returns `event names self_samples/total_samples`, by event and name.
fn kept_lines(streams: &[Vec<u8>], keys: &[&str]) -> Vec<String> {
    lines(streams, keys, &[], true)
}

fn lines(streams: &[Vec<u8>], keys: &[&str], matching: &[&str], kept: bool) -> Vec<String> {
    let rules: Vec<Rule> = matching.iter().map(|rule| rule.parse().unwrap()).collect();
    let (flat, summary) = sums(streams, keys, Filter::new(&rules, &[]));
    let mut lines = Vec::new();
    for event in 0..summary.events.len() {
        for row in rows(&flat, kept) {
            let (names, tally) = (row.names.join(" "), row.tally(event));
            if tally.total.samples > 0 {
                let (self_, total) = (tally.self_.samples, tally.total.samples);
                lines.push(format!("{event} {names} {self_}/{total}"));
            }
        }
    }
    lines
}

// Stacks by node: 1 main; 2 main, fib; 3 main, fib, fib; 4 main, fib, fib, fib with add inlined;
// 5 the mark of a truncated stack; 6 the mark, fib.
const PROGRAM: &str = "\
I | 1 | elf | - | /bin/prog
D | 1 | /src/p.c
U | 1 | main | -
U | 2 | fib | -
U | 3 | add | -
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x20 | u,ra
F | 3 | 1 | 0x28 | u
F | 4 | 0 | 0x0 | u,max-depth
Y | 1 | named | 1,1,10,0
Y | 2 | named | 2,1,20,0
Y | 3 | named | 3,1,30,0 | 2,1,21,0
N | 1 | 0 | 1 | 2 | 2 | 3
N | 5 | 0 | 4 | 2
T | 1 | 0 | 7 | 7 | 0 | sh
X | 1 | 1 | exec | prog
T | 2 | 0 | 7 | 8 | 1 | pool
";

#[test]
fn recursive_function_counts_once_and_inlined_calls_count() {
    let samples = "S | 1 | 1 | 1 | 0 | 4 | 10 | 3\nS | 2 | 1 | 1 | 0 | 2 | 10 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    assert_eq!(
        kept_lines(&streams, &["function"]),
        ["0 add prog 3/3", "0 fib prog 1/4", "0 main prog 0/4"]
    );
    assert_eq!(
        kept_lines(&streams, &["line"]),
        ["0 /src/p.c:10 0/4", "0 /src/p.c:20 1/4", "0 /src/p.c:21 0/3", "0 /src/p.c:30 3/3"]
    );
    assert_eq!(kept_lines(&streams, &["image"]), ["0 /bin/prog 4/4"]);
    assert_eq!(
        kept_lines(&streams, &["address"]),
        ["0 prog+0x10 0/4", "0 prog+0x20 1/4", "0 prog+0x28 3/3"]
    );
}

#[test]
fn missing_stacks_and_tasks_have_a_row() {
    let samples = "S | 1 | 1 | 9 | - | 6 | 1 | 1\nS | 1 | 1 | 0 | - | 0 | 1 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    assert_eq!(
        kept_lines(&streams, &["function"]),
        [
            "0 [incomplete:max-depth] [incomplete:max-depth] 0/1",
            "0 [no stack] [no stack] 1/1",
            "0 fib prog 1/1"
        ]
    );
    for key in ["thread", "process", "command", "cpu"] {
        assert_eq!(kept_lines(&streams, &[key]), ["0 [unknown] 2/2"]);
    }
}

#[test]
fn keys_of_samples_and_calls_combine() {
    let samples = "S | 1 | 1 | 2 | 3 | 1 | 1 | 1\nS | 1 | 1 | 1 | 0 | 1 | 1 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    assert_eq!(kept_lines(&streams, &["thread"]), ["0 7/7 prog 1/1", "0 7/8 pool 1/1"]);
    assert_eq!(kept_lines(&streams, &["process"]), ["0 7 prog 2/2"]);
    assert_eq!(
        kept_lines(&streams, &["cpu", "function", "command"]),
        ["0 0 main prog prog 1/1", "0 3 main prog pool 1/1"]
    );
    assert_eq!(kept_lines(&streams, &["event"]), ["0  2/2"]);
}

#[test]
fn merges_streams_by_name_and_separates_events() {
    let one = "S | 1 | 1 | 1 | 0 | 1 | 5 | 1\nS | 1 | 2 | 1 | 0 | 1 | 1 | 1\n";
    let other = "I | 9 | elf | - | /usr/bin/prog\nU | 4 | main | -\nF | 6 | 9 | 0x99 | u\n\
                 Y | 6 | named | 4,0,0,0\nN | 8 | 0 | 6\nS | 1 | 2 | 0 | 0 | 8 | 1 | 7\n";
    let streams = [stream(&format!("{PROGRAM}{one}")), stream(other)];
    assert_eq!(kept_lines(&streams, &["function"]), ["0 main prog 1/1", "1 main prog 8/8"]);
}

proptest! {
    #[test]
    fn folded_rows_keep_sums_and_bound_every_row(
        streams in proptest::collection::vec(any_stream(), 1..6),
        rows in 2..20usize,
        name_bytes in 100..2_000usize,
        keys in proptest::sample::select(vec![vec!["function"], vec!["cpu", "address"], vec!["thread"]]),
    ) {
        let exact = sums(&streams, &keys, Filter::default()).0;
        let budget = Budget { rows, name_bytes };
        let (small, summary) = sums_within(Some(budget), &streams, &keys, Filter::default());
        let tallies = |flat: &Flat, event| -> BTreeMap<Vec<Arc<str>>, Tally> {
            let rows = flat.rows(true).into_iter();
            rows.map(|row| (row.names.clone(), row.tally(event))).collect()
        };
        for event in 0..summary.events.len() {
            let (exact, mut shown) = (tallies(&exact, event), tallies(&small, event));
            let self_ = |tallies: &BTreeMap<_, Tally>| tallies.values().map(|tally| tally.self_.weight).sum::<u64>();
            prop_assert_eq!(self_(&shown), self_(&exact));
            let folded = small.folded(event);
            let is_other = |names: &&Vec<Arc<str>>| names.iter().all(|name| **name == *"(other)");
            let other = shown.keys().find(is_other).cloned();
            let other = other.and_then(|names| shown.remove(&names)).unwrap_or_default();
            prop_assert_eq!(folded.map_or(Sum::default(), |sums| sums.other), other.self_);
            let bound = folded.map_or(Sum::default(), |sums| sums.bound);
            prop_assert!(shown.keys().all(|names| exact.contains_key(names)));
            for (names, exact) in exact {
                let shown = shown.get(&names).copied().unwrap_or_default();
                for (shown, exact) in [(shown.self_, exact.self_), (shown.total, exact.total)] {
                    // Also: a row with more samples than the bound is there.
                    prop_assert!(shown.samples <= exact.samples);
                    prop_assert!(exact.samples <= shown.samples + bound.samples);
                    prop_assert!(exact.weight <= shown.weight + bound.weight);
                }
            }
        }
    }

    #[test]
    fn self_sums_to_all_samples_and_total_is_at_most_that(
        streams in proptest::collection::vec(any_stream(), 1..3),
        by in proptest::sample::select(vec![
            vec!["function"], vec!["address", "thread"], vec!["line"],
            vec!["process"], vec!["event"],
        ]),
    ) {
        let (flat, summary) = sums(&streams, &by, Filter::default());
        let rows = rows(&flat, true);
        for (i, event) in summary.events.iter().enumerate() {
            let mut self_ = Sum::default();
            for tally in rows.iter().map(|row| row.tally(i)) {
                self_.add(tally.self_);
                prop_assert!(tally.self_.samples <= tally.total.samples);
                prop_assert!(tally.self_.weight <= tally.total.weight);
                prop_assert!(tally.total.samples <= event.sum.samples);
                prop_assert!(tally.total.weight <= event.sum.weight);
            }
            prop_assert_eq!(self_, event.sum);
            prop_assert_eq!(flat.counted(i), event.sum);
        }
        for rows in rows.windows(2) {
            prop_assert_ne!(&rows[0].names, &rows[1].names);
        }
    }

    #[test]
    fn matching_and_excluded_samples_are_all_samples(
        streams in proptest::collection::vec(any_stream(), 1..3),
        rule in proptest::sample::select(vec![
            "function=^[ab]$", "image=libx", "thread=w;o", "event=faults", "line=nowhere",
        ]),
    ) {
        let rules = [rule.parse::<Rule>().unwrap()];
        let (with, summary) = sums(&streams, &["function"], Filter::new(&rules, &[]));
        let (without, _) = sums(&streams, &["function"], Filter::new(&[], &rules));
        let (all, _) = sums(&streams, &["function"], Filter::default());
        let of_calls = with.filter.is_about_calls();
        let self_ = |flat: &Flat, kept, event| {
            let mut self_ = Sum::default();
            rows(flat, kept).iter().for_each(|row| self_.add(row.tally(event).self_));
            self_
        };
        for event in 0..summary.events.len() {
            let whole = summary.events[event].sum;
            let mut counted = with.counted(event);
            counted.add(without.counted(event));
            prop_assert_eq!(counted, whole);
            prop_assert_eq!(self_(&without, true, event), without.counted(event));
            prop_assert!(rows(&without, false).is_empty());
            if of_calls {
                let mut sum = self_(&with, true, event);
                sum.add(self_(&with, false, event));
                prop_assert_eq!(sum, whole);
            }
        }
        if of_calls {
            // Rules about calls select rows and do not change the others.
            let kept = rows(&with, true);
            let all = rows(&all, true);
            prop_assert!(kept.iter().all(|row| all.contains(row)));
            // A row of an excluded call has no sample left.
            prop_assert!(rows(&without, true).iter().all(|row| !kept.iter().any(|k| k.names == row.names)));
        }
    }
}

#[test]
fn excluded_call_takes_its_samples_from_all_rows() {
    let samples = "S | 1 | 1 | 1 | 0 | 4 | 10 | 3\nS | 2 | 1 | 2 | 0 | 1 | 10 | 1\n\
                   S | 2 | 1 | 2 | 0 | 2 | 10 | 2\nS | 2 | 1 | 2 | 0 | 0 | 10 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    let without = |keys: &[&str], rule: &str| {
        let rules = [rule.parse().unwrap()];
        let (flat, _) = sums(&streams, keys, Filter::new(&[], &rules));
        let line = |row: FlatRow| {
            let tally = row.tally(0);
            let (self_, total) = (tally.self_.samples, tally.total.samples);
            format!("{} {self_}/{total}", row.names.join(" "))
        };
        rows(&flat, true).into_iter().map(line).collect::<Vec<_>>()
    };
    // The inlined call is in three samples of `fib`, all of which are below `main`.
    let left = ["[no stack] [no stack] 1/1", "fib prog 2/2", "main prog 1/3"];
    assert_eq!(without(&["function"], "function=^add$"), left);
    assert_eq!(without(&["thread"], "function=^fib$"), ["7/8 pool 2/2"]);
    assert_eq!(without(&["function"], "image=prog"), ["[no stack] [no stack] 1/1"]);
    assert_eq!(without(&["thread"], "function=no stack"), ["7/7 prog 3/3", "7/8 pool 3/3"]);
}

#[test]
fn match_of_a_call_counts_in_rows_without_calls() {
    let samples = "S | 1 | 1 | 1 | 0 | 4 | 10 | 3\nS | 2 | 1 | 2 | 0 | 1 | 10 | 1\n\
                   S | 2 | 1 | 2 | 0 | 0 | 10 | 1\n";
    let streams = [stream(&format!("{PROGRAM}{samples}"))];
    let by = |rule, kept| lines(&streams, &["thread"], &[rule], kept);
    assert_eq!(by("function=^fib$", true), ["0 7/7 prog 0/3"]);
    assert_eq!(by("function=main", true), ["0 7/7 prog 0/3", "0 7/8 pool 1/1"]);
    assert_eq!(by("function=main", false), ["0 7/7 prog 3/3", "0 7/8 pool 1/1"]);
    assert_eq!(by("function=no stack", true), ["0 7/8 pool 1/1"]);
    assert_eq!(by("thread=pool", true), ["0 7/8 pool 2/2"]);
    assert_eq!(by("image=^prog$", true), by("image=^/bin/prog$", true));
}

#[test]
fn slices_begin_with_their_run() {
    let at = |ms: u64| format!("S | {} | 1 | 1 | 0 | 1 | 10 | 1\n", 5_000_000_000 + ms * 1_000_000);
    let samples = [at(0), at(99), at(100), at(250)].concat();
    let streams = [stream(&format!("{PROGRAM}{samples}")), stream(&format!("{PROGRAM}{}", at(7)))];
    assert_eq!(kept_lines(&streams, &["slice=100ms"]), ["0 0.0 3/3", "0 0.1 1/1", "0 0.2 1/1"]);
    assert_eq!(kept_lines(&streams, &["run", "slice=1s"]), ["0 1 prog 0 4/4", "0 2 prog 0 1/1"]);
}
