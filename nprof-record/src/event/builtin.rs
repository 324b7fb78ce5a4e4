//! The generic events of the kernel: hardware, cache and software events with the numbers of
//! include/uapi/linux/perf_event.h and the names of perf(1). Pure.

use nprof_stream::Measure;
use perf_event_open_sys::bindings as perf;

use crate::event::{Event, EventRate, PerfEventConfig};

/// A generic event of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuiltinEvent {
    pub(crate) class: EventClass,
    pub(crate) name: String,
    /// A second name.
    pub(crate) alias: Option<&'static str>,
    pub(crate) measure: Measure,
    pub(crate) config: u64,
}

/// The class of an event, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventClass {
    /// The default event.
    Default,
    /// No event, but a property of recordings.
    Feature,
    Hardware,
    Cache,
    Software,
    /// Of the preloaded library.
    Preload,
    /// By the number in the manual of the processor.
    Raw,
    /// Described in the sysfs files of a PMU driver.
    Pmu,
    Probe,
    Tracepoint,
}

impl EventClass {
    /// Returns the word in the list.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Feature => "feature",
            Self::Hardware => "hardware",
            Self::Cache => "cache",
            Self::Software => "software",
            Self::Preload => "preload",
            Self::Raw => "raw",
            Self::Pmu => "pmu",
            Self::Probe => "probe",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// Returns `perf_event_attr.type` of the generic events.
    fn kind(self) -> u32 {
        match self {
            Self::Hardware => perf::PERF_TYPE_HARDWARE,
            Self::Cache => perf::PERF_TYPE_HW_CACHE,
            _ => perf::PERF_TYPE_SOFTWARE,
        }
    }
}

/// Name, second name, measure, `perf_event_attr.config`.
type Row = (&'static str, Option<&'static str>, Measure, u32);

const HARDWARE: [Row; 10] = [
    ("cycles", Some("cpu-cycles"), Measure::Cycles, perf::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", None, Measure::Count, perf::PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", None, Measure::Count, perf::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", None, Measure::Count, perf::PERF_COUNT_HW_CACHE_MISSES),
    (
        "branches",
        Some("branch-instructions"),
        Measure::Count,
        perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
    ),
    ("branch-misses", None, Measure::Count, perf::PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", None, Measure::Count, perf::PERF_COUNT_HW_BUS_CYCLES),
    (
        "stalled-cycles-frontend",
        Some("idle-cycles-frontend"),
        Measure::Cycles,
        perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        "stalled-cycles-backend",
        Some("idle-cycles-backend"),
        Measure::Cycles,
        perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    ),
    ("ref-cycles", None, Measure::Count, perf::PERF_COUNT_HW_REF_CPU_CYCLES),
];

// Without PERF_COUNT_SW_DUMMY, which counts nothing. BPF programs write the samples of waiting.
const SOFTWARE: [Row; 13] = [
    ("cpu-clock", None, Measure::CpuTime, perf::PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", None, Measure::CpuTime, perf::PERF_COUNT_SW_TASK_CLOCK),
    ("blocked", None, Measure::WaitTime, perf::PERF_COUNT_SW_BPF_OUTPUT),
    ("runnable", None, Measure::WaitTime, perf::PERF_COUNT_SW_BPF_OUTPUT),
    ("wakes", None, Measure::WaitTime, perf::PERF_COUNT_SW_BPF_OUTPUT),
    ("page-faults", Some("faults"), Measure::Count, perf::PERF_COUNT_SW_PAGE_FAULTS),
    ("minor-faults", None, Measure::Count, perf::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", None, Measure::Count, perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("context-switches", Some("cs"), Measure::Count, perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", Some("migrations"), Measure::Count, perf::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("cgroup-switches", None, Measure::Count, perf::PERF_COUNT_SW_CGROUP_SWITCHES),
    ("alignment-faults", None, Measure::Count, perf::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", None, Measure::Count, perf::PERF_COUNT_SW_EMULATION_FAULTS),
];

/// The caches by number, with the letters of the operations that can be counted: reads, writes,
/// prefetches.
// The combinations that perf(1) accepts (`evsel__hw_cache_stat`, tools/perf/util/evsel.c).
const CACHES: [(&str, &str); 7] = [
    ("L1-dcache", "rwp"),
    ("L1-icache", "rp"),
    ("LLC", "rwp"),
    ("dTLB", "rwp"),
    ("iTLB", "r"),
    ("branch", "r"),
    ("node", "rwp"),
];

/// The operations on a cache by number: letter, name alone, name before `-misses`.
const OPERATIONS: [(char, &str, &str); 3] =
    [('r', "loads", "load"), ('w', "stores", "store"), ('p', "prefetches", "prefetch")];

/// Returns all generic events in the order of the list.
pub(crate) fn all() -> Vec<BuiltinEvent> {
    let hardware = HARDWARE.iter().map(|row| of_row(EventClass::Hardware, row));
    let software = SOFTWARE.iter().map(|row| of_row(EventClass::Software, row));
    hardware.chain(caches()).chain(software).collect()
}

/// Returns the event of a row of the tables.
fn of_row(class: EventClass, row: &Row) -> BuiltinEvent {
    let (name, alias, measure, config) = row;
    BuiltinEvent {
        class,
        name: (*name).to_owned(),
        alias: *alias,
        measure: measure.clone(),
        config: u64::from(*config),
    }
}

/// Returns the event with this name or second name.
pub(crate) fn find(name: &str) -> Option<BuiltinEvent> {
    all().into_iter().find(|named| named.name == name || named.alias == Some(name))
}

/// Returns the cache events. Their number is cache | operation << 8 | miss << 16
/// (perf_event_open(2), PERF_TYPE_HW_CACHE).
fn caches() -> Vec<BuiltinEvent> {
    let mut names = Vec::new();
    for (cache, (cache_name, allowed)) in CACHES.iter().enumerate() {
        let operations = OPERATIONS.iter().enumerate();
        for (operation, (letter, alone, with)) in operations {
            if !allowed.contains(*letter) {
                continue;
            }
            let results = [format!("{cache_name}-{alone}"), format!("{cache_name}-{with}-misses")];
            names.extend(results.into_iter().enumerate().map(|(result, name)| BuiltinEvent {
                class: EventClass::Cache,
                name,
                alias: None,
                measure: Measure::Count,
                config: (cache | operation << 8 | result << 16) as u64,
            }));
        }
    }
    names
}

/// A PMU of cores that states its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreType {
    /// `perf_event_attr.type` of its events. None if it is the only one: generic events need none then.
    pub(crate) pmu: Option<u32>,
    pub(crate) cpus: Vec<u32>,
}

impl BuiltinEvent {
    /// Returns the event for this clock rate and these kinds of cores (none unless their PMUs
    /// state their CPUs).
    pub(crate) fn event(self, clock_hz: Option<u64>, cores: &[CoreType]) -> Event {
        let rate = self.rate(clock_hz);
        let kind = self.class.kind();
        let configs = if self.class == EventClass::Software || cores.is_empty() {
            vec![PerfEventConfig {
                // They happen in the scheduler.
                only_kernel: self.name.ends_with("-switches") || self.name == "cpu-migrations",
                ..PerfEventConfig::new(kind, self.config)
            }]
        } else {
            cores.iter().map(|core| config_on_core(kind, self.config, core)).collect()
        };
        Event { name: self.name, measure: self.measure, rate, configs, value_period: None }
    }

    /// Returns the rate of the event.
    fn rate(&self, clock_hz: Option<u64>) -> EventRate {
        match (self.class, self.name.as_str(), clock_hz) {
            (_, "cpu-clock" | "task-clock" | "blocked" | "runnable" | "wakes", _) => {
                EventRate::PerCpuSecond(1_000_000_000)
            }
            (_, "page-faults" | "minor-faults", _) => EventRate::Typical(FAULTS_PER_SECOND),
            // The kernel's adaptation to a frequency follows the bursts of software events, and is
            // far off for programs that run less than seconds.
            (EventClass::Software, ..) => EventRate::EveryEvent,
            (_, "cycles", Some(clock_hz)) => EventRate::PerCpuSecond(clock_hz),
            _ => EventRate::Unknown,
        }
    }
}

/// The page faults per second of a program that touches new memory and works on it.
const FAULTS_PER_SECOND: u64 = 100_000;

/// Returns a generic event on one kind of core: the type of the PMU lies above the event's number.
fn config_on_core(kind: u32, config: u64, core: &CoreType) -> PerfEventConfig {
    let pmu = core.pmu.map_or(0, |pmu| u64::from(pmu) << perf::PERF_PMU_TYPE_SHIFT);
    let config = config | pmu;
    PerfEventConfig { cpus: Some(core.cpus.clone()), ..PerfEventConfig::new(kind, config) }
}

/// Returns the CPU clock, which every machine has.
pub(crate) fn cpu_clock() -> PerfEventConfig {
    PerfEventConfig::new(perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_CPU_CLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf_and_unique() {
        let all = all();
        let mut names: Vec<_> = all.iter().map(|named| named.name.as_str()).collect();
        names.extend(all.iter().filter_map(|named| named.alias));
        for name in [
            "L1-dcache-loads",
            "L1-dcache-load-misses",
            "L1-icache-prefetches",
            "LLC-store-misses",
            "dTLB-prefetch-misses",
            "iTLB-loads",
            "branch-load-misses",
            "node-stores",
            "cpu-cycles",
            "branch-instructions",
        ] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(!names.contains(&"iTLB-stores"), "no processor counts it");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn cache_events_have_numbers_of_kernel() {
        let config = |name| find(name).map(|named| named.config);
        assert_eq!(config("L1-dcache-loads"), Some(0));
        assert_eq!(config("L1-icache-load-misses"), Some(0x1_0001));
        assert_eq!(config("LLC-stores"), Some(0x102));
        assert_eq!(config("node-prefetch-misses"), Some(0x1_0206));
    }

    #[test]
    fn alias_finds_its_event() {
        let named = find("cpu-cycles").expect("an alias");
        assert_eq!((named.name.as_str(), named.config), ("cycles", 0));
        assert_eq!(find("cs"), find("context-switches"));
        assert_eq!(find("cycle"), None);
    }

    #[test]
    fn switches_and_migrations_are_kernel_only() {
        let is_of_kernel =
            |named: BuiltinEvent| named.event(None, &[]).configs.iter().any(|it| it.only_kernel);
        let names: Vec<_> =
            all().into_iter().filter(|it| is_of_kernel(it.clone())).map(|it| it.name).collect();
        assert_eq!(names, ["context-switches", "cpu-migrations", "cgroup-switches"]);
    }

    #[test]
    fn rates_of_cycles_and_clocks_are_known() {
        let event = |name| find(name).expect("a name").event(Some(3_000_000_000), &[]);
        assert_eq!(event("cycles").rate, EventRate::PerCpuSecond(3_000_000_000));
        assert_eq!(event("cpu-clock").rate, EventRate::PerCpuSecond(1_000_000_000));
        assert_eq!(event("page-faults").rate, EventRate::Typical(FAULTS_PER_SECOND));
        assert_eq!(event("context-switches").rate, EventRate::EveryEvent);
        assert_eq!(event("instructions").rate, EventRate::Unknown);
        assert_eq!(event("stalled-cycles-backend").rate, EventRate::Unknown);
        assert_eq!(find("cycles").expect("a name").event(None, &[]).rate, EventRate::Unknown);
    }

    #[test]
    fn hybrid_machine_has_one_event_with_two_configs() {
        let cores =
            [(4, vec![0, 1]), (10, vec![2])].map(|(pmu, cpus)| CoreType { pmu: Some(pmu), cpus });
        let event = |name| find(name).expect("a name").event(None, &cores);
        let configs: Vec<_> =
            event("LLC-loads").configs.iter().map(|config| (config.config, config.kind)).collect();
        assert_eq!(configs, [(0x4_0000_0002, 3), (0xa_0000_0002, 3)]);
        assert_eq!(event("cycles").configs[1].cpus, Some(vec![2]));
        assert_eq!(event("cpu-clock").configs, [cpu_clock()]);
    }
}
