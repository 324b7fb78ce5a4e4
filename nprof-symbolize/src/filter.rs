//! The loop over the stream: every record is copied as it is, and what frames are called is put
//! behind them.
//!
//! Functions, files, locations and what is told of images that are in the input already are left
//! out: the input is symbolized anew.

use std::io::{self, Write};

use nprof_format::{
    Extras, FileId, Frame, Function, FunctionId, Image, ImageId, ImageKind, Line, Location, Mark,
    Record, SourceFile, Status, Step, Writer,
};
use rustc_hash::FxHashMap;

use crate::catalog::{Catalog, Named};
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
            Record::Function(_) | Record::File(_) | Record::Location(_) | Record::Naming(_) => {
                return Ok(());
            }
            Record::Head(_) => {
                self.tell()?;
                self.forget();
                self.seen.clear();
                self.step_due = true;
            }
            Record::End(_) => self.tell()?,
            Record::Task(task) => self.catalog.finder.living.saw(task.pid),
            Record::Epoch(_) => self.forget(),
            Record::Image(image) => self.remember(image),
            _ => {}
        }
        self.writer.write(record)?;
        match record {
            Record::Frame(frame) => self.annotate(frame),
            _ => Ok(()),
        }
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
        let now = self.clock.utc().filter(|_| image.build_id.is_empty())?;
        Some(*self.seen.entry(image.path.into()).or_insert(now))
    }

    /// Writes the location of a frame, and what it refers to.
    fn annotate(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        // A mark stands for frames that are missing.
        if frame.mark != Mark::None {
            return Ok(());
        }
        let place = Place { offset: frame.offset, return_address: frame.return_address };
        let named = match self.images.get(&frame.image) {
            Some(&Known::Slot(slot)) => {
                let named = self.catalog.resolve(slot, place);
                self.catalog.count(slot, named.status);
                named
            }
            Some(&Known::Function(number)) => {
                let line = Line { function: self.define_function(number)?, ..Line::default() };
                return self.locate(frame, Status::Named, &[line]);
            }
            Some(&Known::Nameless(status)) => return self.locate(frame, status, &[]),
            None if frame.image.is_none() => return self.locate(frame, Status::Anonymous, &[]),
            // The image's record was lost to damage.
            None => return self.locate(frame, Status::NoImage, &[]),
        };
        let lines = self.define(&named)?;
        self.locate(frame, named.status, &lines)
    }

    fn locate(&mut self, frame: &Frame<'_>, status: Status, lines: &[Line]) -> io::Result<()> {
        let location = Location { frame: frame.id, status, lines, extras: Extras::NONE };
        self.writer.write(&Record::Location(location))
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
