//! `images`: lists the images in streams, to archive their files.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

use nprof_cli::stage::{self, Outcome};
use nprof_stream::escape::escaped;
use nprof_stream::number::hex;
use nprof_stream::{ImageKind, IncompleteInput, Reader, Record, Verdict};

use super::args::Images;

/// An image. Images are listed in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    kind: String,
    path: Vec<u8>,
    build_id: Vec<u8>,
}

pub(crate) fn run(args: &Images) -> Result<Outcome, Box<dyn Error>> {
    let mut images = BTreeSet::new();
    let mut outcome = Outcome::Done;
    for operand in args.inputs.operands() {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        let mut reader = Reader::new(input);
        let result = collect(&mut reader, &mut images);
        result.map_err(|error| format!("{name}: {}", stage::chain(&error)))?;
        if reader.verdict() != Verdict::Complete {
            stage::warn(super::args::TOOL, &IncompleteInput::of(&name, &reader).to_string());
            outcome = if args.tolerance.partial_ok { outcome } else { Outcome::Incomplete };
        }
    }
    let mut output = stage::output(None)?;
    if args.null {
        let mut paths: Vec<&[u8]> = images.iter().filter_map(file).collect();
        // A path may have had several builds.
        paths.dedup();
        for path in paths {
            output.write_all(path)?;
            output.write_all(b"\0")?;
        }
    } else {
        for image in &images {
            let Listed { kind, path, build_id } = image;
            let build_id = if build_id.is_empty() { "-".to_owned() } else { hex(build_id) };
            writeln!(output, "{kind}\t{build_id}\t{}", escaped(path))?;
        }
    }
    output.flush()?;
    Ok(outcome)
}

/// Returns the path of an image that is a file.
fn file(image: &Listed) -> Option<&[u8]> {
    let is_file = image.kind == ImageKind::Elf.to_string() && image.path.starts_with(b"/");
    is_file.then_some(&image.path)
}

fn collect(
    reader: &mut Reader<stage::Input>,
    images: &mut BTreeSet<Listed>,
) -> Result<(), nprof_stream::Error> {
    while let Some(record) = reader.next()? {
        // The recorder defines an image with its first frame. Functions generated at run time are
        // images of their own, and have no file.
        if let Record::Image(image) = record
            && image.kind != ImageKind::Jit
        {
            images.insert(Listed {
                kind: image.kind.to_string(),
                path: image.path.to_vec(),
                build_id: image.build_id.to_vec(),
            });
        }
    }
    Ok(())
}
