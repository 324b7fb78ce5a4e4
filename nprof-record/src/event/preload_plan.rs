//! The events of the preloaded library that a recording has, and the periods of those of memory and of calls. Pure.

use nprof_stream::EventId;

use crate::event::preloaded::{PreloadedEvent, Subject};
use crate::event::spec::EventSpec;

/// The distance of samples: in bytes for events of memory, in calls for those of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreloadPeriod {
    Fixed(u64),
    /// Adapted to this number of samples per second of each process.
    Adaptive(u64),
}

/// The samples per second and process to which the distance is adapted, unless another frequency is requested.
const SAMPLES_PER_SECOND: u64 = 1000;

impl PreloadPeriod {
    /// Returns that of events without a period of their own, given a requested period and frequency of all events.
    pub(crate) fn of_all(period: Option<u64>, frequency: Option<u64>) -> Self {
        period.map_or(Self::Adaptive(frequency.unwrap_or(SAMPLES_PER_SECOND)), Self::Fixed)
    }

    /// Returns the distance with which a process starts; `first` if it is adapted.
    pub(crate) fn first(self, first: u64) -> u64 {
        match self {
            Self::Fixed(period) => period,
            Self::Adaptive(_) => first,
        }
    }

    /// Returns the samples per second to which the distance is adapted. None if it is fixed.
    pub(crate) fn samples_per_second(self) -> Option<u64> {
        match self {
            Self::Fixed(_) => None,
            Self::Adaptive(samples_per_second) => Some(samples_per_second),
        }
    }
}

/// The events of the preloaded library that a recording has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreloadPlan {
    /// Each once, with the id in the stream.
    events: Vec<(PreloadedEvent, EventId)>,
    pub(crate) heap_period: PreloadPeriod,
    pub(crate) call_period: PreloadPeriod,
}

impl PreloadPlan {
    /// Splits the requested events of the library from `specs`. Those without a period have that of all events. None if
    /// there are none.
    ///
    /// # Errors
    ///
    /// If they have modifiers or several periods, with the remedy.
    pub(crate) fn split(
        specs: &mut Vec<EventSpec>,
        of_all: PreloadPeriod,
    ) -> Result<Option<Self>, String> {
        let is_preloaded = |spec: &mut EventSpec| PreloadedEvent::find(&spec.name).is_some();
        let own: Vec<_> = specs.extract_if(.., is_preloaded).collect();
        let (mut heap_period, mut call_period) = (None, None);
        let mut events = Vec::new();
        for spec in &own {
            let name = &spec.name;
            let Some(event) = PreloadedEvent::find(name) else { continue };
            if spec.mode.is_some() {
                return Err(format!("{name} is an event of user code; leave out its modifiers"));
            }
            let period = match event.subject() {
                Subject::Heap => &mut heap_period,
                Subject::Calls => &mut call_period,
                Subject::Descriptors if spec.period.is_some() => {
                    return Err(format!("{name} has each descriptor; leave out its period"));
                }
                Subject::Descriptors => &mut None,
            };
            if let (Some(one), Some(other)) = (*period, spec.period)
                && one != other
            {
                let events =
                    if event.subject() == Subject::Heap { "all heap events" } else { name };
                return Err(format!("two periods for {events}; give one"));
            }
            *period = period.or(spec.period);
            if !events.iter().any(|(known, _)| *known == event) {
                events.push((event, EventId::NONE));
            }
        }
        let [heap_period, call_period] =
            [heap_period, call_period].map(|period| period.map_or(of_all, PreloadPeriod::Fixed));
        Ok((!events.is_empty()).then_some(Self { events, heap_period, call_period }))
    }

    /// Gives the events their ids, which follow those of the `others` other events.
    pub(crate) fn number_after(&mut self, others: usize) {
        for (id, event) in (others as u32 + 1..).zip(&mut self.events) {
            event.1 = EventId(id);
        }
    }

    /// Returns the events with their ids, in the order of the ids.
    pub(crate) fn events(&self) -> impl Iterator<Item = (PreloadedEvent, EventId)> {
        self.events.iter().copied()
    }

    /// Returns the id of an event. None if it is not recorded.
    pub(crate) fn id(&self, event: PreloadedEvent) -> Option<EventId> {
        self.events().find(|(known, _)| *known == event).map(|(_, id)| id)
    }

    /// Returns the id of an event for its lost records: if it is not recorded, that of another event of its objects,
    /// which is computed from them. None without one.
    pub(crate) fn id_of_losses(&self, event: PreloadedEvent) -> Option<EventId> {
        let mut of_same = self.events().filter(|(it, _)| it.subject() == event.subject());
        self.id(event).or_else(|| of_same.next().map(|(_, id)| id))
    }

    /// True if it has an event of these objects.
    pub(crate) fn has(&self, subject: Subject) -> bool {
        self.events.iter().any(|(event, _)| event.subject() == subject)
    }

    /// Returns the bytes of the ring of a process. All blocks, or those of a fixed distance, fill 1 MiB within a
    /// millisecond, before the recorder wakes up, and the program waits: for 80 % of its time with `heap:1`.
    pub(crate) fn ring_bytes(&self) -> u32 {
        if self.has_fixed_period() { 4 << 20 } else { 1 << 20 }
    }

    /// True if the distance of an event's samples is fixed: their number is not bounded.
    pub(crate) fn has_fixed_period(&self) -> bool {
        let is_fixed = |period: PreloadPeriod| period.samples_per_second().is_none();
        is_fixed(self.heap_period) || is_fixed(self.call_period)
    }

    /// True if it has no event but that of calls.
    pub(crate) fn has_calls_only(&self) -> bool {
        self.events.iter().all(|(event, _)| event.subject() == Subject::Calls)
    }

    /// True if the distance of an event's samples is adapted to a frequency.
    pub(crate) fn is_adapted(&self) -> bool {
        let periods = [(Subject::Heap, self.heap_period), (Subject::Calls, self.call_period)];
        periods.iter().any(|&(of, period)| self.has(of) && period.samples_per_second().is_some())
    }

    /// Returns its events in messages.
    pub(crate) fn description(&self) -> &'static str {
        let has = [Subject::Heap, Subject::Descriptors, Subject::Calls].map(|of| self.has(of));
        match has {
            [true, true, true] => "heap and fd events and calls",
            [true, false, true] => "heap events and calls",
            [false, true, true] => "fd events and calls",
            [true, true, false] => "heap and fd events",
            [true, false, false] => "heap events",
            [false, true, false] => "fd events",
            [false, false, _] => "calls",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(texts: &[&str]) -> Result<(Option<PreloadPlan>, Vec<String>), String> {
        let parsed: Vec<_> = texts.iter().map(|text| EventSpec::parse(text).expect(text)).collect();
        let mut specs = EventSpec::expanded_all(&parsed)?;
        let plan = PreloadPlan::split(&mut specs, PreloadPeriod::of_all(None, None))?;
        Ok((plan, specs.into_iter().map(|spec| spec.name).collect()))
    }

    #[test]
    fn groups_are_expanded_and_numbered_after_others() {
        let (plan, others) = split(&["heap:64k", "cpu-clock", "fd", "heap.alloc"]).expect("valid");
        assert_eq!(others, ["cpu-clock"]);
        let mut plan = plan.expect("events");
        plan.number_after(1);
        let names: Vec<_> = plan.events().map(|(event, id)| (event.name(), id.0)).collect();
        let expected = ["heap.alloc", "heap.free", "heap.live", "heap.peak", "fd.open", "fd.close"];
        let expected = expected.into_iter().chain(["fd.live"]).zip(2..);
        assert_eq!(names, expected.collect::<Vec<_>>());
        assert_eq!(plan.heap_period, PreloadPeriod::Fixed(65536));
        assert_eq!(split(&["cycles"]), Ok((None, vec!["cycles".to_owned()])));
    }

    #[test]
    fn lost_records_belong_to_an_event_of_the_same_objects() {
        let (plan, _) = split(&["heap.live", "fd.open"]).expect("valid");
        let mut plan = plan.expect("events");
        plan.number_after(0);
        let losses = |event| plan.id_of_losses(event).map(|id| id.0);
        assert_eq!(losses(PreloadedEvent::HeapAlloc), Some(1));
        assert_eq!(losses(PreloadedEvent::HeapFree), Some(1));
        assert_eq!(losses(PreloadedEvent::FdOpen), Some(2));
        assert_eq!(losses(PreloadedEvent::Calls), None);
    }

    #[test]
    fn memory_and_calls_have_periods_of_their_own() {
        let (plan, _) = split(&["heap.alloc", "calls:1"]).expect("valid");
        let plan = plan.expect("events");
        assert_eq!(plan.call_period, PreloadPeriod::Fixed(1));
        assert_eq!(plan.heap_period, PreloadPeriod::Adaptive(SAMPLES_PER_SECOND));
        assert!(plan.has(Subject::Calls) && !plan.has_calls_only());
        let (plan, _) = split(&["calls"]).expect("valid");
        let plan = plan.expect("an event");
        assert_eq!(plan.call_period, PreloadPeriod::Adaptive(SAMPLES_PER_SECOND));
        assert!(plan.has_calls_only());
    }

    #[test]
    fn events_without_a_period_have_that_of_all() {
        let specs = ["heap.alloc", "calls:7"].map(|text| EventSpec::parse(text).expect("valid"));
        let split = |period, frequency| {
            let of_all = PreloadPeriod::of_all(period, frequency);
            PreloadPlan::split(&mut specs.to_vec(), of_all).expect("valid").expect("events")
        };
        assert_eq!(split(Some(4096), None).heap_period, PreloadPeriod::Fixed(4096));
        assert_eq!(split(Some(4096), None).call_period, PreloadPeriod::Fixed(7));
        assert_eq!(split(None, Some(99)).heap_period, PreloadPeriod::Adaptive(99));
    }

    #[test]
    fn contradictions_are_refused_with_remedy() {
        for (texts, reason) in [
            (&["heap.alloc/u"][..], "leave out its modifiers"),
            (&["fd.open:5"], "leave out its period"),
            (&["heap.alloc:1k", "heap.free:2k"], "two periods for all heap events; give one"),
            (&["calls:1", "calls:2"], "two periods for calls; give one"),
            (&["calls/u"], "leave out its modifiers"),
        ] {
            assert!(split(texts).is_err_and(|error| error.contains(reason)), "{texts:?}");
        }
    }
}
