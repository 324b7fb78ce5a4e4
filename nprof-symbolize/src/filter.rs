//! The loop over the stream: every record is copied as it is, and what frames are called is put
//! behind them.
//!
//! The input may have been symbolized before, here or elsewhere. All of it is looked up anew, and
//! what the input says of a frame stays where that gives no name, or the image is not to be had:
//! annotations never get worse. A frame's location comes behind it, so that the answer waits for
//! the next record that is no annotation.

use std::io::{self, Read, Write};
use std::rc::Rc;

use nprof_format::{
    Extras, FileId, Frame, FrameId, Function, FunctionId, Line, Location, Reader, Record,
    SourceFile, Status, Step, Writer,
};

use crate::catalog::{Catalog, Named, NamedLine};
use crate::input::InputNames;
use crate::sites::{Site, Sites};

/// Copies records to a writer and adds what frames are called.
pub(crate) struct Filter<W> {
    writer: Writer<W>,
    catalog: Catalog,
    /// This program's step, and whether the segment still lacks it.
    step: Step,
    step_due: bool,
    sites: Sites,
    functions: EpochIds,
    files: EpochIds,
    /// Frames whose locations have yet to be written.
    answers: Vec<Answer>,
    input: InputNames,
}

/// What a frame is called.
struct Answer {
    frame: FrameId,
    /// Its image's index in the catalog.
    slot: Option<usize>,
    named: Rc<Named>,
}

/// Which numbers of the catalog's names have been defined in this epoch, and as which ids.
#[derive(Default)]
struct EpochIds {
    ids: Vec<u32>,
    count: u32,
}

impl EpochIds {
    fn forget(&mut self) {
        self.ids.clear();
        self.count = 0;
    }

    /// The id of a number, and whether it has yet to be defined. `None` when the stream has no
    /// more ids, which takes 67 million names in one epoch.
    fn id(&mut self, number: u32) -> Option<(u32, bool)> {
        let index = number as usize;
        if self.ids.len() <= index {
            self.ids.resize(index + 1, 0);
        }
        if self.ids[index] != 0 {
            return Some((self.ids[index], false));
        }
        if self.count >= nprof_format::limits::ID {
            return None;
        }
        self.count += 1;
        self.ids[index] = self.count;
        Some((self.count, true))
    }
}

/// Whether what the input says of a frame is worth more than what was found here.
fn is_better(theirs: Status, ours: &Named) -> bool {
    match ours.status {
        Status::Named => false,
        // Names of another build, which the user allowed.
        Status::Mismatch if !ours.lines.is_empty() => theirs == Status::Named,
        // It was looked up, and there is no name.
        Status::NoSymbol | Status::Stripped | Status::Anonymous => theirs == Status::Named,
        // It could not be looked up.
        _ => true,
    }
}

impl<W: Write> Filter<W> {
    /// Begins a filter that signs the stream with `step`.
    pub(crate) fn new(writer: Writer<W>, catalog: Catalog, step: Step) -> Self {
        Self {
            writer,
            catalog,
            step,
            step_due: false,
            sites: Sites::default(),
            functions: EpochIds::default(),
            files: EpochIds::default(),
            answers: Vec::new(),
            input: InputNames::default(),
        }
    }

    /// Takes one record.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn take(&mut self, record: &Record<'_>) -> io::Result<()> {
        if !matches!(record, Record::Step(_)) {
            self.sign()?;
        }
        self.sites.note(record, &mut self.catalog);
        match record {
            Record::Function(_) | Record::File(_) | Record::Location(_) => {
                self.keep(record);
                return Ok(());
            }
            Record::Naming(_) => return Ok(()),
            Record::Frame(frame) => {
                self.look_up(frame);
                return self.writer.write(record);
            }
            _ => self.settle()?,
        }
        match record {
            Record::Head(_) => {
                self.tell()?;
                self.forget();
                self.step_due = true;
            }
            Record::End(_) => self.tell()?,
            Record::Epoch(_) => self.forget(),
            _ => {}
        }
        self.writer.write(record)
    }

    /// Passes on what comes next in the input and is nothing to this filter. To be called behind
    /// a sample, when no frame waits for its location.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn pass<R: Read>(&mut self, reader: &mut Reader<R>) -> io::Result<()> {
        let latest = self.writer.pass(reader)?;
        self.sites.advance(latest);
        Ok(())
    }

    /// Makes what was taken so far visible downstream.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Ends the output, and gives back what is known of the images.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn finish(mut self) -> io::Result<Catalog> {
        self.sign()?;
        self.settle()?;
        self.tell()?;
        self.writer.finish()?;
        Ok(self.catalog)
    }

    /// Adds this program's step behind those of the programs before it.
    fn sign(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.step_due) {
            self.writer.write(&Record::Step(Box::new(self.step.clone())))?;
        }
        Ok(())
    }

    /// Tells how naming went in the segment, of which all frames have been seen.
    fn tell(&mut self) -> io::Result<()> {
        for naming in self.catalog.tell() {
            self.writer.write(&Record::Naming(Box::new(naming)))?;
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.functions.forget();
        self.files.forget();
        self.input.forget();
    }

    /// Takes note of what the input says of its frames.
    fn keep(&mut self, record: &Record<'_>) {
        self.input.note(record);
        let Record::Location(location) = record else { return };
        let mut answers = self.answers.iter_mut().rev();
        let Some(answer) = answers.find(|answer| answer.frame == location.frame) else { return };
        if is_better(location.status, &answer.named) {
            let lines = location.lines.iter();
            let lines = lines.map(|line| self.input.line(line, &mut self.catalog.names)).collect();
            answer.named = Rc::new(Named { status: location.status, lines });
        }
    }

    /// Looks up what a frame is called.
    fn look_up(&mut self, frame: &Frame<'_>) {
        let (slot, named) = match self.sites.of(frame) {
            // A mark stands for frames that are missing.
            None => return,
            Some(Site::Place(slot, place)) => (Some(slot), self.catalog.resolve(slot, place)),
            Some(Site::Function(function)) => {
                let line = NamedLine { function, file: 0, line: 0, column: 0 };
                (None, Rc::new(Named { status: Status::Named, lines: Box::new([line]) }))
            }
            Some(Site::Nameless(status)) => {
                (None, Rc::new(Named { status, lines: Box::default() }))
            }
        };
        self.answers.push(Answer { frame: frame.id, slot, named });
    }

    /// Writes the locations of the frames that were looked up, and what they refer to.
    fn settle(&mut self) -> io::Result<()> {
        if self.answers.is_empty() {
            return Ok(());
        }
        for Answer { frame, slot, named } in std::mem::take(&mut self.answers) {
            if let Some(slot) = slot {
                self.catalog.count(slot, named.status);
            }
            let lines = self.define(&named)?;
            let location =
                Location { frame, status: named.status, lines: &lines, extras: Extras::NONE };
            self.writer.write(&Record::Location(location))?;
        }
        Ok(())
    }

    /// The lines of a place by this epoch's ids, which are defined where they are new.
    fn define(&mut self, named: &Named) -> io::Result<Vec<Line>> {
        let mut lines = Vec::with_capacity(named.lines.len());
        for line in &named.lines {
            lines.push(Line {
                function: self.define_function(line.function)?,
                file: self.define_file(line.file)?,
                line: line.line,
                column: line.column,
            });
        }
        Ok(lines)
    }

    fn define_function(&mut self, number: u32) -> io::Result<FunctionId> {
        let Some(name) = self.catalog.names.function_name(number) else {
            return Ok(FunctionId::NONE);
        };
        let Some((id, is_new)) = self.functions.id(number) else { return Ok(FunctionId::NONE) };
        let id = FunctionId(id);
        if is_new {
            let (name, linkage) = (&*name.shown, &*name.linkage);
            let function = Function { id, name, linkage, extras: Extras::NONE };
            self.writer.write(&Record::Function(function))?;
        }
        Ok(id)
    }

    fn define_file(&mut self, number: u32) -> io::Result<FileId> {
        let Some(path) = self.catalog.names.path(number) else { return Ok(FileId::NONE) };
        let Some((id, is_new)) = self.files.id(number) else { return Ok(FileId::NONE) };
        let id = FileId(id);
        if is_new {
            self.writer.write(&Record::File(SourceFile { id, path, extras: Extras::NONE }))?;
        }
        Ok(id)
    }
}
