//! `check`: decides whether streams are complete, locates damage, and compares the times in them.

use std::error::Error;
use std::io::Write;

use nprof_cli::stage::{self, Outcome};
use nprof_stream::Validator;
use nprof_stream::escape::escaped;
use nprof_stream::reader::Damage;
use nprof_stream::{Reader, Record, Verdict};
use serde_json::{Value, json};

use super::args::{Format, Report};
use super::books::Books;

/// The findings in one stream.
struct Finding {
    name: String,
    verdict: Verdict,
    segments: u64,
    samples: u64,
    records: u64,
    bytes: u64,
    damages: Vec<Damage>,
    damage_count: u64,
    order: Validator,
    books: Books,
}

impl Finding {
    fn is_good(&self) -> bool {
        let in_order = self.order.undefined == 0 && self.order.disorder == 0;
        self.verdict == Verdict::Complete && in_order && self.books.is_good()
    }
}

pub(crate) fn run(args: &Report) -> Result<Outcome, Box<dyn Error>> {
    let mut findings = Vec::new();
    let mut failure = None;
    for operand in args.inputs.operands() {
        let finding = stage::open(operand).map_err(Into::into).and_then(examine);
        match finding {
            Ok(finding) => findings.push(finding),
            // An unreadable stream must not hide the findings in the others.
            Err(error) => {
                if let Some(earlier) = failure.replace(error) {
                    stage::warn(super::args::TOOL, &stage::chain(&*earlier));
                }
            }
        }
    }
    let text = match args.format {
        Format::Table => findings.iter().map(lines).collect(),
        Format::Json => format!("{:#}\n", findings.iter().map(object).collect::<Value>()),
    };
    let mut output = stage::output(None)?;
    output.write_all(text.as_bytes())?;
    // After the output: the findings in the other streams are complete.
    if let Some(error) = failure {
        return Err(error);
    }
    Ok(if findings.iter().all(Finding::is_good) { Outcome::Done } else { Outcome::No })
}

fn examine(input: stage::Input) -> Result<Finding, Box<dyn Error>> {
    let name = input.name().to_owned();
    let mut reader = Reader::new(input);
    let (mut segments, mut samples, mut records) = (0, 0, 0);
    let (mut order, mut books) = (Validator::new(), Books::default());
    loop {
        // Damage is not an error here: the reader skips it and counts it in its verdict.
        let record = reader.next().map_err(|error| format!("{name}: {}", stage::chain(&error)))?;
        let Some(record) = record else { break };
        order.take(&record);
        books.take(&record);
        records += 1;
        // Streams can be concatenated, with a head for each.
        segments += u64::from(matches!(record, Record::Head(_)));
        samples += u64::from(matches!(record, Record::Sample(_)));
    }
    books.finish();
    Ok(Finding {
        verdict: reader.verdict(),
        segments,
        samples,
        records,
        bytes: reader.position(),
        damages: reader.damages().to_vec(),
        damage_count: reader.damage_count(),
        order,
        books,
        name,
    })
}

/// Returns the findings for people: the verdict, then a line for each place of damage.
fn lines(finding: &Finding) -> String {
    let Finding { verdict, segments, samples, records, bytes, .. } = finding;
    let name = escaped(finding.name.as_bytes());
    let mut text = format!(
        "{name}: {verdict}: {}, {}, {}, {}\n",
        counted(*segments, "segment"),
        counted(*samples, "sample"),
        counted(*records, "record"),
        counted(*bytes, "byte")
    );
    for damage in &finding.damages {
        let place = match damage.line {
            0 => format!("byte {}", damage.offset),
            // Text streams have lines; an editor finds them faster than an offset.
            line => format!("byte {}, line {line}", damage.offset),
        };
        text.push_str(&format!("{name}: {place}: {}", escaped(damage.what.as_bytes())));
        if let Some(samples) = damage.samples {
            text.push_str(&format!(", {samples} samples lost"));
        }
        if let Some(span) = damage.span {
            text.push_str(&format!(", within {:.3} s", span as f64 / 1e9));
        }
        text.push('\n');
    }
    let order = &finding.order;
    if let Some(first) = &order.first_undefined {
        let count = order.undefined;
        text.push_str(&format!("{name}: {count} references to undefined ids, first {first}\n"));
    }
    if order.disorder > 0 {
        text.push_str(&format!("{name}: {} samples out of order\n", order.disorder));
    }
    for line in finding.books.lines() {
        text.push_str(&format!("{name}: {line}\n"));
    }
    // The reader keeps the first places only, so that damage everywhere needs no memory.
    let more = finding.damage_count - finding.damages.len() as u64;
    if more > 0 {
        text.push_str(&format!("{name}: {more} more places of damage\n"));
    }
    text
}

fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn object(finding: &Finding) -> Value {
    let damages = finding.damages.iter().map(|damage| {
        json!({
            "offset": damage.offset,
            // 0 means a binary stream, which has no lines.
            "line": (damage.line > 0).then_some(damage.line),
            "what": damage.what,
            "samples": damage.samples,
            "span_ns": damage.span,
        })
    });
    json!({
        "stream": finding.name,
        "verdict": finding.verdict.to_string(),
        "segments": finding.segments,
        "samples": finding.samples,
        "records": finding.records,
        "bytes": finding.bytes,
        "damage_count": finding.damage_count,
        "damages": damages.collect::<Vec<_>>(),
        "undefined": finding.order.undefined,
        "disorder": finding.order.disorder,
        "times": finding.books.object(),
    })
}
