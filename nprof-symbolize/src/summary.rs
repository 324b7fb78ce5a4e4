//! What is told at the end: how naming went per image, and what was tried. Pure.

use std::fmt::Write;

use nprof_format::escape::escaped;
use nprof_format::{ImageKind, Status};

use crate::catalog::Slot;
use crate::images::hex;

/// The lines for `--verbose`: per image how many places were named, and for the others why not
/// and what to do.
pub(crate) fn summary(slots: &[Slot]) -> String {
    let mut out = String::new();
    let mut slots: Vec<&Slot> = slots.iter().filter(|slot| !slot.counts.is_empty()).collect();
    let total = |slot: &Slot| slot.counts.values().sum::<u64>();
    slots.sort_by(|a, b| {
        total(b).cmp(&total(a)).then_with(|| a.recorded.path.cmp(&b.recorded.path))
    });
    for slot in slots {
        let named = slot.counts.get(&Status::Named).copied().unwrap_or(0);
        let path = escaped(&slot.recorded.path);
        let _ = write!(out, "{path}: {named} of {} places named", total(slot));
        let others = slot.counts.iter().filter(|(status, _)| **status != Status::Named);
        for (status, count) in others.clone() {
            let _ = write!(out, ", {count} {status}");
        }
        out.push('\n');
        if let Some(failure) = slot.failure() {
            let _ = writeln!(out, "  {}", escaped(failure.why.as_bytes()));
        }
        for trouble in &slot.troubles {
            let _ = writeln!(out, "  {trouble}");
        }
        let most = others.max_by_key(|(_, count)| **count);
        // A few places are in no function of the best of files.
        let most = most.filter(|(_, count)| **count * 10 > total(slot));
        if let Some(hint) = most.and_then(|(status, _)| hint(slot, *status)) {
            let _ = writeln!(out, "  {hint}");
        }
    }
    out
}

/// What a user can do about places without a name.
fn hint(slot: &Slot, status: Status) -> Option<String> {
    let hint = match (status, slot.recorded.kind) {
        (Status::NoSymbol | Status::Stripped, ImageKind::Elf) => missing_symbols(slot),
        (Status::NoImage, ImageKind::Elf) => {
            "run it where the program is, or give --symfs ROOT of that system".to_owned()
        }
        (Status::Mismatch, ImageKind::Elf) => {
            "the file was replaced since: give --symfs or --debug-dir with the recorded one"
                .to_owned()
        }
        (Status::Mismatch, _) => {
            "run it on the machine, and in the boot, of the recording".to_owned()
        }
        (Status::Restricted, _) => "run as root, or: sysctl kernel.kptr_restrict=0".to_owned(),
        _ => return None,
    };
    Some(hint)
}

fn missing_symbols(slot: &Slot) -> String {
    let path = &slot.recorded.path;
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    // Debian and its descendants keep libraries in a directory named after the machine, and all
    // of glibc's symbols in one package.
    let is_debian = path.windows(11).any(|part| part == b"-linux-gnu/");
    let glibc = [&b"libc.so.6"[..], b"libm.so.6", b"ld-linux-x86-64.so.2", b"libpthread.so.0"];
    if is_debian && glibc.contains(&name) {
        return "install its symbols: apt install libc6-dbg".to_owned();
    }
    let id = match &*slot.recorded.build_id {
        [] => String::new(),
        id => format!(" (build ID {})", hex(id)),
    };
    format!("install its debug symbols package{id}, or give --debug-dir DIR")
}

/// The lines for `--explain`: what was tried for one image.
pub(crate) fn explanation(slot: &Slot) -> String {
    let recorded = &slot.recorded;
    let id = if recorded.build_id.is_empty() {
        "no build ID".to_owned()
    } else {
        hex(&recorded.build_id)
    };
    let mut out = format!("{} ({}, {id})\n", escaped(&recorded.path), recorded.kind);
    for line in slot.trace.iter().chain(&slot.troubles) {
        let _ = writeln!(out, "  {}", escaped(line.as_bytes()));
    }
    if let Some(failure) = slot.failure() {
        let _ = writeln!(out, "  no names: {}", failure.status);
    }
    out
}

/// Whether an image is what the user asked about: its path, its base name or its build ID.
pub(crate) fn is_meant(slot: &Slot, wanted: &[u8]) -> bool {
    let recorded = &slot.recorded;
    let name = recorded.path.rsplit(|&byte| byte == b'/').next();
    let id = hex(&recorded.build_id);
    wanted == &*recorded.path || Some(wanted) == name || (!id.is_empty() && wanted == id.as_bytes())
}
