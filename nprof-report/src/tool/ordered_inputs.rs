//! Reads several streams at the same time, with the result of reading one after the other.
//!
//! Each stream has a profile of its own. A thread sums the samples of its stream until the sums have to
//! be passed to the report; then it waits for its turn: the streams before it have passed theirs. The
//! sums and their order are therefore the same with any number of threads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use nprof_cli::stage;
use nprof_stream::reader::Reader;

use crate::profile::summary::Summary;
use crate::profile::{Context, GroupKey, Profile, Sum};

/// The length of records other than samples, in bytes, that all threads together read before their turn.
/// Tables of ids take up to 25 times as much memory.
const AHEAD_BYTES: u64 = 4 << 20;

/// The number of sums that all threads together keep before their turn, at 80 bytes each.
const AHEAD_SUMS: usize = 1 << 18;

/// Most threads: more would read ahead too little to be of use.
const MAX_THREADS: usize = 16;

/// An error of one of the streams.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// The stream cannot be opened.
    #[error(transparent)]
    Open(#[from] stage::Error),
    /// The stream cannot be read.
    #[error("{name}")]
    Read {
        /// The stream, as messages refer to it.
        name: String,
        /// The cause.
        source: nprof_stream::Error,
    },
}

/// The state that one stream passes to the next.
struct Baton<R> {
    summary: Summary,
    /// The highest [`nprof_stream::tables::Tables::generation`] so far: reports cache by it.
    generation: u64,
    report: R,
}

/// A stream to read.
struct Job<'a, R> {
    operand: Option<&'a Path>,
    turn: Receiver<Baton<R>>,
    next: SyncSender<Baton<R>>,
}

/// Limits of reading ahead.
#[derive(Clone, Copy)]
struct Ahead {
    bytes: u64,
    sums: usize,
}

/// Returns the number of threads that read this number of streams on this machine.
pub(super) fn threads_for(streams: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.min(streams).clamp(1, MAX_THREADS)
}

/// Reads all streams to their ends with this number of threads, each into a profile of its own. `add` adds
/// a sum to the report.
///
/// # Errors
///
/// Returns the error of the first stream that has one.
pub(super) fn read<R: Send>(
    operands: &[Option<&Path>],
    new_profile: impl Fn() -> Profile + Sync,
    report: R,
    threads: usize,
    add: impl Fn(&mut R, &Context<'_>, &GroupKey, Sum) + Sync,
) -> Result<(Summary, R), InputError> {
    let (first, mut turn) = sync_channel(1);
    let mut jobs = Vec::with_capacity(operands.len());
    for &operand in operands {
        let (next, turn_of_next) = sync_channel(1);
        jobs.push(Job { operand, turn, next });
        turn = turn_of_next;
    }
    // The channel has room for one, so that this does not wait.
    let _ = first.send(Baton { summary: Summary::default(), generation: 0, report });
    drop(first);
    let others = threads.saturating_sub(1).max(1);
    let ahead = Ahead { bytes: AHEAD_BYTES / others as u64, sums: AHEAD_SUMS / others };
    let jobs = Mutex::new(jobs.into_iter());
    let (failure, has_failed) = (Mutex::new(None), AtomicBool::new(false));
    let work = || {
        loop {
            // The lock is released before the work.
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job.filter(|_| !has_failed.load(Ordering::Relaxed)) else { return };
            if let Err(error) = read_one(job, new_profile(), ahead, &has_failed, &add) {
                has_failed.store(true, Ordering::Relaxed);
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    // Only a panic of a thread drops the baton, and `scope` has passed that on.
    let baton = turn.recv().expect("the last stream passes the baton");
    Ok((baton.summary, baton.report))
}

/// Reads a stream. Fails only in its turn, so that the first stream with an error is reported.
fn read_one<R>(
    job: Job<'_, R>,
    profile: Profile,
    ahead: Ahead,
    has_failed: &AtomicBool,
    add: &impl Fn(&mut R, &Context<'_>, &GroupKey, Sum),
) -> Result<(), InputError> {
    let mut stream = Stream { profile, turn: job.turn, report: None, add, has_failed };
    // Two operands can name one pipe, or standard input: only files are opened before their turn.
    if !job.operand.is_some_and(Path::is_file) && !stream.wait() {
        return Ok(());
    }
    let result = stream.read(job.operand, ahead);
    if !stream.wait() {
        return Ok(());
    }
    result?;
    if let Some(report) = stream.report {
        let generation = stream.profile.tables().generation();
        // There is no receiver if a later thread has panicked.
        let _ = job.next.send(Baton { summary: stream.profile.summary, generation, report });
    }
    Ok(())
}

/// A stream that is read.
struct Stream<'a, R, F> {
    profile: Profile,
    turn: Receiver<Baton<R>>,
    /// The report, from the stream's turn on.
    report: Option<R>,
    add: &'a F,
    has_failed: &'a AtomicBool,
}

impl<R, F: Fn(&mut R, &Context<'_>, &GroupKey, Sum)> Stream<'_, R, F> {
    /// Waits for the turn of the stream. False if there is none, because an earlier stream failed.
    fn wait(&mut self) -> bool {
        if self.report.is_none() {
            let Ok(baton) = self.turn.recv() else { return false };
            self.profile.follow(baton.summary, baton.generation);
            self.report = Some(baton.report);
        }
        true
    }

    /// Reads the stream; as much as `ahead` allows before its turn. Ends early if an earlier stream
    /// failed.
    fn read(&mut self, operand: Option<&Path>, ahead: Ahead) -> Result<(), InputError> {
        let input = stage::open(operand)?;
        let name = input.name().to_owned();
        let mut reader = Reader::new(input);
        self.profile.begin(&name);
        let mut definitions = 0;
        loop {
            let sums = if self.report.is_some() { usize::MAX } else { ahead.sums };
            self.profile.take_samples(
                &mut reader,
                sums,
                &mut sum_taker(&mut self.report, self.add),
            );
            let before = reader.position();
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(source) => return Err(InputError::Read { name, source }),
            };
            let is_early = self.report.is_none();
            let is_limit = definitions > ahead.bytes
                || self.profile.sums() >= ahead.sums
                || self.profile.must_pass_sums_before(&record);
            if is_early && (is_limit && !self.wait() || self.has_failed.load(Ordering::Relaxed)) {
                return Ok(());
            }
            self.profile.take(&record, &mut sum_taker(&mut self.report, self.add));
            definitions += reader.position() - before;
        }
        if self.wait() {
            self.profile.end(&reader, &mut sum_taker(&mut self.report, self.add));
        }
        Ok(())
    }
}

/// Returns the function that takes the sums of a profile. It is not called before the turn.
fn sum_taker<R>(
    report: &mut Option<R>,
    add: &impl Fn(&mut R, &Context<'_>, &GroupKey, Sum),
) -> impl FnMut(&Context<'_>, &GroupKey, Sum) {
    move |context, group, sum| {
        if let Some(report) = report {
            add(report, context, group, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::GroupBy;
    use crate::profile::summary::EventSummary;
    use std::path::PathBuf;

    /// The calls of `add`, in their order.
    type Calls = Vec<(usize, usize, u32, u64, String)>;

    fn write(directory: &Path, name: &str, stream: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, stream).expect("the directory is writable");
        path
    }

    /// Returns a stream of several epochs, in each of which the same ids have other meanings.
    fn stream(number: u32, epochs: u32) -> String {
        let mut text = format!("@nprof\t1.1\trun={number:#x}\tcommand=c{number}\n");
        for epoch in 0..epochs {
            text.push_str(&format!(
                "@event\tid=1\tname=e{}\n@event\tid=2\tname=e{epoch}\n\
                 I\t1\telf\t-\t/i{number}\nF\t1\t1\t{epoch:#x}\tu\nN\t1\t0\t1\nN\t2\t1\t1\n",
                number + 7
            ));
            for sample in 0..20 {
                let (event, node) = (sample % 2 + 1, sample % 3);
                text.push_str(&format!("S\t{sample}\t{event}\t0\t0\t{node}\t{number}\t1\n"));
            }
            text.push_str(&format!("L\t9\t1\t0\t0\t3\tring\n@epoch\tnumber={}\n", epoch + 1));
        }
        text
    }

    fn paths(files: &[PathBuf]) -> Vec<Option<&Path>> {
        files.iter().map(|file| Some(file.as_path())).collect()
    }

    fn calls_of(files: &[PathBuf], threads: usize) -> (Summary, Calls) {
        let mut generations = Mutex::new(Vec::new());
        let add = |calls: &mut Calls, context: &Context<'_>, group: &GroupKey, sum: Sum| {
            let mut generations = generations.lock().expect("no thread panics");
            generations.push((context.generation(), group.run));
            let call = context.stack_calls(group.node).next();
            let image = call.and_then(|call| context.image(context.frame(call.frame)?.image));
            let path = image.map_or(&b""[..], |image| context.names.get(image.path));
            let path = String::from_utf8_lossy(path).into_owned();
            assert_eq!(context.summary.events[group.event].sum.samples > 0, sum.samples > 0);
            calls.push((group.run, group.event, group.node.0, sum.weight, path));
        };
        let read =
            read(&paths(files), || Profile::new(GroupBy::default()), Calls::new(), threads, add);
        let (summary, calls) = read.expect("all streams are valid");
        // Reports cache by generation: no two streams may share one.
        let generations = generations.get_mut().expect("no thread panics");
        assert!(generations.is_sorted());
        generations.dedup();
        let pairs = generations.len();
        generations.dedup_by_key(|(generation, _)| *generation);
        assert_eq!(generations.len(), pairs);
        (summary, calls)
    }

    #[test]
    fn sums_and_their_order_do_not_depend_on_the_number_of_threads() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |i: u32| {
            let cut = if i == 4 { "" } else { "@end\n" };
            write(directory.path(), &i.to_string(), &(stream(i, i % 4) + &stream(i, 1) + cut))
        };
        let files: Vec<PathBuf> = (1..12).map(write).collect();
        let (summary, calls) = calls_of(&files, 1);
        assert!(calls.len() > 100);
        assert_eq!(summary.runs.len(), 22);
        assert_eq!(summary.events.len(), 14);
        let lost: u64 = summary.events.iter().map(EventSummary::lost_samples).sum();
        assert_eq!(lost, 3 * (0..11).map(|i| (i + 1) % 4 + 1).sum::<u64>());
        for threads in 2..6 {
            let (other, other_calls) = calls_of(&files, threads);
            assert_eq!(other_calls, calls, "{threads} threads");
            assert_eq!(other.heading(), summary.heading());
            assert_eq!(other.facts(), summary.facts());
        }
    }

    #[test]
    fn first_stream_with_an_error_is_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |i: u32| {
            let text = if i < 5 { stream(i, 3) } else { "no stream".to_owned() };
            write(directory.path(), &i.to_string(), &text)
        };
        let mut files: Vec<PathBuf> = (1..9).map(write).collect();
        for threads in 1..5 {
            let failed = |files: &[PathBuf]| {
                let add = |_: &mut (), _: &Context<'_>, _: &GroupKey, _| {};
                let read =
                    read(&paths(files), || Profile::new(GroupBy::default()), (), threads, add);
                read.expect_err("an input is no stream").to_string()
            };
            assert_eq!(failed(&files), files[4].display().to_string());
            files.swap(2, 7);
            assert_eq!(failed(&files), files[2].display().to_string());
            files.swap(2, 7);
        }
    }
}
