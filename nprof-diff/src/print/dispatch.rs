//! Prints a report in the requested format.

use std::io::{self, Write};

use nprof_report::args::StackFormat;
use nprof_report::machine_formats::{csv, tsv};

use crate::print::report::{DiffReport, NoiseReport};
use crate::print::{folded, noise, rows, table};

/// Prints a report on two sides. `width` is the width of the terminal; None if the output is not a
/// terminal.
///
/// # Errors
///
/// The error of the writer.
pub(crate) fn print_diff(
    report: &DiffReport<'_>,
    format: StackFormat,
    width: Option<usize>,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        StackFormat::Table => table::print(report, width, &mut out),
        StackFormat::Tsv => tsv(rows::lines(report), out),
        StackFormat::Csv => csv(rows::lines(report), out),
        StackFormat::Json => rows::json(report, out),
        StackFormat::Folded => out.write_all(folded::lines(report.diff, report.keys).as_bytes()),
        StackFormat::Flamegraph | StackFormat::Icicle => {
            out.write_all(&folded::draw(report, format == StackFormat::Icicle)?)
        }
    }
}

/// Prints a report on the noise of one side; `width` as in [`print_diff`].
///
/// # Errors
///
/// The error of the writer, or [`io::ErrorKind::Unsupported`] for folded stacks and flame graphs.
pub(crate) fn print_noise(
    report: &NoiseReport<'_>,
    format: StackFormat,
    width: Option<usize>,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        StackFormat::Table => noise::print_table(report, width, &mut out),
        StackFormat::Tsv => tsv(noise::lines(report), out),
        StackFormat::Csv => csv(noise::lines(report), out),
        StackFormat::Json => noise::json(report, out),
        // Two counts of a stack have no meaning here; Args refuses the combination.
        StackFormat::Folded | StackFormat::Flamegraph | StackFormat::Icicle => {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
