//! The facts on the recording that are shown above a table.

use nprof_report::summary::Summary;
use nprof_stream::Measure;
use nprof_stream::escape::escaped;

/// The facts on a recording.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The recorded command and the host. Empty before the head of the stream.
    pub command: String,
    /// The events in the order of the rows' tallies.
    pub events: Vec<EventFacts>,
    /// Facts without which a reader may misjudge the table.
    pub problems: Vec<String>,
}

/// The facts on an event.
#[derive(Clone, Debug, Default)]
pub struct EventFacts {
    /// Its name.
    pub name: String,
    /// Its name and rate.
    pub title: String,
    /// The quantity of its weights.
    pub measure: Measure,
    /// True if shares of its samples have margins of error: they are neither exact nor estimates.
    pub has_margins: bool,
    /// True if it has samples.
    pub has_samples: bool,
}

impl Facts {
    /// Returns the facts of a summary.
    pub(super) fn of(summary: &Summary) -> Self {
        // Of several recordings, the present one.
        let head = summary.runs.iter().rev().find_map(|run| run.head.as_ref());
        let command = head.map_or(String::new(), |head| {
            let host = escaped(&head.host);
            let on = if host.is_empty() { String::new() } else { format!(" on {host}") };
            format!("{}{on}", escaped(&head.command))
        });
        let mut problems = Vec::new();
        let lost: u64 =
            summary.events.iter().fold(0, |sum, event| sum.saturating_add(event.lost_samples()));
        if lost > 0 {
            problems.push(format!("{lost} samples lost"));
        }
        if !summary.symbolized && summary.samples() > 0 {
            let text = "frames have no names: pipe the stream through nprof-symbolize";
            problems.push(text.to_owned());
        }
        problems.extend(summary.lost_records_text());
        problems.extend(summary.doubtful());
        if summary.has_omissions {
            problems.push("too many stacks or names: the later ones are (other)".to_owned());
        }
        problems.extend(summary.incomplete_inputs.iter().map(ToString::to_string));
        let event = |index: usize| {
            let event = &summary.events[index];
            let name = escaped(&event.event.name);
            let rate =
                event.event.frequency.map_or(String::new(), |hertz| format!(" at {hertz} Hz"));
            EventFacts {
                title: format!("{name}{rate}"),
                name,
                measure: event.event.measure.clone(),
                has_margins: event.has_margins() && !event.is_complete(),
                has_samples: event.sum.samples > 0,
            }
        };
        Self { command, events: (0..summary.events.len()).map(event).collect(), problems }
    }
}
