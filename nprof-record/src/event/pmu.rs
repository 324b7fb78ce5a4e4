//! A PMU: a source of events with a driver in the kernel, described in
//! /sys/bus/event_source/devices (Documentation/ABI/testing/sysfs-bus-event_source-devices*).
//!
//! `format/` has a file for each field of an event's description, with the bits it takes
//! (`config:0-7,32-35`); `events/` has a file for each event that has a name, with the terms it
//! stands for (`event=0x3c,umask=0x1`). What is in the files is not trusted.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::event::PerfEventConfig;
use crate::os::machine;

/// A PMU, as its files describe it.
#[derive(Clone, Debug)]
pub(crate) struct Pmu {
    pub(crate) name: String,
    /// `perf_event_attr.type` of its events.
    pub(crate) kind: u32,
    /// The only CPUs its events can be opened on; `None` for all.
    pub(crate) cpus: Option<Vec<u32>>,
    /// Whether it is the PMU of some of the CPUs, where they are of several kinds.
    pub(crate) is_core: bool,
    directory: PathBuf,
}

/// Where the value of a term goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    /// 0 for `config`, 1 for `config1` and so on.
    register: usize,
    /// Its bits; the value's bits go there in ascending order.
    mask: u64,
}

/// A term: a name and what follows its `=`.
type Term<'a> = (&'a str, Option<&'a str>);

/// The registers, by number.
const REGISTERS: [&str; 4] = ["config", "config1", "config2", "config3"];

/// What a file in `events/` is called that only describes another one.
const DESCRIPTIONS: [&str; 4] = [".unit", ".scale", ".snapshot", ".per-pkg"];

/// The PMUs there are, by name. Those that cannot be read are left out.
pub(crate) fn all(devices: &Path) -> Vec<Pmu> {
    entries(devices).iter().filter_map(|name| Pmu::open(devices, name)).collect()
}

/// The names in a directory, in order; none if it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| is_component(name)).collect();
    names.sort_unstable();
    names
}

/// Whether a name is that of something in a directory, and no way out of it.
pub(crate) fn is_component(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// What is in a small file, without the white space around it.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(4096).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

impl Pmu {
    /// The PMU with a name; `None` if there is none.
    pub(crate) fn open(devices: &Path, name: &str) -> Option<Self> {
        let directory = is_component(name).then(|| devices.join(name))?;
        let kind = read(&directory.join("type")).ok()?.parse().ok()?;
        let list =
            |file: &str| read(&directory.join(file)).ok().map(|list| machine::cpu_list(&list));
        let core = list("cpus");
        let is_core = core.is_some();
        let cpus = core.or_else(|| list("cpumask")).filter(|cpus| !cpus.is_empty());
        Some(Self { name: name.to_owned(), kind, cpus, is_core, directory })
    }

    /// The names of its events.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut names = entries(&self.directory.join("events"));
        names.retain(|name| !DESCRIPTIONS.iter().any(|end| name.ends_with(end)));
        names
    }

    /// The names of the terms it takes.
    pub(crate) fn terms(&self) -> Vec<String> {
        entries(&self.directory.join("format"))
    }

    /// Describes the event some terms stand for: fields with values, and names of events.
    /// What is said of a field goes before what a named event says of it.
    ///
    /// # Errors
    ///
    /// Which term is wrong, and why.
    pub(crate) fn encode(&self, terms: &str) -> Result<PerfEventConfig, String> {
        let mut registers = [0; REGISTERS.len()];
        let (named, given): (Vec<_>, Vec<_>) =
            split(terms).partition(|(name, value)| value.is_none() && self.is_event(name));
        for (event, _) in named {
            let text = read(&self.directory.join("events").join(event)).map_err(|error| {
                format!("cannot read the event {event} of {}: {error}", self.name)
            })?;
            for (name, value) in split(&text) {
                match value {
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

    /// Puts the value of a term where it belongs.
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

    fn field(&self, name: &str) -> Result<Field, String> {
        if let Some(register) = REGISTERS.iter().position(|&register| register == name) {
            return Ok(Field { register, mask: u64::MAX });
        }
        let file = self.directory.join("format").join(name);
        let text = if is_component(name) { read(&file).ok() } else { None };
        let text = text.ok_or_else(|| self.unknown(name))?;
        Field::parse(&text)
            .ok_or_else(|| format!("{}: cannot make sense of {text:?}", file.display()))
    }

    fn unknown(&self, name: &str) -> String {
        let (pmu, terms) = (&self.name, self.terms().join(", "));
        let terms = if terms.is_empty() { "config".to_owned() } else { terms };
        format!("{pmu} has neither a term nor an event {name:?}; its terms are {terms}")
    }
}

impl Field {
    /// Reads `config1:0-7,32-35`.
    fn parse(text: &str) -> Option<Self> {
        let (register, ranges) = text.split_once(':')?;
        let register = REGISTERS.iter().position(|&name| name == register)?;
        let mut mask = 0;
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last > 63 {
                return None;
            }
            mask |= u64::MAX >> (63 - (last - first)) << first;
        }
        Some(Self { register, mask })
    }

    /// A register's new value; `None` if the field's does not fit.
    fn put(self, register: u64, mut value: u64) -> Option<u64> {
        let mut bits = 0;
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

fn split(terms: &str) -> impl Iterator<Item = Term<'_>> {
    let terms = terms.split(',').map(str::trim).filter(|term| !term.is_empty());
    terms.map(|term| match term.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (term, None),
    })
}

/// A number as people write it: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
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
    fn fields_are_the_bits_their_format_says() {
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
    fn values_are_scattered_over_the_bits_in_ascending_order() {
        let field = Field { register: 0, mask: 0xf_0000_00ff };
        assert_eq!(field.put(0x100, 0xfc5), Some(0xf_0000_01c5));
        assert_eq!(field.put(0xf_0000_00ff, 0), Some(0), "an earlier value is gone");
        assert_eq!(field.put(0, 0x1000), None);
        let whole = Field { register: 0, mask: u64::MAX };
        assert_eq!(whole.put(1, u64::MAX), Some(u64::MAX));
        assert_eq!(Field { register: 0, mask: 0 }.put(5, 0), Some(5));
    }

    #[test]
    fn terms_are_encoded() {
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
        assert_eq!(encode("ldlat=30,mem-loads"), Ok((4, 0x1cd, 30)), "said goes before named");
        assert_eq!(encode("config=0x1b1,config1=7"), Ok((4, 0x1b1, 7)));
        assert_eq!(encode(""), Ok((4, 0, 0)));
        assert_eq!(pmu.events(), ["mem-loads"]);
        for (terms, said) in [
            ("umask=0x100", "umask=0x100 is too large: umask has 8 bits"),
            ("event=abc", "event=abc is not a number"),
            ("event=0x+1", "is not a number"),
            ("event=-1", "is not a number"),
            ("evnt=1", "cpu has neither a term nor an event \"evnt\"; its terms are edge, event"),
            ("../type=1", "neither a term"),
            ("mem-loads=3", "neither a term"),
        ] {
            let error = pmu.encode(terms).expect_err(terms);
            assert!(error.contains(said), "{terms}: {error}");
        }
    }

    #[test]
    fn what_an_event_leaves_open_has_to_be_said() {
        let (_machine, pmu) = pmu(&[
            ("format/event", "config:0-7"),
            ("format/core", "config:16-19"),
            ("events/thing", "event=0x2,core=?"),
        ]);
        assert_eq!(pmu.encode("thing,core=3").map(|it| it.config), Ok(0x3_0002));
        assert!(pmu.encode("thing").is_err_and(|said| said.contains("thing,core=1")));
    }

    #[test]
    fn wild_files_are_refused_by_name() {
        let (machine, pmu) = pmu(&[("format/event", "\u{0}config:0-900"), ("events/loop", "loop")]);
        assert!(pmu.encode("event=1").is_err_and(|said| said.contains("format/event")));
        assert!(pmu.encode("loop").is_err_and(|said| said.contains("neither a term")));
        machine.pmu("odd", 7, &[("cpumask", "0-99999999999\n")]);
        assert_eq!(Pmu::open(&machine.devices(), "odd").expect("a PMU").cpus, None);
        machine.write("sys/bus/event_source/devices/bad/type", "seven");
        assert_eq!(all(&machine.devices()).iter().map(|it| it.kind).collect::<Vec<_>>(), [4, 7]);
        assert!(Pmu::open(&machine.devices(), "../devices/cpu").is_none());
    }
}
