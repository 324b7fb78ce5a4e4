//! The names of the two values of a sample: its observations, and its weight.

use nprof_stream::escape::escaped;
use nprof_stream::{Event, Measure};

/// Returns the name of the weights of an event: `cpu` for CPU time, as other profilers call it, if
/// it is the only event.
pub(crate) fn value_name(event: &Event, is_only: bool) -> String {
    match event.measure {
        Measure::CpuTime if is_only => "cpu".to_owned(),
        _ => escaped(&event.name),
    }
}

/// Returns the name of the numbers of observations of an event.
pub(crate) fn count_name(event: &Event, is_only: bool) -> String {
    let name = escaped(&event.name);
    // Estimates of another program keep the names that Go gives them: nprof-import recognizes them.
    if !event.scaled.is_empty() {
        return match name.strip_suffix("_space") {
            Some(kind) => format!("{kind}_objects"),
            None => format!("{name}_estimate"),
        };
    }
    if is_only { "samples".to_owned() } else { format!("{name}_samples") }
}

/// Returns the unit of the weights of an event: `nanoseconds`, `bytes`, or the event's own word.
pub(crate) fn unit_name(event: &Event) -> String {
    match event.measure {
        ref time if time.is_time() => "nanoseconds".to_owned(),
        Measure::Bytes => "bytes".to_owned(),
        _ if event.unit.is_empty() => "count".to_owned(),
        _ => escaped(&event.unit),
    }
}
