//! Events that are sampled by the value of a field: one sample for each period of the sum of its
//! values. Pure.

use nprof_stream::EventId;
use rustc_hash::FxHashMap;

use crate::convert::waits::{Random, WaitEvent, Weight};

/// The events that are sampled by the value of a field, and not each of them.
#[derive(Debug, Default)]
pub(crate) struct ValueEvents {
    events: FxHashMap<EventId, WaitEvent>,
    random: Option<Random>,
}

impl ValueEvents {
    /// Creates the set of the events with these periods.
    pub(crate) fn new(periods: impl Iterator<Item = (EventId, u64)>, random: Random) -> Self {
        let events = periods.map(|(event, period)| (event, WaitEvent { event, period })).collect();
        Self { events, random: Some(random) }
    }

    /// Returns the weight of an event with the value `value`: the value itself if it is not sampled
    /// by it. None if it is not chosen.
    #[inline]
    pub(crate) fn weight(&mut self, event: EventId, value: u64) -> Option<Weight> {
        let Some(random) = &mut self.random else { return Some((value, 1)) };
        match self.events.get(&event) {
            Some(sampled) => sampled.choose(value, random),
            None => Some((value, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_chosen_in_proportion() {
        let (sampled, each) = (EventId(1), EventId(2));
        let mut events = ValueEvents::new([(sampled, 1000)].into_iter(), Random::new(7));
        assert_eq!(events.weight(each, 5), Some((5, 1)));
        let large = events.weight(sampled, 3000);
        assert_eq!(large, Some((3000, 3)), "a value of at least a period is exact");
        let chosen = (0..100_000).filter(|_| events.weight(sampled, 100) == Some((1000, 1)));
        let chosen = chosen.count();
        // A tenth of them; six standard deviations are 570.
        assert!((9430..=10570).contains(&chosen), "{chosen}");
    }

    #[test]
    fn without_periods_each_event_has_its_value() {
        assert_eq!(ValueEvents::default().weight(EventId(1), 9), Some((9, 1)));
    }
}
