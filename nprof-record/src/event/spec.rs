//! What `-e` says: `NAME[:INTERVAL][/u][k]`. Pure.
//!
//! Names have colons and slashes of their own, so the text is taken apart from its end:
//!
//! | form                        | example                       |
//! |-----------------------------|-------------------------------|
//! | `name`                      | `cycles:1000000/u`            |
//! | `system:name`               | `syscalls:sys_enter_write:1`  |
//! | `pmu/terms/`                | `cpu/event=0x3c,umask=0x1/u`  |
//! | `uprobe:path:0xoffset`      | `uprobe:/bin/sh:0x1234:10/u`  |
//!
//! The modifiers of a PMU's event follow its closing slash, or the slash after its interval.

use crate::event::probe;
use crate::event::{CpuMode, DEFAULT_EVENT};

/// The longest interval: the kernel rejects larger ones (`perf_event_open`, kernel/events/core.c).
pub(crate) const INTERVAL_MAX: u64 = i64::MAX as u64;

/// One event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSpec {
    /// Its name, as it was typed.
    pub(crate) name: String,
    /// The events between two samples, in the event's unit. Not 0, and below 2^63, which is what
    /// the kernel takes.
    pub(crate) interval: Option<u64>,
    /// What is sampled, where that was said.
    pub(crate) scope: Option<CpuMode>,
}

impl Default for EventSpec {
    fn default() -> Self {
        Self { name: DEFAULT_EVENT.to_owned(), interval: None, scope: None }
    }
}

impl EventSpec {
    /// Takes the value of `-e` apart.
    ///
    /// # Errors
    ///
    /// What is wrong, and how it should be.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (rest, scope) = modifiers(text)?;
        let (name, interval) = interval(rest)?;
        check(name)?;
        Ok(Self { name: name.to_owned(), interval, scope })
    }
}

/// Takes the modifiers from the end, and the slash that does nothing but begin them.
fn modifiers(text: &str) -> Result<(&str, Option<CpuMode>), String> {
    let Some((head, tail)) = text.rsplit_once('/') else { return Ok((text, None)) };
    let scope = match tail {
        "u" => CpuMode::User,
        "k" => CpuMode::Kernel,
        "uk" | "ku" => CpuMode::Both,
        _ if probe::is_probe(head) || !is_word(tail) => return Ok((text, None)),
        _ if head.contains('/') => {
            return Err(format!("there are the modifiers u and k, not {tail}"));
        }
        _ => {
            return Err(format!(
                "/{tail}: there are the modifiers /u, /k and /uk; the terms of a PMU end with a \
                 slash: {text}/"
            ));
        }
    };
    let closes = !probe::is_probe(head) && head.contains('/') && interval(head)?.1.is_none();
    let name = if closes { &text[..=head.len()] } else { head };
    Ok((name, Some(scope)))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Takes the interval from the end.
fn interval(text: &str) -> Result<(&str, Option<u64>), String> {
    let Some((name, digits)) = text.rsplit_once(':') else { return Ok((text, None)) };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((text, None));
    }
    let interval = digits.parse().ok().filter(|&interval| (1..=INTERVAL_MAX).contains(&interval));
    match interval {
        Some(interval) => Ok((name, Some(interval))),
        None => Err(format!("the interval {digits} is not between 1 and {INTERVAL_MAX}")),
    }
}

/// What is no name by its form.
fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("expected NAME[:INTERVAL][/u][k]".to_owned());
    }
    if let Some(character) = name.chars().find(|character| character.is_control()) {
        return Err(format!("{character:?} cannot be in the name of an event"));
    }
    let slashes = name.matches('/').count();
    if !probe::is_probe(name) && slashes == 0 && name.contains(',') {
        let events = name.replace(',', " -e ");
        return Err(format!("each event has an option of its own: -e {events}"));
    }
    if !probe::is_probe(name) && slashes > 0 && (slashes != 2 || !name.ends_with('/')) {
        return Err(format!(
            "{name}: expected NAME[:INTERVAL][/u][k], or for a PMU's event PMU/TERMS/"
        ));
    }
    if let Some((event, modifiers)) = name.rsplit_once(':')
        && matches!(modifiers, "u" | "k" | "uk" | "ku")
    {
        return Err(format!("the modifiers follow a slash: {event}/{modifiers}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts<'a> = (&'a str, Option<u64>, Option<CpuMode>);

    fn parts(asked: &EventSpec) -> Parts<'_> {
        (&asked.name, asked.interval, asked.scope)
    }

    #[test]
    fn names_intervals_and_modifiers_are_taken_apart() {
        let cases: [(&str, Parts<'_>); 23] = [
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
            ("kprobe:do_exit:2", ("kprobe:do_exit", Some(2), None)),
            ("uprobe:/bin/sh", ("uprobe:/bin/sh", None, None)),
            ("a:b:c", ("a:b:c", None, None)),
            ("cycles:9223372036854775807", ("cycles", Some(i64::MAX as u64), None)),
        ];
        for (text, expected) in cases {
            let asked = EventSpec::parse(text).expect(text);
            assert_eq!(parts(&asked), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused_with_what_it_should_be() {
        for (text, said) in [
            ("", "expected NAME"),
            (":5", "expected NAME"),
            ("/u", "expected NAME"),
            ("cycles:0", "the interval 0 is not between 1 and 9223372036854775807"),
            ("cycles:9223372036854775808", "is not between"),
            ("cycles:99999999999999999999999", "is not between"),
            ("cycles/x", "/x: there are the modifiers /u, /k and /uk"),
            ("cycles/uu", "the modifiers /u"),
            ("cpu/event=1/ux", "there are the modifiers u and k, not ux"),
            ("cpu/event=1", "PMU/TERMS/"),
            ("cycles/u:1000", "cycles/u: expected NAME[:INTERVAL][/u][k]"),
            ("cycles:u,faults", "an option of its own: -e cycles:u -e faults"),
            ("cycles:u", "the modifiers follow a slash: cycles/u"),
            ("cpu/a/b/", "PMU/TERMS/"),
            ("cy\ncles", "'\\n' cannot be"),
        ] {
            let error = EventSpec::parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn the_default_is_what_its_name_says() {
        assert_eq!(EventSpec::parse(DEFAULT_EVENT), Ok(EventSpec::default()));
    }
}
