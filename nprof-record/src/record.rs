//! One recording: opens the events, lets the command run, and carries what the rings bring to
//! the stream until it is over.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use nprof_format::{End, Event, Head, Record, RunId, Step, shell};

use crate::args::Args;
use crate::child::Child;
use crate::convert::{Converter, EVENT};
use crate::event::Scope;
use crate::host;
use crate::intern::Sink;
use crate::output::Stream;
use crate::session::Plan;
use crate::sources::Sources;
use crate::sys::{self, Exit, Signals, Usage};

/// How long the rings may fill unseen when nothing wakes us, ms.
const TIMEOUT: i32 = 100;

/// The same while records wait for the next round, ms.
const TIMEOUT_WAITING: i32 = 10;

/// How often the stream is flushed at least, ns.
const FLUSH: u64 = 500_000_000;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Exit,
    Interrupt,
    Duration,
    /// The output takes no more.
    Closed,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Interrupt => "interrupt",
            Self::Duration => "duration",
            Self::Closed => "closed",
        }
    }
}

/// What came of a recording.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Why the stream is incomplete, if it could not be written.
    pub(crate) error: Option<io::Error>,
    pub(crate) summary: Summary,
}

/// A recording in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) samples: u64,
    pub(crate) incomplete: u64,
    pub(crate) lost: u64,
    pub(crate) side_lost: u64,
    /// CPU time of the command and its children, ns; unknown when it did not end.
    pub(crate) task_ns: Option<u64>,
    /// CPU time sampled, ns; unknown for events that do not count time.
    pub(crate) sampled_ns: Option<u64>,
}

/// Everything a recording needs while the command runs.
#[derive(Debug)]
pub(crate) struct Recording {
    plan: Plan,
    sources: Sources,
    converter: Converter<Stream>,
    child: Rc<Child>,
    signals: Rc<Signals>,
    deadline: Option<u64>,
}

impl Recording {
    /// Begins the stream.
    pub(crate) fn begin(
        args: &Args,
        plan: Plan,
        sources: Sources,
        mut stream: Stream,
        child: Rc<Child>,
        signals: Rc<Signals>,
    ) -> anyhow::Result<Self> {
        stream.take(&Record::Head(Box::new(head(args)?)));
        stream.take(&Record::Step(Box::new(step())));
        let event = event(args.request().event, &plan);
        let pid = child.pid as u32;
        let converter = Converter::new(stream, event, plan.unwind, args.depth(), pid);
        let deadline = args.duration.map(|duration: Duration| {
            sys::monotonic_ns()
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
        });
        Ok(Self { plan, sources, converter, child, signals, deadline })
    }

    /// Records until the command ends or there is a reason to stop before, and ends the stream.
    ///
    /// # Errors
    ///
    /// What poll(2) says.
    pub(crate) fn run(mut self) -> io::Result<Outcome> {
        let mut flushed = sys::monotonic_ns();
        let mut timeout = TIMEOUT;
        let reason = loop {
            self.sources.wait(&self.signals, timeout)?;
            self.child.attend(&self.signals);
            if let Some(reason) = self.reason_to_stop() {
                break reason;
            }
            let waiting = self.sources.round(&mut self.converter, false);
            timeout = if waiting { TIMEOUT_WAITING } else { TIMEOUT };
            let now = sys::monotonic_ns();
            if now.saturating_sub(flushed) >= FLUSH {
                self.converter.sink.flush();
                flushed = now;
            }
        };
        self.sources.disable();
        self.converter.exit =
            self.child.ended().map(|(exit, _)| (self.child.pid as u32, exit_text(exit)));
        self.sources.round(&mut self.converter, true);
        self.sources.report_losses(&mut self.converter);
        Ok(self.end(reason))
    }

    fn reason_to_stop(&self) -> Option<Reason> {
        if self.child.ended().is_some() {
            return Some(Reason::Exit);
        }
        if self.child.is_aborted() {
            return Some(Reason::Interrupt);
        }
        if self.converter.sink.has_failed() {
            return Some(Reason::Closed);
        }
        let is_over = self.deadline.is_some_and(|deadline| sys::monotonic_ns() >= deadline);
        is_over.then_some(Reason::Duration)
    }

    fn end(self, reason: Reason) -> Outcome {
        let Self { plan, sources, converter, child, .. } = self;
        let counts = converter.counts;
        let mut stream = converter.sink;
        let totals = stream.totals();
        let own = sys::own_usage();
        let ended = child.ended();
        let task_ns = ended.map(|(_, usage)| used(usage, plan.scope));
        let sampled_ns = (plan.event.unit == "ns").then_some(counts.weight);
        stream.take(&Record::End(Box::new(End {
            reason: reason.word().into(),
            status: ended.map(|(exit, _)| u64::from(exit.code())),
            time: Some(sys::monotonic_ns()),
            samples: totals.samples,
            records: totals.records,
            lost: counts.lost,
            late: Some(sources.late()),
            incomplete: Some(counts.incomplete),
            task_ns,
            sampled_ns,
            recorder_ns: Some(own.user_ns + own.kernel_ns),
            recorder_bytes: Some(own.memory),
            more: Vec::new(),
        })));
        let summary = Summary {
            samples: totals.samples,
            incomplete: counts.incomplete,
            lost: counts.lost,
            side_lost: counts.side_lost,
            task_ns,
            sampled_ns,
        };
        Outcome { error: stream.finish().err(), summary }
    }
}

/// What of a usage can be sampled.
fn used(usage: Usage, scope: Scope) -> u64 {
    match scope {
        Scope::User => usage.user_ns,
        Scope::Kernel => usage.kernel_ns,
        Scope::Both => usage.user_ns + usage.kernel_ns,
    }
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Status(status) => status.to_string(),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

fn head(args: &Args) -> anyhow::Result<Head> {
    let utc = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(Head {
        run: RunId(sys::random().context("cannot get random bits")?),
        clock: b"monotonic".to_vec(),
        time: Some(sys::monotonic_ns()),
        utc: utc.ok().and_then(|utc| u64::try_from(utc.as_nanos()).ok()),
        host: host::setting("kernel/hostname").into(),
        os: host::system().into(),
        arch: std::env::consts::ARCH.into(),
        cpu: host::cpu_model().into(),
        cpus: Some(host::online_cpus().len() as u64),
        page: Some(sys::page_size() as u64),
        command: shell::quoted(&args.command),
        more: Vec::new(),
    })
}

fn step() -> Step {
    Step {
        tool: b"nprof-record".to_vec(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: shell::quoted(std::env::args_os()),
        more: Vec::new(),
    }
}

/// The event as it was opened.
fn event(asked: &str, plan: &Plan) -> Event {
    Event {
        id: EVENT,
        name: plan.event.name.into(),
        asked: if asked == plan.event.name { Vec::new() } else { asked.into() },
        unit: plan.event.unit.into(),
        period: None,
        frequency: Some(plan.frequency),
        scope: plan.scope.word().into(),
        unwind: plan.unwind.word().into(),
        fallback: plan.fallback.clone().into(),
        more: Vec::new(),
    }
}
