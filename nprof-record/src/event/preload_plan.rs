//! The events of the preloaded library that a recording has, and the period of those of memory. Pure.

use nprof_stream::EventId;

use crate::event::preloaded::PreloadedEvent;
use crate::event::spec::EventSpec;

/// The distance of heap samples in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeapPeriod {
    Fixed(u64),
    /// Adapted to this number of samples per second of each process.
    Adaptive(u64),
}

/// The samples per second and process to which the distance is adapted.
const HEAP_SAMPLES_PER_SECOND: u64 = 1000;

/// The events of the preloaded library that a recording has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreloadPlan {
    /// Each once, with the id in the stream.
    events: Vec<(PreloadedEvent, EventId)>,
    pub(crate) heap_period: HeapPeriod,
}

impl PreloadPlan {
    /// Splits the requested events of the library from `specs`. None if there are none.
    ///
    /// # Errors
    ///
    /// If they have modifiers or several periods, with the remedy.
    pub(crate) fn split(specs: &mut Vec<EventSpec>) -> Result<Option<Self>, String> {
        let is_preloaded = |spec: &mut EventSpec| PreloadedEvent::find(&spec.name).is_some();
        let own: Vec<_> = specs.extract_if(.., is_preloaded).collect();
        let mut period = None;
        let mut events = Vec::new();
        for spec in &own {
            let name = &spec.name;
            let Some(event) = PreloadedEvent::find(name) else { continue };
            if spec.mode.is_some() {
                return Err(format!("{name} is an event of user code; leave out its modifiers"));
            }
            if spec.period.is_some() && !event.is_heap() {
                return Err(format!("{name} has each descriptor; leave out its period"));
            }
            if let (Some(one), Some(other)) = (period, spec.period)
                && one != other
            {
                return Err("all heap events have the same period; give it once".to_owned());
            }
            period = period.or(spec.period);
            if !events.iter().any(|(known, _)| *known == event) {
                events.push((event, EventId::NONE));
            }
        }
        let adaptive = HeapPeriod::Adaptive(HEAP_SAMPLES_PER_SECOND);
        let heap_period = period.map_or(adaptive, HeapPeriod::Fixed);
        Ok((!events.is_empty()).then_some(Self { events, heap_period }))
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

    /// True if it has an event of memory.
    pub(crate) fn has_heap(&self) -> bool {
        self.events.iter().any(|(event, _)| event.is_heap())
    }

    /// True if it has an event of descriptors.
    pub(crate) fn has_descriptors(&self) -> bool {
        self.events.iter().any(|(event, _)| !event.is_heap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(texts: &[&str]) -> Result<(Option<PreloadPlan>, Vec<String>), String> {
        let parsed: Vec<_> = texts.iter().map(|text| EventSpec::parse(text).expect(text)).collect();
        let mut specs = EventSpec::expanded_all(&parsed)?;
        let plan = PreloadPlan::split(&mut specs)?;
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
        assert_eq!(plan.heap_period, HeapPeriod::Fixed(65536));
        assert_eq!(split(&["cycles"]), Ok((None, vec!["cycles".to_owned()])));
    }

    #[test]
    fn contradictions_are_refused_with_remedy() {
        for (texts, reason) in [
            (&["heap.alloc/u"][..], "leave out its modifiers"),
            (&["fd.open:5"], "leave out its period"),
            (&["heap.alloc:1k", "heap.free:2k"], "give it once"),
        ] {
            assert!(split(texts).is_err_and(|error| error.contains(reason)), "{texts:?}");
        }
    }
}
