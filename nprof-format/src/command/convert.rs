//! `text` and `binary`: convert streams to the other encoding.

use std::error::Error;

use nprof_cli::stage::{self, Outcome};
use nprof_stream::IncompleteInput;
use nprof_stream::{Encoding, Reader, Verdict, Writer};

use super::args::Convert;

pub(crate) fn run(args: &Convert, encoding: Encoding) -> Result<Outcome, Box<dyn Error>> {
    stage::refuse_same_file(args.inputs.operands(), args.output.path())?;
    let output = stage::output(args.output.path())?;
    // Control characters in a binary stream can change the state of a terminal.
    if encoding == Encoding::Binary {
        output.refuse_terminal()?;
    }
    let mut writer = Writer::new(output, encoding);
    let mut outcome = Outcome::Done;
    for operand in args.inputs.operands() {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        let mut reader = Reader::new(input);
        let result = copy(&mut reader, &mut writer, args.strip);
        // Records before an error are written.
        writer.flush()?;
        result.map_err(|error| format!("{name}: {}", stage::chain(&*error)))?;
        if reader.verdict() != Verdict::Complete {
            stage::warn(super::args::TOOL, &IncompleteInput::of(&name, &reader).to_string());
            outcome = if args.tolerance.partial_ok { outcome } else { Outcome::Incomplete };
        }
    }
    writer.finish()?;
    Ok(outcome)
}

fn copy(
    reader: &mut Reader<stage::Input>,
    writer: &mut Writer<stage::Output>,
    strip: bool,
) -> Result<(), Box<dyn Error>> {
    loop {
        // The next read may block: a live stream must not wait in a buffer.
        if reader.would_block() {
            writer.flush()?;
        }
        let Some(record) = reader.next()? else { return Ok(()) };
        if !(strip && record.is_annotation()) {
            writer.write(&record)?;
        }
    }
}
