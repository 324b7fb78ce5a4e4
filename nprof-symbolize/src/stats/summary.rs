//! The `@naming` records, and the lines of `--verbose` and `--explain`, from statistics of images.
//! Pure.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use nprof_stream::escape::escaped;
use nprof_stream::{ImageKind, Naming, Status};

use crate::find::RecordedImage;
use crate::stats::image_stats::{ImageStats, StatusCounts};
use crate::stats::self_samples::SelfSamples;
use nprof_stream::number::hex;

/// The commands that install debug symbols, by the path of the image.
pub(crate) type Commands = HashMap<Vec<u8>, String>;

/// The least share of self in memory without a file that the summary reports, in per cent.
const LEAST_PERCENT: f64 = 0.1;

/// The remedy for code generated at run time.
const ANONYMOUS_REMEDY: &str = "code generated at run time; record again with names from its \
    runtime: java -XX:+PreserveFramePointer and jcmd PID Compiler.perfmap, node --perf-basic-prof, \
    python3 -X perf; see \"Code generated at run time\" in nprof-record(1)";

/// Returns the `@naming` record of an image with these frames and problems.
pub(crate) fn naming(
    image: &ImageStats,
    counts: &StatusCounts,
    problems: &[Rc<str>],
    commands: &Commands,
) -> Naming {
    let recorded = &image.recorded;
    let named = counts.get(&Status::Named).copied().unwrap_or(0);
    let reasons = match image.failure() {
        // An image that did not open has no other problem.
        Some(failure) => vec![failure.reason.as_str()],
        None => {
            let caveat = identity_caveat(recorded).filter(|_| named > 0);
            problems.iter().map(|problem| &**problem).chain(caveat).collect()
        }
    };
    let reason = reasons.join("; ");
    Naming {
        image: recorded.path.to_vec(),
        kind: recorded.kind.to_string().into(),
        build_id: hex(&recorded.build_id).into(),
        named,
        unnamed: total(counts) - named,
        unnamed_by_status: unnamed_by_status(counts).into(),
        reason: reason.into(),
        remedy: remedy(image, counts, commands).unwrap_or_default().into(),
        more: Vec::new(),
    }
}

/// Returns the number of frames.
pub(crate) fn total(counts: &StatusCounts) -> u64 {
    counts.values().sum()
}

/// Returns the statuses of frames without a name and their counts, the most frequent first.
fn unnamed_by_status(counts: &StatusCounts) -> String {
    let mut others: Vec<_> = counts.iter().filter(|(status, _)| !is_named(status)).collect();
    // The main cause comes first.
    others.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words: Vec<String> =
        others.into_iter().map(|(status, count)| format!("{status} {count}")).collect();
    words.join(", ")
}

fn is_named(status: &Status) -> bool {
    *status == Status::Named
}

/// Returns the most frequent status of frames without a name, and their number. None if all have one.
fn main_problem(counts: &StatusCounts) -> Option<(Status, u64)> {
    let others = counts.iter().filter(|(status, _)| !is_named(status));
    others.max_by_key(|(_, count)| **count).map(|(&status, &count)| (status, count))
}

/// True if installed debug symbols would name more frames of an image. One frame of a hundred may have
/// half of the samples.
pub(crate) fn lacks_symbols(image: &ImageStats, counts: &StatusCounts) -> bool {
    let is_elf = image.recorded.kind == ImageKind::Elf;
    let may_help = is_elf && !image.findings.has_all_symbols;
    may_help && matches!(main_problem(counts), Some((Status::NoSymbol | Status::Stripped, _)))
}

/// Returns the remedy for the frames of an image without a name. None if there is none.
fn remedy(image: &ImageStats, counts: &StatusCounts, commands: &Commands) -> Option<String> {
    if lacks_symbols(image, counts) {
        let command = commands.get(&*image.recorded.path);
        return Some(command.cloned().unwrap_or_else(|| symbols_remedy(&image.recorded)));
    }
    let (problem, count) = main_problem(counts)?;
    // Even the best files have some code in no function, and runtimes some that they do not name.
    if count * 10 <= total(counts) {
        return None;
    }
    let remedy = match (problem, image.recorded.kind) {
        (Status::NoImage, ImageKind::Elf) => {
            "record again with --keep-images DIR and give --debug-dir DIR; if the file still exists \
             elsewhere, give --symfs ROOT of its system"
                .to_owned()
        }
        (Status::Mismatch, ImageKind::Elf) if !image.findings.is_other_build => {
            "give --symfs or --debug-dir with the recorded file, or record again".to_owned()
        }
        (Status::Mismatch, ImageKind::Kernel | ImageKind::Module)
            if image.recorded.build_id.is_empty() =>
        {
            "mount /sys where the recorder runs: it has the build ID of the kernel".to_owned()
        }
        (Status::NoImage, ImageKind::Kernel) => {
            "mount /sys: it has the build ID of the running kernel".to_owned()
        }
        (Status::Mismatch, ImageKind::Kernel | ImageKind::Module | ImageKind::Vdso) => {
            "run it on the machine, and in the boot, of the recording, or install that kernel's \
             debug symbols"
                .to_owned()
        }
        (Status::Anonymous, ImageKind::Anonymous) => ANONYMOUS_REMEDY.to_owned(),
        (Status::Restricted, _) => "run as root, or: sysctl kernel.kptr_restrict=0".to_owned(),
        _ => return None,
    };
    Some(remedy)
}

fn symbols_remedy(recorded: &RecordedImage) -> String {
    match &*recorded.build_id {
        [] => "give --debug-dir DIR with its debug file, or build it with -g".to_owned(),
        [first, rest @ ..] => format!(
            "put its debug file at DIR/.build-id/{}/{}.debug and give --debug-dir DIR, or try --debuginfod",
            hex(&[*first]),
            hex(rest)
        ),
    }
}

/// Returns the lines of `--verbose`: for each image the number of named frames, the statuses of the
/// others, and the remedy. The image with the most frames comes first; before it, memory without a
/// file, if it has samples without names.
pub(crate) fn summary(
    images: &[ImageStats],
    commands: &Commands,
    self_samples: Option<&SelfSamples>,
) -> String {
    let mut out = String::new();
    // The share of self says more about memory without a file than its frames.
    let is_shown = |image: &&ImageStats| {
        let has_share = self_samples.is_some() && image.recorded.kind == ImageKind::Anonymous;
        !image.totals.is_empty() && !has_share
    };
    let mut images: Vec<&ImageStats> = images.iter().filter(is_shown).collect();
    images.sort_by(|a, b| {
        let order = total(&b.totals).cmp(&total(&a.totals));
        // Equal counts are ordered by path, so that the output is reproducible.
        order.then_with(|| a.recorded.path.cmp(&b.recorded.path))
    });
    let anonymous = self_samples.map_or(0.0, SelfSamples::anonymous_percent);
    if anonymous >= LEAST_PERCENT {
        let _ = writeln!(out, "[anon]: {anonymous:.1} % of self without names, anonymous");
        let _ = writeln!(out, "  {ANONYMOUS_REMEDY}");
    }
    for image in images {
        let naming = naming(image, &image.totals, &image.problems, commands);
        let all = total(&image.totals);
        let _ = write!(out, "{}: {} of {all} frames named", escaped(&naming.image), naming.named);
        if !naming.unnamed_by_status.is_empty() {
            let _ = write!(out, ", {}", escaped(&naming.unnamed_by_status));
        }
        // A share shows whether the missing names matter.
        if let Some(samples) = self_samples.filter(|_| naming.unnamed > 0) {
            let _ = write!(out, "; image has {:.1} % of self", samples.percent(&image.recorded));
        }
        out.push('\n');
        for line in [&naming.reason, &naming.remedy].into_iter().filter(|line| !line.is_empty()) {
            let _ = writeln!(out, "  {}", escaped(line));
        }
    }
    out
}

/// Returns the lines of `--explain`: the search for one image, with its problems.
pub(crate) fn explanation(
    recorded: &RecordedImage,
    lines: &[String],
    image: Option<&ImageStats>,
) -> String {
    let id = match &*recorded.build_id {
        [] => "no build ID".to_owned(),
        id => format!("build ID {}", hex(id)),
    };
    let path = if recorded.path.is_empty() { &b"-"[..] } else { &recorded.path };
    let mut out = format!("{} ({}, {id})\n", escaped(path), recorded.kind);
    let problems = image.map_or(&[][..], |image| &image.problems);
    let lines = lines.iter().map(String::as_str);
    for line in lines.chain(problems.iter().map(|problem| &**problem)) {
        let _ = writeln!(out, "  {}", escaped(line.as_bytes()));
    }
    if recorded.kind == ImageKind::Anonymous {
        let _ = writeln!(out, "  {ANONYMOUS_REMEDY}");
    }
    if let Some(caveat) = identity_caveat(recorded) {
        let _ = writeln!(out, "  {caveat}");
    }
    if let Some(failure) = image.and_then(ImageStats::failure) {
        let _ = writeln!(out, "  no names: {}", failure.status);
    }
    out
}

/// Returns a caveat about an image that only its path identifies.
fn identity_caveat(recorded: &RecordedImage) -> Option<&'static str> {
    let has_no_id = recorded.kind == ImageKind::Elf && recorded.build_id.is_empty();
    has_no_id.then_some(match recorded.seen_ns {
        _ if !recorded.copy_key.is_empty() => {
            "recorded without a build ID: only its copy (--keep-images), or the time of its last \
             change, shows whether it is the recorded file"
        }
        Some(_) => {
            "recorded without a build ID: only the time of its last change shows whether it is the \
             recorded file"
        }
        None => "recorded without a build ID: nothing shows whether it is the recorded file",
    })
}

/// True if `wanted` is the path, the base name or the build ID of an image.
pub(crate) fn matches_image(recorded: &RecordedImage, wanted: &[u8]) -> bool {
    let name = recorded.path.rsplit(|&byte| byte == b'/').next();
    let id = hex(&recorded.build_id);
    // An empty argument must not match images without a build ID.
    let is_id = !id.is_empty() && wanted.eq_ignore_ascii_case(id.as_bytes());
    wanted == &*recorded.path || Some(wanted) == name || is_id
}
