//! The lines of a table about its numbers: the counted samples, the meaning of 100 %.

use crate::profile::group::Sum;

/// The samples of an event that the rules of the command line left.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The event's name, safe for a terminal.
    pub event: String,
    /// The samples that count.
    pub counted: Sum,
    /// All its samples.
    pub all: Sum,
}

/// Returns a line for each event with its counted samples; none without rules, since then all
/// count. `rules` are the options as the user spelled them. A single event is not named.
pub fn counted(events: &[Counted], rules: &[String]) -> Vec<String> {
    if rules.is_empty() {
        return Vec::new();
    }
    let rules = rules.join(" ");
    let line = |event: &Counted| {
        let name = match events {
            [_] => String::new(),
            _ => format!(" of {}", event.event),
        };
        let (some, all) = (event.counted.samples, event.all.samples);
        let share = event.counted.percent_of(event.all);
        format!("counted: {some} of {all} samples{name}, {share:.2} % ({rules})")
    };
    events.iter().map(line).collect()
}

/// Returns the meaning of 100 %: without `--rebase` or with it.
pub fn whole(rebase: bool) -> &'static str {
    if rebase {
        "100 % is the samples of the event that are counted (--rebase)"
    } else {
        "100 % is all samples of the event"
    }
}

/// Returns the text in place of a table in which no sample counts.
pub fn nothing_counted(rules: &[String]) -> String {
    format!("\nnothing is counted ({})\n", rules.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_samples_name_the_event_only_if_there_are_several() {
        let event = |name: &str, samples| Counted {
            event: name.to_owned(),
            counted: Sum { samples, weight: samples },
            all: Sum { samples: 8, weight: 8 },
        };
        let rules = ["--match cpu=1".to_owned()];
        assert_eq!(
            counted(&[event("cycles", 2)], &rules),
            ["counted: 2 of 8 samples, 25.00 % (--match cpu=1)"]
        );
        let two = counted(&[event("cycles", 2), event("faults", 8)], &rules);
        assert_eq!(two[1], "counted: 8 of 8 samples of faults, 100.00 % (--match cpu=1)");
        assert!(counted(&[event("cycles", 2)], &[]).is_empty());
    }
}
