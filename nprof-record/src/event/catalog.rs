//! The events of this machine: looks up a name in all sources.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use nprof_stream::Measure;
use perf_event_open_sys::bindings as perf;

use crate::event::builtin::{self, CoreType, EventClass};
use crate::event::cpu_frequency;
use crate::event::field;
use crate::event::pmu::{self, Pmu};
use crate::event::preloaded::PreloadedEvent;
use crate::event::probe;
use crate::event::tracepoint::{Mount, Tracepoints};
use crate::event::{DEFAULT_EVENT, Event, EventRate, EventSpec, PerfEventConfig};
use crate::sys;

/// PMUs with named events only, without terms.
const WITHOUT_TERMS: [&str; 5] = ["software", "tracepoint", "breakpoint", "uprobe", "kprobe"];

/// The events of a machine.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// The root directory of the machine: `/` except in tests.
    root: PathBuf,
    /// The directory of the PMUs.
    devices: PathBuf,
    mount: Mount,
    /// Searched at the first lookup of a tracepoint.
    tracepoints: OnceCell<Result<Tracepoints, String>>,
    /// The clock rate of the CPUs. None if the machine does not report it.
    clock_hz: Option<u64>,
    /// The kinds of cores whose PMUs state their CPUs: those of hybrid machines and of ARM.
    cores: Vec<CoreType>,
}

impl Catalog {
    /// Returns the catalog of this machine.
    pub(crate) fn of_this_machine() -> Self {
        Self::below(Path::new("/"), sys::detached_tracefs)
    }

    /// Returns the catalog of the machine with this root directory.
    pub(super) fn below(root: &Path, mount: Mount) -> Self {
        let devices = root.join("sys/bus/event_source/devices");
        // In the order of the CPUs: the first kind is that of CPU 0.
        let mut cores: Vec<_> = pmu::all(&devices).into_iter().filter_map(core_type).collect();
        cores.sort_by_key(|core| core.cpus[0]);
        // With one kind of core, generic events need no PMU type.
        if let [core] = &mut cores[..] {
            core.pmu = None;
        }
        Self {
            root: root.to_owned(),
            devices,
            mount,
            tracepoints: OnceCell::new(),
            clock_hz: cpu_frequency::clock_hz(root),
            cores,
        }
    }

    /// Returns the events to try for a specification, the best first. Only the default event has a
    /// second choice: a named event is never replaced by another one.
    ///
    /// # Errors
    ///
    /// If there is no such event (with similar names), or its terms are wrong.
    pub(crate) fn candidates(&self, spec: &EventSpec) -> Result<Vec<Event>, String> {
        if let Some((name, field)) = field::split(&spec.name) {
            return self.weighed(name, field).map(|event| vec![event]);
        }
        let name = spec.name.as_str();
        if name == DEFAULT_EVENT {
            return Ok(["cycles", "cpu-clock"]
                .iter()
                .filter_map(|name| self.builtin(name))
                .collect());
        }
        // The forms do not overlap: generic events have no `/` or `:`, and probes a known prefix.
        let event = match self.builtin(name) {
            Some(event) => Ok(event),
            None if probe::is_probe(name) => probe::event(&self.root, &self.devices, name),
            None if name.contains('/') => self.pmu_event(name),
            None if name.contains(':') => self.tracepoint(name),
            None => self.raw(name).ok_or_else(|| self.unknown(name)),
        };
        event.map(|event| vec![event])
    }

    /// Returns the event `name`, weighed by a field.
    ///
    /// # Errors
    ///
    /// If there is no such event or field.
    fn weighed(&self, name: &str, field: &str) -> Result<Event, String> {
        let explained = |reason: String| format!("{name}: {reason}");
        let (mut event, place) = if name.starts_with("uprobe:") {
            let event = probe::event(&self.root, &self.devices, name)?;
            (event, field::register(field).map_err(explained)?)
        } else if probe::is_probe(name) || name.contains('/') || !name.contains(':') {
            return Err(explained(
                "only tracepoints have fields, and uprobes registers".to_owned(),
            ));
        } else {
            let event = self.tracepoint(name)?;
            (event, self.tracepoints()?.field(name, field).map_err(explained)?)
        };
        event.measure = field::measure(name, field);
        event.name = format!("{name}*{field}");
        for config in &mut event.configs {
            config.field = Some(place);
        }
        Ok(event)
    }

    /// Returns a generic event of the kernel by name. None if there is none.
    fn builtin(&self, name: &str) -> Option<Event> {
        Some(builtin::find(name)?.event(self.clock_hz, &self.cores))
    }

    /// Returns the event `rNNN`, by its number in the manual of the processor.
    fn raw(&self, name: &str) -> Option<Event> {
        // `from_str_radix` accepts a sign.
        let digits = name.strip_prefix('r').filter(|digits| !digits.starts_with('+'))?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        let configs = if self.cores.is_empty() {
            vec![PerfEventConfig::new(perf::PERF_TYPE_RAW, number)]
        } else {
            let on_core = |core: &CoreType| PerfEventConfig {
                cpus: Some(core.cpus.clone()),
                ..PerfEventConfig::new(core.pmu.unwrap_or(perf::PERF_TYPE_RAW), number)
            };
            self.cores.iter().map(on_core).collect()
        };
        Some(hardware_event(name, configs))
    }

    /// Returns the event `pmu/terms/`.
    ///
    /// # Errors
    ///
    /// If there is no such PMU, or a term is wrong.
    pub(super) fn pmu_event(&self, name: &str) -> Result<Event, String> {
        let mut parts = name.splitn(3, '/');
        let (Some(device), Some(terms)) = (parts.next(), parts.next()) else {
            return Err(self.unknown(name));
        };
        if WITHOUT_TERMS.contains(&device) {
            return Err(format!("events of {device} have names of their own: see nprof-record -l"));
        }
        let pmu = Pmu::open(&self.devices, device).ok_or_else(|| {
            let pmus: Vec<_> = self.pmus().into_iter().map(|pmu| pmu.name).collect();
            let pmus = if pmus.is_empty() { "none".to_owned() } else { pmus.join(", ") };
            format!("this machine has no PMU {device:?}; it has {pmus}")
        })?;
        let config = pmu.encode(terms).map_err(|error| format!("{name}: {error}"))?;
        Ok(hardware_event(name, vec![config]))
    }

    /// Returns the event `system:name`.
    fn tracepoint(&self, name: &str) -> Result<Event, String> {
        let tracepoints = self.tracepoints().map_err(|reason| format!("{name}: {reason}"))?;
        tracepoints.event(name).unwrap_or_else(|| Err(self.unknown(name)))
    }

    /// Returns the tracepoints.
    ///
    /// # Errors
    ///
    /// If they are not available, with the remedy.
    pub(super) fn tracepoints(&self) -> Result<&Tracepoints, String> {
        let found = self.tracepoints.get_or_init(|| Tracepoints::find(&self.root, self.mount));
        found.as_ref().map_err(Clone::clone)
    }

    /// Returns the PMUs with events that are described by terms.
    pub(super) fn pmus(&self) -> Vec<Pmu> {
        let mut pmus = pmu::all(&self.devices);
        pmus.retain(|pmu| !WITHOUT_TERMS.contains(&pmu.name.as_str()));
        pmus
    }

    /// Returns the generic events: hardware, caches and software.
    pub(super) fn builtins(&self) -> impl Iterator<Item = (EventClass, Event)> {
        let builtins = builtin::all().into_iter();
        builtins.map(|event| (event.class, event.event(self.clock_hz, &self.cores)))
    }

    /// Returns the directory of the PMUs.
    pub(super) fn devices(&self) -> &Path {
        &self.devices
    }

    /// Returns the message that there is no such event, with similar names.
    fn unknown(&self, name: &str) -> String {
        let similar = similar(name, self.all_names());
        let hint = if similar.is_empty() {
            String::new()
        } else {
            format!("; did you mean {}?", similar.join(", "))
        };
        format!("unknown event {name:?}{hint} (nprof-record -l lists all events)")
    }

    fn all_names(&self) -> Vec<String> {
        let mut all = vec![DEFAULT_EVENT.to_owned()];
        for event in builtin::all() {
            all.extend(event.alias.map(str::to_owned));
            all.push(event.name);
        }
        all.extend(PreloadedEvent::all().map(|event| event.name().to_owned()));
        for pmu in self.pmus() {
            all.extend(pmu.events().iter().map(|event| format!("{}/{event}/", pmu.name)));
        }
        all.extend(self.tracepoints().map(Tracepoints::names).unwrap_or_default());
        all
    }
}

/// Returns the kind of core of a PMU. None if it is no core PMU that states its CPUs.
fn core_type(pmu: Pmu) -> Option<CoreType> {
    let cpus = pmu.cpus.filter(|_| pmu.is_core)?;
    Some(CoreType { pmu: Some(pmu.kind), cpus })
}

/// Returns a hardware event that is counted, at an unknown rate.
fn hardware_event(name: &str, configs: Vec<PerfEventConfig>) -> Event {
    Event {
        name: name.to_owned(),
        measure: Measure::Count,
        rate: EventRate::Unknown,
        configs,
        value_period: None,
    }
}

/// The longest name for which similar names are searched; longer ones are no typing errors.
const LONGEST: usize = 100;

/// Returns up to three names that may have been meant, the most similar first: those that contain
/// the name, and those with an edit distance of at most a third of its length.
fn similar(name: &str, all: Vec<String>) -> Vec<String> {
    const MOST: usize = 3;
    if name.len() > LONGEST {
        return Vec::new();
    }
    let name = name.to_ascii_lowercase();
    let mut similar: Vec<_> =
        all.into_iter().filter_map(|known| Some((dissimilarity(&name, &known)?, known))).collect();
    similar.sort_unstable();
    similar.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// Returns an order of similarity: false if `known` contains `name`, then the edit distance. None
/// if the names are not similar.
fn dissimilarity(name: &str, known: &str) -> Option<(bool, usize)> {
    let known = known.to_ascii_lowercase();
    let distance = strsim::osa_distance(name, &known);
    // Nearly all names contain a given letter or two.
    let is_part = name.len() > 2 && known.contains(name);
    (is_part || distance <= name.len() / 3).then_some((!is_part, distance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::WeightField;
    use crate::event::test_machine::{Machine, no_mount};

    fn candidates(machine: &Machine, name: &str) -> Result<Vec<Event>, String> {
        let catalog = Catalog::below(machine.root(), no_mount);
        catalog.candidates(&EventSpec { name: name.to_owned(), ..EventSpec::default() })
    }

    fn one(machine: &Machine, name: &str) -> PerfEventConfig {
        let mut events = candidates(machine, name).expect(name);
        assert_eq!((events.len(), events[0].configs.len()), (1, 1), "{name}");
        events.remove(0).configs.remove(0)
    }

    #[test]
    fn finds_names_of_all_sources() {
        let machine = Machine::usual();
        for (name, kind, number) in [
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
            let config = one(&machine, name);
            assert_eq!((config.kind, config.config), (kind, number), "{name}");
        }
        assert_eq!(one(&machine, "uncore_imc_0/reads/").cpus, Some(vec![0]));
    }

    #[test]
    fn weighed_event_has_its_field_and_measure() {
        let machine = Machine::usual();
        let format = "\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n";
        machine.tracepoint("syscalls", "sys_exit_write", "701");
        machine.write("sys/kernel/tracing/events/syscalls/sys_exit_write/format", format);
        let events = candidates(&machine, "syscalls:sys_exit_write*ret").expect("a field");
        let [event] = &events[..] else { panic!("one event") };
        assert_eq!((event.name.as_str(), event.unit()), ("syscalls:sys_exit_write*ret", "bytes"));
        assert!(matches!(event.configs[0].field, Some(WeightField::Traced(_))));
        machine.write("program", "0123456789");
        let path = machine.root().join("program");
        let name = format!("uprobe:{}:0x9*di", path.display());
        let events = candidates(&machine, &name).expect("a register");
        assert_eq!((events[0].name.as_str(), events[0].unit()), (name.as_str(), "value"));
        assert_eq!(events[0].configs[0].field, Some(WeightField::Register(5)));
        for (name, reason) in [
            ("syscalls:sys_exit_write*count", "there are ret"),
            ("sched:sched_switch*x", "sched:sched_switch: cannot read the fields"),
            ("sched:no*x", "unknown event \"sched:no\""),
            ("cycles*ret", "cycles: only tracepoints have fields"),
            ("kprobe:do_exit*di", "kprobe:do_exit: only tracepoints have fields"),
        ] {
            let error = candidates(&machine, name).expect_err(name);
            assert!(error.contains(reason), "{name}: {error}");
        }
    }

    #[test]
    fn only_default_event_has_second_choice() {
        let events = candidates(&Machine::new(), DEFAULT_EVENT).expect("events");
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["cycles", "cpu-clock"]);
    }

    #[test]
    fn only_kind_of_core_limits_generic_events_to_its_cpus() {
        let machine = Machine::new();
        machine.pmu("armv8_pmuv3", 10, &[("cpus", "0")]);
        for (name, kind, number) in [("cycles", 0, 0), ("r3c", 4, 0x3c)] {
            let config = one(&machine, name);
            assert_eq!((config.kind, config.config), (kind, number), "{name}");
            assert_eq!(config.cpus, Some(vec![0]), "{name}");
        }
        assert_eq!(one(&machine, "page-faults").cpus, None);
    }

    #[test]
    fn hybrid_machine_has_one_event_for_all_cores() {
        let machine = Machine::hybrid();
        for (name, numbers) in [
            ("cycles", [0x4_0000_0000, 0xa_0000_0000]),
            ("LLC-loads", [0x4_0000_0002, 0xa_0000_0002]),
            ("r3c", [0x3c, 0x3c]),
        ] {
            let events = candidates(&machine, name).expect(name);
            let configs = &events[0].configs;
            assert_eq!(configs.iter().map(|it| it.config).collect::<Vec<_>>(), numbers, "{name}");
            assert_eq!(configs[1].cpus, Some(vec![4, 5]), "{name}");
        }
        assert_eq!(one(&machine, "cpu_atom/event=0x3c/").cpus, Some(vec![4, 5]));
        assert_eq!(one(&machine, "page-faults").cpus, None);
        let kinds: Vec<_> =
            candidates(&machine, "r3c").expect("raw")[0].configs.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [4, 10]);
        let error = candidates(&machine, "cpu/event=0x3c/").expect_err("there is no such PMU");
        assert!(error.contains("no PMU \"cpu\"; it has cpu_atom, cpu_core"), "{error}");
    }

    #[test]
    fn rate_of_cycles_is_clock_rate() {
        let machine = Machine::new();
        machine.write("proc/cpuinfo", "cpu MHz : 2596.136\n");
        let events = candidates(&machine, "cycles").expect("an event");
        assert_eq!(events[0].rate, EventRate::PerCpuSecond(2_596_136_000));
    }

    #[test]
    fn unknown_name_is_reported_with_similar_ones() {
        let machine = Machine::usual();
        for (name, reason) in [
            ("cylces", "did you mean cycles"),
            ("page_fault", "page-faults"),
            ("instruction", "did you mean instructions"),
            ("sched_switch", "did you mean sched:sched_switch?"),
            ("sched:sched_swich", "did you mean sched:sched_switch?"),
            ("mem-loads", "cpu/mem-loads/"),
            ("xyzzy", "unknown event \"xyzzy\" (nprof-record -l lists all events)"),
            ("rxyz", "unknown event"),
            ("r", "unknown event"),
            ("r11111111111111111", "unknown event"),
            ("gpu/x/", "this machine has no PMU \"gpu\"; it has cpu, uncore_imc_0"),
            ("cpu/x=1/", "cpu/x=1/: cpu has neither"),
            ("uprobe/config=1/", "names of their own"),
            ("../x/", "no PMU"),
        ] {
            let error = candidates(&machine, name).expect_err(name);
            assert!(error.contains(reason), "{name}: {error}");
        }
        let error = candidates(&Machine::new(), "sched:sched_switch").expect_err("no tracefs");
        assert!(error.starts_with("sched:sched_switch: tracefs is not mounted"), "{error}");
        assert!(candidates(&machine, &"x".repeat(1 << 20)).is_err());
    }
}
