//! The facts of a report's heading as JSON. Scripts depend on the keys: new ones may be added, none
//! may change or go.

use nprof_stream::IncompleteInput;
use nprof_stream::escape::escaped;
use serde_json::{Map, Value, json};

use crate::profile::summary::{EventSummary, Run, Summary};
use crate::profile::unnamed::Remedies;
use crate::profile::{FoldedSums, ReportedEvent, Sum};

impl Summary {
    /// Returns `complete`, `live`, `symbolized`, `runs`, `events`, `lost_records`, `has_omissions` and `incomplete_inputs`, in this order. Strings
    /// are escaped as in text streams, shares and margins are in per cent, times in nanoseconds.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("complete".to_owned(), self.is_complete().into());
        facts.insert("live".to_owned(), self.live.into());
        facts.insert("symbolized".to_owned(), self.symbolized.into());
        facts.insert("runs".to_owned(), self.runs.iter().map(run).collect());
        facts.insert(
            "events".to_owned(),
            self.events.iter().map(|event| self.event_facts(event)).collect(),
        );
        if let Some(time) = self.thread_time() {
            facts.insert("threads".to_owned(), time.object());
        }
        facts.insert("lost_records".to_owned(), self.lost_records.into());
        facts.insert("has_omissions".to_owned(), self.has_omissions.into());
        facts.insert(
            "incomplete_inputs".to_owned(),
            self.incomplete_inputs.iter().map(incomplete_input).collect(),
        );
        facts
    }

    fn event_facts(&self, summary: &EventSummary) -> Value {
        let mut facts = event(summary);
        // Without symbols no frame has a name, which `symbolized` states.
        facts["unnamed"] =
            if self.symbolized { unnamed(summary, &self.remedies) } else { Value::Null };
        facts
    }

    /// Returns the name of an event, escaped.
    pub fn event_name(&self, event: usize) -> String {
        escaped(&self.events[event].event.name)
    }

    /// Returns the object of an event with the samples that are 100 %.
    pub fn whole(&self, event: &ReportedEvent) -> Value {
        let all = self.events[event.event].sum;
        json!({
            "event": self.event_name(event.event),
            "samples": event.whole.samples,
            "weight": event.whole.weight,
            "uncounted_samples": event.counted.rest_of(all).samples,
        })
    }

    /// Returns the array of events with samples that were folded to bound memory, given those of each
    /// event. None if nothing was folded.
    pub fn folded(&self, events: &[ReportedEvent], folded: &[Option<FoldedSums>]) -> Option<Value> {
        let object = |(event, sums): (&ReportedEvent, &Option<FoldedSums>)| {
            let sums = (*sums)?;
            Some(json!({
                "event": self.event_name(event.event),
                "samples": sums.other.samples,
                "weight": sums.other.weight,
                "bound_samples": sums.bound.samples,
                "bound_weight": sums.bound.weight,
            }))
        };
        let events: Vec<Value> = events.iter().zip(folded).filter_map(object).collect();
        (!events.is_empty()).then_some(Value::Array(events))
    }
}

fn run(run: &Run) -> Value {
    let head = run.head.as_ref();
    let end = run.end.as_ref();
    json!({
        "input": escaped(run.input.as_bytes()),
        "run": head.map(|head| head.run.to_string()),
        "command": head.map(|head| escaped(&head.command)),
        "host": head.map(|head| escaped(&head.host)),
        "os": head.map(|head| escaped(&head.os)),
        "arch": head.map(|head| escaped(&head.arch)),
        "cpu": head.map(|head| escaped(&head.cpu)),
        "utc": head.and_then(|head| head.utc),
        "samples": run.samples,
        "reason": end.map(|end| escaped(&end.reason)),
        "status": end.and_then(|end| end.status),
        "task_ns": end.and_then(|end| end.task_ns),
        "sampled_ns": end.and_then(|end| end.sampled_ns),
        "recorder_ns": end.and_then(|end| end.recorder_ns),
    })
}

fn event(summary: &EventSummary) -> Value {
    let event = &summary.event;
    let lost: Map<String, Value> =
        summary.lost.iter().map(|(cause, &count)| (cause.to_string(), count.into())).collect();
    let incomplete: Map<String, Value> =
        summary.incomplete.iter().map(|(mark, &count)| (mark.to_string(), count.into())).collect();
    json!({
        "event": escaped(&event.name),
        "requested": escaped(&event.requested),
        "fallback": escaped(&event.fallback),
        "unit": escaped(&event.unit),
        "measure": escaped(event.measure.word()),
        "period": event.period,
        "frequency": event.frequency,
        "scope": escaped(&event.scope),
        "duty": escaped(&event.duty),
        "unwind": escaped(&event.unwind),
        "samples": summary.sum.samples,
        "weight": summary.sum.weight,
        "lost": lost,
        "lost_others": summary.lost_others,
        "incomplete": incomplete,
        "maximum_margin": summary.maximum_margin().map(|margin| 100.0 * margin),
        "effective_samples": summary.sum.samples_of_equal_weight(),
        "joined": summary.parts.iter().map(|part| escaped(&part.name)).collect::<Vec<_>>(),
    })
}

/// The most images without names that an event lists: a hostile stream may have 1024 in each of thousands
/// of events.
const UNNAMED_IMAGES: usize = 16;

/// Returns the object of the samples in code without names.
fn unnamed(summary: &EventSummary, remedies: &Remedies) -> Value {
    let sum = summary.unnamed.sum();
    let images = summary.unnamed.images().into_iter().take(UNNAMED_IMAGES);
    let image = |(path, sum): (&[u8], Sum)| {
        json!({
            "image": escaped(path),
            "samples": sum.samples,
            "weight": sum.weight,
            "percent": sum.percent_of(summary.sum),
            "remedy": remedies.of(path),
        })
    };
    json!({
        "samples": sum.samples,
        "weight": sum.weight,
        "percent": sum.percent_of(summary.sum),
        "images": images.map(image).collect::<Vec<Value>>(),
    })
}

fn incomplete_input(incomplete: &IncompleteInput) -> Value {
    json!({
        "input": escaped(incomplete.input.as_bytes()),
        "verdict": incomplete.verdict.to_string(),
        "message": incomplete.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use crate::profile::{GroupBy, Profile};

    #[test]
    fn facts_count_lost_and_incomplete_samples_by_cause() {
        let stream = "@nprof\t1.1\trun=0x1\tcommand=a\\tb\n@event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
                      F\t1\t0\t0x0\tu,stack-truncated\nN\t1\t0\t1\nS\t1\t1\t0\t0\t1\t10\t4\n\
                      L\t2\t1\t-\t0\t3\tring\tothers=4\nL\t2\t0\t-\t0\t0\tring\trecords=5\n";
        let mut profile = Profile::new(GroupBy::default());
        profile.read("in", stream.as_bytes(), |_, _, _| {}).unwrap();
        let facts = profile.summary.facts();
        assert_eq!(facts["complete"], false);
        assert_eq!(facts["runs"][0]["command"], "a\\tb");
        assert_eq!(facts["events"][0]["lost"]["ring"], 3);
        assert_eq!(facts["events"][0]["lost_others"], 4);
        assert_eq!(facts["lost_records"], 5);
        assert_eq!(facts["events"][0]["incomplete"]["stack-truncated"], 4);
        assert_eq!(facts["events"][0]["maximum_margin"], 49.0);
        assert_eq!(facts["incomplete_inputs"][0]["verdict"], "truncated");
    }
}
