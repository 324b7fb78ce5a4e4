//! The loop over the stream: copies every record, and writes the location of each frame after it.
//!
//! The input may have been symbolized before, by this tool or another. An existing location stays
//! if a lookup would give the same down to the line. Otherwise the frame is looked up, and the
//! existing location stays if the lookup finds no name or the image is not available: annotations
//! never get worse. As the location of a frame follows it, a frame waits for the next record that
//! is no annotation.
//!
//! A live stream cannot wait for debug information. Its frames get a first location from symbols,
//! and a second one when the lookup is done, before the ids of their epoch are forgotten.

use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use nprof_object::ImageOffset;
use nprof_stream::number::hex;
use nprof_stream::{
    Code, CodeRow, CodeRows, Extras, ExtrasBuilder, FileId, FrameId, Function, FunctionId, Line,
    Location, Passthrough, Reader, Record, SourceFile, Status, Step, Writer,
};

use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::lookup_key::LookupKey;
use crate::lookup::reuse::Reuse;
use crate::names::location::{InternedLine, SymbolizedFrame};
use crate::stream::deferred::{DeferredFrame, DeferredFrames, WaitBudget};
use crate::stream::epoch_frames::{EpochFrames, PendingFrame, WrittenLocation};
use crate::stream::existing_annotations::{
    ExistingAnnotations, existing_location, is_existing_better, prefer_existing,
};
use crate::stream::frame_targets::FrameImages;

/// Copies records to a writer, and adds locations.
pub(crate) struct Filter<W> {
    pub(super) writer: Writer<W>,
    catalog: ImageCatalog,
    /// The `@step` record of this run.
    step: Step,
    /// True if the current segment still lacks it.
    is_step_due: bool,
    images: FrameImages,
    frames: EpochFrames,
    /// Scratch memory for the lines of one location.
    lines: Vec<Line>,
    /// Frames with a provisional location.
    deferred: DeferredFrames,
    budget: WaitBudget,
}

/// The longest wait for a background lookup before the input is polled again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The number of finished background lookups after which the input is polled again.
const RESULTS_PER_POLL: usize = 64;

impl<W: Write> Filter<W> {
    /// Starts a filter that adds `step` to the stream. A live stream waits up to `wait_limit` for
    /// background lookups.
    pub(crate) fn new(
        writer: Writer<W>,
        catalog: ImageCatalog,
        step: Step,
        wait_limit: Duration,
    ) -> Self {
        Self {
            writer,
            catalog,
            frames: EpochFrames::new(ExistingAnnotations::new(step.clone())),
            step,
            is_step_due: false,
            images: FrameImages::default(),
            lines: Vec::new(),
            deferred: DeferredFrames::default(),
            budget: WaitBudget::new(wait_limit),
        }
    }

    /// Adds the code of functions that have samples, before the first record.
    pub(crate) fn with_code(self) -> Self {
        Self { images: FrameImages::new(true), ..self }
    }

    /// Filters one record.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub(crate) fn process(&mut self, record: &Record<'_>) -> io::Result<()> {
        // Steps are in the order of the tools, so that this one follows those of the input.
        if !matches!(record, Record::Step(_)) {
            self.write_step()?;
        }
        self.images.note(record, &mut self.catalog);
        self.frames.annotations.note(record);
        match record {
            Record::Frame(_) | Record::Function(_) | Record::File(_) | Record::Location(_) => {
                return match self.frames.classify(record, &mut self.catalog, &self.images) {
                    Passthrough::Forward | Passthrough::ForwardAlone => self.writer.write(record),
                    Passthrough::Drop => self.reuse_existing(record),
                };
            }
            // Written again at the end of the segment, with the counts of this run.
            Record::Naming(naming) => {
                self.catalog.note_reported(naming);
                return Ok(());
            }
            _ => self.flush_pending_frames()?,
        }
        match record {
            Record::Head(_) => {
                self.write_naming()?;
                self.frames.forget();
                self.is_step_due = true;
            }
            Record::End(_) => self.write_naming()?,
            Record::Epoch(_) => {
                self.write_deferred()?;
                self.frames.forget();
            }
            Record::Code(code) => return self.reuse_code(code),
            _ => {}
        }
        self.writer.write(record)
    }

    /// Copies the following records that need no filtering, without decoding them.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub(crate) fn copy_plain<R: Read>(&mut self, reader: &mut Reader<R>) -> io::Result<()> {
        let Self { writer, frames, catalog, images, .. } = self;
        let pass = frames.pass();
        let classify = |record: &Record<'_>| frames.classify(record, catalog, images);
        let latest_ns = writer.copy_plain(reader, pass, classify)?;
        images.advance(latest_ns);
        Ok(())
    }

    /// Notes that a part of the input's segment is lost.
    pub(crate) fn invalidate(&mut self) {
        self.frames.annotations.invalidate();
    }

    /// Writes all buffered output.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Writes all buffered output, and second locations as lookups finish, until input `is_ready`.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub(crate) fn write_until_ready(&mut self, is_ready: impl Fn() -> bool) -> io::Result<()> {
        loop {
            for _ in 0..RESULTS_PER_POLL {
                if self.deferred.is_empty() || !self.write_next_result(Some(Duration::ZERO))? {
                    break;
                }
            }
            if is_ready() {
                return Ok(());
            }
            self.writer.flush()?;
            self.budget.restart();
            // A result that no frame waits for is no reason to wake up.
            if self.deferred.is_empty() || !self.catalog.is_waiting() {
                return Ok(());
            }
            self.write_next_result(Some(POLL_INTERVAL))?;
        }
    }

    /// Notes that input arrived after a time without any.
    pub(crate) fn note_input(&mut self) {
        // While frames are deferred, further frames do not wait; see `wait_for`.
        if self.deferred.is_empty() {
            self.budget.restart();
        }
    }

    /// Ends the output; returns the catalog with its statistics.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub(crate) fn finish(mut self) -> io::Result<ImageCatalog> {
        self.write_step()?;
        self.flush_pending_frames()?;
        self.write_naming()?;
        self.writer.finish()?;
        Ok(self.catalog)
    }

    /// Writes this run's step once per segment.
    pub(super) fn write_step(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_step_due) {
            self.writer.write(&Record::Step(Box::new(self.step.clone())))?;
        }
        Ok(())
    }

    /// Writes a `@naming` record per image of the segment, after all its frames.
    fn write_naming(&mut self) -> io::Result<()> {
        self.write_deferred()?;
        for naming in self.catalog.end_segment() {
            self.writer.write(&Record::Naming(Box::new(naming)))?;
        }
        Ok(())
    }

    /// Uses a location of the input for its frame, if that still waits.
    fn reuse_existing(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Record::Location(location) = record else { return Ok(()) };
        let reuse = self.frames.reuse(location);
        let EpochFrames { names, queue, .. } = &mut self.frames;
        let Some(pending) = queue.get_mut(location.frame) else {
            return self.reuse_late(location);
        };
        let existing = Some(existing_location(names, location));
        match pending.key {
            Some(key) if self.catalog.can_reuse(key.image, reuse) => pending.found = existing,
            _ => pending.existing = existing,
        }
        Ok(())
    }

    /// Uses a location that does not directly follow its frame. Of several, the last one counts.
    fn reuse_late(&mut self, location: &Location<'_>) -> io::Result<()> {
        let frame = location.frame;
        if let Some(key) = self.frames.deferred.get(&frame) {
            let existing = existing_location(&self.frames.names, location);
            let deferred = self.deferred.get_mut(key).into_iter().flatten();
            deferred
                .filter(|deferred| deferred.frame == frame)
                .for_each(|deferred| deferred.existing = Some(Rc::clone(&existing)));
            return Ok(());
        }
        let Some(mut written) = self.frames.written.remove(&frame) else {
            // The second location in a recorded live stream: the first one passed unchanged.
            if self.frames.reuse(location) == Reuse::Full {
                let existing = existing_location(&self.frames.names, location);
                self.annotate(frame, &existing)?;
            }
            return Ok(());
        };
        if is_existing_better(location.status, &written.found) {
            let existing = existing_location(&self.frames.names, location);
            if let Some(image) = written.image {
                self.catalog.uncount(image, written.shown.status);
                self.catalog.count(image, existing.status, existing.problem.as_ref());
            }
            self.annotate(frame, &existing)?;
            written.shown = existing;
        }
        self.frames.written.insert(frame, written);
        Ok(())
    }

    /// Remembers a written location, if the input may have a better one later: from an earlier run, or
    /// from the recorder, for code generated at run time.
    fn note_written(
        &mut self,
        frame: FrameId,
        image: Option<usize>,
        found: Rc<SymbolizedFrame>,
        shown: &Rc<SymbolizedFrame>,
    ) {
        let may_follow = found.status == Status::Anonymous
            || self.frames.has_existing
            || self.frames.annotations.is_same();
        if may_follow && found.status != Status::Named {
            let shown = Rc::clone(shown);
            self.frames.written.insert(frame, WrittenLocation { image, found, shown });
        } else {
            self.frames.written.remove(&frame);
        }
    }

    /// Looks up the queued frames, and writes their locations with the names they need.
    pub(super) fn flush_pending_frames(&mut self) -> io::Result<()> {
        let mut queue = std::mem::take(&mut self.frames.queue);
        // All lookups are requested before the first result is awaited.
        for pending in queue.all_mut().filter(|pending| pending.found.is_none()) {
            pending.found = pending.key.and_then(|key| self.catalog.resolve(key));
        }
        for (frame, PendingFrame { key, image, found, existing }) in queue.drain() {
            let found = match (found, key) {
                (None, Some(key)) => self.wait_for(key)?,
                (found, _) => found,
            };
            let shown = match (found, key) {
                (Some(found), _) => {
                    let shown = prefer_existing(existing, Rc::clone(&found));
                    self.frames.deferred.remove(&frame);
                    self.note_written(frame, image, found, &shown);
                    shown
                }
                (None, Some(key)) => self.defer(frame, key, existing),
                (None, None) => continue,
            };
            if let Some(image) = image {
                self.catalog.count(image, shown.status, shown.problem.as_ref());
            }
            self.annotate(frame, &shown)?;
            self.write_code(frame, key)?;
        }
        // Keeps the memory of the queue.
        self.frames.queue = queue;
        Ok(())
    }

    /// Defers a frame; returns its provisional location.
    fn defer(
        &mut self,
        frame: FrameId,
        key: LookupKey,
        existing: Option<Rc<SymbolizedFrame>>,
    ) -> Rc<SymbolizedFrame> {
        let shown = match existing.as_ref().filter(|existing| existing.status == Status::Named) {
            Some(existing) => Rc::clone(existing),
            None => prefer_existing(existing.clone(), self.catalog.provisional(key)),
        };
        let deferred = DeferredFrame { frame, shown: Rc::clone(&shown), existing };
        self.deferred.entry(key).or_default().push(deferred);
        self.frames.deferred.insert(frame, key);
        shown
    }

    /// Waits for a background lookup. None if the wait budget is spent, or other frames have been
    /// deferred already: waiting for each in turn would exceed the budget many times.
    fn wait_for(&mut self, key: LookupKey) -> io::Result<Option<Rc<SymbolizedFrame>>> {
        loop {
            if let Some(found) = self.catalog.known(key) {
                return Ok(Some(found));
            }
            // The first frame that exceeds the budget defers all that follow.
            let limit = self.budget.left().filter(|_| self.deferred.is_empty());
            let Some(limit) = limit else { return Ok(None) };
            if !self.write_next_result(Some(limit))? && !self.catalog.is_waiting() {
                return Ok(None);
            }
        }
    }

    /// Writes all second locations, without a time limit: the next record forgets the ids.
    fn write_deferred(&mut self) -> io::Result<()> {
        if !self.deferred.is_empty() {
            self.writer.flush()?;
        }
        // The reader should see everything so far before this long wait.
        while !self.deferred.is_empty() && self.write_next_result(None)? {}
        // Left only if the thread has exited, which is a bug.
        self.deferred.clear();
        Ok(())
    }

    /// Takes the next result of the background, and writes the second locations of its frames.
    /// False if there is none within `limit`.
    fn write_next_result(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        let Some((key, found)) = self.catalog.next(limit) else { return Ok(false) };
        for DeferredFrame { frame, shown, existing } in
            self.deferred.remove(&key).unwrap_or_default()
        {
            let best = prefer_existing(existing, Rc::clone(&found));
            self.catalog.uncount(key.image, shown.status);
            self.catalog.count(key.image, best.status, best.problem.as_ref());
            // The id was defined again, for another lookup.
            if self.frames.deferred.get(&frame) != Some(&key) {
                continue;
            }
            self.frames.deferred.remove(&frame);
            self.note_written(frame, Some(key.image), Rc::clone(&found), &best);
            // An equal location would only take space.
            if (best.status, &best.lines) != (shown.status, &shown.lines) {
                self.annotate(frame, &best)?;
            }
            self.write_code(frame, Some(key))?;
        }
        Ok(true)
    }

    /// Writes the location of a frame.
    fn annotate(&mut self, frame: FrameId, found: &SymbolizedFrame) -> io::Result<()> {
        self.define_names(found)?;
        let (status, lines) = (found.status, &self.lines[..]);
        let location = Location { frame, status, lines, extras: Extras::NONE };
        self.writer.write(&Record::Location(location))
    }

    /// Writes the code around a frame, once in an epoch.
    fn write_code(&mut self, frame: FrameId, key: Option<LookupKey>) -> io::Result<()> {
        let Some(key) = key.filter(|key| key.code) else { return Ok(()) };
        let Some(code) = self.catalog.code(key) else { return Ok(()) };
        if !self.frames.codes.insert((key.image, code.start)) {
            return Ok(());
        }
        let (rows, callees) = (self.code_rows(&code.rows)?, self.code_rows(&code.callees)?);
        self.writer.write(&Record::Code(Code {
            frame,
            offset: code.start.0,
            arch: code.arch.as_bytes(),
            bytes: &code.bytes,
            rows: CodeRows::from_encoded(&rows).unwrap_or_default(),
            callees: CodeRows::from_encoded(&callees).unwrap_or_default(),
            extras: Extras::NONE,
        }))
    }

    /// Writes code of the input, unless the epoch has it already.
    fn reuse_code(&mut self, code: &Code<'_>) -> io::Result<()> {
        let image = self.frames.images_of_code.get(&code.frame).copied();
        let start = ImageOffset(code.offset);
        if image.is_some_and(|image| !self.frames.codes.insert((image, start))) {
            return Ok(());
        }
        let names = &self.frames.names;
        let interned = |rows: CodeRows<'_>| -> Vec<(u32, InternedLine)> {
            rows.iter().map(|row| (row.offset, names.line(&row.line))).collect()
        };
        let (rows, callees) = (interned(code.rows), interned(code.callees));
        let (rows, callees) = (self.code_rows(&rows)?, self.code_rows(&callees)?);
        let rows = CodeRows::from_encoded(&rows).unwrap_or_default();
        let callees = CodeRows::from_encoded(&callees).unwrap_or_default();
        self.writer.write(&Record::Code(Code { rows, callees, ..*code }))
    }

    /// Returns the encoding of rows with ids of this epoch, and defines the new ones.
    fn code_rows(&mut self, rows: &[(u32, InternedLine)]) -> io::Result<Vec<u8>> {
        let mut translated = Vec::with_capacity(rows.len());
        for &(offset, line) in rows {
            translated.push(CodeRow { offset, line: self.define_line(&line)? });
        }
        let mut encoded = Vec::new();
        CodeRows::encode(&translated, &mut encoded);
        Ok(encoded)
    }

    /// Translates lines to this epoch's ids, and defines the new ones.
    fn define_names(&mut self, found: &SymbolizedFrame) -> io::Result<()> {
        self.lines.clear();
        for line in &found.lines {
            let line = self.define_line(line)?;
            self.lines.push(line);
        }
        Ok(())
    }

    fn define_line(&mut self, line: &InternedLine) -> io::Result<Line> {
        let function = self.define_function(line.function)?;
        let file = self.define_file(line.file)?;
        Ok(Line { function, file, line: line.line, column: line.column })
    }

    fn define_function(&mut self, number: u32) -> io::Result<FunctionId> {
        let Some(name) = self.catalog.names.function_name(number) else {
            return Ok(FunctionId::NONE);
        };
        let Some((id, is_new)) = self.frames.names.function(number) else {
            return Ok(FunctionId::NONE);
        };
        if is_new {
            let mut extras = ExtrasBuilder::new();
            if name.start_line > 0 {
                extras.add_number("line", name.start_line.into());
            }
            let (name, linkage, extras) = (&*name.shown, &*name.linkage, extras.extras());
            let function = Function { id, name, linkage, extras };
            self.writer.write(&Record::Function(function))?;
        }
        Ok(id)
    }

    fn define_file(&mut self, number: u32) -> io::Result<FileId> {
        let Some(file) = self.catalog.names.source_path(number) else { return Ok(FileId::NONE) };
        let Some((id, is_new)) = self.frames.names.file(number) else { return Ok(FileId::NONE) };
        if is_new {
            let mut extras = ExtrasBuilder::new();
            if let Some(md5) = file.md5 {
                extras.add("md5", hex(&md5).as_bytes());
            }
            let (path, extras) = (&*file.path, extras.extras());
            self.writer.write(&Record::File(SourceFile { id, path, extras }))?;
        }
        Ok(id)
    }
}
