//! What is told at the end: how naming went per image, and what was tried. Pure.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use nprof_stream::escape::escaped;
use nprof_stream::{ImageKind, Naming, Status};

use crate::find::{RecordedImage, hex};
use crate::stats::image_stats::{ImageStats, StatusCounts};

/// The commands that get debug symbols, by the path of the image.
pub(crate) type Commands = HashMap<Vec<u8>, String>;

/// What is told of an image whose frames ended so, with these troubles.
pub(crate) fn naming(
    slot: &ImageStats,
    counts: &StatusCounts,
    problems: &[Rc<str>],
    commands: &Commands,
) -> Naming {
    let recorded = &slot.recorded;
    let named = counts.get(&Status::Named).copied().unwrap_or(0);
    let reasons = match slot.failure() {
        Some(failure) => vec![failure.why.as_str()],
        None => {
            let known = unproven(recorded).filter(|_| named > 0);
            problems.iter().map(|problem| &**problem).chain(known).collect()
        }
    };
    let reason = reasons.join("; ");
    Naming {
        image: recorded.path.to_vec(),
        kind: recorded.kind.to_string().into(),
        build_id: hex(&recorded.build_id).into(),
        named,
        unnamed: total(counts) - named,
        unnamed_by_status: why(counts).into(),
        reason: reason.into(),
        remedy: next(slot, counts, commands).unwrap_or_default().into(),
        more: Vec::new(),
    }
}

/// All frames.
pub(crate) fn total(counts: &StatusCounts) -> u64 {
    counts.values().sum()
}

/// How the frames without a name ended, the most frequent first.
fn why(counts: &StatusCounts) -> String {
    let mut others: Vec<_> = counts.iter().filter(|(status, _)| !is_named(status)).collect();
    others.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words: Vec<String> =
        others.into_iter().map(|(status, count)| format!("{status} {count}")).collect();
    words.join(", ")
}

fn is_named(status: &Status) -> bool {
    *status == Status::Named
}

/// How the most of an image's frames without a name ended; `None` where these are few, since a
/// few places are in no function of the best of files.
fn most(counts: &StatusCounts) -> Option<Status> {
    let others = counts.iter().filter(|(status, _)| !is_named(status));
    let (status, count) = others.max_by_key(|(_, count)| **count)?;
    (*count * 10 > total(counts)).then_some(*status)
}

/// Whether debug symbols from elsewhere would help an image.
pub(crate) fn lacks_symbols(slot: &ImageStats, counts: &StatusCounts) -> bool {
    let is_elf = slot.recorded.kind == ImageKind::Elf;
    let may_help = is_elf && !slot.findings.has_all_symbols;
    may_help && matches!(most(counts), Some(Status::NoSymbol | Status::Stripped))
}

/// What a user can do about the frames of an image without a name.
fn next(slot: &ImageStats, counts: &StatusCounts, commands: &Commands) -> Option<String> {
    let next = match (most(counts)?, slot.recorded.kind) {
        (Status::NoSymbol | Status::Stripped, ImageKind::Elf) if lacks_symbols(slot, counts) => {
            let command = commands.get(&*slot.recorded.path);
            command.cloned().unwrap_or_else(|| missing_symbols(&slot.recorded))
        }
        (Status::NoImage, ImageKind::Elf) => {
            "run it where the program is, or give --symfs ROOT of that system".to_owned()
        }
        (Status::Mismatch, ImageKind::Elf) if !slot.findings.is_other => {
            "give --symfs or --debug-dir with the recorded file, or record anew".to_owned()
        }
        (Status::Mismatch, ImageKind::Kernel | ImageKind::Module | ImageKind::Vdso) => {
            "run it on the machine, and in the boot, of the recording, or install that kernel's \
             debug symbols"
                .to_owned()
        }
        (Status::Restricted, _) => "run as root, or: sysctl kernel.kptr_restrict=0".to_owned(),
        _ => return None,
    };
    Some(next)
}

fn missing_symbols(recorded: &RecordedImage) -> String {
    match &*recorded.build_id {
        [] => "give --debug-dir DIR with its debug file, or build it with -g".to_owned(),
        [first, rest @ ..] => format!(
            "put its debug file at DIR/.build-id/{}/{}.debug and give --debug-dir DIR, or try --debuginfod",
            hex(&[*first]),
            hex(rest)
        ),
    }
}

/// The lines for `--verbose`: per image how many frames were named, and for the others why not
/// and what to do. The image with the most frames first.
pub(crate) fn summary(slots: &[ImageStats], commands: &Commands) -> String {
    let mut out = String::new();
    let mut slots: Vec<&ImageStats> = slots.iter().filter(|slot| !slot.totals.is_empty()).collect();
    slots.sort_by(|a, b| {
        let order = total(&b.totals).cmp(&total(&a.totals));
        order.then_with(|| a.recorded.path.cmp(&b.recorded.path))
    });
    for slot in slots {
        let naming = naming(slot, &slot.totals, &slot.problems, commands);
        let all = total(&slot.totals);
        let _ = write!(out, "{}: {} of {all} frames named", escaped(&naming.image), naming.named);
        for part in [&naming.unnamed_by_status].into_iter().filter(|why| !why.is_empty()) {
            let _ = write!(out, ", {}", escaped(part));
        }
        out.push('\n');
        for line in [&naming.reason, &naming.remedy].into_iter().filter(|line| !line.is_empty()) {
            let _ = writeln!(out, "  {}", escaped(line));
        }
    }
    out
}

/// The lines for `--explain`: what was tried for one image.
pub(crate) fn explanation(
    recorded: &RecordedImage,
    lines: &[String],
    slot: Option<&ImageStats>,
) -> String {
    let id = match &*recorded.build_id {
        [] => "no build ID".to_owned(),
        id => format!("build ID {}", hex(id)),
    };
    let path = if recorded.path.is_empty() { &b"-"[..] } else { &recorded.path };
    let mut out = format!("{} ({}, {id})\n", escaped(path), recorded.kind);
    let problems = slot.map_or(&[][..], |slot| &slot.problems);
    let lines = lines.iter().map(String::as_str);
    for line in lines.chain(problems.iter().map(|problem| &**problem)) {
        let _ = writeln!(out, "  {}", escaped(line.as_bytes()));
    }
    if let Some(known) = unproven(recorded) {
        let _ = writeln!(out, "  {known}");
    }
    if let Some(failure) = slot.and_then(ImageStats::failure) {
        let _ = writeln!(out, "  no names: {}", failure.status);
    }
    out
}

/// What is to be known of an image whose file nothing but its path speaks for.
fn unproven(recorded: &RecordedImage) -> Option<&'static str> {
    let is_unproven = recorded.kind == ImageKind::Elf && recorded.build_id.is_empty();
    is_unproven.then_some(match recorded.seen {
        Some(_) => {
            "recorded without a build ID: only the time its file was changed tells whether it is \
             the recorded one"
        }
        None => "recorded without a build ID: nothing tells whether its file is the recorded one",
    })
}

/// Whether an image is what the user asked about: its path, its base name or its build ID.
pub(crate) fn is_meant(recorded: &RecordedImage, wanted: &[u8]) -> bool {
    let name = recorded.path.rsplit(|&byte| byte == b'/').next();
    let id = hex(&recorded.build_id);
    let is_id = !id.is_empty() && wanted.eq_ignore_ascii_case(id.as_bytes());
    wanted == &*recorded.path || Some(wanted) == name || is_id
}
