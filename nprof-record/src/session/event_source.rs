//! Sources of records, and their merge in the order of time.

use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::perf::backlog::Backlog;
use crate::perf::handler::RecordHandler;
use crate::perf::ring_set::RingSet;
use crate::sys::{self, Signals};

/// A source of records: the rings of perf events, a library in the recorded process, a file.
///
/// A drain hands over, in the order of time, the records that exist when it begins:
/// [`Self::begin_drain`], then [`Self::drain`] up to a time as long as [`Self::next_timestamp`]
/// returns one, then [`Self::end_drain`]. Calls are per batch, not per record.
pub(crate) trait EventSource: Debug {
    /// Starts sampling.
    ///
    /// # Errors
    ///
    /// Those of the system call that starts it.
    fn enable(&self) -> io::Result<()>;

    /// Stops the samples that the kernel takes, but not those that BPF programs write.
    fn stop_sampling(&self) {}

    /// Stops sampling. Records that were written before can still be drained.
    fn disable(&self);

    /// Appends the descriptors to poll.
    fn add_poll_fds(&self, fds: &mut Vec<libc::pollfd>);

    /// Takes the poll results of the descriptors it appended. Returns true if it must be drained
    /// now.
    fn handle_poll(&mut self, polled: &[libc::pollfd]) -> bool;

    /// Returns the longest time between two calls of [`Self::is_due`].
    fn poll_interval(&self) -> Duration;

    /// True if it must be drained now, for a reason that no descriptor reports.
    fn is_due(&mut self, now_ns: u64) -> bool;

    /// Returns the longest time until the next drain.
    fn max_sleep(&self) -> Duration;

    /// Starts a drain at the time `now_ns`.
    fn begin_drain(&mut self, now_ns: u64, handler: &mut dyn RecordHandler);

    /// Returns the time up to which no older record can follow.
    fn settled_ns(&self) -> u64;

    /// Returns the time of the oldest record of the drain. None if all were handed over.
    fn next_timestamp(&self) -> Option<u64>;

    /// Hands over the records up to the time `until_ns`, inclusive.
    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler);

    /// Ends a drain. Returns the records that it leaves for the next.
    fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog;

    /// Reports losses that are not reported yet, after the last drain.
    fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler);

    /// Returns the number of lost records of any kind that are known so far.
    fn lost_records(&self) -> u64;
}

impl EventSource for RingSet {
    fn enable(&self) -> io::Result<()> {
        RingSet::enable(self, true)
    }

    fn stop_sampling(&self) {
        RingSet::stop_sampling(self);
    }

    fn disable(&self) {
        RingSet::disable(self);
    }

    fn add_poll_fds(&self, fds: &mut Vec<libc::pollfd>) {
        RingSet::add_poll_fds(self, fds);
    }

    fn handle_poll(&mut self, polled: &[libc::pollfd]) -> bool {
        RingSet::handle_poll(self, polled)
    }

    fn poll_interval(&self) -> Duration {
        RingSet::poll_interval(self)
    }

    fn is_due(&mut self, now_ns: u64) -> bool {
        RingSet::is_due(self, now_ns)
    }

    fn max_sleep(&self) -> Duration {
        RingSet::max_sleep(self)
    }

    fn begin_drain(&mut self, now_ns: u64, handler: &mut dyn RecordHandler) {
        RingSet::begin_drain(self, now_ns, handler);
    }

    fn settled_ns(&self) -> u64 {
        RingSet::settled_ns(self)
    }

    fn next_timestamp(&self) -> Option<u64> {
        RingSet::next_timestamp(self)
    }

    fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
        RingSet::drain(self, until_ns, handler);
    }

    fn end_drain(&mut self, handler: &mut dyn RecordHandler) -> Backlog {
        RingSet::end_drain(self, handler)
    }

    fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler) {
        RingSet::report_remaining_lost(self, handler);
    }

    fn lost_records(&self) -> u64 {
        RingSet::lost_records(self)
    }
}

/// The end of a wait for sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    /// True if the sources must be drained now, a signal has come, or the process has exited.
    pub(crate) is_due: bool,
    /// True if signals may be pending.
    pub(crate) has_signals: bool,
    /// True if a watched process may have exited.
    pub(crate) has_exit: bool,
}

/// All sources of a recording.
#[derive(Debug)]
pub(crate) struct SourceSet(pub(crate) Vec<Box<dyn EventSource>>);

impl SourceSet {
    /// Starts sampling in all sources.
    ///
    /// # Errors
    ///
    /// Those of [`EventSource::enable`].
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|source| source.enable())
    }

    /// Stops the samples that the kernel takes, but not those that BPF programs write.
    pub(crate) fn stop_sampling(&self) {
        self.0.iter().for_each(|source| source.stop_sampling());
    }

    /// Stops sampling in all sources.
    pub(crate) fn disable(&self) {
        self.0.iter().for_each(|source| source.disable());
    }

    /// Waits for a source, a signal, the exit of one of the processes with these descriptors, or the
    /// time `until_ns`.
    ///
    /// # Errors
    ///
    /// Those of ppoll(2).
    pub(crate) fn wait(
        &mut self,
        signals: &Signals,
        processes: &[RawFd],
        until_ns: u64,
    ) -> io::Result<Wake> {
        let mut now_ns = sys::monotonic_ns();
        // Without a poll nothing is known about signals and the process.
        let is_unknown = now_ns >= until_ns;
        while now_ns < until_ns {
            // It differs from poll to poll where a source chooses its times at random.
            let interval = self.0.iter().map(|source| source.poll_interval()).min();
            let left = Duration::from_nanos(until_ns - now_ns);
            let timeout = interval.map_or(left, |interval| left.min(interval));
            let wake = self.poll(signals, processes, timeout)?;
            if wake.is_due {
                return Ok(wake);
            }
            now_ns = sys::monotonic_ns();
            // Calls each source, since each notes the time.
            let mut is_due = false;
            for source in &mut self.0 {
                is_due |= source.is_due(now_ns);
            }
            if is_due {
                return Ok(Wake { is_due, has_signals: false, has_exit: false });
            }
        }
        Ok(Wake { is_due: false, has_signals: is_unknown, has_exit: is_unknown })
    }

    fn poll(
        &mut self,
        signals: &Signals,
        processes: &[RawFd],
        timeout: Duration,
    ) -> io::Result<Wake> {
        // The descriptors change when tasks exit, so the list is built for each poll.
        let of_fd = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![of_fd(signals.fd())];
        fds.extend(processes.iter().map(|&process| of_fd(process)));
        let mut start = fds.len();
        let mut ends = Vec::with_capacity(self.0.len());
        for source in &self.0 {
            source.add_poll_fds(&mut fds);
            ends.push(fds.len());
        }
        sys::poll(&mut fds, Some(timeout))?;
        let has_signals = fds[0].revents != 0;
        let has_exit = fds[1..start].iter().any(|process| process.revents != 0);
        let mut is_due = has_signals || has_exit;
        for (source, end) in self.0.iter_mut().zip(ends) {
            is_due |= source.handle_poll(&fds[start..end]);
            start = end;
        }
        Ok(Wake { is_due, has_signals, has_exit })
    }

    /// Returns the longest time until the next drain.
    pub(crate) fn max_sleep(&self) -> Duration {
        self.0.iter().map(|source| source.max_sleep()).min().unwrap_or(Duration::MAX)
    }

    /// Hands over the records of all sources in the order of time: those that no older record can follow, or all
    /// up to a time. Returns the most urgent records that stay.
    pub(crate) fn drain(
        &mut self,
        handler: &mut dyn RecordHandler,
        until_ns: Option<u64>,
    ) -> Backlog {
        let now_ns = sys::monotonic_ns();
        for source in &mut self.0 {
            source.begin_drain(now_ns, handler);
        }
        // A source that is less far could still deliver an older record, so the slowest one decides. It may meet
        // an incomplete record in the drain.
        let limit_ns =
            |sources: &Self| until_ns.or_else(|| sources.settled_ns()).unwrap_or(u64::MAX);
        while let Some((number, until_ns)) = self.next_batch(limit_ns(self)) {
            self.0[number].drain(until_ns, handler);
        }
        let ended = self.0.iter_mut().map(|source| source.end_drain(handler));
        let backlog = ended.max().unwrap_or(Backlog::Nothing);
        handler.end_batch();
        backlog
    }

    /// Returns the source with the oldest record, and the time up to which it comes before all
    /// others. None if no record is as old as `limit_ns`.
    fn next_batch(&self, limit_ns: u64) -> Option<(usize, u64)> {
        let times = self.0.iter().enumerate();
        let mut times: Vec<_> = times
            .filter_map(|(number, source)| Some((source.next_timestamp()?, number)))
            .filter(|(time, _)| *time <= limit_ns)
            .collect();
        times.sort_unstable();
        let &(_, number) = times.first()?;
        // Up to the next source's oldest record it needs no further comparison.
        Some((number, times.get(1).map_or(limit_ns, |(time, _)| *time)))
    }

    /// Reports losses that are not reported yet, after the last drain.
    pub(crate) fn report_remaining_lost(&mut self, handler: &mut dyn RecordHandler) {
        self.0.iter_mut().for_each(|source| source.report_remaining_lost(handler));
    }

    /// Returns the time up to which the last drain has handed over all records. None without sources.
    pub(crate) fn settled_ns(&self) -> Option<u64> {
        self.0.iter().map(|source| source.settled_ns()).min()
    }

    /// Returns the number of lost records of any kind that are known so far.
    pub(crate) fn lost_records(&self) -> u64 {
        self.0.iter().map(|source| source.lost_records()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;
    use std::rc::Rc;

    use nprof_stream::{Cause, EventId};

    use crate::perf::event_counts::CountingTime;
    use crate::perf::lost::LostSamples;
    use crate::perf::record::{KernelRecord, SampleId};
    use crate::sys::SharedWords;

    /// A source of records at given times, the latest first.
    #[derive(Debug)]
    struct Times {
        times: Vec<u64>,
        drains: Rc<Cell<usize>>,
    }

    impl EventSource for Times {
        fn enable(&self) -> io::Result<()> {
            Ok(())
        }

        fn disable(&self) {}

        fn add_poll_fds(&self, _fds: &mut Vec<libc::pollfd>) {}

        fn handle_poll(&mut self, _polled: &[libc::pollfd]) -> bool {
            false
        }

        fn poll_interval(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn is_due(&mut self, _now_ns: u64) -> bool {
            false
        }

        fn max_sleep(&self) -> Duration {
            Duration::MAX
        }

        fn begin_drain(&mut self, _now_ns: u64, _handler: &mut dyn RecordHandler) {}

        fn settled_ns(&self) -> u64 {
            8
        }

        fn next_timestamp(&self) -> Option<u64> {
            self.times.last().copied()
        }

        fn drain(&mut self, until_ns: u64, handler: &mut dyn RecordHandler) {
            self.drains.set(self.drains.get() + 1);
            while let Some(time) = self.times.pop_if(|time| *time <= until_ns) {
                let sample_id = SampleId { time, ..SampleId::default() };
                handler.handle_record(sample_id, &KernelRecord::Other, EventId::NONE);
            }
        }

        fn end_drain(&mut self, _handler: &mut dyn RecordHandler) -> Backlog {
            if self.times.is_empty() { Backlog::Nothing } else { Backlog::Samples }
        }

        fn report_remaining_lost(&mut self, _handler: &mut dyn RecordHandler) {}

        fn lost_records(&self) -> u64 {
            0
        }
    }

    /// Keeps the times of records.
    #[derive(Default)]
    struct Kept(Vec<u64>);

    impl RecordHandler for Kept {
        fn accepts(&self, _tid: u32) -> bool {
            true
        }

        fn handle_record(&mut self, id: SampleId, _record: &KernelRecord<'_>, _event: EventId) {
            self.0.push(id.time);
        }

        fn on_lost(&mut self, _id: SampleId, _lost: LostSamples, _event: EventId, _cause: Cause) {}
        fn on_multiplexed(&mut self, _id: SampleId, _event: EventId, _time: CountingTime) {}

        fn on_sideband_lost(&mut self, _id: SampleId, _count: u64) {}

        fn on_sideband_full(&mut self) {}

        fn reject_thread(&mut self, _tid: u32, _thread: u32) {}

        fn enable_stack_copies(&mut self, _words: Rc<SharedWords>, _max_copy_bytes: u64) {}

        fn enable_wait_copies(&mut self, _words: Rc<SharedWords>, _max_copy_bytes: u64) {}

        fn end_batch(&mut self) {}
    }

    #[test]
    fn sources_are_merged_by_time_in_batches() {
        let drains = Rc::new(Cell::new(0));
        let source = |times: &[u64]| -> Box<dyn EventSource> {
            Box::new(Times { times: times.to_vec(), drains: drains.clone() })
        };
        let mut sources = SourceSet(vec![source(&[9, 7, 2, 1]), source(&[]), source(&[6, 5, 3])]);
        let mut kept = Kept::default();
        assert_eq!(sources.drain(&mut kept, None), Backlog::Samples);
        assert_eq!(kept.0, [1, 2, 3, 5, 6, 7], "9 is not settled yet");
        assert_eq!(drains.get(), 3, "1 and 2, then 3 to 6, then 7");
        assert_eq!(sources.drain(&mut kept, Some(u64::MAX)), Backlog::Nothing);
        assert_eq!(kept.0.last(), Some(&9));
    }
}
