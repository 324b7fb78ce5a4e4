//! Runs the tool: threads read the stream and the keyboard, the main thread draws and handles keys.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nprof_cli::stage::{self, Input, Outcome};
use nprof_cli::usage;
use nprof_stream::Reader;
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::args::{Args, TOOL};
use crate::keyboard::Keyboard;
use crate::model::live::Live;
use crate::screen::draw::draw;
use crate::screen::state::{Answer, State};

/// The shortest time between two drawings without a key.
const INTERVAL: Duration = Duration::from_millis(500);

/// A drawing is followed by a pause of this many times its duration: drawing takes at most 1 % of a CPU.
const REST: u32 = 100;

/// Runs nprof-top with the arguments of the process; returns its exit status.
pub fn run() -> ExitCode {
    let args: Args = match usage::arguments(TOOL) {
        Ok(args) => args,
        Err(status) => return status,
    };
    stage::run(TOOL, || work(&args))
}

/// The state that the threads of the stream and of the screen share.
#[derive(Debug)]
struct Shared {
    live: Live,
    /// The error that ended reading.
    failure: Option<anyhow::Error>,
}

fn work(args: &Args) -> anyhow::Result<Outcome> {
    if !io::stdout().is_terminal() {
        bail!(
            "standard output is not a terminal; nprof-flat prints tables, with --every repeatedly"
        );
    }
    let inputs: Result<Vec<Input>, _> =
        args.inputs.operands().into_iter().map(stage::open).collect();
    let inputs = inputs?;
    let screen = Arc::new(Screen::default());
    end_by_signals(&screen).context("cannot handle signals")?;
    let live = Live::new(u64::try_from(args.window.as_nanos()).unwrap_or(u64::MAX));
    let shared = Arc::new(Mutex::new(Shared { live, failure: None }));
    let start = Instant::now();
    let reader = {
        let shared = Arc::clone(&shared);
        thread::Builder::new().name("reader".to_owned()).spawn(move || read(inputs, &shared, start))
    }
    .context("cannot start a thread")?;
    // It also restores the terminal after a panic of any thread.
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let keyboard = Keyboard::open().context("the keyboard");
    let watched = keyboard.as_ref().map_or(Ok(()), |keyboard| {
        watch(&mut terminal, &screen, keyboard, &shared, start, || reader.is_finished())
    });
    let restored = ratatui::try_restore();
    // Errors are printed after the screen is left.
    if keyboard?.is_hung_up() {
        // Of the session only its leader got the signal.
        emulate_default_handler(SIGHUP).context("the terminal has hung up")?;
    }
    watched?;
    restored.context("the terminal cannot be restored")?;
    let mut shared = locked(&shared);
    if let Some(failure) = shared.failure.take() {
        return Err(failure);
    }
    for problem in shared.live.incomplete_inputs() {
        stage::warn(TOOL, &problem);
    }
    let is_whole = shared.live.is_complete() || args.tolerance.partial_ok;
    Ok(if is_whole { Outcome::Done } else { Outcome::Incomplete })
}

/// The right to write to the terminal.
#[derive(Debug, Default)]
struct Screen {
    /// Held by the thread that writes.
    writing: Mutex<()>,
    /// True after a signal: no drawing begins any more, however often the screen changes.
    is_ending: AtomicBool,
}

/// The number of times that a signal waits for a drawing to end, and the pause between them.
const DRAWING_WAITS: u32 = 500;
const DRAWING_PAUSE: Duration = Duration::from_millis(10);

/// Ends the program by any of these signals as without a handler, and restores the terminal before that.
fn end_by_signals(screen: &Arc<Screen>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let screen = Arc::clone(screen);
    // Not a flag: the main thread may be busy with a large table.
    let end = move || {
        for signal in &mut signals {
            screen.is_ending.store(true, Ordering::Release);
            // Kept to the end, so that nothing is drawn after the screen is left. A terminal that takes no
            // output must not keep the program.
            let mut drawn = screen.writing.try_lock();
            for _ in 0..DRAWING_WAITS {
                if drawn.is_ok() {
                    break;
                }
                thread::sleep(DRAWING_PAUSE);
                drawn = screen.writing.try_lock();
            }
            // The terminal may be closed.
            let _ = ratatui::try_restore();
            let _ = execute!(io::stdout(), Show);
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(end)?;
    Ok(())
}

/// Reads the streams to their ends.
fn read(inputs: Vec<Input>, shared: &Mutex<Shared>, start: Instant) {
    for input in inputs {
        let name = input.name().to_owned();
        if let Err(error) = read_stream(input, &name, shared, start) {
            locked(shared).failure = Some(anyhow::Error::new(error).context(name));
            break;
        }
    }
    locked(shared).live.finish();
}

fn read_stream(
    input: Input,
    name: &str,
    shared: &Mutex<Shared>,
    start: Instant,
) -> Result<(), nprof_stream::Error> {
    locked(shared).live.begin(name);
    let mut reader = Reader::new(input);
    // Not locked while it waits for input.
    while let Some(record) = reader.next()? {
        locked(shared).live.take(&record, elapsed_ns(start));
    }
    locked(shared).live.end(&reader);
    Ok(())
}

/// Draws and handles keys until the user leaves, the terminal hangs up, or the stream cannot be read.
fn watch(
    terminal: &mut DefaultTerminal,
    screen: &Screen,
    keyboard: &Keyboard,
    shared: &Mutex<Shared>,
    start: Instant,
    is_finished: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut state = State::default();
    let mut due = Instant::now();
    let mut is_changed = true;
    while !keyboard.is_hung_up() {
        let begun = Instant::now();
        if begun >= due {
            let mut shared = locked(shared);
            let failure = shared.failure.as_ref();
            if failure.is_some() && shared.live.records() == 0 {
                // Nothing can be shown: the error is all there is.
                return Ok(());
            }
            state.fail(failure.map(|failure| format!("{failure:#}")));
            is_changed |= state.refresh(&mut shared.live, elapsed_ns(start));
            // The thread has panicked, and the message is on standard error.
            if is_finished() && !shared.live.has_ended() {
                bail!("the stream cannot be read any more, because of the error above");
            }
        }
        if is_changed {
            let _drawing = screen.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if !screen.is_ending.load(Ordering::Acquire) {
                terminal.draw(|frame| draw(frame, &state)).context("the terminal")?;
            }
        }
        if begun >= due {
            due = Instant::now() + INTERVAL.max(begun.elapsed() * REST);
        }
        is_changed = false;
        // Not longer, to notice a hang-up.
        let wait = due.saturating_duration_since(Instant::now()).min(INTERVAL);
        match keyboard.next(wait).context("the keyboard")? {
            Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                let live = &mut locked(shared).live;
                if state.key(key, live, elapsed_ns(start)) == Answer::Quit {
                    return Ok(());
                }
                is_changed = true;
            }
            Some(Event::Resize(..)) => is_changed = true,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the time since the start.
fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the shared state, also after a panic of the other thread, which ends the program soon.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
