//! The numbers that the kernel keeps for an event: `read_format` of perf_event_open(2). Pure.

use std::collections::BTreeMap;

use nprof_stream::EventId;
use perf_event_open_sys::bindings as perf;

/// The bits of `read_format` that request the times of an event.
pub(crate) const TIMES: u64 =
    (perf::PERF_FORMAT_TOTAL_TIME_ENABLED | perf::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// The bit that requests its number of lost records.
pub(crate) const LOST: u64 = perf::PERF_FORMAT_LOST as u64;

/// The most words that an event with these bits returns.
pub(super) const WORDS_MAX: usize = 4;

/// Returns the number of words that an event returns: its value, and one for each requested number.
pub(crate) fn words(read_format: u64) -> usize {
    1 + read_format.count_ones() as usize
}

/// The times of an event, in ns. They differ if more events are recorded than the processor has
/// counters: the kernel then lets the events take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountingTime {
    /// The time for which it was enabled.
    pub(crate) enabled_ns: u64,
    /// The part of that time for which it had a counter.
    pub(crate) running_ns: u64,
}

impl CountingTime {
    /// Returns how many samples were not taken while the event had no counter, if it had the same rate
    /// then. None if it never had one, so that nothing is known of its rate.
    pub(crate) fn missed(self, samples: u64) -> Option<u64> {
        let waited = u128::from(self.enabled_ns.saturating_sub(self.running_ns));
        let running = u128::from(self.running_ns);
        let missed = (u128::from(samples) * waited + running / 2).checked_div(running)?;
        Some(u64::try_from(missed).unwrap_or(u64::MAX))
    }

    fn add(&mut self, other: Self) {
        self.enabled_ns = self.enabled_ns.saturating_add(other.enabled_ns);
        self.running_ns = self.running_ns.saturating_add(other.running_ns);
    }
}

/// The numbers of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventCounts {
    /// None unless [`TIMES`] were requested.
    pub(super) time: Option<CountingTime>,
    /// Lost records; 0 unless [`LOST`] was requested.
    pub(super) lost: u64,
}

impl EventCounts {
    /// Decodes the words that an event with the bits `read_format` returned. None if there are too few.
    pub(super) fn decode(words: &[u64], read_format: u64) -> Option<Self> {
        // The value comes first.
        let mut words = words.get(1..self::words(read_format))?.iter().copied();
        let mut next = || words.next().unwrap_or_default();
        let time = (read_format & TIMES == TIMES)
            .then(|| CountingTime { enabled_ns: next(), running_ns: next() });
        let lost = if read_format & LOST == 0 { 0 } else { next() };
        Some(Self { time, lost })
    }
}

/// The times of the events of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct CountingTimes(BTreeMap<(EventId, Option<u32>), CountingTime>);

impl CountingTimes {
    /// Adds those of an event on one CPU. `task` is the task that it was opened for; `None` if it was
    /// opened for the CPU.
    ///
    /// The event of a task is enabled while the task runs on any CPU, and has a counter only on its own
    /// (`event_filter_match`, kernel/events/core.c). The events of all CPUs are enabled for the same time.
    pub(super) fn add(&mut self, event: EventId, task: Option<u32>, time: CountingTime) {
        let sum = self.0.entry((event, task)).or_default();
        match task {
            None => sum.add(time),
            Some(_) => {
                sum.enabled_ns = sum.enabled_ns.max(time.enabled_ns);
                sum.running_ns = sum.running_ns.saturating_add(time.running_ns);
            }
        }
    }

    /// Returns those of each event that had no counter for a part of the time.
    pub(super) fn multiplexed(self) -> BTreeMap<EventId, CountingTime> {
        let mut sums = BTreeMap::<EventId, CountingTime>::new();
        for ((event, _), time) in self.0 {
            sums.entry(event).or_default().add(time);
        }
        sums.retain(|_, time| time.running_ns < time.enabled_ns);
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(enabled_ns: u64, running_ns: u64) -> CountingTime {
        CountingTime { enabled_ns, running_ns }
    }

    #[test]
    fn numbers_are_found_by_requested_bits() {
        let decode = |words: &[u64], bits| EventCounts::decode(words, bits);
        assert_eq!(decode(&[9], 0), Some(EventCounts::default()));
        assert_eq!(decode(&[9, 3], LOST), Some(EventCounts { time: None, lost: 3 }));
        let time = Some(time(100, 40));
        assert_eq!(decode(&[9, 100, 40], TIMES), Some(EventCounts { time, lost: 0 }));
        assert_eq!(decode(&[9, 100, 40, 3], TIMES | LOST), Some(EventCounts { time, lost: 3 }));
        assert_eq!(decode(&[9, 100, 40], TIMES | LOST), None);
        assert_eq!(decode(&[], 0), None);
        assert_eq!(words(TIMES | LOST), WORDS_MAX);
    }

    #[test]
    fn missed_samples_are_in_proportion_to_waiting_time() {
        assert_eq!(time(100, 100).missed(500), Some(0));
        assert_eq!(time(100, 40).missed(400), Some(600));
        assert_eq!(time(100, 0).missed(0), None);
        assert_eq!(time(u64::MAX, 1).missed(u64::MAX), Some(u64::MAX));
        assert_eq!(time(40, 100).missed(5), Some(0), "times are not trusted");
    }

    #[test]
    fn event_of_task_is_enabled_once_for_all_cpus() {
        let (full, shared, of_cpus) = (EventId(1), EventId(2), EventId(3));
        let mut times = CountingTimes::default();
        for (enabled_ns, running_ns) in [(100, 70), (100, 30)] {
            times.add(full, Some(7), time(enabled_ns, running_ns));
            times.add(shared, Some(7), time(enabled_ns, running_ns / 2));
            times.add(of_cpus, None, time(enabled_ns, running_ns));
        }
        times.add(shared, Some(8), time(50, 50));
        let expected = [(shared, time(150, 100)), (of_cpus, time(200, 100))];
        assert_eq!(times.multiplexed(), BTreeMap::from(expected));
    }
}
