//! What events this machine has: looks a name up wherever it may be from.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use perf_event_open_sys::bindings as perf;

use crate::event::builtin::{self, Core, Group};
use crate::event::cpu_frequency;
use crate::event::pmu::{self, Pmu};
use crate::event::probe;
use crate::event::tracepoint::{Mount, Tracepoints};
use crate::event::{Asked, DEFAULT_EVENT, Encoding, Event, Pace};
use crate::sys;

/// PMUs whose events have names of their own, and are not described by terms.
const OTHERWISE_NAMED: [&str; 5] = ["software", "tracepoint", "breakpoint", "uprobe", "kprobe"];

/// The events of a machine.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// Where the machine's files are: `/`.
    root: PathBuf,
    devices: PathBuf,
    mount: Mount,
    /// Looked for when the first one is asked for.
    tracepoints: OnceCell<Result<Tracepoints, String>>,
    /// The CPUs' clock rate in Hz, where the machine tells it.
    rate: Option<u64>,
    /// The kinds of CPUs, where there are several.
    cores: Vec<Core>,
}

impl Catalog {
    /// That of this machine.
    pub(crate) fn of_this_machine() -> Self {
        Self::below(Path::new("/"), sys::detached_tracefs)
    }

    /// That of the machine whose files are below `root`.
    pub(super) fn below(root: &Path, mount: Mount) -> Self {
        let devices = root.join("sys/bus/event_source/devices");
        let cores = pmu::all(&devices).into_iter().filter(|pmu| pmu.is_core);
        let mut cores: Vec<_> = cores.filter_map(|pmu| Some((pmu.kind, pmu.cpus?))).collect();
        cores.sort_by_key(|(_, cpus)| cpus[0]);
        Self {
            root: root.to_owned(),
            devices,
            mount,
            tracepoints: OnceCell::new(),
            rate: cpu_frequency::rate(root),
            cores: if cores.len() > 1 { cores } else { Vec::new() },
        }
    }

    /// What may be opened for what was asked for, the best first. Only the default event has a
    /// second choice: who names an event gets that one or none.
    ///
    /// # Errors
    ///
    /// That there is no such event, with names near it; or what is wrong with its terms.
    pub(crate) fn candidates(&self, asked: &Asked) -> Result<Vec<Event>, String> {
        let named = |name| builtin::find(name).map(|named| named.event(self.rate, &self.cores));
        let name = asked.name.as_str();
        if name == DEFAULT_EVENT {
            return Ok(["cycles", "cpu-clock"].into_iter().filter_map(named).collect());
        }
        let event = match named(name) {
            Some(event) => Ok(event),
            None if probe::is_probe(name) => probe::event(&self.root, &self.devices, name),
            None if name.contains('/') => self.described(name),
            None if name.contains(':') => self.tracepoint(name),
            None => self.raw(name).ok_or_else(|| self.unknown(name)),
        };
        event.map(|event| vec![event])
    }

    /// `rNNN`: the number a processor's manual gives an event.
    fn raw(&self, name: &str) -> Option<Event> {
        let digits = name.strip_prefix('r').filter(|digits| !digits.starts_with('+'))?;
        let config = u64::from_str_radix(digits, 16).ok()?;
        let of_core = |(kind, cpus): &Core| Encoding {
            cpus: Some(cpus.clone()),
            ..Encoding::new(*kind, config)
        };
        let mut encodings: Vec<_> = self.cores.iter().map(of_core).collect();
        if encodings.is_empty() {
            encodings.push(Encoding::new(perf::PERF_TYPE_RAW, config));
        }
        Some(counted(name, Pace::Varies, encodings))
    }

    /// `pmu/terms/`.
    pub(super) fn described(&self, name: &str) -> Result<Event, String> {
        let mut parts = name.splitn(3, '/');
        let (Some(device), Some(terms)) = (parts.next(), parts.next()) else {
            return Err(self.unknown(name));
        };
        if OTHERWISE_NAMED.contains(&device) {
            return Err(format!("the events of {device} have names of their own: nprof-record -l"));
        }
        let pmu = Pmu::open(&self.devices, device).ok_or_else(|| {
            let pmus: Vec<_> = self.pmus().into_iter().map(|pmu| pmu.name).collect();
            format!("this machine has no PMU {device:?}; it has {}", list(&pmus))
        })?;
        let encoding = pmu.encode(terms).map_err(|error| format!("{name}: {error}"))?;
        Ok(counted(name, Pace::Varies, vec![encoding]))
    }

    fn tracepoint(&self, name: &str) -> Result<Event, String> {
        let tracepoints = self.tracepoints().map_err(|why| format!("{name}: {why}"))?;
        tracepoints.event(name).unwrap_or_else(|| Err(self.unknown(name)))
    }

    /// The tracepoints.
    ///
    /// # Errors
    ///
    /// Why they cannot be had.
    pub(super) fn tracepoints(&self) -> Result<&Tracepoints, String> {
        let found = self.tracepoints.get_or_init(|| Tracepoints::find(&self.root, self.mount));
        found.as_ref().map_err(Clone::clone)
    }

    /// The PMUs whose events are described by terms.
    pub(super) fn pmus(&self) -> Vec<Pmu> {
        let mut pmus = pmu::all(&self.devices);
        pmus.retain(|pmu| !OTHERWISE_NAMED.contains(&pmu.name.as_str()));
        pmus
    }

    /// The kernel's numbers are those of this machine: names of hardware, caches and software.
    pub(super) fn named(&self) -> impl Iterator<Item = (Group, Event)> {
        builtin::all().into_iter().map(|named| (named.group, named.event(self.rate, &self.cores)))
    }

    /// Where the PMUs are.
    pub(super) fn devices(&self) -> &Path {
        &self.devices
    }

    /// That there is no such event, and what else might have been meant.
    fn unknown(&self, name: &str) -> String {
        let near = near(name, self.all_names());
        let meant = match near.is_empty() {
            true => String::new(),
            false => format!("; did you mean {}?", near.join(", ")),
        };
        format!("there is no event {name:?}{meant} (nprof-record -l lists them)")
    }

    fn all_names(&self) -> Vec<String> {
        let mut all = vec![DEFAULT_EVENT.to_owned()];
        for named in builtin::all() {
            all.extend(named.alias.map(str::to_owned));
            all.push(named.name);
        }
        for pmu in self.pmus() {
            all.extend(pmu.events().iter().map(|event| format!("{}/{event}/", pmu.name)));
        }
        all.extend(self.tracepoints().map(Tracepoints::names).unwrap_or_default());
        all
    }
}

/// An event that is only counted.
fn counted(name: &str, pace: Pace, encodings: Vec<Encoding>) -> Event {
    Event { name: name.to_owned(), unit: "count", pace, encodings }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Longer names are not typing errors.
const LONGEST: usize = 100;

/// The names that may have been meant, the nearest first: those a third of the letters away at
/// most, and those that have the name in them.
fn near(name: &str, names: Vec<String>) -> Vec<String> {
    const MOST: usize = 3;
    let asked = name.to_ascii_lowercase();
    if asked.len() > LONGEST {
        return Vec::new();
    }
    let distance = |known: &String| {
        let known = known.to_ascii_lowercase();
        let distance = strsim::osa_distance(&asked, &known);
        let is_part = asked.len() > 2 && known.contains(&asked);
        (is_part || distance <= asked.len() / 3).then_some((!is_part, distance))
    };
    let mut near: Vec<_> =
        names.into_iter().filter_map(|known| Some((distance(&known)?, known))).collect();
    near.sort_unstable();
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::{Machine, no_mount};

    fn ask(machine: &Machine, name: &str) -> Result<Vec<Event>, String> {
        let catalog = Catalog::below(machine.root(), no_mount);
        catalog.candidates(&Asked { name: name.to_owned(), ..Asked::default() })
    }

    fn one(machine: &Machine, name: &str) -> Encoding {
        let mut events = ask(machine, name).expect(name);
        assert_eq!((events.len(), events[0].encodings.len()), (1, 1), "{name}");
        events.remove(0).encodings.remove(0)
    }

    #[test]
    fn names_are_found_wherever_they_are_from() {
        let machine = Machine::usual();
        for (name, kind, config) in [
            ("cycles", 0, 0),
            ("cs", 1, 3),
            ("LLC-load-misses", 3, 0x1_0002),
            ("r1a8", 4, 0x1a8),
            ("rFFFFFFFFFFFFFFFF", 4, u64::MAX),
            ("cpu/event=0x3c,umask=0x1/", 4, 0x13c),
            ("cpu/mem-loads/", 4, 0x1cd),
            ("uncore_imc_0/reads/", 14, 1),
            ("sched:sched_switch", 2, 316),
        ] {
            let encoding = one(&machine, name);
            assert_eq!((encoding.kind, encoding.config), (kind, config), "{name}");
        }
        assert_eq!(one(&machine, "uncore_imc_0/reads/").cpus, Some(vec![0]));
    }

    #[test]
    fn only_the_default_has_a_second_choice() {
        let events = ask(&Machine::new(), DEFAULT_EVENT).expect("events");
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["cycles", "cpu-clock"]);
    }

    #[test]
    fn with_two_kinds_of_cpus_an_event_is_still_one() {
        let machine = Machine::hybrid();
        for (name, configs) in [
            ("cycles", [0x4_0000_0000, 0xa_0000_0000]),
            ("LLC-loads", [0x4_0000_0002, 0xa_0000_0002]),
            ("r3c", [0x3c, 0x3c]),
        ] {
            let events = ask(&machine, name).expect(name);
            let encodings = &events[0].encodings;
            assert_eq!(encodings.iter().map(|it| it.config).collect::<Vec<_>>(), configs, "{name}");
            assert_eq!(encodings[1].cpus, Some(vec![4, 5]), "{name}");
        }
        assert_eq!(one(&machine, "cpu_atom/event=0x3c/").cpus, Some(vec![4, 5]));
        assert_eq!(one(&machine, "page-faults").cpus, None);
        let kinds: Vec<_> =
            ask(&machine, "r3c").expect("raw")[0].encodings.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [4, 10]);
        let said = ask(&machine, "cpu/event=0x3c/").expect_err("there is no such PMU");
        assert!(said.contains("no PMU \"cpu\"; it has cpu_atom, cpu_core"), "{said}");
    }

    #[test]
    fn cycles_are_paced_by_this_machines_clock() {
        let machine = Machine::new();
        machine.write("proc/cpuinfo", "cpu MHz : 2596.136\n");
        let events = ask(&machine, "cycles").expect("an event");
        assert_eq!(events[0].pace, Pace::Rate(2_596_136_000));
    }

    #[test]
    fn what_there_is_not_comes_with_what_there_is() {
        let machine = Machine::usual();
        for (name, said) in [
            ("cylces", "did you mean cycles"),
            ("page_fault", "page-faults"),
            ("instruction", "did you mean instructions"),
            ("sched_switch", "did you mean sched:sched_switch?"),
            ("sched:sched_swich", "did you mean sched:sched_switch?"),
            ("mem-loads", "cpu/mem-loads/"),
            ("xyzzy", "there is no event \"xyzzy\" (nprof-record -l lists them)"),
            ("rxyz", "there is no event"),
            ("r", "there is no event"),
            ("r11111111111111111", "there is no event"),
            ("gpu/x/", "this machine has no PMU \"gpu\"; it has cpu, uncore_imc_0"),
            ("cpu/x=1/", "cpu/x=1/: cpu has neither"),
            ("uprobe/config=1/", "names of their own"),
            ("../x/", "no PMU"),
        ] {
            let error = ask(&machine, name).expect_err(name);
            assert!(error.contains(said), "{name}: {error}");
        }
        let error = ask(&Machine::new(), "sched:sched_switch").expect_err("no tracefs");
        assert!(error.starts_with("sched:sched_switch: tracefs is not mounted"), "{error}");
        assert!(ask(&machine, &"x".repeat(1 << 20)).is_err());
    }
}
