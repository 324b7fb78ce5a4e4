//! The loop over the stream: copies every record, and writes the charges of a wait once its end is known.

use std::io::Write;

use nprof_stream::{
    End, Event, EventId, ExtrasBuilder, Mark, Measure, NO_CPU, Record, Sample, Step, TaskId, Writer,
};
use rustc_hash::FxHashMap;

use super::error::Error;
use super::own_records::{LAST_OF_INPUT, OwnRecords};
use crate::charge::{Charge, Charger, Limits, Pair, Wait, Waker};

/// The name of the event of the charges.
const BLAMED: &[u8] = b"blamed";

/// The time that a sample represents if its event does not state it, in ns: that of 100 Hz.
const UNKNOWN_PERIOD_NS: u64 = 10_000_000;

/// The meaning of an event for this filter.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// Its samples show running threads. With the time of one observation in ns, if weights are not
    /// times.
    Cpu { period_ns: Option<u64> },
    /// Waits for a CPU.
    Runnable,
    /// Waits that are charged, with the event of the charges.
    Blocked { blamed: EventId },
    /// Wake-ups.
    Wakes,
}

/// Copies records to a writer, and adds charges.
#[derive(Debug)]
pub(crate) struct Filter<W> {
    out: OwnRecords<W>,
    charger: Charger,
    step: Step,
    /// True if the current segment still lacks the step.
    is_step_due: bool,
    roles: FxHashMap<EventId, Role>,
    has_wakes: bool,
    has_cpu_time: bool,
    /// True if any segment has waits.
    has_waits: bool,
    /// The runs of the tasks of a merged segment.
    runs: FxHashMap<TaskId, u64>,
    /// The time of the newest sample: charges have it, so that the output is sorted by time.
    newest: u64,
    /// The charges in the segment, and those with an incomplete stack.
    samples: u64,
    incomplete: u64,
}

impl<W: Write> Filter<W> {
    /// Starts a filter that adds `step` to the stream.
    pub(crate) fn new(writer: Writer<W>, step: Step, limits: Limits) -> Self {
        Self {
            out: OwnRecords::new(writer),
            charger: Charger::new(limits),
            step,
            is_step_due: false,
            roles: FxHashMap::default(),
            has_wakes: false,
            has_cpu_time: false,
            has_waits: false,
            runs: FxHashMap::default(),
            newest: 0,
            samples: 0,
            incomplete: 0,
        }
    }

    /// Filters one record.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub(crate) fn process(&mut self, record: &Record<'_>) -> Result<(), Error> {
        check(record)?;
        // Steps are in the order of the tools, so that this one follows those of the input.
        if self.is_step_due && !matches!(record, Record::Step(_)) {
            self.is_step_due = false;
            self.out.write(&Record::Step(Box::new(self.step.clone())))?;
        }
        match record {
            Record::Head(_) => {
                self.charge_open_waits()?;
                self.begin_segment();
            }
            Record::Epoch(_) => {
                self.charge_open_waits()?;
                self.forget_ids();
            }
            Record::End(end) => {
                self.charge_open_waits()?;
                let end = Record::End(Box::new(self.counted(end)));
                return Ok(self.out.copy(&end)?);
            }
            _ => {}
        }
        self.out.copy(record)?;
        match record {
            Record::Event(event) => self.event(event)?,
            Record::Task(task) => {
                let run = task.extras.number("run");
                self.runs.extend(run.map(|run| (task.id, run)));
            }
            Record::Sample(sample) => {
                self.newest = self.newest.max(sample.time);
                self.sample(sample)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes all buffered output.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        Ok(self.out.writer.flush()?)
    }

    /// Ends the output after the last record of the input.
    ///
    /// # Errors
    ///
    /// If writing fails, or the stream had no waits.
    pub(crate) fn finish(mut self) -> Result<Charger, Error> {
        self.charge_open_waits()?;
        self.out.writer.finish()?;
        if self.has_waits { Ok(self.charger) } else { Err(Error::NoWaits) }
    }

    fn begin_segment(&mut self) {
        self.forget_ids();
        self.is_step_due = true;
        (self.has_wakes, self.has_cpu_time) = (false, false);
        (self.newest, self.samples, self.incomplete) = (0, 0, 0);
        self.out.records = 0;
    }

    fn forget_ids(&mut self) {
        self.out.forget();
        self.roles.clear();
        self.runs.clear();
    }

    /// Notes the role of an event. One of waits is followed by that of their charges.
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let role = match (&event.name[..], &event.measure) {
            (b"blocked", _) => {
                let blamed = Event {
                    id: self.out.next_event(),
                    name: BLAMED.into(),
                    requested: Vec::new(),
                    ..event.clone()
                };
                let id = blamed.id;
                self.out.write(&Record::Event(Box::new(blamed)))?;
                self.has_waits = true;
                Role::Blocked { blamed: id }
            }
            (b"runnable", _) => Role::Runnable,
            (b"wakes", _) => {
                self.has_wakes = true;
                Role::Wakes
            }
            (_, Measure::CpuTime) => {
                self.has_cpu_time = true;
                Role::Cpu { period_ns: None }
            }
            // Cycles show the same threads: one event is enough.
            (_, Measure::Cycles) if !self.has_cpu_time => {
                let period_ns = event.frequency.and_then(|hz| 1_000_000_000u64.checked_div(hz));
                Role::Cpu { period_ns: Some(period_ns.unwrap_or(UNKNOWN_PERIOD_NS)) }
            }
            _ => return Ok(()),
        };
        self.roles.insert(event.id, role);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<(), Error> {
        let &Sample { time, event, task, node, weight, count, extras, .. } = sample;
        let start = time - extras.number("lasted").unwrap_or(weight).min(time);
        let pair = || {
            let run = self.runs.get(&task).copied().or_else(|| extras.number("run"));
            Some(Pair { run: run.unwrap_or(0), number: extras.number("pair")? })
        };
        match self.roles.get(&event) {
            None => return Ok(()),
            Some(Role::Cpu { period_ns: None }) => self.charger.running(task, time, node, weight),
            Some(Role::Cpu { period_ns: Some(period_ns) }) => {
                self.charger.running(task, time, node, count.saturating_mul(*period_ns));
            }
            Some(Role::Runnable) => self.charger.runnable(task, start, time, node, weight),
            Some(Role::Blocked { .. }) if !self.has_wakes => return Err(Error::NoWakes),
            Some(Role::Blocked { blamed }) => {
                let (event, pair) = (*blamed, pair());
                self.charger.wait(Wait {
                    event,
                    task,
                    node,
                    start,
                    end: time,
                    weight,
                    count,
                    pair,
                });
            }
            Some(Role::Wakes) => {
                let waker = (!task.is_none()).then_some(Waker { task, node });
                if let Some(pair) = pair() {
                    self.charger.wake(pair, waker, time);
                }
            }
        }
        self.write_charges()
    }

    /// Charges the waits of which the end is unknown, before ids change their meaning.
    fn charge_open_waits(&mut self) -> Result<(), Error> {
        self.charger.finish();
        self.write_charges()
    }

    fn write_charges(&mut self) -> Result<(), Error> {
        for Charge { event, waiter, target, weight, count } in self.charger.take_charges() {
            // No CPU: the waiter used none, and the waker may have used several.
            let node = match target.reason {
                Some(reason) => self.out.node(target.node, reason)?,
                None => target.node,
            };
            let mut extras = ExtrasBuilder::new();
            let waiter = self.out.tables.task(waiter).map(|waiter| {
                let comm = self.out.tables.names.get(waiter.comm);
                [format!("{}/{} ", waiter.pid, waiter.tid).as_bytes(), comm].concat()
            });
            if let Some(waiter) = waiter {
                extras.add("waiter", &waiter);
            }
            self.samples += 1;
            let mark = self.out.tables.stack_mark(node);
            self.incomplete += u64::from(mark != Mark::None);
            self.out.write(&Record::Sample(Sample {
                time: self.newest,
                event,
                task: target.task,
                cpu: NO_CPU,
                node,
                weight,
                count,
                extras: extras.extras(),
            }))?;
        }
        Ok(())
    }

    /// Returns the end of the segment with the records of this filter in its counts.
    fn counted(&self, end: &End) -> End {
        let mut end = end.clone();
        end.samples = end.samples.saturating_add(self.samples);
        end.records = end.records.saturating_add(self.out.records);
        // A segment without incomplete stacks may omit the key.
        if end.incomplete.is_some() || self.incomplete > 0 {
            end.incomplete = Some(end.incomplete.unwrap_or(0).saturating_add(self.incomplete));
        }
        end
    }
}

/// Refuses a record that defines the event or an id of this filter.
fn check(record: &Record<'_>) -> Result<(), Error> {
    let last = match record {
        Record::Event(event) if event.name == BLAMED => return Err(Error::Blamed),
        Record::Event(event) => event.id.0,
        Record::Image(image) => image.id.0,
        Record::Frame(frame) => frame.id.0,
        Record::Function(function) => function.id.0,
        Record::Nodes(nodes) => {
            nodes.first.0.saturating_add(nodes.frames.len() as u32).saturating_sub(1)
        }
        _ => return Ok(()),
    };
    if last > LAST_OF_INPUT { Err(Error::Ids { limit: LAST_OF_INPUT }) } else { Ok(()) }
}
