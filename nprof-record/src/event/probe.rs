//! Probes: `uprobe:PATH:0xOFFSET`, where an instruction of a program is executed, and
//! `kprobe:FUNCTION`, where a function of the kernel is called. The kernel has a PMU for each
//! (`create_local_trace_uprobe`, kernel/trace/trace_uprobe.c, and its like for kprobes); the
//! probe goes when the event is closed.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::event::pmu::Pmu;
use crate::event::{Encoding, Event, Pace};

/// The kinds of probes: the name of the PMU, how such events are named, and the option the
/// kernel is built with.
pub(crate) const KINDS: [(&str, &str, &str); 2] = [
    ("uprobe", "uprobe:PATH:0xOFFSET", "CONFIG_UPROBE_EVENTS"),
    ("kprobe", "kprobe:FUNCTION", "CONFIG_KPROBE_EVENTS"),
];

/// Whether this is the name of a probe.
pub(crate) fn is_probe(name: &str) -> bool {
    name.starts_with("uprobe:") || name.starts_with("kprobe:")
}

/// The probe with a name, on the machine below `root`, whose PMUs are in `devices`.
///
/// # Errors
///
/// Why there can be none.
pub(crate) fn event(root: &Path, devices: &Path, name: &str) -> Result<Event, String> {
    let (text, offset) = match name.split_once(':') {
        Some(("uprobe", place)) => place_in_file(place)?,
        Some((_, function)) => (kernel_function(root, function)?, 0),
        None => return Err(format!("{name} is not the name of a probe")),
    };
    let kind = &name[.."uprobe".len()];
    let text = CString::new(text).map_err(|_| format!("{name:?} has a NUL in it"))?;
    let encoding = encoding(devices, kind, text, offset)?;
    Ok(Event { name: name.to_owned(), unit: "count", pace: Pace::Each, encodings: vec![encoding] })
}

/// A probe that no machine has. Only its refusal tells whether probes may be opened: rights are
/// looked at first, so that it is missing means that another one would not be refused.
///
/// # Errors
///
/// What keeps this kernel from having such probes.
pub(crate) fn impossible(devices: &Path, kind: &str) -> Result<Encoding, String> {
    // A directory cannot be probed, and no function has such a name.
    let text = if kind == "uprobe" { c"/" } else { c"no-such-function" };
    encoding(devices, kind, text.to_owned(), 0)
}

/// Whether this is how a kernel refuses [`impossible`] to those who may open probes.
pub(crate) fn is_allowed(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::EINVAL)
}

fn encoding(devices: &Path, kind: &str, text: CString, offset: u64) -> Result<Encoding, String> {
    let pmu = Pmu::open(devices, kind).ok_or_else(|| {
        let option =
            KINDS.iter().find(|(name, ..)| *name == kind).map_or("", |(.., option)| option);
        format!("this kernel has no {kind}s ({option})")
    })?;
    Ok(Encoding {
        config2: offset,
        text: Some(text),
        only_kernel: kind == "kprobe",
        ..Encoding::new(pmu.kind, 0u32)
    })
}

/// Takes `PATH:0xOFFSET` apart, and looks whether the file has such an offset.
fn place_in_file(place: &str) -> Result<(&str, u64), String> {
    let split = place.rsplit_once(":0x").filter(|(path, _)| !path.is_empty());
    let parsed = split.and_then(|(path, digits)| {
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hex.then(|| Some((path, u64::from_str_radix(digits, 16).ok()?)))?
    });
    let (path, offset) = parsed.ok_or_else(|| {
        format!("expected uprobe:PATH:0xOFFSET, with an offset in the file, not uprobe:{place}")
    })?;
    let file = fs::metadata(path).map_err(|error| format!("cannot probe {path}: {error}"))?;
    if !file.is_file() {
        return Err(format!("cannot probe {path}: it is not a file"));
    }
    if offset >= file.len() {
        return Err(format!("cannot probe {path} at {offset:#x}: it has {:#x} bytes", file.len()));
    }
    Ok((path, offset))
}

/// Looks whether the kernel has a function, if it tells.
fn kernel_function<'a>(root: &Path, function: &'a str) -> Result<&'a str, String> {
    let symbols = fs::File::open(root.join("proc/kallsyms"));
    let is_known = symbols.map_or(Ok(true), |file| has_symbol(BufReader::new(file), function));
    match is_known {
        Ok(false) => Err(format!("this kernel has no function {function:?} (/proc/kallsyms)")),
        Ok(true) | Err(_) => Ok(function),
    }
}

/// Whether the text of /proc/kallsyms has a symbol: address, type, name, then its module.
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
    fn a_place_in_a_file_is_probed_through_the_uprobe_pmu() {
        let machine = Machine::usual();
        machine.write("pro:gram", "0123456789");
        let path = machine.root().join("pro:gram");
        let name = |offset: &str| format!("uprobe:{}:{offset}", path.display());
        let event = probe(&machine, &name("0x9")).expect("a probe");
        let [encoding] = &event.encodings[..] else { panic!("one encoding") };
        assert_eq!((encoding.kind, encoding.config2, encoding.only_kernel), (8, 9, false));
        assert_eq!(encoding.text.as_deref().map(CStr::to_bytes), path.to_str().map(str::as_bytes));
        assert_eq!((event.pace, event.name), (Pace::Each, name("0x9")));
        for (offset, said) in [
            ("0xa", "it has 0xa bytes"),
            ("9", "expected uprobe:PATH:0xOFFSET"),
            ("0x", "expected uprobe"),
            ("0x+1", "expected uprobe"),
            ("0x10000000000000000", "expected uprobe"),
        ] {
            let error = probe(&machine, &name(offset)).expect_err(offset);
            assert!(error.contains(said), "{offset}: {error}");
        }
        assert!(
            probe(&machine, "uprobe:/no/such:0x1").is_err_and(|it| it.contains("No such file"))
        );
        assert!(probe(&machine, "uprobe:/:0x1").is_err_and(|it| it.contains("not a file")));
        assert!(probe(&machine, "uprobe::0x1").is_err());
    }

    #[test]
    fn functions_of_the_kernel_are_looked_up() {
        let machine = Machine::usual();
        assert_eq!(
            probe(&machine, "kprobe:do_exit"),
            Err("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)".to_owned())
        );
        machine.pmu("kprobe", 6, &[]);
        assert!(probe(&machine, "kprobe:do_exit").is_ok(), "no list of functions, no objection");
        machine.write("proc/kallsyms", "0 T do_exit\n0 t helper\t[module]\n");
        let event = probe(&machine, "kprobe:helper").expect("a probe");
        assert_eq!((event.encodings[0].kind, event.encodings[0].only_kernel), (6, true));
        assert!(probe(&machine, "kprobe:do_exi").is_err_and(|it| it.contains("no function")));
        assert!(probe(&machine, "kprobe:").is_err());
    }
}
