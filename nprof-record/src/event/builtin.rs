//! The events the kernel has names for: hardware, caches and software, as
//! include/uapi/linux/perf_event.h numbers them and perf(1) calls them. Pure.

use perf_event_open_sys::bindings as perf;

use crate::event::{Encoding, Event, Pace};

/// An event by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) group: Group,
    pub(crate) name: String,
    /// Another name for it.
    pub(crate) alias: Option<&'static str>,
    pub(crate) unit: &'static str,
    pub(crate) config: u64,
}

/// What kind of name it is; in this order they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// The events a user should begin with.
    Default,
    Hardware,
    Cache,
    Software,
    /// By the number the processor's manual gives it.
    Raw,
    /// By what the kernel's driver of a PMU says of it.
    Pmu,
    Probe,
    Tracepoint,
}

impl Group {
    /// Its word in the list.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Hardware => "hardware",
            Self::Cache => "cache",
            Self::Software => "software",
            Self::Raw => "raw",
            Self::Pmu => "pmu",
            Self::Probe => "probe",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// `perf_event_attr.type` of the events named here.
    fn kind(self) -> u32 {
        match self {
            Self::Hardware => perf::PERF_TYPE_HARDWARE,
            Self::Cache => perf::PERF_TYPE_HW_CACHE,
            _ => perf::PERF_TYPE_SOFTWARE,
        }
    }
}

type Row = (&'static str, Option<&'static str>, &'static str, u32);

const HARDWARE: [Row; 10] = [
    ("cycles", Some("cpu-cycles"), "cycles", perf::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", None, "count", perf::PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", None, "count", perf::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", None, "count", perf::PERF_COUNT_HW_CACHE_MISSES),
    ("branches", Some("branch-instructions"), "count", perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", None, "count", perf::PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", None, "count", perf::PERF_COUNT_HW_BUS_CYCLES),
    (
        "stalled-cycles-frontend",
        Some("idle-cycles-frontend"),
        "cycles",
        perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        "stalled-cycles-backend",
        Some("idle-cycles-backend"),
        "cycles",
        perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    ),
    ("ref-cycles", None, "count", perf::PERF_COUNT_HW_REF_CPU_CYCLES),
];

const SOFTWARE: [Row; 10] = [
    ("cpu-clock", None, "ns", perf::PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", None, "ns", perf::PERF_COUNT_SW_TASK_CLOCK),
    ("page-faults", Some("faults"), "count", perf::PERF_COUNT_SW_PAGE_FAULTS),
    ("minor-faults", None, "count", perf::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", None, "count", perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("context-switches", Some("cs"), "count", perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", Some("migrations"), "count", perf::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("cgroup-switches", None, "count", perf::PERF_COUNT_SW_CGROUP_SWITCHES),
    ("alignment-faults", None, "count", perf::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", None, "count", perf::PERF_COUNT_SW_EMULATION_FAULTS),
];

/// The caches, by number, and the letters of what can be counted of each: reads, writes,
/// prefetches.
const CACHES: [(&str, &str); 7] = [
    ("L1-dcache", "rwp"),
    ("L1-icache", "rp"),
    ("LLC", "rwp"),
    ("dTLB", "rwp"),
    ("iTLB", "r"),
    ("branch", "r"),
    ("node", "rwp"),
];

/// What is done to a cache, by number: its letter, and how it is called alone and with a result.
const OPERATIONS: [(char, &str, &str); 3] =
    [('r', "loads", "load"), ('w', "stores", "store"), ('p', "prefetches", "prefetch")];

/// All of them, in the order they are listed.
pub(crate) fn all() -> Vec<Named> {
    let rows = |group, rows: &[Row]| {
        rows.iter()
            .map(|&(name, alias, unit, config)| Named {
                group,
                name: name.to_owned(),
                alias,
                unit,
                config: u64::from(config),
            })
            .collect::<Vec<_>>()
    };
    let hardware = rows(Group::Hardware, &HARDWARE);
    let software = rows(Group::Software, &SOFTWARE);
    hardware.into_iter().chain(caches()).chain(software).collect()
}

/// The event with a name, or another name.
pub(crate) fn find(name: &str) -> Option<Named> {
    all().into_iter().find(|named| named.name == name || named.alias == Some(name))
}

/// The cache events: number of the cache, operation << 8, miss << 16.
fn caches() -> Vec<Named> {
    let mut names = Vec::new();
    for (cache, (cache_name, allowed)) in CACHES.iter().enumerate() {
        let operations = OPERATIONS.iter().enumerate();
        for (operation, (letter, alone, with)) in operations {
            if !allowed.contains(*letter) {
                continue;
            }
            let results = [format!("{cache_name}-{alone}"), format!("{cache_name}-{with}-misses")];
            names.extend(results.into_iter().enumerate().map(|(result, name)| Named {
                group: Group::Cache,
                name,
                alias: None,
                unit: "count",
                config: (cache | operation << 8 | result << 16) as u64,
            }));
        }
    }
    names
}

/// A core PMU of a machine that has several kinds: its type, and its CPUs.
pub(crate) type Core = (u32, Vec<u32>);

impl Named {
    /// The event, given the clock rate in Hz, and the kinds of CPUs if there are several. The
    /// kernel takes the PMU's type above the event's number then (`PERF_PMU_TYPE_SHIFT`).
    pub(crate) fn event(self, rate: Option<u64>, cores: &[Core]) -> Event {
        let pace = self.pace(rate);
        let kind = self.group.kind();
        let encodings = match self.group {
            Group::Software => Vec::new(),
            _ => cores.iter().map(|core| of_core(kind, self.config, core)).collect(),
        };
        let anywhere = || Encoding {
            only_kernel: self.name.ends_with("-switches") || self.name == "cpu-migrations",
            ..Encoding::new(kind, self.config)
        };
        let encodings = if encodings.is_empty() { vec![anywhere()] } else { encodings };
        Event { name: self.name, unit: self.unit, pace, encodings }
    }
}

impl Named {
    /// How often it happens. The software events are never left to the kernel's adaptation to a
    /// frequency: it follows bursts, and is far off for programs that run for less than seconds.
    fn pace(&self, rate: Option<u64>) -> Pace {
        match (self.group, self.name.as_str(), rate) {
            (_, "cpu-clock" | "task-clock", _) => Pace::Rate(1_000_000_000),
            (_, "page-faults" | "minor-faults", _) => Pace::Usual(FAULTS),
            (Group::Software, ..) => Pace::Each,
            (_, "cycles", Some(rate)) => Pace::Rate(rate),
            _ => Pace::Varies,
        }
    }
}

/// The page faults of a program that touches new memory while it does something with it, a second.
const FAULTS: u64 = 100_000;

fn of_core(kind: u32, config: u64, (pmu, cpus): &Core) -> Encoding {
    let config = config | u64::from(*pmu) << perf::PERF_PMU_TYPE_SHIFT;
    Encoding { cpus: Some(cpus.clone()), ..Encoding::new(kind, config) }
}

/// The CPU clock, which every machine has.
pub(crate) fn cpu_clock() -> Encoding {
    Encoding::new(perf::PERF_TYPE_SOFTWARE, perf::PERF_COUNT_SW_CPU_CLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf_and_no_two_are_alike() {
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
        assert!(!names.contains(&"iTLB-stores"), "what no processor counts has no name");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn cache_events_are_numbered_as_the_kernel_does() {
        let config = |name| find(name).map(|named| named.config);
        assert_eq!(config("L1-dcache-loads"), Some(0));
        assert_eq!(config("L1-icache-load-misses"), Some(0x1_0001));
        assert_eq!(config("LLC-stores"), Some(0x102));
        assert_eq!(config("node-prefetch-misses"), Some(0x1_0206));
    }

    #[test]
    fn an_alias_is_the_event_it_stands_for() {
        let named = find("cpu-cycles").expect("an alias");
        assert_eq!((named.name.as_str(), named.config), ("cycles", 0));
        assert_eq!(find("cs"), find("context-switches"));
        assert_eq!(find("cycle"), None);
    }

    #[test]
    fn what_happens_in_the_kernel_only_is_known() {
        let is_of_kernel =
            |named: Named| named.event(None, &[]).encodings.iter().any(|it| it.only_kernel);
        let names: Vec<_> =
            all().into_iter().filter(|it| is_of_kernel(it.clone())).map(|it| it.name).collect();
        assert_eq!(names, ["context-switches", "cpu-migrations", "cgroup-switches"]);
    }

    #[test]
    fn cycles_are_paced_by_the_clock_rate_and_clocks_by_time() {
        let event = |name| find(name).expect("a name").event(Some(3_000_000_000), &[]);
        assert_eq!(event("cycles").pace, Pace::Rate(3_000_000_000));
        assert_eq!(event("cpu-clock").pace, Pace::Rate(1_000_000_000));
        assert_eq!(event("page-faults").pace, Pace::Usual(FAULTS));
        assert_eq!(event("context-switches").pace, Pace::Each);
        assert_eq!(event("instructions").pace, Pace::Varies);
        assert_eq!(event("stalled-cycles-backend").pace, Pace::Varies);
        assert_eq!(find("cycles").expect("a name").event(None, &[]).pace, Pace::Varies);
    }

    #[test]
    fn with_two_kinds_of_cpus_there_is_one_event_of_two_encodings() {
        let cores = [(4, vec![0, 1]), (10, vec![2])];
        let event = |name| find(name).expect("a name").event(None, &cores);
        let configs: Vec<_> = event("LLC-loads")
            .encodings
            .iter()
            .map(|encoding| (encoding.config, encoding.kind))
            .collect();
        assert_eq!(configs, [(0x4_0000_0002, 3), (0xa_0000_0002, 3)]);
        assert_eq!(event("cycles").encodings[1].cpus, Some(vec![2]));
        assert_eq!(event("cpu-clock").encodings, [cpu_clock()]);
    }
}
