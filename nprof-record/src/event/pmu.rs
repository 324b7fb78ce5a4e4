//! PMUs: drivers of the kernel that provide events, with descriptions in
//! /sys/bus/event_source/devices (Documentation/ABI/testing/sysfs-bus-event_source-devices*).
//!
//! `format/` has a file for each term, with the bits of its value (`config:0-7,32-35`). `events/`
//! has a file for each named event, with its terms (`event=0x3c,umask=0x1`). The contents of the
//! files are not trusted.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::event::PerfEventConfig;
use crate::os::machine;

/// A PMU and its directory.
#[derive(Clone, Debug)]
pub(crate) struct Pmu {
    pub(crate) name: String,
    /// `perf_event_attr.type` of its events.
    pub(crate) kind: u32,
    /// The CPUs on which its events can be opened. None for all CPUs.
    pub(crate) cpus: Option<Vec<u32>>,
    /// True if it is the PMU of one kind of core of a hybrid machine.
    pub(crate) is_core: bool,
    directory: PathBuf,
}

/// The destination of the value of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    /// 0 for `config`, 1 for `config1` and so on.
    register: usize,
    /// The bits of the register that receive the bits of the value, in ascending order.
    mask: u64,
}

/// A term: its name and the value after `=`.
type Term<'a> = (&'a str, Option<&'a str>);

/// The registers by number.
const REGISTERS: [&str; 4] = ["config", "config1", "config2", "config3"];

/// Suffixes of files in `events/` that describe another file.
const DESCRIPTIONS: [&str; 4] = [".unit", ".scale", ".snapshot", ".per-pkg"];

/// Returns all PMUs by name, except unreadable ones.
pub(crate) fn all(devices: &Path) -> Vec<Pmu> {
    entries(devices).iter().filter_map(|name| Pmu::open(devices, name)).collect()
}

/// Returns the names in a directory, sorted; empty if it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| is_component(name)).collect();
    names.sort_unstable();
    names
}

/// True if a name is a single path component, which cannot lead out of its directory.
pub(crate) fn is_component(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Reads a small file without surrounding white space.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    // sysfs files have at most one page.
    fs::File::open(path)?.take(4096).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

impl Pmu {
    /// Opens the PMU with this name. None if there is none.
    pub(crate) fn open(devices: &Path, name: &str) -> Option<Self> {
        let directory = is_component(name).then(|| devices.join(name))?;
        let kind = read(&directory.join("type")).ok()?.parse().ok()?;
        // The PMUs of a hybrid machine's cores have `cpus`; uncore PMUs have `cpumask`, the CPUs
        // that count for a whole package.
        let cores = cpu_list(&directory.join("cpus"));
        let is_core = cores.is_some();
        let cpus = cores.or_else(|| cpu_list(&directory.join("cpumask")));
        let cpus = cpus.filter(|cpus| !cpus.is_empty());
        Some(Self { name: name.to_owned(), kind, cpus, is_core, directory })
    }

    /// Returns the names of its events.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut names = entries(&self.directory.join("events"));
        names.retain(|name| !DESCRIPTIONS.iter().any(|end| name.ends_with(end)));
        names
    }

    /// Returns the names of its terms.
    pub(crate) fn terms(&self) -> Vec<String> {
        entries(&self.directory.join("format"))
    }

    /// Returns the event that terms describe: values of fields, and names of events. A field given
    /// directly overrides that of a named event.
    ///
    /// # Errors
    ///
    /// If a term is wrong.
    pub(crate) fn encode(&self, terms: &str) -> Result<PerfEventConfig, String> {
        let mut registers = [0; REGISTERS.len()];
        // Named events first, so that terms given directly override theirs.
        let (named, given): (Vec<_>, Vec<_>) =
            split(terms).partition(|(name, value)| value.is_none() && self.is_event(name));
        for (event, _) in named {
            let text = read(&self.directory.join("events").join(event)).map_err(|error| {
                format!("cannot read the event {event} of {}: {error}", self.name)
            })?;
            for (name, value) in split(&text) {
                match value {
                    // A placeholder: the user must give the value as a term.
                    Some("?") if given.iter().any(|term| term.0 == name) => {}
                    Some("?") => {
                        return Err(format!("{event} needs a value, as in {event},{name}=1"));
                    }
                    value => self.set(&mut registers, name, value)?,
                }
            }
        }
        for (name, value) in given {
            self.set(&mut registers, name, value)?;
        }
        let [config, config1, config2, config3] = registers;
        let (kind, cpus) = (self.kind, self.cpus.clone());
        Ok(PerfEventConfig {
            kind,
            config,
            config1,
            config2,
            config3,
            cpus,
            ..PerfEventConfig::default()
        })
    }

    fn is_event(&self, name: &str) -> bool {
        is_component(name) && self.directory.join("events").join(name).is_file()
    }

    /// Writes the value of a term to its register.
    fn set(
        &self,
        registers: &mut [u64; REGISTERS.len()],
        name: &str,
        value: Option<&str>,
    ) -> Result<(), String> {
        let field = self.field(name)?;
        let value = number(value.unwrap_or("1"))
            .ok_or_else(|| format!("{name}={} is not a number", value.unwrap_or_default()))?;
        let register = &mut registers[field.register];
        *register = field.put(*register, value).ok_or_else(|| {
            let bits = field.mask.count_ones();
            format!("{name}={value:#x} is too large: {name} has {bits} bits")
        })?;
        Ok(())
    }

    /// Returns the field of a term.
    fn field(&self, name: &str) -> Result<Field, String> {
        if let Some(register) = REGISTERS.iter().position(|&register| register == name) {
            return Ok(Field { register, mask: u64::MAX });
        }
        let file = self.directory.join("format").join(name);
        let text = if is_component(name) { read(&file).ok() } else { None };
        let text = text.ok_or_else(|| self.unknown(name))?;
        Field::parse(&text).ok_or_else(|| format!("{}: unknown format {text:?}", file.display()))
    }

    /// Returns the message that a term is unknown.
    fn unknown(&self, name: &str) -> String {
        let (pmu, terms) = (&self.name, self.terms().join(", "));
        let terms = if terms.is_empty() { "config".to_owned() } else { terms };
        format!("{pmu} has neither a term nor an event {name:?}; its terms are {terms}")
    }
}

impl Field {
    /// Parses `config1:0-7,32-35`. None if the form is wrong.
    fn parse(text: &str) -> Option<Self> {
        let (register, ranges) = text.split_once(':')?;
        let register = REGISTERS.iter().position(|&name| name == register)?;
        let mut mask = 0;
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            // A register has 64 bits; a shift by more would overflow.
            if first > last || last > 63 {
                return None;
            }
            mask |= u64::MAX >> (63 - (last - first)) << first;
        }
        Some(Self { register, mask })
    }

    /// Returns the register with the field set to `value`. None if the value has too many bits.
    fn put(self, register: u64, mut value: u64) -> Option<u64> {
        let mut bits = 0;
        // Takes the bits of the mask from the lowest up, and a bit of the value for each.
        let mut rest = self.mask;
        while rest != 0 {
            let lowest = rest & rest.wrapping_neg();
            bits |= if value & 1 == 1 { lowest } else { 0 };
            value >>= 1;
            rest ^= lowest;
        }
        (value == 0).then_some(register & !self.mask | bits)
    }
}

/// Reads a list of CPUs from a file. None if it cannot be read.
fn cpu_list(file: &Path) -> Option<Vec<u32>> {
    Some(machine::cpu_list(&read(file).ok()?))
}

/// Splits `name=value,name`.
fn split(terms: &str) -> impl Iterator<Item = Term<'_>> {
    let terms = terms.split(',').map(str::trim).filter(|term| !term.is_empty());
    terms.map(|term| match term.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (term, None),
    })
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<u64> {
    // The parsers of integers accept `+`.
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::Machine;

    fn pmu(files: &[(&str, &str)]) -> (Machine, Pmu) {
        let machine = Machine::new();
        machine.pmu("cpu", 4, files);
        let pmu = Pmu::open(&machine.devices(), "cpu").expect("a PMU");
        (machine, pmu)
    }

    #[test]
    fn format_gives_register_and_bits() {
        let field = |text| Field::parse(text).map(|field| (field.register, field.mask));
        assert_eq!(field("config:0-7,32-35"), Some((0, 0xf_0000_00ff)));
        assert_eq!(field("config1:0-63"), Some((1, u64::MAX)));
        assert_eq!(field("config2:63"), Some((2, 1 << 63)));
        for wild in [
            "",
            "config",
            "config:",
            "config:7-0",
            "config:0-64",
            "config9:1",
            "config:0-",
            "x:0-7,",
        ] {
            assert_eq!(field(wild), None, "{wild}");
        }
    }

    #[test]
    fn value_fills_bits_in_ascending_order() {
        let field = Field { register: 0, mask: 0xf_0000_00ff };
        assert_eq!(field.put(0x100, 0xfc5), Some(0xf_0000_01c5));
        assert_eq!(field.put(0xf_0000_00ff, 0), Some(0), "an earlier value is replaced");
        assert_eq!(field.put(0, 0x1000), None);
        let whole = Field { register: 0, mask: u64::MAX };
        assert_eq!(whole.put(1, u64::MAX), Some(u64::MAX));
        assert_eq!(Field { register: 0, mask: 0 }.put(5, 0), Some(5));
    }

    #[test]
    fn encodes_terms_and_named_events() {
        let (_machine, pmu) = pmu(&[
            ("format/event", "config:0-7,32-35\n"),
            ("format/umask", "config:8-15\n"),
            ("format/edge", "config:18\n"),
            ("format/ldlat", "config1:0-15\n"),
            ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("events/mem-loads.unit", "MiB\n"),
        ]);
        let encode = |terms| pmu.encode(terms).map(|it| (it.kind, it.config, it.config1));
        assert_eq!(encode("event=0x1c2,umask=0x3,edge"), Ok((4, 0x1_0004_03c2, 0)));
        assert_eq!(encode("mem-loads"), Ok((4, 0x1cd, 3)));
        assert_eq!(encode("ldlat=30,mem-loads"), Ok((4, 0x1cd, 30)), "a term overrides the event");
        assert_eq!(encode("config=0x1b1,config1=7"), Ok((4, 0x1b1, 7)));
        assert_eq!(encode(""), Ok((4, 0, 0)));
        assert_eq!(pmu.events(), ["mem-loads"]);
        for (terms, reason) in [
            ("umask=0x100", "umask=0x100 is too large: umask has 8 bits"),
            ("event=abc", "event=abc is not a number"),
            ("event=0x+1", "is not a number"),
            ("event=-1", "is not a number"),
            ("evnt=1", "cpu has neither a term nor an event \"evnt\"; its terms are edge, event"),
            ("../type=1", "neither a term"),
            ("mem-loads=3", "neither a term"),
        ] {
            let error = pmu.encode(terms).expect_err(terms);
            assert!(error.contains(reason), "{terms}: {error}");
        }
    }

    #[test]
    fn placeholder_of_event_needs_a_value() {
        let (_machine, pmu) = pmu(&[
            ("format/event", "config:0-7"),
            ("format/core", "config:16-19"),
            ("events/thing", "event=0x2,core=?"),
        ]);
        assert_eq!(pmu.encode("thing,core=3").map(|it| it.config), Ok(0x3_0002));
        assert!(pmu.encode("thing").is_err_and(|error| error.contains("thing,core=1")));
    }

    #[test]
    fn malformed_files_are_named() {
        let (machine, pmu) = pmu(&[("format/event", "\u{0}config:0-900"), ("events/loop", "loop")]);
        assert!(pmu.encode("event=1").is_err_and(|error| error.contains("format/event")));
        assert!(pmu.encode("loop").is_err_and(|error| error.contains("neither a term")));
        machine.pmu("odd", 7, &[("cpumask", "0-99999999999\n")]);
        assert_eq!(Pmu::open(&machine.devices(), "odd").expect("a PMU").cpus, None);
        machine.write("sys/bus/event_source/devices/bad/type", "seven");
        assert_eq!(all(&machine.devices()).iter().map(|it| it.kind).collect::<Vec<_>>(), [4, 7]);
        assert!(Pmu::open(&machine.devices(), "../devices/cpu").is_none());
    }
}
