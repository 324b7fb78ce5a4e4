//! Prints a report in the requested format.

use std::io::{self, Write};

use nprof_report::machine_formats::{csv, tsv};

use crate::print::format::DiffFormat;
use crate::print::report::{DiffReport, NoiseReport};
use crate::print::{folded, junit, markdown, noise, page, rows, table};

/// Prints a report on two sides. `width` is the width of the terminal; None if the output is not a
/// terminal.
///
/// # Errors
///
/// The error of the writer.
pub(crate) fn print_diff(
    report: &DiffReport<'_>,
    format: DiffFormat,
    width: Option<usize>,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        DiffFormat::Table => table::print(report, width, &mut out),
        DiffFormat::Markdown => markdown::print(report, out),
        DiffFormat::Junit => junit::print(report, out),
        DiffFormat::Html => page::write(report, out),
        DiffFormat::Tsv => tsv(rows::lines(report), out),
        DiffFormat::Csv => csv(rows::lines(report), out),
        DiffFormat::Json => rows::json(report, out),
        DiffFormat::Folded => out.write_all(folded::lines(report.diff, report.keys).as_bytes()),
        DiffFormat::Flamegraph | DiffFormat::Icicle => {
            out.write_all(&folded::draw(report, format == DiffFormat::Icicle)?)
        }
    }
}

/// Prints a report on the noise of one side; `width` as in [`print_diff`].
///
/// # Errors
///
/// The error of the writer, or [`io::ErrorKind::Unsupported`] for the formats of a comparison only.
pub(crate) fn print_noise(
    report: &NoiseReport<'_>,
    format: DiffFormat,
    width: Option<usize>,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        DiffFormat::Table => noise::print_table(report, width, &mut out),
        DiffFormat::Tsv => tsv(noise::lines(report), out),
        DiffFormat::Csv => csv(noise::lines(report), out),
        DiffFormat::Json => noise::json(report, out),
        // Two counts of a stack, and bounds, have no meaning here; Args refuses the combinations.
        DiffFormat::Markdown
        | DiffFormat::Junit
        | DiffFormat::Folded
        | DiffFormat::Flamegraph
        | DiffFormat::Html
        | DiffFormat::Icicle => Err(io::ErrorKind::Unsupported.into()),
    }
}
