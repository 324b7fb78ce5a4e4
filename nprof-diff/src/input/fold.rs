//! Bounds the memory of keys and their counts, by folding the lightest keys into `(other)`. Pure.
//!
//! Each key keeps an upper bound of the samples that it lacks because it was folded before (lossy
//! counting: G. Manku and R. Motwani, VLDB 2002). A comparison must not take samples that one side lost
//! for a change: [`fold_doubtful`] therefore folds, after all streams, every key that may lack more
//! than half of the standard deviation of its count.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::input::key::{KeyCount, KeyId, KeyTable, RowKey, RunCounts};

/// The number of keys above which the lightest are folded. A key takes 200 bytes here, and about a
/// kilobyte while it is compared.
pub(crate) const MAX_KEYS: usize = 1 << 16;

/// The number of counts, of all keys in all runs, above which the lightest keys are folded: 150 bytes
/// each.
pub(crate) const MAX_COUNTS: usize = 1 << 19;

/// The memory of names above which the lightest keys are folded.
pub(crate) const MAX_NAME_BYTES: usize = 16 << 20;

/// The number of functions in the names of all paths together above which the lightest paths are
/// folded: every path is a row, so that a report of a path of 65,000 functions would take 12 GB.
const MAX_PATH_CALLS: usize = 1 << 24;

/// The sizes above which keys are folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) keys: usize,
    pub(crate) counts: usize,
    pub(crate) name_bytes: usize,
    pub(crate) path_calls: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            keys: MAX_KEYS,
            counts: MAX_COUNTS,
            name_bytes: MAX_NAME_BYTES,
            path_calls: MAX_PATH_CALLS,
        }
    }
}

/// Folds the lightest keys until at most half of the budget is used, if it is exceeded. Returns
/// whether ids have changed.
pub(crate) fn fold(keys: &mut KeyTable, runs: &mut [&mut RunCounts], budget: Budget) -> bool {
    let counts = |runs: &[&mut RunCounts]| runs.iter().map(|run| run.keys.len()).sum::<usize>();
    if keys.len() <= budget.keys
        && keys.name_bytes() <= budget.name_bytes
        && counts(runs) <= budget.counts
    {
        return false;
    }
    let mut count = keys.len().min(budget.keys) / 2;
    loop {
        keep(keys, runs, &heaviest(keys, runs, count));
        let fits = keys.name_bytes() <= budget.name_bytes / 2 && counts(runs) <= budget.counts / 2;
        if fits || count == 0 {
            return true;
        }
        count /= 2;
    }
}

/// Folds the keys that may lack too many samples, and paths that are too long to be printed.
pub(crate) fn fold_doubtful(keys: &mut KeyTable, runs: &mut [&mut RunCounts], budget: Budget) {
    let samples = samples(keys, runs);
    let lacks = |id: KeyId| keys.lost(id) as f64;
    // Half of the standard deviation of a count; a part of a path lacks no more than the whole.
    let is_certain =
        |id: KeyId| 2.0 * lacks(id) <= (samples[id.index()] as f64).sqrt() || keys.lost(id) == 0;
    let certain: Vec<bool> = keys.ids().map(is_certain).collect();
    if certain.contains(&false) {
        keep(keys, runs, &certain);
    }
    let mut count = keys.len();
    while keys.path_calls() > budget.path_calls && count > 0 {
        count /= 2;
        keep(keys, runs, &heaviest(keys, runs, count));
    }
}

/// Returns a warning with the share of the samples in `(other)`. None if there are none.
pub(crate) fn warning(keys: &KeyTable, runs: &[&mut RunCounts]) -> Option<String> {
    let (mut other, mut all) = (0.0, 0.0);
    for run in runs {
        all += run.sum.weight as f64;
        let folded = run.keys.iter().filter(|(id, _)| keys.get(**id).is_other());
        other += folded.map(|(_, count)| count.self_.weight as f64).sum::<f64>();
    }
    (other > 0.0).then(|| {
        format!(
            "too many rows: the lightest, {:.2} % of all samples, are one row (other)",
            100.0 * other / all
        )
    })
}

/// Returns the samples of each key in all runs.
fn samples(keys: &KeyTable, runs: &[&mut RunCounts]) -> Vec<u64> {
    let mut samples = vec![0u64; keys.len()];
    for (id, count) in runs.iter().flat_map(|run| &run.keys) {
        let sum = &mut samples[id.index()];
        *sum = sum.saturating_add(count.total.samples);
    }
    samples
}

/// Returns which keys are the `count` heaviest, by the sum of their total shares in the runs; equal ones
/// by age. The caller of a path is heavier or older than the path.
fn heaviest(keys: &KeyTable, runs: &[&mut RunCounts], count: usize) -> Vec<bool> {
    let mut shares = vec![0.0; keys.len()];
    for run in runs {
        for (id, count) in &run.keys {
            shares[id.index()] += count.total.percent_of(run.sum);
        }
    }
    let mut order: Vec<KeyId> = keys.ids().filter(|&id| !keys.get(id).is_other()).collect();
    if count < order.len() {
        order.select_nth_unstable_by(count, |&a, &b| {
            shares[b.index()].total_cmp(&shares[a.index()]).then(a.cmp(&b))
        });
        order.truncate(count);
    }
    let mut is_kept = vec![false; keys.len()];
    order.into_iter().for_each(|id| is_kept[id.index()] = true);
    is_kept
}

/// Moves the samples of all other keys to `(other)`, of paths below the last function that is kept.
fn keep(keys: &mut KeyTable, runs: &mut [&mut RunCounts], is_kept: &[bool]) {
    let samples = samples(keys, runs);
    let mut kept = KeyTable::default();
    let mut places: Vec<KeyId> = Vec::with_capacity(keys.len());
    let mut largest = 0;
    for id in keys.ids() {
        let key = keys.get(id);
        let caller = key.caller.map(|caller| places[caller.index()]);
        let place = match caller.filter(|&caller| kept.get(caller).is_other()) {
            Some(other) => other,
            None if key.is_other() => kept.intern(RowKey { caller, ..RowKey::other() }),
            None if is_kept[id.index()] => {
                let place = kept.intern(RowKey { caller, ..key.clone() });
                kept.set_lost(place, keys.lost(id));
                place
            }
            None => {
                largest = largest.max(samples[id.index()]);
                kept.intern(RowKey { caller, ..RowKey::other() })
            }
        };
        places.push(place);
    }
    kept.set_bound(keys.bound().saturating_add(largest));
    for run in runs {
        let counts = std::mem::take(&mut run.keys);
        for (id, count) in counts {
            let place = places[id.index()];
            let sum = run.keys.entry(place).or_default();
            sum.self_.add(count.self_);
            sum.self_blocks.add(count.self_blocks);
            // Totals of folded keys overlap, so `(other)` has its self as total.
            let is_other = kept.get(place).is_other();
            sum.total.add(if is_other { count.self_ } else { count.total });
            sum.total_blocks.add(if is_other { count.self_blocks } else { count.total_blocks });
        }
        // Rows of an event without self in `(other)` would be empty.
        run.keys.retain(|_, count| count.total.samples > 0);
        run.keys.shrink_to_fit();
    }
    *keys = kept;
}

/// Adds the counts of a stream with keys of its own to the keys of all streams.
pub(crate) fn merge(
    keys: &mut KeyTable,
    own: &KeyTable,
    counts: &mut BTreeMap<(usize, usize), RunCounts>,
) {
    let old = keys.len();
    let mut places: Vec<KeyId> = Vec::with_capacity(own.len());
    let mut is_own = vec![false; old];
    for id in own.ids() {
        let key = own.get(id);
        let caller = key.caller.map(|caller| places[caller.index()]);
        let place = keys.intern(RowKey { caller, ..key.clone() });
        keys.set_lost(place, keys.lost(place).saturating_add(own.lost(id)));
        if let Some(is_own) = is_own.get_mut(place.index()) {
            *is_own = true;
        }
        places.push(place);
    }
    // The stream may have had samples of a key that it folded.
    for id in keys.ids().take(old).filter(|id| !is_own[id.index()]) {
        keys.set_lost(id, keys.lost(id).saturating_add(own.bound()));
    }
    keys.set_bound(keys.bound().saturating_add(own.bound()));
    for run in counts.values_mut() {
        let own: FxHashMap<KeyId, KeyCount> = std::mem::take(&mut run.keys);
        run.keys = own.into_iter().map(|(id, count)| (places[id.index()], count)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::row_kind::RowKind;
    use crate::input::run_counts::StreamCounts;
    use nprof_report::profile::Sum;
    use nprof_tests::any_stream;
    use proptest::prelude::*;

    const ALL: Budget = Budget {
        keys: usize::MAX,
        counts: usize::MAX,
        name_bytes: usize::MAX,
        path_calls: usize::MAX,
    };

    /// The counts of streams that are read one after another, as `load` does.
    fn counts(streams: &[Vec<u8>], kind: RowKind, budget: Budget) -> (KeyTable, Vec<StreamCounts>) {
        let mut keys = KeyTable::default();
        let mut read: Vec<StreamCounts> = Vec::new();
        for stream in streams {
            read.push(StreamCounts::of(stream, kind, budget, &mut keys));
            fold(&mut keys, &mut runs(&mut read), budget);
        }
        fold_doubtful(&mut keys, &mut runs(&mut read), budget);
        (keys, read)
    }

    fn runs(streams: &mut [StreamCounts]) -> Vec<&mut RunCounts> {
        streams.iter_mut().flat_map(|stream| stream.counts.values_mut()).collect()
    }

    proptest! {
        #[test]
        fn folded_keys_keep_sums_and_doubt_is_bounded(
            streams in proptest::collection::vec(any_stream(), 1..5),
            keys in 2..12usize,
            path_calls in 5..60usize,
            kind in proptest::sample::select(vec![RowKind::Function, RowKind::Path, RowKind::Line]),
        ) {
            let budget = Budget { keys, path_calls, ..ALL };
            let (exact_keys, mut exact) = counts(&streams, kind, ALL);
            let (small_keys, mut small) = counts(&streams, kind, budget);
            prop_assert!(kind != RowKind::Path || small_keys.path_calls() <= path_calls);
            let sampled: Vec<u64> = samples(&small_keys, &runs(&mut small));
            for (exact, small) in runs(&mut exact).into_iter().zip(runs(&mut small)) {
                prop_assert_eq!(exact.sum, small.sum);
                let self_ = |run: &RunCounts| {
                    let mut sum = Sum::default();
                    run.keys.values().for_each(|count| sum.add(count.self_));
                    (sum.samples, sum.weight)
                };
                prop_assert_eq!(self_(exact), self_(small));
                let by_name = |keys: &KeyTable, run: &RunCounts| -> BTreeMap<_, (KeyId, KeyCount)> {
                    let named = |(id, count): (&KeyId, &KeyCount)| {
                        ((keys.name(*id), keys.get(*id).image.clone()), (*id, *count))
                    };
                    run.keys.iter().map(named).collect()
                };
                let exact = by_name(&exact_keys, exact);
                for (name, (id, shown)) in by_name(&small_keys, small) {
                    if small_keys.get(id).is_other() {
                        continue;
                    }
                    let (_, exact) = exact[&name];
                    let lacks = exact.total.samples - shown.total.samples;
                    prop_assert!(lacks <= small_keys.lost(id));
                    let deviation = (sampled[id.index()] as f64).sqrt();
                    prop_assert!(2.0 * lacks as f64 <= deviation);
                }
            }
        }
    }
}
