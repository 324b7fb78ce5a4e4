//! The loop over the stream: every record is copied as it is, and what frames are called is put
//! behind them.
//!
//! The input may have been symbolized before, here or elsewhere. All of it is looked up anew, and
//! what the input says of a frame stays where that gives no name, or the image is not to be had:
//! annotations never get worse. A frame's location comes behind it, so that the answer waits for
//! the next record that is no annotation.

use std::io::{self, Write};
use std::rc::Rc;

use nprof_format::{
    Extras, FileId, Frame, FrameId, Function, FunctionId, Image, ImageId, ImageKind, Line,
    Location, Mark, Record, SourceFile, Status, Step, Writer,
};
use rustc_hash::FxHashMap;

use crate::catalog::{Catalog, Named, NamedLine};
use crate::clock::Clock;
use crate::images::Recorded;
use crate::resolve::Place;

/// Copies records to a writer and adds what frames are called.
pub(crate) struct Filter<W> {
    writer: Writer<W>,
    catalog: Catalog,
    /// This program's step, and whether the segment still lacks it.
    step: Step,
    step_due: bool,
    /// The time of day in the stream, and when images without a build ID were first seen.
    clock: Clock,
    seen: FxHashMap<Box<[u8]>, u64>,
    images: FxHashMap<ImageId, Known>,
    functions: EpochIds,
    files: EpochIds,
    /// Frames whose locations have yet to be written.
    answers: Vec<Answer>,
    /// The functions and files of the input, by their numbers in the catalog's names.
    input_functions: FxHashMap<FunctionId, u32>,
    input_files: FxHashMap<FileId, u32>,
}

/// What a frame is called.
struct Answer {
    frame: FrameId,
    /// Its image's index in the catalog.
    slot: Option<usize>,
    named: Rc<Named>,
}

/// What is known of an image id.
#[derive(Clone, Copy)]
enum Known {
    /// Its index in the catalog.
    Slot(usize),
    /// All of it is the function of this number in the catalog's names.
    Function(u32),
    /// None of its places can have a name.
    Nameless(Status),
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
            clock: Clock::default(),
            seen: FxHashMap::default(),
            images: FxHashMap::default(),
            functions: EpochIds::default(),
            files: EpochIds::default(),
            answers: Vec::new(),
            input_functions: FxHashMap::default(),
            input_files: FxHashMap::default(),
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
        self.clock.note(record);
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
                self.seen.clear();
                self.step_due = true;
            }
            Record::End(_) => self.tell()?,
            Record::Task(task) if task.pid == task.tid => {
                self.catalog.finder.living.saw(task.pid);
            }
            Record::Epoch(_) => self.forget(),
            Record::Image(image) => self.remember(image),
            _ => {}
        }
        self.writer.write(record)
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
        self.images.clear();
        self.functions.forget();
        self.files.forget();
        self.input_functions.clear();
        self.input_files.clear();
    }

    fn remember(&mut self, image: &Image<'_>) {
        let known = match image.kind {
            ImageKind::Elf | ImageKind::Kernel | ImageKind::Module | ImageKind::Vdso => {
                let recorded = Recorded {
                    kind: image.kind,
                    build_id: image.build_id.into(),
                    path: image.path.into(),
                    seen: self.first_seen(image),
                };
                Known::Slot(self.catalog.slot(recorded))
            }
            // A function of generated code, named when it was recorded.
            ImageKind::Jit if !image.path.is_empty() => {
                Known::Function(self.catalog.names.shown(image.path))
            }
            ImageKind::Anonymous | ImageKind::Jit => Known::Nameless(Status::Anonymous),
            ImageKind::Other(_) => Known::Nameless(Status::NoImage),
        };
        self.images.insert(image.id, known);
    }

    /// When an image without a build ID was first seen in the segment.
    fn first_seen(&mut self, image: &Image<'_>) -> Option<u64> {
        let is_unproven = image.kind == ImageKind::Elf && image.build_id.is_empty();
        let now = self.clock.utc().filter(|_| is_unproven)?;
        Some(*self.seen.entry(image.path.into()).or_insert(now))
    }

    /// Takes note of what the input says of its frames.
    fn keep(&mut self, record: &Record<'_>) {
        let names = &mut self.catalog.names;
        match record {
            Record::Function(function) => {
                let number = names.kept(function.name, function.linkage);
                self.input_functions.insert(function.id, number);
            }
            Record::File(file) => {
                self.input_files.insert(file.id, names.file(file.path));
            }
            Record::Location(location) => {
                let mut answers = self.answers.iter_mut().rev();
                let Some(answer) = answers.find(|answer| answer.frame == location.frame) else {
                    return;
                };
                if is_better(location.status, &answer.named) {
                    let lines = location.lines.iter().map(|line| NamedLine {
                        function: self.input_functions.get(&line.function).copied().unwrap_or(0),
                        file: self.input_files.get(&line.file).copied().unwrap_or(0),
                        line: line.line,
                        column: line.column,
                    });
                    let lines = lines.collect();
                    answer.named = Rc::new(Named { status: location.status, lines });
                }
            }
            _ => {}
        }
    }

    /// Looks up what a frame is called.
    fn look_up(&mut self, frame: &Frame<'_>) {
        // A mark stands for frames that are missing.
        if frame.mark != Mark::None {
            return;
        }
        let place = Place { offset: frame.offset, return_address: frame.return_address };
        let nameless = |status| Rc::new(Named { status, lines: Box::default() });
        let mut slot = None;
        let named = match self.images.get(&frame.image) {
            Some(&Known::Slot(known)) => {
                slot = Some(known);
                self.catalog.resolve(known, place)
            }
            Some(&Known::Function(function)) => {
                let line = NamedLine { function, file: 0, line: 0, column: 0 };
                Rc::new(Named { status: Status::Named, lines: Box::new([line]) })
            }
            Some(&Known::Nameless(status)) => nameless(status),
            None if frame.image.is_none() => nameless(Status::Anonymous),
            // The image's record was lost to damage.
            None => nameless(Status::NoImage),
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
