//! The events of this machine, and for each whether it can be opened: found by trying.

use std::fmt::Write;

use nprof_stream::escape::escaped;

use crate::event::builtin::Group;
use crate::event::catalog::Catalog;
use crate::event::probe;
use crate::event::{Asked, DEFAULT_EVENT, Encoding, Event};
use crate::os::open_error;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) group: Group,
    /// What `-e` takes; words in capitals stand for what has to be filled in.
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// What is there to say of it if it can be opened, else why it cannot.
    pub(crate) state: Result<String, String>,
}

/// Tries every event, given how to try one (which gives the errno of perf_event_open(2)), and
/// kernel.perf_event_paranoid if it can be read.
///
/// Of tracepoints only one is tried: closing one takes the kernel tens of milliseconds, and there
/// are thousands. The same rights open them all, but for those in [`RULED`].
pub(crate) fn list(
    catalog: &Catalog,
    attempt: impl Fn(&Encoding) -> Result<(), i32>,
    paranoid: Option<i32>,
) -> Vec<Listed> {
    let lister = Lister { catalog, attempt, paranoid };
    let mut listed = vec![lister.default_event()];
    listed.extend(catalog.named().map(|(group, event)| lister.event(group, &event)));
    listed.extend(lister.raw());
    listed.extend(lister.described());
    listed.extend(probe::KINDS.iter().map(|(kind, name, _)| lister.probe(kind, name)));
    listed.extend(lister.tracepoints());
    listed
}

/// Tracepoints that are opened by rules of their own (`perf_trace_event_perm`,
/// kernel/trace/trace_event_perf.c; `TRACE_EVENT_PERF_PERM`, arch/x86): they are tried.
const RULED: [&str; 2] = ["ftrace:function", "irq_vectors:irq_work_exit"];

struct Lister<'a, F> {
    catalog: &'a Catalog,
    attempt: F,
    paranoid: Option<i32>,
}

impl<F: Fn(&Encoding) -> Result<(), i32>> Lister<'_, F> {
    fn event(&self, group: Group, event: &Event) -> Listed {
        let state = match self.open(event) {
            Ok(()) => Ok(String::new()),
            Err(errno) => Err(open_error::in_words(errno, self.paranoid)),
        };
        Listed { group, name: event.name.clone(), unit: event.unit, state }
    }

    fn open(&self, event: &Event) -> Result<(), i32> {
        event.encodings.iter().try_for_each(&self.attempt)
    }

    /// The default event is the first of its candidates that can be opened.
    fn default_event(&self) -> Listed {
        let candidates = self.catalog.candidates(&Asked::default()).unwrap_or_default();
        let mut listed = counted(Group::Default, DEFAULT_EVENT, Err(String::new()));
        for event in candidates {
            let tried = self.event(Group::Default, &event);
            listed.unit = tried.unit;
            listed.state = tried.state.map(|_| event.name);
            if listed.state.is_ok() {
                break;
            }
        }
        listed
    }

    /// Events by number: whether there is a PMU for them is all that can be tried.
    fn raw(&self) -> Option<Listed> {
        let asked = Asked { name: "r0".to_owned(), ..Asked::default() };
        let event = self.catalog.candidates(&asked).ok()?.pop()?;
        Some(Listed { name: "rNNN".to_owned(), ..self.event(Group::Raw, &event) })
    }

    /// The events the drivers of PMUs name, and the terms they take.
    fn described(&self) -> Vec<Listed> {
        let mut listed = Vec::new();
        for pmu in self.catalog.pmus() {
            for event in pmu.events() {
                listed.push(self.of_pmu(&format!("{}/{event}/", pmu.name), None));
            }
            let terms: Vec<_> = pmu.terms().iter().map(|term| format!("{term}=N")).collect();
            if !terms.is_empty() {
                let shown = format!("{}/{}/", pmu.name, terms.join(","));
                listed.push(self.of_pmu(&format!("{}//", pmu.name), Some(shown)));
            }
        }
        listed
    }

    fn of_pmu(&self, name: &str, shown: Option<String>) -> Listed {
        let mut listed = match self.catalog.described(name) {
            Ok(event) => self.event(Group::Pmu, &event),
            Err(why) => counted(Group::Pmu, name, Err(why)),
        };
        listed.name = shown.unwrap_or(listed.name);
        listed
    }

    fn probe(&self, kind: &str, name: &str) -> Listed {
        let tried = probe::impossible(self.catalog.devices(), kind)
            .map(|encoding| (self.attempt)(&encoding));
        let state = match tried {
            Err(why) => Err(why),
            Ok(Err(errno)) if !probe::is_allowed(errno) => {
                Err(open_error::in_words(errno, self.paranoid))
            }
            Ok(_) => Ok(String::new()),
        };
        counted(Group::Probe, name, state)
    }

    fn tracepoints(&self) -> Vec<Listed> {
        let tracepoints = match self.catalog.tracepoints() {
            Ok(tracepoints) => tracepoints,
            Err(why) => return vec![counted(Group::Tracepoint, "SYSTEM:NAME", Err(why))],
        };
        let mut ordinary = None;
        let mut state = |name: &str| match tracepoints.event(name) {
            None => Err("it is gone".to_owned()),
            Some(Err(why)) => Err(why),
            // More rights than the others ask for do not help.
            Some(Ok(event)) if RULED.contains(&name) => {
                self.open(&event).map(|()| String::new()).map_err(open_error::describe)
            }
            Some(Ok(event)) => {
                ordinary.get_or_insert_with(|| self.event(Group::Tracepoint, &event).state).clone()
            }
        };
        let listed = |name: &String| counted(Group::Tracepoint, name, state(name));
        tracepoints.names().iter().map(listed).collect()
    }
}

/// A line for an event that is only counted.
fn counted(group: Group, name: &str, state: Result<String, String>) -> Listed {
    Listed { group, name: name.to_owned(), unit: "count", state }
}

/// The list as text, a line for each event: name, group, unit, and `available` or why not, in
/// columns that are aligned within each group.
pub(crate) fn print(listed: &[Listed]) -> String {
    let mut text = String::new();
    for group in listed.chunk_by(|one, next| one.group == next.group) {
        let lines: Vec<_> =
            group.iter().map(|line| (escaped(line.name.as_bytes()), line)).collect();
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(30);
        for (name, Listed { group, unit, state, .. }) in lines {
            let state = match state {
                Ok(note) if note.is_empty() => "available".to_owned(),
                Ok(note) => format!("available: {note}"),
                Err(why) => escaped(why.as_bytes()),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:width$}  {:10}  {unit:6}  {state}", group.word());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::{Machine, no_mount};
    use std::cell::RefCell;

    fn listed(machine: &Machine, attempt: impl Fn(&Encoding) -> Result<(), i32>) -> Vec<Listed> {
        list(&Catalog::below(machine.root(), no_mount), attempt, Some(2))
    }

    fn state<'a>(listed: &'a [Listed], name: &str) -> Result<&'a str, &'a str> {
        let line = listed.iter().find(|line| line.name == name).expect(name);
        line.state.as_deref().map_err(String::as_str)
    }

    #[test]
    fn each_event_is_tried_and_says_why_it_cannot_be_opened() {
        let machine = Machine::usual();
        let listed = listed(&machine, |encoding| match encoding.kind {
            1 => Ok(()),
            2 => Err(libc::EACCES),
            8 => Err(libc::EINVAL),
            14 => Err(libc::EINVAL),
            _ => Err(libc::ENOENT),
        });
        assert_eq!(state(&listed, DEFAULT_EVENT), Ok("cpu-clock"));
        assert_eq!(state(&listed, "cpu-clock"), Ok(""));
        assert_eq!(state(&listed, "rNNN"), Err("this machine has no such counter"));
        assert_eq!(state(&listed, "cycles"), state(&listed, "rNNN"));
        assert_eq!(state(&listed, "uprobe:PATH:0xOFFSET"), Ok(""), "it is its place that is not");
        assert!(state(&listed, "kprobe:FUNCTION").is_err_and(|why| why.contains("CONFIG_KPROBE")));
        assert!(state(&listed, "uncore_imc_0/reads/").is_err_and(|why| why.contains("sampled")));
        assert!(state(&listed, "cpu/event=N,umask=N/").is_err());
        let denied = state(&listed, "sched:sched_switch").expect_err("denied");
        assert!(denied.contains("perf_event_paranoid is 2"), "{denied}");
        let groups: Vec<_> = listed.iter().map(|line| line.group).collect();
        assert!(groups.is_sorted());
    }

    #[test]
    fn one_tracepoint_stands_for_those_that_have_no_rules_of_their_own() {
        let machine = Machine::usual();
        machine.tracepoint("ftrace", "function", "1");
        let tried = RefCell::new(Vec::new());
        let listed = listed(&machine, |encoding| {
            if encoding.kind == 2 {
                tried.borrow_mut().push(encoding.config);
            }
            if encoding.config == 1 { Err(libc::EPERM) } else { Ok(()) }
        });
        assert!(state(&listed, "ftrace:function").is_err());
        assert_eq!(state(&listed, "syscalls:sys_enter_write"), Ok(""));
        assert_eq!(tried.into_inner(), [1, 316]);
    }

    #[test]
    fn an_event_of_several_encodings_needs_them_all() {
        let listed = listed(&Machine::hybrid(), |encoding| match encoding.config >> 32 {
            10 => Err(libc::EBUSY),
            _ => Ok(()),
        });
        assert!(state(&listed, "cycles").is_err_and(|why| why.contains("holds")));
        assert_eq!(state(&listed, "rNNN"), Ok(""));
        assert!(state(&listed, "SYSTEM:NAME").is_err_and(|why| why.contains("tracefs")));
    }

    #[test]
    fn the_list_is_a_line_for_each_event() {
        let line = |name: &str, state| Listed {
            group: Group::Software,
            name: name.to_owned(),
            unit: "ns",
            state,
        };
        let text = print(&[
            line("cpu-clock", Ok(String::new())),
            line("a\nb", Err("no\tway".to_owned())),
            Listed { group: Group::Probe, ..line("x", Ok("y".to_owned())) },
        ]);
        assert_eq!(
            text,
            "cpu-clock                       software    ns      available\n\
             a\\nb                            software    ns      no\\tway\n\
             x                               probe       ns      available: y\n"
        );
    }
}
