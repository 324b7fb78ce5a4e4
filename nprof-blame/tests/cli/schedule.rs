//! Writes streams of schedules: the activity of each thread, and its wakers.

use std::collections::HashMap;

use fastrand::Rng;

/// The sampling interval, ns.
pub(crate) const PERIOD: u64 = 1_000_000;

const MS: u64 = 1_000_000;

/// The interval at which the recorder writes parts of waits in progress.
const PART: u64 = 1_000 * MS;

/// The time from a wake-up until the thread runs.
const READY: u64 = 30_000;

/// The thread that ends a wait, and its stack.
#[derive(Clone, Copy)]
pub(crate) struct Waker(pub(crate) u32, pub(crate) u32);

/// The waker of waits that an interrupt ends.
pub(crate) const INTERRUPT: Waker = Waker(0, 0);

/// A stream in the making. Times begin at 1 s.
pub(crate) struct Schedule {
    head: String,
    definitions: String,
    functions: HashMap<String, u32>,
    tasks: u32,
    nodes: u32,
    pairs: u64,
    samples: Vec<(u64, String)>,
    rng: Rng,
}

impl Schedule {
    pub(crate) fn new(run: u32) -> Self {
        let mut head = format!(
            "@nprof\t1.1\trun={run:#x}\tclock=monotonic\ttime=5\tutc=1700000000000000005\tcommand=prog\n"
        );
        for (id, name, measure) in [
            (1, "cpu-clock", "cpu"),
            (2, "blocked", "wait"),
            (3, "runnable", "wait"),
            (4, "wakes", "wait"),
        ] {
            let line = format!(
                "@event\tid={id}\tname={name}\tunit=ns\tmeasure={measure}-time\tperiod={PERIOD}\n"
            );
            head += &line;
        }
        Self {
            head,
            definitions: "I\t1\telf\t-\t/bin/prog\n".to_owned(),
            functions: HashMap::new(),
            tasks: 0,
            nodes: 0,
            pairs: 0,
            samples: Vec::new(),
            rng: Rng::with_seed(7),
        }
    }

    /// Adds a thread.
    pub(crate) fn task(&mut self, comm: &str) -> u32 {
        self.tasks += 1;
        let (id, tid) = (self.tasks, 100 + self.tasks);
        self.definitions += &format!("T\t{id}\t0\t{tid}\t{tid}\t0\t{comm}\n");
        id
    }

    /// Adds a stack of functions, root first; returns its leaf.
    pub(crate) fn stack(&mut self, functions: &[&str]) -> u32 {
        let mut frames = String::new();
        for function in functions {
            let next = self.functions.len() as u32 + 1;
            let id = *self.functions.entry((*function).to_owned()).or_insert(next);
            if id == next {
                let lines = format!(
                    "F\t{id}\t1\t{id:#x}\tu\nU\t{id}\t{function}\t-\nY\t{id}\tnamed\t{id},0,0,0\n"
                );
                self.definitions += &lines;
            }
            frames += &format!("\t{id}");
        }
        self.definitions += &format!("N\t{}\t0{frames}\n", self.nodes + 1);
        self.nodes += functions.len() as u32;
        self.nodes
    }

    /// Adds the samples of a running thread: one in each period of CPU time, at a random phase.
    pub(crate) fn runs(&mut self, task: u32, node: u32, start: u64, end: u64) {
        // Systematic sampling: only the first sample is at a random place.
        let mut time = start + self.rng.u64(1..PERIOD);
        while time < end {
            self.sample(time, 1, task, node, PERIOD, 1, "");
            time += PERIOD;
        }
    }

    /// Adds a wait by the law of the event, in parts if it is long.
    pub(crate) fn waits(&mut self, task: u32, node: u32, start: u64, end: u64, waker: Waker) {
        let mut start = start;
        while end - start > PART {
            let tick = (start / PART + 1) * PART;
            let lasted = tick - start;
            self.sample(tick, 2, task, node, lasted, (lasted / PERIOD).max(1), "");
            start = tick;
        }
        let lasted = end - start;
        // Short waits are recorded with a probability in proportion to their length.
        if lasted < PERIOD && self.rng.u64(0..PERIOD) >= lasted {
            return;
        }
        self.pairs += 1;
        let (weight, count) = (lasted.max(PERIOD), (lasted / PERIOD).max(1));
        // The length is absent if it is the weight.
        let length = if lasted == weight { String::new() } else { format!("\tlasted={lasted}") };
        let extras = format!("{length}\tpair={}", self.pairs);
        self.sample(end, 4, waker.0, waker.1, weight, count, &extras);
        // The recorder writes a wait when the thread runs again.
        self.sample(end + READY, 2, task, node, weight, count, &extras);
    }

    /// Adds a wait for a CPU.
    pub(crate) fn is_runnable(&mut self, task: u32, node: u32, start: u64, end: u64) {
        let lasted = end - start;
        self.sample(end, 3, task, node, lasted, (lasted / PERIOD).max(1), "");
    }

    #[allow(clippy::too_many_arguments)]
    fn sample(
        &mut self,
        time: u64,
        event: u32,
        task: u32,
        node: u32,
        weight: u64,
        count: u64,
        extras: &str,
    ) {
        let time = time + 1_000 * MS;
        self.samples.push((
            time,
            format!("S\t{time}\t{event}\t{task}\t-\t{node}\t{weight}\t{count}{extras}\n"),
        ));
    }

    /// Returns the stream as text, without its end.
    pub(crate) fn open_text(&mut self) -> String {
        self.samples.sort_by_key(|sample| sample.0);
        let samples: String = self.samples.iter().map(|sample| sample.1.as_str()).collect();
        format!("{}{}{samples}", self.head, self.definitions)
    }

    /// Returns the stream as text.
    pub(crate) fn text(&mut self) -> String {
        let text = self.open_text();
        let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        let count =
            |kinds: &[&str]| text.lines().filter(|line| kinds.contains(&&*word(line))).count();
        let records = count(&["@event", "I", "T", "F", "N", "S"]);
        format!("{text}@end\treason=exit\tsamples={}\trecords={records}\tlost=0\n", count(&["S"]))
    }
}

/// `gen | sort | uniq`, of which `gen` takes 4 ms to make each line, for 8 s.
pub(crate) fn pipeline() -> Schedule {
    let mut s = Schedule::new(1);
    let [sh, generate, sort, uniq] = ["sh", "gen", "sort", "uniq"].map(|comm| s.task(comm));
    let waits_for_child = s.stack(&["main", "waitchld", "do_wait"]);
    let makes_line = s.stack(&["main", "make_line"]);
    let writes = s.stack(&["main", "write_line", "anon_pipe_write"]);
    let reads = s.stack(&["main", "fill_buffer", "anon_pipe_read"]);
    let sorts = s.stack(&["main", "sort_lines", "compare"]);
    let writes_all = s.stack(&["main", "write_sorted", "anon_pipe_write"]);
    let reads_line = s.stack(&["main", "read_line", "anon_pipe_read"]);
    let exits = s.stack(&["main", "exit", "do_exit"]);
    let mut now = 0;
    for _ in 0..2000 {
        let idle_from = now + 50_000;
        s.runs(generate, makes_line, now, now + 4 * MS);
        now += 4 * MS + 20_000;
        s.waits(sort, reads, idle_from, now, Waker(generate, writes));
    }
    s.runs(sort, sorts, now, now + 100 * MS);
    now += 100 * MS;
    s.waits(uniq, reads_line, 30_000, now, Waker(sort, writes_all));
    s.runs(uniq, reads_line, now, now + 2 * MS);
    now += 2 * MS;
    s.waits(sh, waits_for_child, 10_000, now, Waker(uniq, exits));
    s
}

/// A lock that one slow thread holds for 5 ms and then 100 fast ones for 2 us each, in turn.
pub(crate) fn convoy() -> Schedule {
    let mut s = Schedule::new(1);
    let slow = s.task("slow");
    let fast: Vec<u32> = (0..100).map(|number| s.task(&format!("fast{number}"))).collect();
    let holds = s.stack(&["worker", "hold_long"]);
    let holds_shortly = s.stack(&["worker", "hold_shortly", "unlock"]);
    let unlocks = s.stack(&["worker", "hold_long", "unlock"]);
    let locks = s.stack(&["worker", "lock", "futex_do_wait"]);
    for round in 0..20 {
        let begin = round * 20 * MS;
        s.runs(slow, holds, begin, begin + 5 * MS);
        let mut waker = Waker(slow, unlocks);
        for (place, &task) in fast.iter().enumerate() {
            let place = place as u64;
            s.waits(task, locks, begin + place * 1000, begin + 5 * MS + place * 2000, waker);
            waker = Waker(task, holds_shortly);
        }
    }
    s
}
