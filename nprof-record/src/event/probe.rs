//! Probes: `uprobe:PATH:0xOFFSET` samples the execution of an instruction of a program,
//! `kprobe:FUNCTION` the call of a kernel function.
//!
//! The kernel has a PMU for each (`create_local_trace_uprobe`, kernel/trace/trace_uprobe.c, and
//! `create_local_trace_kprobe`). It removes a probe when the event is closed.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use nprof_stream::Measure;

use crate::event::pmu::Pmu;
use crate::event::{Event, EventRate, PerfEventConfig};

/// A kind of probe.
pub(crate) struct Kind {
    /// The name of the PMU, and the prefix of event names.
    pub(crate) pmu: &'static str,
    /// The form of event names.
    pub(crate) pattern: &'static str,
    /// The kernel's build option.
    option: &'static str,
}

/// The kinds of probes.
pub(crate) const KINDS: [Kind; 2] = [
    Kind { pmu: "uprobe", pattern: "uprobe:PATH:0xOFFSET", option: "CONFIG_UPROBE_EVENTS" },
    Kind { pmu: "kprobe", pattern: "kprobe:FUNCTION", option: "CONFIG_KPROBE_EVENTS" },
];

/// True if this is the name of a probe.
pub(crate) fn is_probe(name: &str) -> bool {
    name.starts_with("uprobe:") || name.starts_with("kprobe:")
}

/// Returns the probe with this name, on the machine with the directory `root` and PMUs in
/// `devices`.
///
/// # Errors
///
/// If the file or the function cannot be probed.
pub(crate) fn event(root: &Path, devices: &Path, name: &str) -> Result<Event, String> {
    let (text, offset) = match name.split_once(':') {
        Some(("uprobe", location)) => file_location(location)?,
        Some((_, function)) => (kernel_function(root, function)?, 0),
        None => return Err(format!("{name} is not the name of a probe")),
    };
    let kind = &name[.."uprobe".len()];
    let text = CString::new(text).map_err(|_| format!("{name:?} contains a NUL"))?;
    let configs = vec![config(devices, kind, text, offset)?];
    let rate = EventRate::EveryEvent;
    Ok(Event { name: name.to_owned(), measure: Measure::Count, rate, configs, value_period: None })
}

/// Returns a probe that no machine has.
///
/// Its refusal shows whether the user may open probes: the kernel checks permissions first, so an
/// error about the missing place means that other probes are permitted. See [`is_permitted`].
///
/// # Errors
///
/// If this kernel has no such probes.
pub(crate) fn permission_probe(devices: &Path, kind: &str) -> Result<PerfEventConfig, String> {
    // A directory cannot be probed, and no function has a name with a hyphen.
    let text = if kind == "uprobe" { c"/" } else { c"no-such-function" };
    config(devices, kind, text.to_owned(), 0)
}

/// True if this errno of [`permission_probe`] means that the user may open probes.
pub(crate) fn is_permitted(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::EINVAL)
}

fn config(
    devices: &Path,
    kind: &str,
    text: CString,
    offset: u64,
) -> Result<PerfEventConfig, String> {
    let pmu = Pmu::open(devices, kind).ok_or_else(|| {
        let option = KINDS.iter().find(|known| known.pmu == kind).map_or("", |kind| kind.option);
        format!("this kernel has no {kind}s ({option})")
    })?;
    Ok(PerfEventConfig {
        config2: offset,
        text: Some(text),
        only_kernel: kind == "kprobe",
        ..PerfEventConfig::new(pmu.kind, 0u32)
    })
}

/// Parses `PATH:0xOFFSET`, and checks that the file has this offset.
fn file_location(location: &str) -> Result<(&str, u64), String> {
    let (path, offset) = parse_location(location).ok_or_else(|| {
        format!("expected uprobe:PATH:0xOFFSET with a file offset, not uprobe:{location}")
    })?;
    let file = fs::metadata(path).map_err(|error| format!("cannot probe {path}: {error}"))?;
    if !file.is_file() {
        return Err(format!("cannot probe {path}: not a file"));
    }
    // The kernel reports such an offset only as EINVAL.
    if offset >= file.len() {
        return Err(format!("cannot probe {path} at {offset:#x}: it has {:#x} bytes", file.len()));
    }
    Ok((path, offset))
}

/// Parses `PATH:0xOFFSET`; the path may contain colons. None if it has another form.
fn parse_location(location: &str) -> Option<(&str, u64)> {
    let (path, digits) = location.rsplit_once(":0x")?;
    // `from_str_radix` accepts a sign.
    let is_valid = !path.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_valid.then_some((path, u64::from_str_radix(digits, 16).ok()?))
}

/// Checks that the kernel has a function, if /proc/kallsyms can be read.
fn kernel_function<'a>(root: &Path, function: &'a str) -> Result<&'a str, String> {
    let symbols = fs::File::open(root.join("proc/kallsyms"));
    let is_known = symbols.map_or(Ok(true), |file| has_symbol(BufReader::new(file), function));
    match is_known {
        Ok(false) => Err(format!("this kernel has no function {function:?} (/proc/kallsyms)")),
        // The kernel itself checks the name when the probe is opened.
        Ok(true) | Err(_) => Ok(function),
    }
}

/// True if the text of /proc/kallsyms has a symbol. A line has address, type, name, module.
fn has_symbol(symbols: impl BufRead, name: &str) -> std::io::Result<bool> {
    for line in symbols.split(b'\n') {
        let line = line?;
        let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t'));
        if fields.nth(2) == Some(name.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::test_machine::Machine;
    use std::ffi::CStr;

    fn probe(machine: &Machine, name: &str) -> Result<Event, String> {
        event(machine.root(), &machine.devices(), name)
    }

    #[test]
    fn uprobe_names_file_and_offset() {
        let machine = Machine::usual();
        machine.write("pro:gram", "0123456789");
        let path = machine.root().join("pro:gram");
        let name = |offset: &str| format!("uprobe:{}:{offset}", path.display());
        let event = probe(&machine, &name("0x9")).expect("a probe");
        let [config] = &event.configs[..] else { panic!("one config") };
        assert_eq!((config.kind, config.config2, config.only_kernel), (8, 9, false));
        assert_eq!(config.text.as_deref().map(CStr::to_bytes), path.to_str().map(str::as_bytes));
        assert_eq!((event.rate, event.name), (EventRate::EveryEvent, name("0x9")));
        for (offset, reason) in [
            ("0xa", "it has 0xa bytes"),
            ("9", "expected uprobe:PATH:0xOFFSET"),
            ("0x", "expected uprobe"),
            ("0x+1", "expected uprobe"),
            ("0x10000000000000000", "expected uprobe"),
        ] {
            let error = probe(&machine, &name(offset)).expect_err(offset);
            assert!(error.contains(reason), "{offset}: {error}");
        }
        assert!(
            probe(&machine, "uprobe:/no/such:0x1").is_err_and(|it| it.contains("No such file"))
        );
        assert!(probe(&machine, "uprobe:/:0x1").is_err_and(|it| it.contains("not a file")));
        assert!(probe(&machine, "uprobe::0x1").is_err());
    }

    #[test]
    fn kprobe_checks_function_in_kallsyms() {
        let machine = Machine::usual();
        assert_eq!(
            probe(&machine, "kprobe:do_exit"),
            Err("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)".to_owned())
        );
        machine.pmu("kprobe", 6, &[]);
        assert!(
            probe(&machine, "kprobe:do_exit").is_ok(),
            "without kallsyms every name is accepted"
        );
        machine.write("proc/kallsyms", "0 T do_exit\n0 t helper\t[module]\n");
        let event = probe(&machine, "kprobe:helper").expect("a probe");
        assert_eq!((event.configs[0].kind, event.configs[0].only_kernel), (6, true));
        assert!(probe(&machine, "kprobe:do_exi").is_err_and(|it| it.contains("no function")));
        assert!(probe(&machine, "kprobe:").is_err());
    }
}
