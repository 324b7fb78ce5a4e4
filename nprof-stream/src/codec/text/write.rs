//! Encodes records as lines.

use super::line::{LINE, is_unknown_line};
use crate::record::escape::push_field;
use crate::record::extras::Extras;
use crate::record::kind;
use crate::record::limits::{self, clip};
use crate::record::number::{push_decimal, push_hex_bytes, push_hexadecimal};
use crate::record::*;

/// Appends a record's line, with its newline.
pub(crate) fn push_line(out: &mut Vec<u8>, record: &Record<'_>) {
    let mut line = Spelled { out };
    match record {
        Record::Sample(sample) => push_sample(line.out, sample),
        Record::Nodes(nodes) => {
            line.word("N").id(nodes.first.0).id(nodes.parent.0);
            for frame in nodes.frames {
                line.id(frame.0);
            }
        }
        Record::Frame(frame) => {
            line.word("F").id(frame.id.0).id(frame.image.0).hexadecimal(frame.offset);
            line.out.push(b'\t');
            // The flags have a fixed order, so that equal frames have equal lines.
            line.out.push(if frame.kernel { b'k' } else { b'u' });
            if frame.return_address {
                line.out.extend_from_slice(b",ra");
            }
            if frame.mark != Mark::None {
                line.out.extend_from_slice(format!(",{}", frame.mark).as_bytes());
            }
            line.extras(frame.extras);
        }
        Record::Task(task) => {
            line.word("T").id(task.id.0).number(task.time).id(task.pid).id(task.tid);
            line.id(task.parent.0).string(task.comm).extras(task.extras);
        }
        Record::Change(change) => {
            line.word("X").number(change.time).id(change.task.0).display(change.kind);
            line.string(change.value).extras(change.extras);
        }
        Record::Lost(lost) => {
            line.word("L").number(lost.time).id(lost.event.0).cpu(lost.cpu).id(lost.task.0);
            line.number(lost.count).display(lost.cause).extras(lost.extras);
        }
        Record::Image(image) => {
            line.word("I").id(image.id.0).display(image.kind).build_id(image.build_id);
            line.string(image.path).extras(image.extras);
        }
        Record::Function(function) => {
            line.word("U").id(function.id.0).string(function.name).string(function.linkage);
            line.extras(function.extras);
        }
        Record::File(file) => {
            line.word("D").id(file.id.0).string(file.path).extras(file.extras);
        }
        Record::Location(location) => {
            line.word("Y").id(location.frame.0).display(location.status);
            for at in location.lines {
                line.display(format_args!("{},{},{},{}", at.function, at.file, at.line, at.column));
            }
            line.extras(location.extras);
        }
        Record::Head(head) => {
            // Its own version, also for a copied head (nprof-format(5), VERSIONS).
            line.word("@nprof").display(format_args!(
                "{}.{}",
                crate::record::version::MAJOR,
                crate::record::version::MINOR
            ));
            line.pairs(|out| head.encode(out));
        }
        // Any other body of this kind is written as `?111` below.
        Record::Unknown(unknown) if unknown.kind == LINE && is_unknown_line(unknown.body) => {
            line.out.extend_from_slice(unknown.body);
        }
        Record::Unknown(unknown) => {
            line.out.push(b'?');
            push_decimal(line.out, u64::from(unknown.kind));
            line.out.push(b'\t');
            push_hex_bytes(line.out, unknown.body);
        }
        // All other kinds consist of pairs.
        pairs => {
            line.word(kind::word(pairs.kind())).pairs(|out| pairs.push_pairs(out));
        }
    }
    out.push(b'\n');
}

/// Appends the line of a sample. It has its own function, since nearly all lines are samples.
fn push_sample(out: &mut Vec<u8>, sample: &Sample<'_>) {
    out.extend_from_slice(b"S\t");
    push_decimal(out, sample.time);
    out.push(b'\t');
    push_decimal(out, u64::from(sample.event.0));
    out.push(b'\t');
    push_decimal(out, u64::from(sample.task.0));
    Spelled { out }.cpu(sample.cpu);
    out.push(b'\t');
    push_decimal(out, u64::from(sample.node.0));
    out.push(b'\t');
    push_decimal(out, sample.weight);
    out.push(b'\t');
    push_decimal(out, sample.count);
    Spelled { out }.extras(sample.extras);
}

/// A line that is written field by field.
struct Spelled<'a> {
    out: &'a mut Vec<u8>,
}

impl Spelled<'_> {
    fn word(&mut self, word: &str) -> &mut Self {
        self.out.extend_from_slice(word.as_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.out.push(b'\t');
        push_decimal(self.out, number);
        self
    }

    fn id(&mut self, id: u32) -> &mut Self {
        self.number(u64::from(id))
    }

    fn cpu(&mut self, cpu: u32) -> &mut Self {
        if cpu == NO_CPU {
            self.out.extend_from_slice(b"\t-");
            return self;
        }
        self.id(cpu)
    }

    fn hexadecimal(&mut self, number: u64) -> &mut Self {
        self.out.push(b'\t');
        push_hexadecimal(self.out, number);
        self
    }

    fn string(&mut self, string: &[u8]) -> &mut Self {
        self.out.push(b'\t');
        push_field(self.out, &clip(string));
        self
    }

    fn build_id(&mut self, id: &[u8]) -> &mut Self {
        self.out.push(b'\t');
        match id {
            [] => self.out.push(b'-'),
            id => push_hex_bytes(self.out, &id[..id.len().min(limits::BUILD_ID)]),
        }
        self
    }

    fn display(&mut self, value: impl std::fmt::Display) -> &mut Self {
        self.out.extend_from_slice(format!("\t{value}").as_bytes());
        self
    }

    fn extras(&mut self, extras: Extras<'_>) {
        if !extras.is_empty() {
            self.out.push(b'\t');
            self.out.extend_from_slice(extras.encoded());
        }
    }

    fn pairs(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        self.out.push(b'\t');
        encode(self.out);
        // A TAB without a field after it is malformed.
        if self.out.len() == before + 1 {
            self.out.truncate(before);
        }
    }
}
