//! The places at which probes count the calls of an image's functions, and the functions without
//! one.

use nprof_object::{FileOffset, ImageAddress, ImageOffset};
use nprof_stream::Status;

use super::counted_functions::{
    ENTRY_BYTES, Function, MAX_FUNCTION_BYTES, code, cold_parts, function_at, functions,
    read_jumps, unnamed_code,
};
use super::elf_file::ElfFile;
use super::failure::Failure;
use super::finder::Finder;
use super::recorded::RecordedImage;
use super::search_log::SearchLog;
use crate::elf::entry::NoPlace;
use crate::elf::entry_arch::EntryArch;
use crate::elf::function_symbols::SymbolKind;
use crate::elf::gnu_property;
use crate::image::opened::{self, OpenImage};
use crate::names::demangle::{NameStyle, demangle};

/// The bytes of a function that are searched for an instruction of its own.
const OWN_BYTES: u64 = 1024;

/// The functions of an image that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Those with a place, by its offset.
    pub(crate) found: Vec<Entry>,
    /// The others, by name.
    pub(crate) refused: Vec<Refused>,
}

/// The place at which a probe counts the calls of a function.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The place.
    pub(crate) offset: FileOffset,
    /// True if a count there takes many times as long as at most other places.
    pub(crate) is_slow: bool,
    /// An offset at which the function itself is found, and no call that was inlined into it.
    pub(crate) frame: FileOffset,
    /// The function, as reports show it.
    pub(crate) name: Vec<u8>,
    /// The instructions with which it ends: returns, and jumps to other functions. None if they are
    /// unknown.
    pub(crate) ends: Option<Vec<FileOffset>>,
}

/// A function whose calls cannot be counted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refused {
    /// The function.
    pub(crate) name: Vec<u8>,
    /// The reason.
    pub(crate) reason: &'static str,
}

impl Finder {
    /// Returns the functions of which `is_wanted` holds for a name: as the symbol table has it, or
    /// demangled.
    ///
    /// # Errors
    ///
    /// If the image is not found, or the calls of none of its functions can be counted.
    pub(crate) fn entries(
        &self,
        recorded: &RecordedImage,
        style: NameStyle,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Entries, Failure> {
        let log = SearchLog::default();
        let files = self.files(recorded, &log);
        let image = files.executed.as_ref().map_err(Failure::clone)?.file.clone();
        let arch = check_image(&image)?;
        let mut functions = functions(&image, &files.debug);
        let opened = self.combine(files, &log)?.image;
        let unnamed = match &opened {
            OpenImage::Elf(elf) => unnamed_code(&functions, elf.function_ranges.iter()),
            OpenImage::Symbols(_) => Vec::new(),
        };
        let targets = read_jumps(arch, &image, &mut functions, &unnamed);
        let has_shadow_stack = gnu_property::has_shadow_stack(
            &image.whole(gnu_property::SECTION, gnu_property::MAX_BYTES),
        );
        let cold = cold_parts(&functions);
        let mut entries = Entries::default();
        for (index, function) in functions.iter().enumerate() {
            let shown =
                |name: &Vec<u8>| is_wanted(name) || is_wanted(&demangle(name, NameStyle::Full));
            if !function.names.iter().any(shown) {
                continue;
            }
            let next = functions.get(index + 1).map_or(u64::MAX, |next| next.start.0);
            let limit = limit(function, &targets).min(next);
            let name = self.shown_name(&image, &opened, function, style);
            match place(arch, &image, function, limit, has_shadow_stack) {
                Ok((offset, is_slow)) => {
                    let frame = self.own_offset(arch, &image, &opened, function, offset);
                    let parts = function.names.iter().filter_map(|name| cold.get(&name[..]));
                    let parts: Vec<_> =
                        std::iter::once(function).chain(parts.flatten().copied()).collect();
                    let ends = ends(arch, &image, &functions, &parts, has_shadow_stack);
                    entries.found.push(Entry { offset, is_slow, frame, name, ends });
                }
                Err(reason) => entries.refused.push(Refused { name, reason }),
            }
        }
        entries.found.sort_unstable();
        entries.refused.sort_unstable();
        entries.refused.dedup();
        Ok(entries)
    }

    /// Returns an offset in a function at which no call is inlined: its entry, the place of its probe, or
    /// another instruction. The entry if there is none.
    fn own_offset(
        &self,
        arch: EntryArch,
        image: &ElfFile,
        opened: &OpenImage,
        function: &Function,
        place: FileOffset,
    ) -> FileOffset {
        let Some((start, _)) = image.headers.segments.file_offset(function.start) else {
            return place;
        };
        let is_own = |offset: &FileOffset| {
            opened::resolve(opened, ImageOffset(offset.0), self.detail).calls.len() == 1
        };
        let code = code(image, function.start, function.size.min(OWN_BYTES));
        let others = arch.instructions(&code).into_iter().map(|at| FileOffset(start.0 + at));
        [start, place].into_iter().chain(others).find(is_own).unwrap_or(start)
    }

    /// Returns the name of a function as reports show it.
    fn shown_name(
        &self,
        image: &ElfFile,
        opened: &OpenImage,
        function: &Function,
        style: NameStyle,
    ) -> Vec<u8> {
        let offset = image.headers.segments.file_offset(function.start);
        let offset = offset.filter(|_| function.kind == SymbolKind::Function);
        let calls = offset
            .map(|(offset, _)| opened::resolve(opened, ImageOffset(offset.0), self.detail).calls);
        let outermost = calls.and_then(|mut calls| calls.pop()?.function);
        let linkage = outermost.as_deref().unwrap_or(&function.names[0]);
        demangle(linkage, style).into_owned()
    }
}

/// The reason for files of the kernel and its modules.
const KERNEL: &str =
    "code of the kernel: name the running one [kernel], or a loaded module as [NAME]";

/// Returns the architecture of an image.
///
/// # Errors
///
/// If calls cannot be counted in it.
fn check_image(image: &ElfFile) -> Result<EntryArch, Failure> {
    let headers = &image.headers;
    let is_kernel = [&b"__ksymtab"[..], b".modinfo"].iter().any(|it| headers.section(it).is_some());
    let arch = EntryArch::of_machine(headers.machine).filter(|_| headers.is_64);
    let is_go =
        [&b".gopclntab"[..], b".go.buildinfo"].iter().any(|it| headers.section(it).is_some());
    let reason = match arch {
        _ if is_kernel => KERNEL,
        None => "no program for x86-64 or 64-bit ARM: its instructions are not known",
        Some(_) if is_go => {
            "a Go program: a function whose stack grows begins a second time, so that calls cannot be \
             counted at entries"
        }
        Some(arch) => return Ok(arch),
    };
    Err(Failure { status: Status::Unreadable, reason: reason.to_owned() })
}

/// Returns the first target of a branch after the start of a function.
fn limit(function: &Function, targets: &[u64]) -> u64 {
    let after = targets.partition_point(|&target| target <= function.start.0);
    targets.get(after).copied().unwrap_or(u64::MAX)
}

/// Returns the instructions with which a function ends that consists of these parts. None if they are unknown,
/// since a part has data between its instructions, or no probe can be at one of them.
fn ends(
    arch: EntryArch,
    image: &ElfFile,
    functions: &[Function],
    parts: &[&Function],
    has_shadow_stack: bool,
) -> Option<Vec<FileOffset>> {
    let leaves = |target: u64| {
        let is_own = parts.iter().any(|part| part.range().contains(&target));
        !is_own && !function_at(functions, target).is_some_and(Function::is_cold_part)
    };
    let mut ends = Vec::new();
    for part in parts {
        if !part.jumps.is_code {
            return None;
        }
        let code = code(image, part.start, part.size.min(MAX_FUNCTION_BYTES));
        let found = arch.ends(&code, part.start.0, has_shadow_stack)?.into_iter();
        let found = found.filter(|end| end.target.is_none_or(leaves));
        let segments = image.headers.segments.executable();
        ends.extend(found.filter_map(|end| segments.file_offset(ImageAddress(end.address))));
    }
    let mut ends: Vec<_> = ends.into_iter().map(|(offset, _)| offset).collect();
    ends.sort_unstable();
    ends.dedup();
    Some(ends)
}

/// Returns the place of a function, and whether a count there is slow, or the reason why it has none.
fn place(
    arch: EntryArch,
    image: &ElfFile,
    function: &Function,
    limit: u64,
    has_shadow_stack: bool,
) -> Result<(FileOffset, bool), &'static str> {
    match function.kind {
        SymbolKind::Import => return Err("its code is in another image; name that one"),
        SymbolKind::Indirect => {
            return Err(
                "an indirect function (ifunc): one of its implementations is called; name them",
            );
        }
        SymbolKind::Data => return Err("data in a section of code"),
        SymbolKind::Function => {}
    }
    if function.is_cold_part() {
        return Err("the cold part of a function, which is not called");
    }
    if function.size == 0 {
        return Err("its symbol has no size: the end of its code is not known");
    }
    let start = function.start;
    let code = code(image, start, function.size.min(ENTRY_BYTES));
    if code.is_empty() {
        return Err("its code is not in the file");
    }
    let found = arch.place(&code, start.0, limit, function.jumps, has_shadow_stack);
    let found = found.map_err(|no_place| match no_place {
        NoPlace::NotCode => "its bytes are not all instructions",
        NoPlace::JumpToEntry => {
            "a jump inside it leads to its entry: its rounds would count as calls"
        }
        NoPlace::NotExecuted => "the kernel has no probes for its first instructions",
        NoPlace::ComputedJump => "a computed jump may lead to its first instructions",
    })?;
    let offset = image.headers.segments.executable().file_offset(ImageAddress(found.address));
    offset.map(|(offset, _)| (offset, found.is_slow)).ok_or("its code is not in the file")
}
