//! The samples at the instructions of functions, by thread and time. Pure.
//!
//! A sample counts where its leaf is, as in nprof-annotate. Memory is bounded: samples at more than
//! [`MAX_PLACES`] instructions have no place, and slices of time become longer as those of [`Timeline`] do.

use std::sync::Arc;

use nprof_code::places::CodePlaces;
use nprof_report::profile::{Context, GroupKey, Sum};
use nprof_stream::FrameId;
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{Code, CodeMoment, FunctionCode, Moment, Moments};
use crate::tree::timeline::Timeline;

/// The most instructions with samples, of all events: 40 bytes each.
const MAX_PLACES: usize = 1 << 17;

/// The number of moments of finished functions: each takes 7 to 10 bytes of a page.
const MAX_FINISHED: usize = 1 << 14;

/// The smallest share of an event's samples of a finished function, in per cent.
const MIN_PERCENT: f64 = 0.1;

/// The most finished functions.
const MAX_FUNCTIONS: usize = 500;

/// An offset in a function, in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    function: usize,
    offset: u32,
    event: usize,
}

/// Adds up samples by instruction, thread and time.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeSamples {
    code: CodePlaces,
    places: Vec<Place>,
    numbers: FxHashMap<Place, u32>,
    /// By number of a place.
    timeline: Timeline,
    /// By event.
    all: Vec<Sum>,
}

impl CodeSamples {
    /// Adds the samples of one stack.
    pub(super) fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        let (tables, event) = (context.tables, group.event);
        add_to(&mut self.all, event, sum);
        let frame = tables.node(group.node).map_or(FrameId::NONE, |(_, frame)| frame);
        let Some(found) = self.code.place(tables, frame) else { return };
        let place = Place { function: found.function, offset: found.offset, event };
        let next = self.places.len() as u32;
        let number = match self.numbers.get(&place) {
            Some(&number) => number,
            None if self.places.len() >= MAX_PLACES => return,
            None => {
                self.numbers.insert(place, next);
                self.places.push(place);
                next
            }
        };
        self.timeline.add(context, group, number, sum);
    }

    /// Returns the functions with the largest shares of their events, and their samples by the threads and
    /// time of the tree.
    pub(super) fn finish(&self, of_tree: &Moments) -> Code {
        let sums = self.sums();
        let shown = self.largest(&sums);
        // By old number of a function, the new one.
        let mut numbers = vec![None; sums.len()];
        for (number, &function) in shown.iter().enumerate() {
            numbers[function] = Some(number);
        }
        let is_shown = |place: u32| numbers[self.places[place as usize].function].is_some();
        let moments = self.timeline.finish_within(MAX_FINISHED, of_tree.slice_ns, is_shown);
        let threads = places_of_threads(&moments.threads, of_tree);
        let moment = |moment: &Moment| {
            let place = self.places[moment.node];
            Some(CodeMoment {
                function: numbers[place.function]?,
                offset: place.offset,
                event: place.event,
                thread: threads[moment.thread as usize],
                slice: moment.slice,
                sum: moment.sum,
            })
        };
        let found = self.code.functions();
        let function = |&function: &usize| FunctionCode {
            function: Arc::clone(&found[function]),
            sums: sums[function].clone(),
        };
        Code {
            functions: shown.iter().map(function).collect(),
            is_found: !self.places.is_empty(),
            slice_ns: moments.slice_ns,
            moments: moments.moments.iter().filter_map(moment).collect(),
        }
    }

    /// Returns the samples of each function by event.
    fn sums(&self) -> Vec<Vec<Sum>> {
        let mut sums = vec![Vec::new(); self.code.functions().len()];
        for (place, sum) in self.timeline.sums() {
            let Place { function, event, .. } = self.places[place as usize];
            add_to(&mut sums[function], event, sum);
        }
        sums
    }

    /// Returns the functions with the largest shares, the largest first.
    fn largest(&self, sums: &[Vec<Sum>]) -> Vec<usize> {
        let share = |function: usize| {
            let percents =
                sums[function].iter().zip(&self.all).map(|(sum, all)| sum.percent_of(*all));
            percents.fold(0.0, f64::max)
        };
        let mut order: Vec<(usize, f64)> =
            (0..sums.len()).map(|function| (function, share(function))).collect();
        order.retain(|&(_, share)| share >= MIN_PERCENT);
        let functions = self.code.functions();
        // By names, too, so that equal functions have one order in every run.
        order.sort_by(|&(a, a_share), &(b, b_share)| {
            let key = |at: usize| (&functions[at].name, &functions[at].image, functions[at].start);
            b_share.total_cmp(&a_share).then_with(|| key(a).cmp(&key(b)))
        });
        order.truncate(MAX_FUNCTIONS);
        order.into_iter().map(|(function, _)| function).collect()
    }
}

/// Returns the number that each thread has in the tree: that of the others if the tree joined it with them. The
/// threads that the code joined have the number after the last: the tree may have them apart.
fn places_of_threads(threads: &[String], of_tree: &Moments) -> Vec<u32> {
    let mut is_used = vec![false; of_tree.threads.len()];
    of_tree.moments.iter().for_each(|moment| is_used[moment.thread as usize] = true);
    let numbers: FxHashMap<&str, u32> =
        of_tree.threads.iter().map(|label| &label[..]).zip(0..).collect();
    let joined = of_tree.threads.len() as u32;
    let other_label = Timeline::other();
    let other = numbers.get(&other_label[..]).copied().unwrap_or(joined);
    let of_label = |label: &String| {
        if *label == other_label {
            return joined;
        }
        let number = numbers.get(&label[..]).copied();
        number.filter(|&number| is_used[number as usize]).unwrap_or(other)
    };
    threads.iter().map(of_label).collect()
}

fn add_to(sums: &mut Vec<Sum>, event: usize, sum: Sum) {
    if sums.len() <= event {
        sums.resize(event + 1, Sum::default());
    }
    sums[event].add(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_the_numbers_of_the_tree() {
        let labels =
            |labels: &[&str]| -> Vec<String> { labels.iter().map(|&it| it.into()).collect() };
        let moment = |thread| Moment { node: 0, thread, slice: 0, sum: Sum::of(1, 1) };
        let mut tree = Moments {
            slice_ns: 1,
            slices: 1,
            threads: labels(&["a", "b", "c"]),
            moments: vec![moment(0), moment(1), moment(2)],
        };
        assert_eq!(places_of_threads(&labels(&["c", "(other)", "a"]), &tree), [2, 3, 0]);
        // The tree joined `b`.
        tree.threads[2] = "(other)".to_owned();
        tree.moments.remove(1);
        assert_eq!(places_of_threads(&labels(&["b", "(other)", "a"]), &tree), [2, 3, 0]);
    }
}
