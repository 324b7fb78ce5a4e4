//! Parses the value of `-e`: `NAME[:PERIOD][/u][k]`. Pure.
//!
//! Names may contain colons and slashes, so the text is parsed from its end:
//!
//! | form                        | example                        |
//! |-----------------------------|--------------------------------|
//! | `name`                      | `cycles:1000000/u`             |
//! | `system:name`               | `syscalls:sys_enter_write:1`   |
//! | `name` of a time            | `blocked:5ms`                  |
//! | `name*field`                | `kmem:kmalloc*bytes_alloc:64k` |
//! | `pmu/terms/`                | `cpu/event=0x3c,umask=0x1/u`   |
//! | `uprobe:path:0xoffset`      | `uprobe:/bin/sh:0x1234:10/u`   |
//!
//! The modifiers of a PMU's event follow its closing slash, or the slash after its period.

use nprof_cli::time;

use crate::event::preloaded::{self, PreloadedEvent};
use crate::event::probe;
use crate::event::{CpuMode, DEFAULT_EVENT};

/// The longest period: the kernel rejects larger ones (`perf_event_open`, kernel/events/core.c).
pub(crate) const PERIOD_MAX: u64 = i64::MAX as u64;

/// The events, and names for several, of which the unit is a nanosecond.
const TIMES: [&str; 6] = ["cpu-clock", "task-clock", "blocked", "runnable", "wait", "wall"];

/// The answer to a period or modifiers of `wakes`.
const WAKES_PERIOD: &str = "wakes has the period and modifiers of blocked; leave out its own";

/// The events of waiting: each wait has one sample of each.
const WAITS: [&str; 3] = ["blocked", "runnable", "wakes"];

/// One requested event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSpec {
    /// The name as typed.
    pub(crate) name: String,
    /// The period between samples, in the unit of the event: 1 to [`PERIOD_MAX`].
    pub(crate) period: Option<u64>,
    /// The CPU modes of the modifiers.
    pub(crate) mode: Option<CpuMode>,
}

impl Default for EventSpec {
    fn default() -> Self {
        Self { name: DEFAULT_EVENT.to_owned(), period: None, mode: None }
    }
}

impl EventSpec {
    /// Returns the events that the name stands for: `wait`, `wall`, `heap` and `fd` are several, with the same
    /// period and modes.
    pub(crate) fn expanded(&self) -> Vec<Self> {
        let names: &[&str] = match self.name.as_str() {
            "wait" => &["blocked", "runnable"],
            "wall" => &["cpu-clock", "blocked", "runnable"],
            name => match preloaded::GROUPS.iter().find(|(group, _)| *group == name) {
                Some((_, names)) => names,
                None => &[name],
            },
        };
        names.iter().map(|&name| Self { name: name.to_owned(), ..self.clone() }).collect()
    }

    /// True if the name is that of several events, or of one that the preloaded library records.
    pub(crate) fn is_of_recorder(&self) -> bool {
        self.expanded().len() > 1 || PreloadedEvent::find(&self.name).is_some()
    }

    /// Returns all events that were requested, those of waiting once. `wakes` has the period and the modes of
    /// `blocked`, of which it has the weights.
    ///
    /// # Errors
    ///
    /// If `wakes` is without `blocked`, or has a period or modes of its own, or if an event of waiting is
    /// requested with two periods or modes; with the remedy.
    pub(crate) fn expanded_all(requested: &[Self]) -> Result<Vec<Self>, String> {
        let mut specs: Vec<Self> = Vec::new();
        for spec in requested.iter().flat_map(Self::expanded) {
            let is_of_waiting = WAITS.contains(&spec.name.as_str());
            match specs.iter().find(|other| is_of_waiting && other.name == spec.name) {
                // As by `-e wall -e blocked`.
                Some(other) if *other == spec => {}
                Some(_) => {
                    return Err(format!(
                        "{} is requested twice, with different periods or modifiers; keep one",
                        spec.name
                    ));
                }
                None => specs.push(spec),
            }
        }
        let blocked = specs.iter().find(|spec| spec.name == "blocked").cloned();
        for spec in specs.iter_mut().filter(|spec| spec.name == "wakes") {
            let Some(blocked) = &blocked else {
                return Err("wakes needs the event blocked; add -e blocked or -e wall".to_owned());
            };
            if spec.mode.is_some() {
                return Err(WAKES_PERIOD.to_owned());
            }
            (spec.period, spec.mode) = (blocked.period, blocked.mode);
        }
        Ok(specs)
    }

    /// Parses a period for events of any unit.
    ///
    /// # Errors
    ///
    /// If it is no number in the range of periods.
    pub(crate) fn parse_period(text: &str) -> Result<u64, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(
                "expected a number; a period with a unit follows the name of its event, such as \
                 -e wait:5ms or -e heap:64k"
                    .to_owned(),
            );
        }
        let period = text.parse().ok().filter(|period| (1..=PERIOD_MAX).contains(period));
        period.ok_or_else(|| format!("{text} is not between 1 and {PERIOD_MAX}"))
    }

    /// Parses the value of `-e`.
    ///
    /// # Errors
    ///
    /// If the form is wrong, with the right form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (rest, mode) = modifiers(text)?;
        let (name, period) = period(rest)?;
        check(name)?;
        Ok(Self { name: name.to_owned(), period, mode })
    }
}

/// Splits off the modifiers, with their slash unless it closes the terms of a PMU.
fn modifiers(text: &str) -> Result<(&str, Option<CpuMode>), String> {
    let Some((head, tail)) = text.rsplit_once('/') else { return Ok((text, None)) };
    let mode = match tail {
        "u" => CpuMode::User,
        "k" => CpuMode::Kernel,
        "uk" | "ku" => CpuMode::Both,
        _ if probe::is_probe(head) || !is_word(tail) => return Ok((text, None)),
        _ if head.contains('/') => {
            return Err(format!(
                "unknown modifier {tail} in {text}: write u, k or uk after the closing slash, for \
                 example {head}/u"
            ));
        }
        _ => {
            return Err(format!(
                "unknown modifier /{tail} in {text}: write /u, /k or /uk; for an event of a PMU, close \
                 its terms with a slash: {text}/"
            ));
        }
    };
    // `pmu/terms/u`: the slash closes the terms. `pmu/terms/:7/u`, `cycles/u`: it does not.
    let closes = !probe::is_probe(head) && head.contains('/') && period(head)?.1.is_none();
    let name = if closes { &text[..=head.len()] } else { head };
    Ok((name, Some(mode)))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Splits off the period.
fn period(text: &str) -> Result<(&str, Option<u64>), String> {
    // The part after a colon may also belong to the name: `sched:sched_switch`,
    // `uprobe:/bin/sh:0x10`.
    let Some((name, digits)) = text.rsplit_once(':') else { return Ok((text, None)) };
    if name == "heap" || name.starts_with("heap.") {
        let period =
            preloaded::parse_bytes(digits).filter(|&period| (1..=PERIOD_MAX).contains(&period));
        let expected =
            || format!("{name}: expected a number of bytes, such as 512k, not {digits:?}");
        return period.map(|period| (name, Some(period))).ok_or_else(expected);
    }
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if name == "wakes" {
        return Err(WAKES_PERIOD.to_owned());
    }
    if !is_number && let Some((number, unit_ns)) = time::number_and_unit(digits) {
        let ns = number * unit_ns as f64;
        return match TIMES.contains(&name) && (1.0..PERIOD_MAX as f64).contains(&ns) {
            true => Ok((name, Some(ns.round() as u64))),
            false => Err(format!(
                "{text}: a period is a time, such as 5ms, only for events that measure time ({}); write a \
                 number",
                TIMES.join(", ")
            )),
        };
    }
    // Of a field, such as the bytes of an allocation.
    let size = preloaded::parse_bytes(digits).filter(|_| name.contains('*') && !is_number);
    if let Some(size) = size.filter(|size| (1..=PERIOD_MAX).contains(size)) {
        return Ok((name, Some(size)));
    }
    let is_like_a_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    // Letters may be modifiers in the form of perf, which `check` answers.
    if !is_number && is_like_a_number && TIMES.contains(&name) {
        return Err(format!(
            "{name}: expected a time, such as 5ms, or a number of nanoseconds, not {digits:?}"
        ));
    }
    if !is_number {
        return Ok((text, None));
    }
    let period = digits.parse().ok().filter(|&period| (1..=PERIOD_MAX).contains(&period));
    match period {
        Some(period) => Ok((name, Some(period))),
        None => Err(format!("the period {digits} is not between 1 and {PERIOD_MAX}")),
    }
}

/// Checks the form of a name.
fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("expected NAME[:PERIOD][/u][k]".to_owned());
    }
    // Names are printed in messages and tables.
    if let Some(character) = name.chars().find(|character| character.is_control()) {
        return Err(format!("{character:?} cannot be in the name of an event"));
    }
    // The path of a probe may contain slashes and commas.
    let slashes = name.matches('/').count();
    if !probe::is_probe(name) && slashes == 0 && name.contains(',') {
        // perf: -e EVENT,EVENT.
        let events = name.replace(',', " -e ");
        return Err(format!("write one -e for each event: -e {events}"));
    }
    if !probe::is_probe(name) && slashes > 0 && (slashes != 2 || !name.ends_with('/')) {
        return Err(format!(
            "{name}: expected NAME[:PERIOD][/u][k], or PMU/TERMS/ for an event of a PMU"
        ));
    }
    // perf: -e EVENT:u.
    if let Some((event, modifiers)) = name.rsplit_once(':')
        && matches!(modifiers, "u" | "k" | "uk" | "ku")
    {
        return Err(format!("write modifiers after a slash: {event}/{modifiers}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts<'a> = (&'a str, Option<u64>, Option<CpuMode>);

    fn parts(spec: &EventSpec) -> Parts<'_> {
        (&spec.name, spec.period, spec.mode)
    }

    #[test]
    fn parses_names_periods_and_modifiers() {
        let cases: [(&str, Parts<'_>); 27] = [
            ("cycles", ("cycles", None, None)),
            ("cycles:1000000", ("cycles", Some(1_000_000), None)),
            ("cycles:1000000/u", ("cycles", Some(1_000_000), Some(CpuMode::User))),
            ("cycles/k", ("cycles", None, Some(CpuMode::Kernel))),
            ("cycles/ku", ("cycles", None, Some(CpuMode::Both))),
            ("nprof.clk_unhalted:100000", ("nprof.clk_unhalted", Some(100_000), None)),
            ("r1a8:5/u", ("r1a8", Some(5), Some(CpuMode::User))),
            ("L1-dcache-load-misses/u", ("L1-dcache-load-misses", None, Some(CpuMode::User))),
            ("syscalls:sys_enter_write", ("syscalls:sys_enter_write", None, None)),
            (
                "syscalls:sys_enter_write:1/u",
                ("syscalls:sys_enter_write", Some(1), Some(CpuMode::User)),
            ),
            ("cpu/event=0x3c,umask=0x1/", ("cpu/event=0x3c,umask=0x1/", None, None)),
            ("cpu/event=0x3c/u", ("cpu/event=0x3c/", None, Some(CpuMode::User))),
            ("cpu/event=0x3c/:7", ("cpu/event=0x3c/", Some(7), None)),
            ("cpu/event=0x3c/:7/uk", ("cpu/event=0x3c/", Some(7), Some(CpuMode::Both))),
            ("cpu/u/", ("cpu/u/", None, None)),
            ("cpu/u/u", ("cpu/u/", None, Some(CpuMode::User))),
            ("uprobe:/bin/u:0x10", ("uprobe:/bin/u:0x10", None, None)),
            ("uprobe:/bin/u:0x10/u", ("uprobe:/bin/u:0x10", None, Some(CpuMode::User))),
            ("uprobe:/a:3/b:0x10:9/k", ("uprobe:/a:3/b:0x10", Some(9), Some(CpuMode::Kernel))),
            ("wall:5ms", ("wall", Some(5_000_000), None)),
            ("kmem:kmalloc*bytes_alloc:64k", ("kmem:kmalloc*bytes_alloc", Some(64 << 10), None)),
            ("uprobe:/a*b:0x10", ("uprobe:/a*b:0x10", None, None)),
            ("cpu-clock:0.5ms/u", ("cpu-clock", Some(500_000), Some(CpuMode::User))),
            ("kprobe:do_exit:2", ("kprobe:do_exit", Some(2), None)),
            ("uprobe:/bin/sh", ("uprobe:/bin/sh", None, None)),
            ("a:b:c", ("a:b:c", None, None)),
            ("cycles:9223372036854775807", ("cycles", Some(i64::MAX as u64), None)),
        ];
        for (text, expected) in cases {
            let spec = EventSpec::parse(text).expect(text);
            assert_eq!(parts(&spec), expected, "{text}");
        }
    }

    #[test]
    fn rejects_wrong_forms_with_right_ones() {
        for (text, reason) in [
            ("", "expected NAME"),
            (":5", "expected NAME"),
            ("/u", "expected NAME"),
            ("cycles:0", "the period 0 is not between 1 and 9223372036854775807"),
            ("cycles:9223372036854775808", "is not between"),
            ("cycles:99999999999999999999999", "is not between"),
            (
                "cycles:5ms",
                "cycles:5ms: a period is a time, such as 5ms, only for events that measure time",
            ),
            ("wait:0.1ns", "write a number"),
            ("cycles/x", "unknown modifier /x in cycles/x: write /u, /k or /uk"),
            ("cycles/uu", "unknown modifier /uu"),
            ("cpu/event=1/ux", "unknown modifier ux in cpu/event=1/ux: write u, k or uk"),
            ("cpu/event=1", "PMU/TERMS/"),
            ("cycles/u:1000", "cycles/u: expected NAME[:PERIOD][/u][k]"),
            ("cycles:u,faults", "one -e for each event: -e cycles:u -e faults"),
            ("cycles:u", "write modifiers after a slash: cycles/u"),
            ("cpu/a/b/", "PMU/TERMS/"),
            ("cy\ncles", "'\\n' cannot be"),
        ] {
            let error = EventSpec::parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    fn expanded(texts: &[&str]) -> Result<Vec<EventSpec>, String> {
        let specs = texts.iter().map(|text| EventSpec::parse(text).expect(text));
        EventSpec::expanded_all(&specs.collect::<Vec<_>>())
    }

    #[test]
    fn wakes_has_period_and_modes_of_blocked() {
        let specs = expanded(&["wakes", "wait:5000/k"]).expect("valid");
        let all = [("wakes", 5000), ("blocked", 5000), ("runnable", 5000)];
        let all = all.map(|(name, period)| (name, Some(period), Some(CpuMode::Kernel)));
        assert_eq!(specs.iter().map(parts).collect::<Vec<_>>(), all);
        let error = |texts: &[&str]| expanded(texts).expect_err("it is refused");
        assert!(error(&["wakes", "cpu-clock"]).contains("add -e blocked"));
        assert!(error(&["wakes/u", "wall"]).contains("leave out its own"));
        for text in ["wakes:7", "wakes:5ms", "wakes:x"] {
            let error = EventSpec::parse(text).expect_err("it is refused");
            assert!(error.contains("leave out its own"), "{error}");
        }
    }

    #[test]
    fn events_that_no_cpu_counts_are_known_by_name() {
        let is_of_recorder =
            |text| EventSpec::parse(text).is_ok_and(|spec: EventSpec| spec.is_of_recorder());
        assert!(
            ["wall", "wait", "heap", "heap.alloc", "fd.open", "calls"].map(is_of_recorder)
                == [true; 6]
        );
        assert!(["cycles", "page-faults", "blocked"].map(is_of_recorder) == [false; 3]);
    }

    #[test]
    fn event_of_waiting_is_recorded_once() {
        let names = |texts: &[&str]| {
            let specs = expanded(texts).expect("valid");
            specs.into_iter().map(|spec| spec.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["wall", "blocked"]), ["cpu-clock", "blocked", "runnable"]);
        assert_eq!(names(&["cpu-clock", "cpu-clock:7"]), ["cpu-clock", "cpu-clock"]);
        let error = expanded(&["wall:5ms", "blocked:2ms"]).expect_err("it is refused");
        assert!(error.contains("blocked is requested twice"), "{error}");
    }

    #[test]
    fn period_of_a_time_is_a_time_or_a_number() {
        for text in ["wall:5xs", "wall:-5", "blocked:-1ms"] {
            let error = EventSpec::parse(text).expect_err("it is refused");
            assert!(error.contains("expected a time"), "{text}: {error}");
        }
    }

    #[test]
    fn name_of_default_parses_to_default() {
        assert_eq!(EventSpec::parse(DEFAULT_EVENT), Ok(EventSpec::default()));
    }
}
