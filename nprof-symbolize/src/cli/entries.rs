//! The list of the places at which calls are counted: `--entries`.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use nprof_cli::stage::{self, Outcome};
use nprof_stream::escape::escaped;
use nprof_stream::number::hex;
use regex::bytes::Regex;

use super::args::{Args, TOOL};
use crate::find::{Entries, Entry, Finder, RecordedImage, kernel_entries};

/// The columns.
const HEADER: &str = "function\timage\tbuild_id\toffset\tframe\tends\tslow\n";

/// The refused functions that are printed by name without `-v`.
const REFUSED_SHOWN: usize = 10;

/// Prints the places of the functions whose names match.
///
/// # Errors
///
/// If no image is named, or no function of it has a place.
pub(super) fn run(args: &Args, regex: &Regex, finder: &Finder) -> anyhow::Result<Outcome> {
    let Some(path) = &args.input else {
        bail!("--entries: no image; write nprof-symbolize --entries REGEX IMAGE");
    };
    let name = path.as_os_str().as_bytes();
    let found = if kernel_entries::is_kernel(name) {
        kernel_entries::entries(name, |name| regex.is_match(name))
    } else {
        let recorded = RecordedImage::of(path.as_os_str())
            .with_context(|| format!("{}: no ELF file, and no build ID", path.display()))?;
        let entries = finder.entries(&recorded, args.names, |name| regex.is_match(name));
        entries.map(|entries| (recorded, entries))
    };
    let (recorded, entries) =
        found.map_err(|failure| anyhow::anyhow!("{}: {}", path.display(), failure.reason))?;
    print_refused(&entries, args.verbose);
    print_slow(&entries, args.verbose);
    if entries.found.is_empty() {
        bail!("{}: no function that matches {regex} can be counted", path.display());
    }
    let mut output = stage::output(args.output.path())?;
    output
        .write_all(&table(&entries, &recorded))
        .and_then(|()| output.flush())
        .context("cannot write")?;
    Ok(Outcome::Done)
}

/// Returns the table of the places.
fn table(entries: &Entries, recorded: &RecordedImage) -> Vec<u8> {
    let mut table = HEADER.as_bytes().to_vec();
    let (image, build_id) = (escaped(&recorded.path), hex(&recorded.build_id));
    for entry in &entries.found {
        let name = escaped(&entry.name);
        let Entry { offset, frame, .. } = entry;
        let offsets = entry.ends.as_ref().map(|ends| {
            let ends: Vec<String> = ends.iter().map(|end| format!("{end:#x}")).collect();
            ends.join(",")
        });
        let ends = offsets.as_deref().unwrap_or("?");
        let slow = if entry.is_slow { "yes" } else { "no" };
        let line =
            format!("{name}\t{image}\t{build_id}\t{offset:#x}\t{frame:#x}\t{ends}\t{slow}\n");
        table.extend(line.into_bytes());
    }
    table
}

/// Prints the refused functions: the first ones by name, and the number of others for each reason.
fn print_refused(entries: &Entries, is_verbose: bool) {
    let shown = if is_verbose { usize::MAX } else { REFUSED_SHOWN };
    for refused in entries.refused.iter().take(shown) {
        stage::warn_escaped(TOOL, &format!("{}: {}", escaped(&refused.name), refused.reason));
    }
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for refused in entries.refused.iter().skip(shown) {
        *others.entry(refused.reason).or_default() += 1;
    }
    for (reason, count) in others {
        stage::warn_escaped(TOOL, &format!("{count} more functions (-v names them): {reason}"));
    }
}

/// Prints the number of functions of which a count takes longer, and all names with `-v`.
fn print_slow(entries: &Entries, is_verbose: bool) {
    let slow = || entries.found.iter().filter(|entry| entry.is_slow);
    let cost = "a probe that takes a single step, and some 15 times as long in a virtual machine";
    match slow().count() {
        0 => {}
        1 => stage::warn_escaped(TOOL, &format!("1 function has {cost}")),
        count => stage::warn_escaped(TOOL, &format!("{count} functions have {cost}")),
    }
    for entry in slow().filter(|_| is_verbose) {
        stage::warn_escaped(TOOL, &format!("{}: a single step", escaped(&entry.name)));
    }
}
