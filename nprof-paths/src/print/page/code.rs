//! The code of the page: instructions and source lines of the functions with the largest shares, and the
//! samples at them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nprof_code::disassembly::{Decoded, Flow, instructions};
use nprof_code::function::{Function, Place};
use nprof_code::source::{self, Source};
use nprof_report::page::Numbers;
use nprof_report::profile::ReportedEvent;
use nprof_stream::Md5Sum;
use serde_json::{Value, json};

use crate::print::context::PrintContext;
use crate::print::page::moment::push_sum;
use crate::print::page::words::{Words, length};
use crate::tree::call_tree::CodeMoment;

/// The most memory of source text, in bytes: a page has room for less.
const MAX_SOURCE_BYTES: usize = 64 << 20;

/// The most notes on source files.
const MAX_NOTES: usize = 20;

/// Returns the code of functions that take at most this number of bytes. Null if the stream has no code.
pub(super) fn code(context: &PrintContext<'_>, room: usize) -> Value {
    let code = &context.tree.code;
    if !code.is_found {
        return Value::Null;
    }
    let sources = sources(context);
    let mut page = CodePage { events: context.events, ..CodePage::default() };
    // The samples by function and event, so that each event has a list.
    let mut of_functions: Vec<Vec<&CodeMoment>> = vec![Vec::new(); code.functions.len()];
    code.moments.iter().for_each(|moment| of_functions[moment.function].push(moment));
    for (found, moments) in code.functions.iter().zip(&of_functions) {
        page.add(&found.function, &sources, moments, room);
    }
    let mismatches = sources.values().filter_map(|source| source.mismatch.as_deref()).collect();
    json!({
        "words": page.words.list(),
        "places": page.places.list(),
        "functions": page.functions,
        "moments": page.moments(),
        "slice_ns": code.slice_ns.max(1),
        "without_room": page.without_room,
        "notes": notes(&mismatches),
    })
}

/// The source files of the functions, by their path in the stream and the MD5 that they had when they were
/// compiled: functions of several builds may have other versions of a file.
type Sources = BTreeMap<(Arc<str>, Option<Md5Sum>), Source>;

/// Returns the source files, from the directories of the command line.
fn sources(context: &PrintContext<'_>) -> Sources {
    let directories = &context.args.source_dir;
    if directories.is_empty() {
        return BTreeMap::new();
    }
    let mut last_lines: BTreeMap<(Arc<str>, Option<Md5Sum>), u32> = BTreeMap::new();
    for found in &context.tree.code.functions {
        for (file, [_, last]) in files(&found.function, &instructions(&found.function)) {
            let md5 = found.function.md5(&file);
            let known = last_lines.entry((file, md5)).or_default();
            *known = last.max(*known);
        }
    }
    // The first of several recordings: the program was built before it.
    let starts = context.summary.runs.iter().filter_map(|run| run.head.as_ref()?.utc);
    let recorded = starts.min().map(|utc| SystemTime::UNIX_EPOCH + Duration::from_nanos(utc));
    let mut sources = BTreeMap::new();
    let mut bytes = 0;
    for ((file, md5), last) in last_lines {
        if bytes > MAX_SOURCE_BYTES {
            let mismatch =
                Some(format!("{file} and files after it: not read, there is too much source text"));
            sources.insert((file, md5), Source { lines: None, mismatch });
            break;
        }
        let mut source = source::find(directories, &file, md5, last, recorded);
        if let Some(lines) = &mut source.lines {
            lines.truncate(last as usize);
            bytes += lines.iter().map(|line| line.len() + size_of::<String>()).sum::<usize>();
        }
        sources.insert((file, md5), source);
    }
    sources
}

/// Returns notes on source files, and the number of further ones.
fn notes(mismatches: &BTreeSet<&str>) -> Vec<String> {
    let mut notes: Vec<String> =
        mismatches.iter().take(MAX_NOTES).map(|&note| note.to_owned()).collect();
    if mismatches.len() > MAX_NOTES {
        let more = mismatches.len() - MAX_NOTES;
        notes.push(format!("{more} more source files are or may be of another version"));
    }
    notes
}

/// Returns the first and the last line of a function in each file that it was compiled from. Calls that
/// were inlined are not its own lines.
fn files(function: &Function, decoded: &[Decoded]) -> BTreeMap<Arc<str>, [u32; 2]> {
    let mut files: BTreeMap<Arc<str>, [u32; 2]> = BTreeMap::new();
    for instruction in decoded {
        let Some(place) = function.places(instruction.offset).last() else { continue };
        let Some(file) = place.file.as_ref().filter(|_| place.line > 0) else { continue };
        let [first, last] = files.entry(Arc::clone(file)).or_insert([place.line; 2]);
        *first = place.line.min(*first);
        *last = place.line.max(*last);
    }
    files
}

/// The functions of a page. Names and lines are in lists, as functions share them.
#[derive(Default)]
struct CodePage<'a> {
    events: &'a [ReportedEvent],
    words: Words<String>,
    /// Calls at an instruction, innermost first: three numbers each, function, file and line.
    places: Words<Vec<u64>>,
    functions: Vec<Value>,
    /// The samples with the number of their instruction among those of all functions.
    moments: Vec<(usize, &'a CodeMoment)>,
    instructions: usize,
    bytes: usize,
    /// The number of functions that have no room.
    without_room: usize,
}

impl<'a> CodePage<'a> {
    /// Adds a function if it has room.
    fn add(
        &mut self,
        function: &Function,
        sources: &Sources,
        moments: &[&'a CodeMoment],
        room: usize,
    ) {
        let decoded = instructions(function);
        let (words, places) = (self.words.len(), self.places.len());
        let before = self.words.bytes() + self.places.bytes();
        let value = self.function(function, &decoded, sources);
        let length = length(&value);
        let added = self.words.bytes() + self.places.bytes() - before + self.length_of(moments);
        let bytes = self.bytes + length + added;
        if bytes > room {
            self.words.truncate(words);
            self.places.truncate(places);
            self.without_room += 1;
            return;
        }
        self.bytes = bytes;
        self.functions.push(value);
        for &moment in moments {
            // Instructions cover all bytes: a sample may lie within one if the stream is damaged.
            let after = decoded.partition_point(|found| found.offset <= moment.offset);
            self.moments.push((self.instructions + after.saturating_sub(1), moment));
        }
        self.instructions += decoded.len();
    }

    fn function(&mut self, function: &Function, decoded: &[Decoded], sources: &Sources) -> Value {
        let mut rows = Numbers::default();
        let mut last = 0;
        for instruction in decoded {
            let target = match instruction.flow {
                Flow::Branch(target) | Flow::Jump(target) => target,
                Flow::Next | Flow::End => None,
            };
            let place = self.place(function.places(instruction.offset));
            rows.push(u64::from(instruction.offset - last));
            rows.push(self.words.number(&instruction.text));
            rows.push(place);
            rows.push(target.map_or(0, |target| u64::from(target) + 1));
            last = instruction.offset;
        }
        let mut texts = Vec::new();
        for (file, [first, last]) in files(function, decoded) {
            let source = sources.get(&(Arc::clone(&file), function.md5(&file)));
            let Some(lines) = source.and_then(|source| source.lines.as_ref()) else { continue };
            // `find` refuses a file with fewer lines.
            let shown = &lines[(first - 1) as usize..(last as usize).min(lines.len())];
            texts.push(json!([self.words.number(&file.to_string()), first, shown]));
        }
        json!({
            "name": self.words.number(&function.name.to_string()),
            "image": self.words.number(&function.image_name.to_string()),
            "path": self.words.number(&function.image.to_string()),
            // As text: it may have more than 53 bits.
            "start": format!("{:x}", function.start),
            "rows": rows.text(),
            "source": texts,
        })
    }

    /// Returns the length of samples in the page.
    fn length_of(&self, moments: &[&CodeMoment]) -> usize {
        let mut numbers = Numbers::default();
        for moment in moments {
            let event = self.events.iter().find(|event| event.event == moment.event);
            let Some(event) = event else { continue };
            // The distance of the instruction from the last one is small.
            numbers.push(0x80);
            numbers.push(u64::from(moment.thread));
            numbers.push(u64::from(moment.slice));
            push_sum(&mut numbers, moment.sum, event);
        }
        numbers.text().len()
    }

    /// Returns the number of calls at an instruction.
    fn place(&mut self, places: &[Place]) -> u64 {
        let mut numbers = Vec::with_capacity(3 * places.len());
        for place in places {
            let mut word = |name: &Option<Arc<str>>| match name {
                Some(name) => self.words.number(&name.to_string()) + 1,
                None => 0,
            };
            numbers.extend([word(&place.function), word(&place.file), u64::from(place.line)]);
        }
        self.places.number(&numbers)
    }

    /// Returns for each event the samples: the distance of the instruction from the last one, thread, slice,
    /// and the sum.
    fn moments(&mut self) -> Vec<String> {
        self.moments.sort_by_key(|(at, moment)| (*at, moment.thread, moment.slice));
        let of_event = |event: &ReportedEvent| {
            let mut numbers = Numbers::default();
            let mut last = 0;
            for &(at, moment) in self.moments.iter().filter(|(_, it)| it.event == event.event) {
                numbers.push((at - last) as u64);
                numbers.push(u64::from(moment.thread));
                numbers.push(u64::from(moment.slice));
                push_sum(&mut numbers, moment.sum, event);
                last = at;
            }
            numbers.text()
        };
        self.events.iter().map(of_event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_notes_are_counted() {
        let files: Vec<String> = (10..35).map(|number| format!("{number}.c")).collect();
        let found = notes(&files.iter().map(String::as_str).collect());
        assert_eq!((found.len(), &found[0][..]), (MAX_NOTES + 1, "10.c"));
        assert_eq!(found[MAX_NOTES], "5 more source files are or may be of another version");
        assert_eq!(notes(&BTreeSet::from(["a.c"])), ["a.c"]);
    }
}
