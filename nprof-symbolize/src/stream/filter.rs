//! The loop over the stream: every record is copied as it is, and what frames are called is put
//! behind them.
//!
//! The input may have been symbolized before, here or elsewhere. What it says of a frame stays where
//! it was looked up just as it would be now, down to the line. Else it is looked up anew, and stays
//! where that gives no name, or the image is not to be had: annotations never get worse. A frame's
//! location comes behind it, so that the answer waits for the next record that is no annotation.
//!
//! Of a live stream that cannot wait, frames get what their symbols tell at first, and a second
//! location when the debug information was read, before the ids of their epoch are forgotten.

use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{
    Extras, FileId, FrameId, Function, FunctionId, Line, Location, Pass, Reader, Record,
    SourceFile, Status, Step, Writer,
};

use crate::image::opened::Place;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::reuse::Reuse;
use crate::names::location::SymbolizedFrame;
use crate::stream::deferred::{DeferredFrame, DeferredFrames, WaitBudget};
use crate::stream::epoch_frames::{EpochFrames, PendingFrame, WrittenLocation};
use crate::stream::existing_location::{existing_location, is_existing_better, prefer_existing};
use crate::stream::existing_names::ExistingAnnotations;
use crate::stream::frame_sites::FrameImages;

/// Copies records to a writer and adds what frames are called.
pub(crate) struct Filter<W> {
    pub(super) writer: Writer<W>,
    catalog: ImageCatalog,
    /// This program's step, and whether the segment still lacks it.
    step: Step,
    step_due: bool,
    sites: FrameImages,
    frames: EpochFrames,
    /// Room for the lines of the location being written.
    lines: Vec<Line>,
    /// Frames whose second locations have yet to be written.
    late: DeferredFrames,
    patience: WaitBudget,
}

/// How long it takes at most until it is seen that more of the input came while places are looked
/// up.
const PAUSE: Duration = Duration::from_millis(20);

/// After how many places that were looked up it is seen in any case.
const ROUND: usize = 64;

impl<W: Write> Filter<W> {
    /// Begins a filter that signs the stream with `step`. A live stream waits for so long for what
    /// is looked up in the background.
    pub(crate) fn new(
        writer: Writer<W>,
        catalog: ImageCatalog,
        step: Step,
        patience: Duration,
    ) -> Self {
        Self {
            writer,
            catalog,
            frames: EpochFrames::new(ExistingAnnotations::new(step.clone())),
            step,
            step_due: false,
            sites: FrameImages::default(),
            lines: Vec::new(),
            late: DeferredFrames::default(),
            patience: WaitBudget::new(patience),
        }
    }

    /// Takes one record.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn take(&mut self, record: &Record<'_>) -> io::Result<()> {
        if !matches!(record, Record::Step(_)) {
            self.write_step()?;
        }
        self.sites.note(record, &mut self.catalog);
        self.frames.earlier.note(record);
        match record {
            Record::Frame(_) | Record::Function(_) | Record::File(_) | Record::Location(_) => {
                return match self.frames.classify(record, &mut self.catalog, &self.sites) {
                    Pass::On | Pass::Hold => self.writer.write(record),
                    Pass::Not => self.keep(record),
                };
            }
            Record::Naming(naming) => {
                self.catalog.note_reported(naming);
                return Ok(());
            }
            _ => self.flush_pending_frames()?,
        }
        match record {
            Record::Head(_) => {
                self.tell()?;
                self.frames.forget();
                self.step_due = true;
            }
            Record::End(_) => self.tell()?,
            Record::Epoch(_) => {
                self.catch_up()?;
                self.frames.forget();
            }
            _ => {}
        }
        self.writer.write(record)
    }

    /// Passes on what comes next in the input and is nothing to this filter.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn pass<R: Read>(&mut self, reader: &mut Reader<R>) -> io::Result<()> {
        let Self { writer, frames, catalog, sites, .. } = self;
        let pass = frames.pass();
        let judge = |record: &Record<'_>| frames.classify(record, catalog, sites);
        let latest = writer.pass(reader, pass, judge)?;
        sites.advance(latest);
        Ok(())
    }

    /// Some of the input's segment is lost.
    pub(crate) fn invalidate(&mut self) {
        self.frames.earlier.invalidate();
    }

    /// Makes what was taken so far visible downstream.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Hands on all there is, and second locations as they are found, until more of the input
    /// `is_ready`.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn idle(&mut self, is_ready: impl Fn() -> bool) -> io::Result<()> {
        loop {
            let mut round = 0..ROUND;
            while !self.late.is_empty()
                && round.next().is_some()
                && self.next_late(Some(Duration::ZERO))?
            {}
            if is_ready() {
                return Ok(());
            }
            self.writer.flush()?;
            self.patience.renew();
            // What was looked up in time but not needed is no reason to wake up.
            if self.late.is_empty() || !self.catalog.is_waiting() {
                return Ok(());
            }
            self.next_late(Some(PAUSE))?;
        }
    }

    /// More of the input came, after a time in which there was none.
    pub(crate) fn resume(&mut self) {
        if self.late.is_empty() {
            self.patience.renew();
        }
    }

    /// Ends the output, and gives back what is known of the images.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub(crate) fn finish(mut self) -> io::Result<ImageCatalog> {
        self.write_step()?;
        self.flush_pending_frames()?;
        self.tell()?;
        self.writer.finish()?;
        Ok(self.catalog)
    }

    /// Adds this program's step behind those of the programs before it.
    pub(super) fn write_step(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.step_due) {
            self.writer.write(&Record::Step(Box::new(self.step.clone())))?;
        }
        Ok(())
    }

    /// Tells how naming went in the segment, of which all frames have been seen.
    fn tell(&mut self) -> io::Result<()> {
        self.catch_up()?;
        for naming in self.catalog.tell() {
            self.writer.write(&Record::Naming(Box::new(naming)))?;
        }
        Ok(())
    }

    /// Takes note of what the input says of a frame.
    fn keep(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Record::Location(location) = record else { return Ok(()) };
        let worth = self.frames.worth(location);
        let EpochFrames { names, waiting, .. } = &mut self.frames;
        let Some(answer) = waiting.get_mut(location.frame) else {
            return self.keep_late(location);
        };
        let theirs = Some(existing_location(names, location));
        match answer.site {
            Some((slot, _)) if self.catalog.can_reuse(slot, worth) => answer.named = theirs,
            _ => answer.theirs = theirs,
        }
        Ok(())
    }

    /// Takes note of a location that does not stand behind its frame: the last one holds.
    fn keep_late(&mut self, location: &Location<'_>) -> io::Result<()> {
        let frame = location.frame;
        if let Some(site) = self.frames.pending.get(&frame) {
            let theirs = existing_location(&self.frames.names, location);
            let waiting = self.late.get_mut(site).into_iter().flatten();
            waiting
                .filter(|late| late.frame == frame)
                .for_each(|late| late.theirs = Some(Rc::clone(&theirs)));
            return Ok(());
        }
        let Some(mut located) = self.frames.located.remove(&frame) else {
            // As in what was a live stream: it stands behind one that was passed on.
            if self.frames.worth(location) == Reuse::Full {
                let theirs = existing_location(&self.frames.names, location);
                self.annotate(frame, &theirs)?;
            }
            return Ok(());
        };
        if is_existing_better(location.status, &located.ours) {
            let theirs = existing_location(&self.frames.names, location);
            if let Some(slot) = located.slot {
                self.catalog.uncount(slot, located.shown.status);
                self.catalog.count(slot, theirs.status, theirs.problem.as_ref());
            }
            self.annotate(frame, &theirs)?;
            located.shown = theirs;
        }
        self.frames.located.insert(frame, located);
        Ok(())
    }

    /// A frame has its name, unless the input has a better one.
    fn note_located(
        &mut self,
        frame: FrameId,
        slot: Option<usize>,
        ours: Rc<SymbolizedFrame>,
        shown: &Rc<SymbolizedFrame>,
    ) {
        let may_come = self.frames.has_theirs || self.frames.earlier.is_same();
        if may_come && ours.status != Status::Named {
            self.frames
                .located
                .insert(frame, WrittenLocation { slot, ours, shown: Rc::clone(shown) });
        } else {
            self.frames.located.remove(&frame);
        }
    }

    /// Looks up the frames that came, and writes their locations and what they refer to.
    pub(super) fn flush_pending_frames(&mut self) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.frames.waiting);
        for answer in answers.all_mut().filter(|answer| answer.named.is_none()) {
            answer.named = answer.site.and_then(|(slot, place)| self.catalog.resolve(slot, place));
        }
        for (frame, PendingFrame { site, named, theirs }) in answers.drain() {
            let named = match (named, site) {
                (None, Some((slot, place))) => self.wait_for(slot, place)?,
                (named, _) => named,
            };
            let shown = match (named, site) {
                (Some(ours), _) => {
                    let shown = prefer_existing(theirs, Rc::clone(&ours));
                    self.frames.pending.remove(&frame);
                    self.note_located(frame, site.map(|(slot, _)| slot), ours, &shown);
                    shown
                }
                (None, Some((slot, place))) => self.provisional(frame, slot, place, theirs),
                (None, None) => continue,
            };
            if let Some((slot, _)) = site {
                self.catalog.count(slot, shown.status, shown.problem.as_ref());
            }
            self.annotate(frame, &shown)?;
        }
        // Its room is used again.
        self.frames.waiting = answers;
        Ok(())
    }

    /// What a frame is called until its place has been looked up.
    fn provisional(
        &mut self,
        frame: FrameId,
        slot: usize,
        place: Place,
        theirs: Option<Rc<SymbolizedFrame>>,
    ) -> Rc<SymbolizedFrame> {
        let shown = match theirs.as_ref().filter(|theirs| theirs.status == Status::Named) {
            Some(theirs) => Rc::clone(theirs),
            None => prefer_existing(theirs.clone(), self.catalog.provisional(slot, place)),
        };
        let late = DeferredFrame { frame, shown: Rc::clone(&shown), theirs };
        self.late.entry((slot, place)).or_default().push(late);
        self.frames.pending.insert(frame, (slot, place));
        shown
    }

    /// What a place is called that is being looked up, unless that takes too long: when patience
    /// has run out, or others have waited in vain.
    fn wait_for(&mut self, slot: usize, place: Place) -> io::Result<Option<Rc<SymbolizedFrame>>> {
        loop {
            if let Some(named) = self.catalog.known(slot, place) {
                return Ok(Some(named));
            }
            let patience = self.patience.left().filter(|_| self.late.is_empty());
            let Some(patience) = patience else { return Ok(None) };
            if !self.next_late(Some(patience))? && !self.catalog.is_waiting() {
                return Ok(None);
            }
        }
    }

    /// Writes all second locations, however long that takes: behind them ids are forgotten.
    fn catch_up(&mut self) -> io::Result<()> {
        if !self.late.is_empty() {
            self.writer.flush()?;
        }
        while !self.late.is_empty() && self.next_late(None)? {}
        self.late.clear();
        Ok(())
    }

    /// Takes the next place that was looked up in the background, and writes what the frames are
    /// called that have waited for it. `false` if it takes longer than `patience`.
    fn next_late(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        let Some((slot, place, named)) = self.catalog.next(patience) else { return Ok(false) };
        for DeferredFrame { frame, shown, theirs } in
            self.late.remove(&(slot, place)).unwrap_or_default()
        {
            let ours = Rc::clone(&named);
            let named = prefer_existing(theirs, Rc::clone(&ours));
            self.catalog.uncount(slot, shown.status);
            self.catalog.count(slot, named.status, named.problem.as_ref());
            if self.frames.pending.get(&frame) != Some(&(slot, place)) {
                continue;
            }
            self.frames.pending.remove(&frame);
            self.note_located(frame, Some(slot), ours, &named);
            if (named.status, &named.lines) != (shown.status, &shown.lines) {
                self.annotate(frame, &named)?;
            }
        }
        Ok(true)
    }

    /// Writes the location of a frame.
    fn annotate(&mut self, frame: FrameId, named: &SymbolizedFrame) -> io::Result<()> {
        self.define(named)?;
        let (status, lines) = (named.status, &self.lines[..]);
        let location = Location { frame, status, lines, extras: Extras::NONE };
        self.writer.write(&Record::Location(location))
    }

    /// Takes the lines of a place by this epoch's ids, which are defined where they are new.
    fn define(&mut self, named: &SymbolizedFrame) -> io::Result<()> {
        self.lines.clear();
        for line in &named.lines {
            let function = self.define_function(line.function)?;
            let file = self.define_file(line.file)?;
            self.lines.push(Line { function, file, line: line.line, column: line.column });
        }
        Ok(())
    }

    fn define_function(&mut self, number: u32) -> io::Result<FunctionId> {
        let Some(name) = self.catalog.names.function_name(number) else {
            return Ok(FunctionId::NONE);
        };
        let Some((id, is_new)) = self.frames.names.function(number) else {
            return Ok(FunctionId::NONE);
        };
        if is_new {
            let (name, linkage) = (&*name.shown, &*name.linkage);
            let function = Function { id, name, linkage, extras: Extras::NONE };
            self.writer.write(&Record::Function(function))?;
        }
        Ok(id)
    }

    fn define_file(&mut self, number: u32) -> io::Result<FileId> {
        let Some(path) = self.catalog.names.path(number) else { return Ok(FileId::NONE) };
        let Some((id, is_new)) = self.frames.names.file(number) else { return Ok(FileId::NONE) };
        if is_new {
            self.writer.write(&Record::File(SourceFile { id, path, extras: Extras::NONE }))?;
        }
        Ok(id)
    }
}
