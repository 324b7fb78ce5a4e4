//! Events of which the samples are the objects that a process held: the recorder computes them from the records of
//! others, so that lost records make them wrong. Pure.

use nprof_stream::Event;

/// Held objects of one kind.
struct Held {
    /// The beginning of the names of their events.
    family: &'static [u8],
    /// The events that are computed.
    computed: &'static [&'static str],
    /// The records that they are computed from.
    records: &'static str,
}

const HELD: [Held; 2] = [
    Held {
        family: b"heap.",
        computed: &["heap.live", "heap.peak", "heap.snapshot"],
        records: "allocations and releases",
    },
    Held { family: b"fd.", computed: &["fd.live"], records: "opened and closed descriptors" },
];

/// An event of a stream.
pub(crate) struct DefinedEvent<'a> {
    pub(crate) event: &'a Event,
    /// True if records of it were lost.
    pub(crate) has_losses: bool,
}

/// Returns a sentence for each kind of held objects of which records were lost and that a stream reports, with
/// samples or without.
pub(crate) fn doubtful(events: &[DefinedEvent<'_>]) -> Vec<String> {
    let mut sentences = Vec::new();
    for Held { family, computed, records } in HELD {
        let has_lost = |it: &DefinedEvent<'_>| it.has_losses && it.event.name.starts_with(family);
        if !events.iter().any(has_lost) {
            continue;
        }
        let is_reported = |name: &&&str| events.iter().any(|it| it.event.name == name.as_bytes());
        let names: Vec<&str> = computed.iter().filter(is_reported).copied().collect();
        if !names.is_empty() {
            let names = names.join(" and ");
            sentences.push(format!("records of {records} were lost, so {names} may be wrong"));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sentences for events with these names, of which those at `lost` have lost records.
    fn sentences(names: &[&str], lost: &[usize]) -> Vec<String> {
        let events = names.iter().map(|name| Event { name: (*name).into(), ..Event::default() });
        let events: Vec<Event> = events.collect();
        let has_losses = |i| lost.contains(&i);
        let defined = events.iter().enumerate();
        let defined = defined.map(|(i, event)| DefinedEvent { event, has_losses: has_losses(i) });
        doubtful(&defined.collect::<Vec<_>>())
    }

    #[test]
    fn live_blocks_and_peak_are_doubtful_if_records_were_lost() {
        let heap = ["heap.alloc", "heap.free", "heap.live", "heap.peak"];
        let expected = [
            "records of allocations and releases were lost, so heap.live and heap.peak may be wrong",
        ];
        assert_eq!(sentences(&heap, &[0]), expected);
        assert_eq!(sentences(&heap, &[1]), expected);
        assert!(sentences(&heap, &[]).is_empty());
        // Lost allocations alone are beside their event.
        assert!(sentences(&["heap.alloc", "fd.live"], &[0]).is_empty());
        assert!(sentences(&["fd.open", "fd.live"], &[0])[0].ends_with("so fd.live may be wrong"));
    }
}
