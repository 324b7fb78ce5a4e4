//! The check that streams have the events that are to be added into one. Pure.

use nprof_stream::Event;
use nprof_stream::escape::escaped;

use crate::profile::join::{Join, Joins};
use crate::profile::summary::Summary;

impl Joins {
    /// Refuses streams that do not have every part in one unit.
    ///
    /// # Errors
    ///
    /// A message on the first part that is absent or has another unit. A live stream may define an
    /// event later, and a stream without any event has nothing to add.
    pub fn check(&self, summary: &Summary) -> Result<(), String> {
        for join in self.0.iter() {
            join.check(summary)?;
        }
        Ok(())
    }
}

impl Join {
    fn check(&self, summary: &Summary) -> Result<(), String> {
        let Self { parts, name } = self;
        let mut named = summary.events.iter().filter(|event| event.event.name == name.as_bytes());
        let joined = named.clone().find(|event| !event.parts.is_empty());
        if let Some(recorded) =
            named.find(|event| event.parts.is_empty()).filter(|_| joined.is_some())
        {
            return Err(format!(
                "--join: an event {} was recorded; give the sum another name",
                escaped(&recorded.event.name)
            ));
        }
        let found = joined.map_or(&[][..], |event| &event.parts);
        if let [first, others @ ..] = found
            && let Some(other) = others.iter().find(|other| !has_same_unit(first, other))
        {
            return Err(format!(
                "--join: {} and {} cannot be added: their units are {} and {}",
                escaped(&first.name),
                escaped(&other.name),
                unit(first),
                unit(other)
            ));
        }
        if summary.live || summary.events.is_empty() {
            return Ok(());
        }
        match parts.iter().find(|part| !found.iter().any(|event| part.as_bytes() == event.name)) {
            None => Ok(()),
            Some(absent) => Err(format!(
                "--join: no event {absent:?} in the input; it has {}",
                summary.recorded_events().join(", ")
            )),
        }
    }
}

/// True if weights of both events can be added.
fn has_same_unit(one: &Event, other: &Event) -> bool {
    one.unit == other.unit && one.measure.is_time() == other.measure.is_time()
}

fn unit(event: &Event) -> String {
    if event.unit.is_empty() { "unknown".to_owned() } else { escaped(&event.unit) }
}
