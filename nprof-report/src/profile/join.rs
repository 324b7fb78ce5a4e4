//! Events of one unit that are added into one: `--join A,B=NAME`. Pure.
//!
//! The samples of the parts become samples of one event before anything is summed, so that every
//! report, filter and format treats it as an event that was recorded. Each sample keeps its weight
//! and count: shares and margins of the whole follow from the squared weights, as for any event with
//! samples of unequal weight.

use std::str::FromStr;
use std::sync::Arc;

use nprof_stream::{Event, Measure};

/// Events that are added into one, from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    pub(super) parts: Vec<String>,
    pub(super) name: String,
}

impl FromStr for Join {
    type Err = &'static str;

    /// Parses `A,B,...=NAME`; without a name it is `A+B+...`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected two or more events, such as cpu-clock,blocked=wall";
        let (events, name) = match text.rsplit_once('=') {
            None => (text, None),
            // The name of an event of a PMU: `cpu/event=0x3c/`.
            Some((_, name)) if name.contains('/') => (text, None),
            Some((_, "")) => return Err(EXPECTED),
            Some((events, name)) => (events, Some(name.to_owned())),
        };
        let mut parts: Vec<String> = Vec::new();
        for part in events.split(',') {
            if part.is_empty() {
                return Err(EXPECTED);
            }
            if parts.iter().any(|other| other == part) {
                return Err("an event is named twice");
            }
            parts.push(part.to_owned());
        }
        if parts.len() < 2 {
            return Err(EXPECTED);
        }
        let name = name.unwrap_or_else(|| parts.join("+"));
        Ok(Self { parts, name })
    }
}

/// Every `--join` of a report.
#[derive(Clone, Debug, Default)]
pub struct Joins(pub(super) Arc<[Join]>);

impl Joins {
    /// Creates the joins of a command line.
    ///
    /// # Errors
    ///
    /// A message if an event is in two of them, or two have one name.
    pub fn new(joins: &[Join]) -> Result<Self, String> {
        for (index, join) in joins.iter().enumerate() {
            for other in &joins[..index] {
                if let Some(part) = join.parts.iter().find(|part| other.parts.contains(part)) {
                    return Err(format!(
                        "--join: {part} is in {} and in {}; an event can be a part of one",
                        other.name, join.name
                    ));
                }
                if join.name == other.name {
                    return Err(format!("--join: two have the name {}", join.name));
                }
            }
        }
        Ok(Self(joins.into()))
    }

    /// Returns the join that has an event as a part.
    pub(crate) fn of(&self, event: &Event) -> Option<&Join> {
        self.0.iter().find(|join| join.parts.iter().any(|part| part.as_bytes() == event.name))
    }
}

impl Join {
    /// Returns the name of the sum.
    pub(crate) fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }
}

/// Returns the sum of events.
pub(crate) fn sum_of(name: &[u8], parts: &[Event]) -> Event {
    // Parts of the same rate, scope or unwinder have it together.
    fn common<T: PartialEq + Clone + Default>(parts: &[Event], of: fn(&Event) -> &T) -> T {
        let first = parts.first().map(of).cloned().unwrap_or_default();
        if parts.iter().all(|part| *of(part) == first) { first } else { T::default() }
    }
    let measures_time = parts.iter().all(|part| part.measure.is_time());
    let mut measure = common(parts, |part| &part.measure);
    if measure == Measure::Count && measures_time {
        // Time on a CPU and time of waiting are elapsed time of the thread.
        measure = Measure::WallTime;
    }
    Event {
        name: name.to_vec(),
        unit: parts.first().map(|part| part.unit.clone()).unwrap_or_default(),
        measure,
        period: common(parts, |part| &part.period),
        frequency: common(parts, |part| &part.frequency),
        scope: common(parts, |part| &part.scope),
        // A sum with one part in windows is as precise as that part.
        duty: parts.iter().map(|part| part.duty.clone()).max().unwrap_or_default(),
        unwind: common(parts, |part| &part.unwind),
        // A sum with one part of unknown error has an unknown error.
        scaled: parts.iter().map(|part| part.scaled.clone()).max().unwrap_or_default(),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::summary::Summary;
    use crate::profile::{GroupBy, Profile, Sum};

    fn joins(texts: &[&str]) -> Result<Joins, String> {
        let joins: Vec<Join> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Joins::new(&joins)
    }

    /// Returns the summary of a stream with one sample for each (name, unit, measure, weight).
    fn read(joins: Joins, events: &[(&str, &str, &str, u64)]) -> Summary {
        let mut text = "@nprof\t1.1\trun=0x1\n".to_owned();
        for (&(name, unit, measure, weight), id) in events.iter().zip(1..) {
            text += &format!("@event\tid={id}\tname={name}\tunit={unit}\tmeasure={measure}\n");
            text += &format!("S\t1\t{id}\t0\t0\t0\t{weight}\t2\n");
        }
        let mut profile = Profile::new(GroupBy::default()).joining(joins);
        profile.read("in", text.as_bytes(), |_, _, _| {}).unwrap();
        profile.summary
    }

    const CPU: (&str, &str, &str, u64) = ("cpu-clock", "ns", "cpu-time", 10);
    const BLOCKED: (&str, &str, &str, u64) = ("blocked", "ns", "wait-time", 32);
    const FAULTS: (&str, &str, &str, u64) = ("faults", "count", "count", 1);

    #[test]
    fn join_needs_two_different_events() {
        let join: Join = "a,b,c=wall".parse().unwrap();
        assert_eq!((join.parts.join(" "), join.name), ("a b c".to_owned(), "wall".to_owned()));
        assert_eq!("b,a".parse::<Join>().unwrap().name, "b+a");
        assert_eq!("a,cpu/event=1/".parse::<Join>().unwrap().parts[1], "cpu/event=1/");
        for wrong in ["", "a", "a=b", "a,", "a,,b", "a,b=", "a,b,a=c"] {
            assert!(wrong.parse::<Join>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn event_is_part_of_one_join() {
        assert!(joins(&["a,b=x", "c,d=y"]).is_ok());
        assert!(joins(&["a,b=x", "c,b=y"]).unwrap_err().contains("b is in x and in y"));
        assert!(joins(&["a,b=x", "c,d=x"]).unwrap_err().contains("two have the name x"));
    }

    #[test]
    fn joined_event_has_the_samples_of_its_parts() {
        let joins = joins(&["cpu-clock,blocked=wall"]).unwrap();
        let summary = read(joins.clone(), &[CPU, FAULTS, BLOCKED]);
        assert_eq!(joins.check(&summary), Ok(()));
        let names: Vec<String> = (0..summary.events.len()).map(|i| summary.event_name(i)).collect();
        assert_eq!(names, ["wall", "faults"]);
        let wall = &summary.events[0];
        let mut sum = Sum::of(2, 10);
        sum.add(Sum::of(2, 32));
        assert_eq!(wall.sum, sum);
        assert_eq!(
            (wall.event.measure.clone(), &wall.event.unit[..]),
            (Measure::WallTime, &b"ns"[..])
        );
    }

    #[test]
    fn refuses_absent_event_and_other_unit() {
        let joins = joins(&["cpu-clock,blocked=wall"]).unwrap();
        let error = |events: &[_]| joins.check(&read(joins.clone(), events)).unwrap_err();
        assert!(
            error(&[CPU, FAULTS])
                .contains("no event \"blocked\" in the input; it has cpu-clock, faults")
        );
        let (name, ..) = BLOCKED;
        let units = error(&[CPU, (name, "count", "count", 1)]);
        assert!(units.contains("their units are ns and count"), "{units}");
        assert!(error(&[CPU, BLOCKED, ("wall", "ns", "wall-time", 1)]).contains("another name"));
        // Nothing was recorded, or not yet.
        assert_eq!(joins.check(&Summary::default()), Ok(()));
        let live = Summary { live: true, ..read(joins.clone(), &[CPU]) };
        assert_eq!(joins.check(&live), Ok(()));
    }
}
