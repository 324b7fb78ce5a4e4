//! Prints a report in the format of the command line.

use std::io::{self, Write};

use nprof_report::machine::{csv, tsv};

use crate::print::options::Format;
use crate::print::report::{DiffReport, NoiseReport};
use crate::print::{folded, machine, noise, table};

impl NoiseReport<'_> {
    /// Prints it; there is no folded form.
    ///
    /// # Errors
    ///
    /// What writing said.
    pub(crate) fn print(&self, format: Format, mut out: &mut dyn Write) -> io::Result<()> {
        let out = &mut out;
        match format {
            Format::Table => noise::print_table(self, out),
            Format::Tsv => out.write_all(&tsv(&noise::lines(self))),
            Format::Csv => out.write_all(&csv(&noise::lines(self))?),
            Format::Json => out.write_all(&noise::json(self)?),
            Format::Folded | Format::Flamegraph => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl DiffReport<'_> {
    /// Prints it.
    ///
    /// # Errors
    ///
    /// What writing said.
    pub(crate) fn print(&self, format: Format, mut out: &mut dyn Write) -> io::Result<()> {
        let out = &mut out;
        match format {
            Format::Table => table::print(self, out),
            Format::Tsv => out.write_all(&tsv(&machine::lines(self))),
            Format::Csv => out.write_all(&csv(&machine::lines(self))?),
            Format::Json => out.write_all(&machine::json(self)?),
            Format::Folded => out.write_all(folded::lines(self.diff, self.keys).as_bytes()),
            Format::Flamegraph => folded::draw(self, out),
        }
    }
}
