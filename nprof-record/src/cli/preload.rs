//! Prepares the library that the command loads.

use std::cell::Cell;
use std::ffi::CString;
use std::path::PathBuf;

use anyhow::{Context, bail};
use nprof_preload::Listener;
use nprof_preload::protocol::Settings;

use crate::cli::args::Args;
use crate::event::{PreloadPlan, Subject};
use crate::perf::plan::Plan;
use crate::session::preload::source::{FIRST_CALL_PERIOD, FIRST_PERIOD};
use crate::session::preload::{environment, library};

/// The library that the command loads, and its connection to the recorder.
pub(crate) struct Preload {
    pub(crate) events: PreloadPlan,
    pub(crate) library: PathBuf,
    pub(crate) environment: Vec<CString>,
    pub(crate) listener: Cell<Option<Listener>>,
}

impl Preload {
    /// Installs the library, and opens the socket that processes connect to.
    ///
    /// # Errors
    ///
    /// If the target is not a command, or the library or the socket cannot be made.
    pub(crate) fn prepare(
        mut events: PreloadPlan,
        plan: &Plan,
        args: &Args,
    ) -> anyhow::Result<Self> {
        if args.command.is_empty() {
            bail!(
                "{} need a command: the library that records them is loaded when a program starts",
                events.description()
            );
        }
        events.number_after(plan.events.len());
        let library = library::install()?;
        let listener = Listener::bind().context("cannot open a socket for the library")?;
        let period = |subject, period: u64| if events.has(subject) { period } else { 0 };
        let settings = Settings {
            socket: listener.name(),
            secret: listener.secret(),
            heap_period: period(Subject::Heap, events.heap_period.first(FIRST_PERIOD)),
            call_period: period(Subject::Calls, events.call_period.first(FIRST_CALL_PERIOD)),
            stack_bytes: args.stack_size,
            ring_bytes: events.ring_bytes(),
            memos: events.has_fixed_period(),
            descriptors: events.has(Subject::Descriptors),
            // A lost release would look like a leak.
            wait: true,
            // Without records of mappings they must be read before it exits.
            acknowledge: !plan.has_records,
        };
        let environment = environment::with_library(std::env::vars_os(), &library, &settings);
        Ok(Self { events, library, environment, listener: Cell::new(Some(listener)) })
    }
}
