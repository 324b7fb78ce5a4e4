//! `check`: whether a stream is complete, and where it is not.

use std::error::Error;
use std::io::Write;

use nprof_format::escape::escaped;
use nprof_format::reader::Damage;
use nprof_format::stage::{self, Outcome};
use nprof_format::{Reader, Record, Verdict};
use serde_json::{Value, json};

use crate::args::{Format, Report, operands};

/// What was found in one stream.
struct Finding {
    name: String,
    verdict: Verdict,
    segments: u64,
    samples: u64,
    records: u64,
    bytes: u64,
    damages: Vec<Damage>,
    damage_count: u64,
}

pub(crate) fn run(args: &Report) -> Result<Outcome, Box<dyn Error>> {
    let mut findings = Vec::new();
    for operand in operands(&args.files) {
        findings.push(examine(stage::open(operand)?)?);
    }
    let text = match args.format {
        Format::Table => findings.iter().map(lines).collect(),
        Format::Json => format!("{:#}\n", findings.iter().map(object).collect::<Value>()),
    };
    let mut output = stage::output(None)?;
    output.write_all(text.as_bytes())?;
    let complete = findings.iter().all(|finding| finding.verdict == Verdict::Complete);
    Ok(if complete { Outcome::Done } else { Outcome::No })
}

fn examine(input: stage::Input) -> Result<Finding, Box<dyn Error>> {
    let name = input.name().to_owned();
    let mut reader = Reader::new(input);
    let (mut segments, mut samples, mut records) = (0, 0, 0);
    loop {
        let record = reader.next().map_err(|error| format!("{name}: {}", stage::chain(&error)))?;
        let Some(record) = record else { break };
        records += 1;
        segments += u64::from(matches!(record, Record::Head(_)));
        samples += u64::from(matches!(record, Record::Sample(_)));
    }
    Ok(Finding {
        verdict: reader.verdict(),
        segments,
        samples,
        records,
        bytes: reader.position(),
        damages: reader.damages().to_vec(),
        damage_count: reader.damage_count(),
        name,
    })
}

/// The answer for people: the verdict, then a line for every place of damage.
fn lines(finding: &Finding) -> String {
    let Finding { verdict, segments, samples, records, bytes, .. } = finding;
    let name = escaped(finding.name.as_bytes());
    let mut text = format!(
        "{name}: {verdict}: {segments} segments, {samples} samples, {records} records, {bytes} bytes\n"
    );
    for damage in &finding.damages {
        let place = match damage.line {
            0 => format!("byte {}", damage.offset),
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
    let more = finding.damage_count - finding.damages.len() as u64;
    if more > 0 {
        text.push_str(&format!("{name}: and {more} places of damage more\n"));
    }
    text
}

fn object(finding: &Finding) -> Value {
    let damages = finding.damages.iter().map(|damage| {
        json!({
            "offset": damage.offset,
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
    })
}
