//! The list of events, with the availability of each, found by opening it.

use std::fmt::Write;

use nprof_stream::escape::escaped;

use crate::event::builtin::EventClass;
use crate::event::catalog::Catalog;
use crate::event::preloaded::PreloadedEvent;
use crate::event::probe;
use crate::event::refusal::access;
use crate::event::tracepoint::Tracepoints;
use crate::event::{DEFAULT_EVENT, Event, EventSpec, PerfEventConfig};
use crate::os::open_error;

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventListing {
    pub(crate) class: EventClass,
    /// The value for `-e`; the user replaces words in capitals.
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// A note (may be empty) if the event is available, otherwise the reason.
    pub(crate) state: Result<String, String>,
}

impl EventListing {
    /// True if it is an event of waiting that the kernel can open.
    pub(crate) fn is_available_wait(&self) -> bool {
        matches!(&self.name[..], "blocked" | "runnable" | "wakes") && self.state.is_ok()
    }

    /// True if only BPF programs can record it.
    pub(crate) fn needs_bpf(&self) -> bool {
        self.name == "wakes"
    }
}

/// Tries all events.
///
/// `try_open` opens and closes an event, and returns the errno of perf_event_open(2). `paranoid` is
/// kernel.perf_event_paranoid, None if it cannot be read. `cpus` are the online ones.
pub(crate) fn list(
    catalog: &Catalog,
    try_open: impl Fn(&PerfEventConfig) -> Result<(), i32>,
    paranoid: Option<i32>,
    cpus: &[u32],
) -> Vec<EventListing> {
    let lister = Lister { catalog, try_open, paranoid, cpus };
    let mut listed = vec![lister.default_event()];
    listed.extend(catalog.builtins().map(|(class, event)| lister.event(class, &event)));
    listed.extend(PreloadedEvent::all().map(preloaded));
    listed.extend(lister.raw());
    listed.extend(lister.pmu_events());
    listed.extend(probe::KINDS.iter().map(|kind| lister.probe(kind)));
    listed.extend(lister.tracepoints());
    listed
}

/// Lists an event of the preloaded library, which needs no right.
fn preloaded(event: PreloadedEvent) -> EventListing {
    let state = if nprof_preload::LIBRARY.is_empty() {
        Err("this build has no library for it".to_owned())
    } else {
        Ok(String::new())
    };
    let (name, unit) = (event.name().to_owned(), event.measure().unit());
    EventListing { class: EventClass::Preload, name, unit, state }
}

/// Tracepoints with permission rules of their own (`perf_trace_event_perm`,
/// kernel/trace/trace_event_perf.c; `TRACE_EVENT_PERF_PERM`, arch/x86): each is tried.
const SPECIAL_TRACEPOINTS: [&str; 2] = ["ftrace:function", "irq_vectors:irq_work_exit"];

struct Lister<'a, F> {
    catalog: &'a Catalog,
    try_open: F,
    paranoid: Option<i32>,
    cpus: &'a [u32],
}

impl<F: Fn(&PerfEventConfig) -> Result<(), i32>> Lister<'_, F> {
    /// Lists an event by trying it.
    fn event(&self, class: EventClass, event: &Event) -> EventListing {
        let state = match self.open(event) {
            Ok(()) => Ok(String::new()),
            Err(errno) => {
                Err(open_error::explain(errno, self.paranoid, access(&event.name, false)))
            }
        };
        EventListing { class, name: event.name.clone(), unit: event.measure.unit(), state }
    }

    /// Tries all descriptions of an event: on hybrid machines each kind of core must have it.
    fn open(&self, event: &Event) -> Result<(), i32> {
        event.configs.iter().try_for_each(&self.try_open)
    }

    /// Lists the default event: the first of its candidates that can be opened.
    fn default_event(&self) -> EventListing {
        // The same order as for recording, so that the list names the event that would be used.
        let candidates = self.catalog.candidates(&EventSpec::default()).unwrap_or_default();
        let mut listed = counted(EventClass::Default, DEFAULT_EVENT, Err(String::new()));
        for event in candidates.into_iter().filter(|event| event.is_on_all(self.cpus)) {
            let tried = self.event(EventClass::Default, &event);
            listed.unit = tried.unit;
            listed.state = tried.state.map(|_| event.name);
            if listed.state.is_ok() {
                break;
            }
        }
        listed
    }

    /// Lists events by number. None if the machine has no PMU for them.
    fn raw(&self) -> Option<EventListing> {
        // The numbers of a processor are unknown; the number 0 shows whether the PMU can sample.
        let spec = EventSpec { name: "r0".to_owned(), ..EventSpec::default() };
        let event = self.catalog.candidates(&spec).ok()?.pop()?;
        Some(EventListing { name: "rNNN".to_owned(), ..self.event(EventClass::Raw, &event) })
    }

    /// Lists the events that PMU drivers name, and for each PMU its terms.
    fn pmu_events(&self) -> Vec<EventListing> {
        let mut listed = Vec::new();
        for pmu in self.catalog.pmus() {
            for event in pmu.events() {
                listed.push(self.pmu_event(&format!("{}/{event}/", pmu.name)));
            }
            let terms: Vec<_> = pmu.terms().iter().map(|term| format!("{term}=N")).collect();
            // An event without terms has number 0: it shows whether the PMU can sample at all.
            if !terms.is_empty() {
                let tried = self.pmu_event(&format!("{}//", pmu.name));
                let name = format!("{}/{}/", pmu.name, terms.join(","));
                listed.push(EventListing { name, ..tried });
            }
        }
        listed
    }

    /// Lists one event of a PMU.
    fn pmu_event(&self, name: &str) -> EventListing {
        match self.catalog.pmu_event(name) {
            Ok(event) => self.event(EventClass::Pmu, &event),
            Err(reason) => counted(EventClass::Pmu, name, Err(reason)),
        }
    }

    /// Lists a kind of probe.
    fn probe(&self, kind: &probe::Kind) -> EventListing {
        counted(EventClass::Probe, kind.pattern, self.try_probe(kind).map(|()| String::new()))
    }

    /// Checks whether probes of a kind can be opened.
    ///
    /// # Errors
    ///
    /// The reason.
    fn try_probe(&self, kind: &probe::Kind) -> Result<(), String> {
        let config = probe::permission_probe(self.catalog.devices(), kind.pmu)?;
        match (self.try_open)(&config) {
            Err(errno) if !probe::is_permitted(errno) => {
                Err(open_error::explain(errno, self.paranoid, access(kind.pattern, false)))
            }
            _ => Ok(()),
        }
    }

    /// Lists the tracepoints.
    fn tracepoints(&self) -> Vec<EventListing> {
        let tracepoints = match self.catalog.tracepoints() {
            Ok(tracepoints) => tracepoints,
            Err(reason) => {
                return vec![counted(EventClass::Tracepoint, "SYSTEM:NAME", Err(reason))];
            }
        };
        let mut ordinary = None;
        let mut listed = Vec::new();
        for name in tracepoints.names() {
            let state = self.tracepoint(tracepoints, &name, &mut ordinary);
            listed.push(counted(EventClass::Tracepoint, &name, state));
        }
        listed
    }

    /// Returns the state of a tracepoint. All ordinary ones share the state of the first, which is
    /// kept in `ordinary`: the kernel needs tens of milliseconds to close a tracepoint, and there
    /// are thousands.
    fn tracepoint(
        &self,
        tracepoints: &Tracepoints,
        name: &str,
        ordinary: &mut Option<Result<String, String>>,
    ) -> Result<String, String> {
        let event = match tracepoints.event(name) {
            // A module may be unloaded between the list of names and the read of the number.
            None => return Err("it has been removed".to_owned()),
            Some(event) => event?,
        };
        if SPECIAL_TRACEPOINTS.contains(&name) {
            // No hint at the privileges of other events: they do not help here.
            return self.open(&event).map(|()| String::new()).map_err(open_error::describe);
        }
        ordinary.get_or_insert_with(|| self.event(EventClass::Tracepoint, &event).state).clone()
    }
}

/// Returns a line for an event with the unit `count`.
fn counted(class: EventClass, name: &str, state: Result<String, String>) -> EventListing {
    EventListing { class, name: name.to_owned(), unit: "count", state }
}

/// Formats the list, a line for each event: name, class, unit, and `available` or the reason, in
/// columns that are aligned within each class.
pub(crate) fn print(listed: &[EventListing]) -> String {
    let mut text = String::new();
    // Tracepoints have long names: each class has a width of its own.
    for class in listed.chunk_by(|one, next| one.class == next.class) {
        let lines: Vec<_> =
            class.iter().map(|line| (escaped(line.name.as_bytes()), line)).collect();
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(30);
        for (name, EventListing { class, unit, state, .. }) in lines {
            let state = match state {
                Ok(note) if note.is_empty() => "available".to_owned(),
                Ok(note) => format!("available: {note}"),
                Err(reason) => escaped(reason.as_bytes()),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:width$}  {:10}  {unit:6}  {state}", class.word());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::{Machine, no_mount};
    use std::cell::RefCell;

    fn listed(
        machine: &Machine,
        try_open: impl Fn(&PerfEventConfig) -> Result<(), i32>,
    ) -> Vec<EventListing> {
        list(&Catalog::below(machine.root(), no_mount), try_open, Some(2), &[0, 1])
    }

    fn state<'a>(listed: &'a [EventListing], name: &str) -> Result<&'a str, &'a str> {
        let line = listed.iter().find(|line| line.name == name).expect(name);
        line.state.as_deref().map_err(String::as_str)
    }

    #[test]
    fn unavailable_events_have_reasons() {
        let machine = Machine::usual();
        let listed = listed(&machine, |config| match config.kind {
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
        assert_eq!(
            state(&listed, "uprobe:PATH:0xOFFSET"),
            Ok(""),
            "only the probed place does not exist"
        );
        assert!(
            state(&listed, "kprobe:FUNCTION").is_err_and(|reason| reason.contains("CONFIG_KPROBE"))
        );
        assert!(
            state(&listed, "uncore_imc_0/reads/").is_err_and(|reason| reason.contains("sampled"))
        );
        assert!(state(&listed, "cpu/event=N,umask=N/").is_err());
        let denied = state(&listed, "sched:sched_switch").expect_err("denied");
        assert!(denied.contains("perf_event_paranoid is 2"), "{denied}");
        let classes: Vec<_> = listed.iter().map(|line| line.class).collect();
        assert!(classes.is_sorted());
    }

    #[test]
    fn one_ordinary_tracepoint_is_tried_for_all() {
        let machine = Machine::usual();
        machine.tracepoint("ftrace", "function", "1");
        let tried = RefCell::new(Vec::new());
        let listed = listed(&machine, |config| {
            if config.kind == 2 {
                tried.borrow_mut().push(config.config);
            }
            if config.config == 1 { Err(libc::EPERM) } else { Ok(()) }
        });
        assert!(state(&listed, "ftrace:function").is_err());
        assert_eq!(state(&listed, "syscalls:sys_enter_write"), Ok(""));
        assert_eq!(tried.into_inner(), [1, 316]);
    }

    #[test]
    fn hybrid_event_needs_all_kinds_of_cores() {
        let listed = listed(&Machine::hybrid(), |config| match config.config >> 32 {
            10 => Err(libc::EBUSY),
            _ => Ok(()),
        });
        assert!(state(&listed, "cycles").is_err_and(|reason| reason.contains("holds")));
        assert_eq!(state(&listed, "rNNN"), Ok(""));
        assert!(state(&listed, "SYSTEM:NAME").is_err_and(|reason| reason.contains("tracefs")));
    }

    #[test]
    fn prints_one_line_per_event() {
        let line = |name: &str, state| EventListing {
            class: EventClass::Software,
            name: name.to_owned(),
            unit: "ns",
            state,
        };
        let text = print(&[
            line("cpu-clock", Ok(String::new())),
            line("a\nb", Err("no\tway".to_owned())),
            EventListing { class: EventClass::Probe, ..line("x", Ok("y".to_owned())) },
        ]);
        assert_eq!(
            text,
            "cpu-clock                       software    ns      available\n\
             a\\nb                            software    ns      no\\tway\n\
             x                               probe       ns      available: y\n"
        );
    }
}
