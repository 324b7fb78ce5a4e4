//! The lines of a table about its numbers: the counted samples, the meaning of 100 %.

use crate::profile::summary::Summary;
use crate::profile::{OmittedRows, ReportedEvent};

/// Returns the line about the counted samples of all events; none without rules, since then all count.
/// `rules` are the options as the user spelled them. A single event is not named.
pub fn counted(events: &[ReportedEvent], summary: &Summary, rules: &[String]) -> Vec<String> {
    if rules.is_empty() || events.is_empty() {
        return Vec::new();
    }
    let (none, some): (Vec<&ReportedEvent>, Vec<_>) =
        events.iter().partition(|event| events.len() > 1 && event.counted.samples == 0);
    let mut parts = Vec::new();
    for event in some {
        let name = match events {
            [_] => String::new(),
            _ => format!(" of {}", summary.event_name(event.event)),
        };
        let whole = summary.events[event.event].sum;
        let (some, all) = (event.counted.samples, whole.samples);
        let share = event.counted.percent_of(whole);
        parts.push(format!("{some} of {all} samples{name}, {share:.2} %"));
    }
    match &none[..] {
        [] => {}
        [event] => parts.push(format!("none of {}", summary.event_name(event.event))),
        several if parts.is_empty() => parts.push(format!("none of {} events", several.len())),
        several => parts.push(format!("none of {} other events", several.len())),
    }
    vec![format!("counted: {} ({})", parts.join("; "), rules.join(" "))]
}

/// Returns the meaning of 100 % if it is not the usual one, or with `--verbose`; then also `rest`, the
/// rest of the legend.
pub fn whole(rebase: bool, is_verbose: bool, rest: &str) -> Vec<String> {
    let whole = if rebase {
        "100 % is the samples of the event that are counted (--rebase)"
    } else {
        "100 % is all samples of the event"
    };
    let mut lines = Vec::new();
    if rebase || is_verbose {
        lines.push(whole.to_owned());
    }
    if is_verbose {
        lines.extend(rest.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    }
    lines
}

/// Returns the line about calls or rows that were folded to bound memory. `other` are their samples,
/// `bound` those that any one row lacks at most, both in per cent; `rows` is the plural of a row.
pub fn folded(name: &str, other: f64, rows: &str, bound: f64) -> String {
    let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
    format!(
        "folded:  {other:.2} %{of} is in (other): too many {rows}; any one lacks at most {bound:.2} %"
    )
}

/// Returns the line about rows that were omitted for one reason: their number, `verb`, and `share`,
/// which begins with a comma. Empty if there are none. `noun` is a row in the words of the report.
pub fn omitted(rows: &OmittedRows, noun: &str, verb: &str, share: &str, reason: &str) -> String {
    match rows.rows {
        0 => String::new(),
        1 => format!("1 {noun} {verb}{share} ({reason})\n"),
        count => format!("{count} {noun}s {verb}{share} ({reason})\n"),
    }
}

/// Returns the text in place of a table in which no sample counts.
pub fn nothing_counted(rules: &[String]) -> String {
    format!("\nnothing is counted ({})\n", rules.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::group::Sum;
    use crate::profile::summary::EventSummary;

    #[test]
    fn counted_samples_name_the_event_only_if_there_are_several() {
        let sum = |samples| Sum::of(samples, samples);
        let mut summary = Summary::default();
        for name in ["cycles", "faults"] {
            let mut event = EventSummary { sum: sum(8), ..EventSummary::default() };
            event.event.name = name.into();
            summary.events.push(event);
        }
        let event = |event, samples| ReportedEvent { event, whole: sum(8), counted: sum(samples) };
        let rules = ["--match cpu=1".to_owned()];
        let line = |events: &[ReportedEvent]| counted(events, &summary, &rules).concat();
        assert_eq!(line(&[event(0, 2)]), "counted: 2 of 8 samples, 25.00 % (--match cpu=1)");
        assert_eq!(
            line(&[event(0, 2), event(1, 8)]),
            "counted: 2 of 8 samples of cycles, 25.00 %; 8 of 8 samples of faults, 100.00 % (--match cpu=1)"
        );
        assert_eq!(
            line(&[event(0, 0), event(1, 8)]),
            "counted: 8 of 8 samples of faults, 100.00 %; none of cycles (--match cpu=1)"
        );
        assert_eq!(
            line(&[event(0, 0), event(1, 8), event(0, 0)]),
            "counted: 8 of 8 samples of faults, 100.00 %; none of 2 other events (--match cpu=1)"
        );
        assert!(counted(&[event(0, 2)], &summary, &[]).is_empty());
    }

    #[test]
    fn omitted_rows_have_one_line_or_none() {
        let rows = |rows| OmittedRows { rows, ..OmittedRows::default() };
        assert_eq!(omitted(&rows(0), "row", "dropped", ", 2 %", "why"), "");
        assert_eq!(
            omitted(&rows(1), "row", "dropped", ", 2 %", "why"),
            "1 row dropped, 2 % (why)\n"
        );
        assert_eq!(omitted(&rows(2), "path", "not shown", "", "why"), "2 paths not shown (why)\n");
    }
}
