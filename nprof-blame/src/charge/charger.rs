//! Keeps the activity of threads, and charges each wait as soon as its end is known. Pure.

use nprof_stream::{NodeId, TaskId};
use rustc_hash::FxHashMap;

use super::activity::{Activity, Charge, Doing, Pair, Wait, WaitEnd, Waker};
use super::donors::Donors;
use super::follow::Chain;
use super::timeline::Timeline;
use super::waits::{OpenWait, OpenWaits};

/// The most draws of one wait. One of 10 s at 997 Hz has 9970 observations; 128 strata give the
/// shares of its wakers within a percent.
const DRAWS: u64 = 128;

/// The draws that each observation adds to the credit. If 10,000 threads wait for one that has thousands
/// of stacks, 128 draws of each part make the output 45 times as large as the input; with the credit,
/// all draws together are at most four times the input's observations, and one for each wait.
const DRAWS_PER_OBSERVATION: u64 = 4;

/// The most credit: 128 waits have all their draws at once, as at the end of a busy second.
const MAX_CREDIT: u64 = 128 * DRAWS;

/// The bounds of the charger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most wakers that a draw passes.
    pub(crate) depth: usize,
    /// The time for which observations are kept, in ns.
    pub(crate) window_ns: u64,
    /// The most observations that are kept; then the window becomes shorter.
    pub(crate) activities: usize,
}

/// Charges waits. Records come in the order of the stream, which is nearly that of time.
#[derive(Debug)]
pub(crate) struct Charger {
    limits: Limits,
    tasks: FxHashMap<TaskId, Timeline>,
    waits: OpenWaits,
    donors: Donors,
    /// The number of observations in all timelines.
    kept: usize,
    /// The newest time.
    now: u64,
    /// The newest time when old observations were last removed.
    cleaned: u64,
    /// The shortest window that the bound on observations has caused, in ns.
    shortest_window_ns: u64,
    /// The draws that may be made beyond one for each wait.
    credit: u64,
    /// Charges that the caller has not taken.
    charges: Vec<Charge>,
}

impl Charger {
    /// Creates a charger.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            tasks: FxHashMap::default(),
            waits: OpenWaits::default(),
            donors: Donors::default(),
            kept: 0,
            now: 0,
            cleaned: 0,
            shortest_window_ns: limits.window_ns,
            credit: MAX_CREDIT,
            charges: Vec::new(),
        }
    }

    /// Notes a CPU sample that represents `weight` ns.
    pub(crate) fn running(&mut self, task: TaskId, time: u64, node: NodeId, weight: u64) {
        let ended = self.waits.goes_on(task, time);
        self.charge_all(ended);
        self.add(task, Activity { start: time, end: time, node, doing: Doing::Running, weight });
    }

    /// Notes that a thread waited for a CPU.
    pub(crate) fn runnable(
        &mut self,
        task: TaskId,
        start: u64,
        end: u64,
        node: NodeId,
        weight: u64,
    ) {
        let ended = self.waits.goes_on(task, start);
        self.charge_all(ended);
        self.add(task, Activity { start, end, node, doing: Doing::Runnable, weight });
    }

    /// Notes a wait.
    pub(crate) fn wait(&mut self, mut wait: Wait) {
        // The recorder writes a wait when the thread runs again. From the wake-up on, it waited for a
        // CPU, which is not part of this wait.
        let woken = wait.pair.and_then(|pair| self.waits.woken_at(pair));
        let ready = woken.map_or(0, |woken| wait.end.saturating_sub(woken));
        wait.end -= ready;
        wait.start = wait.start.saturating_sub(ready);
        let Wait { task, node, start, end, weight, .. } = wait;
        let (shared, decided) = self.waits.add(wait);
        self.add(task, Activity { start, end, node, doing: Doing::Waiting(shared), weight });
        self.charge_all(decided);
    }

    /// Notes the wake-up that ended the wait of a pair. None for an interrupt.
    pub(crate) fn wake(&mut self, pair: Pair, waker: Option<Waker>, time: u64) {
        let end = waker.map_or(WaitEnd::Interrupt, WaitEnd::Woken);
        let ended = self.waits.wake(pair, end, time);
        self.charge_all(ended);
        self.advance(time);
    }

    /// Charges all open waits and forgets everything: ids change their meaning, or the stream ends.
    pub(crate) fn finish(&mut self) {
        let open = self.waits.take_all();
        self.charge_all(open);
        self.tasks.clear();
        self.donors.clear();
        (self.kept, self.now, self.cleaned) = (0, 0, 0);
        self.credit = MAX_CREDIT;
    }

    /// Returns the charges since the last call.
    pub(crate) fn take_charges(&mut self) -> Vec<Charge> {
        std::mem::take(&mut self.charges)
    }

    /// Returns the shortest window that the bound on observations has caused, in ns. None if it was
    /// never reached.
    pub(crate) fn shortened_window_ns(&self) -> Option<u64> {
        (self.shortest_window_ns < self.limits.window_ns).then_some(self.shortest_window_ns)
    }

    fn add(&mut self, task: TaskId, activity: Activity) {
        let end = activity.end;
        self.tasks.entry(task).or_default().add(activity);
        self.kept += 1;
        self.credit = MAX_CREDIT.min(self.credit + DRAWS_PER_OBSERVATION);
        self.advance(end);
    }

    /// Removes observations older than the window, or than a shorter one if there are too many.
    fn advance(&mut self, time: u64) {
        self.now = self.now.max(time);
        let mut window_ns = self.limits.window_ns;
        // Rarely, since it visits all threads.
        if self.now - self.cleaned > window_ns.saturating_add(window_ns / 8) {
            self.forget_before(self.now.saturating_sub(window_ns));
        }
        if self.kept() <= self.limits.activities {
            return;
        }
        // To the half, so that the next time is far away.
        while self.kept() > self.limits.activities / 2 && window_ns > 0 {
            window_ns /= 2;
            self.forget_before(self.now.saturating_sub(window_ns));
        }
        self.shortest_window_ns = self.shortest_window_ns.min(window_ns);
    }

    /// Returns the number of observations and wake-ups in memory.
    pub(super) fn kept(&self) -> usize {
        self.kept + self.waits.wakes()
    }

    fn forget_before(&mut self, time: u64) {
        // Their wakers' observations are still there.
        let expired = self.waits.expire(time);
        self.charge_all(expired);
        for row in self.tasks.values_mut() {
            self.kept -= row.forget_before(time);
        }
        self.tasks.retain(|_, row| row.len() > 0);
        self.cleaned = time;
    }

    fn charge_all(&mut self, waits: Vec<OpenWait>) {
        let mut left = waits.len() as u64;
        for open in waits {
            // The parts of one wait share the credit evenly.
            let draws = open.wait.count.clamp(1, DRAWS.min(1 + self.credit / left));
            self.charge(&open, draws);
            self.credit -= draws - 1;
            left -= 1;
        }
    }

    /// Charges a wait. The counts of its charges sum to its own, and so do the weights, each in
    /// proportion to its count: squares of weights by count, and with them the effective sample size,
    /// stay the same.
    fn charge(&mut self, open: &OpenWait, draws: u64) {
        let (wait, end) = (&open.wait, open.end.get());
        let lasted = wait.end - wait.start;
        let phase = random(wait.start, wait.end);
        let Self { tasks, donors, limits, .. } = self;
        let mut chain = Chain { tasks, donors, depth: limits.depth };
        let mut parts = Vec::with_capacity(draws as usize);
        for draw in 0..draws {
            // One point in each of `draws` strata, all at the same random place.
            let place = (u128::from(draw) << 32 | u128::from(phase)) * u128::from(lasted);
            let point = wait.start + (place / (u128::from(draws) << 32)) as u64;
            let target = chain.follow(wait, end, point, draw == 0);
            let (from, to) = (part(wait.count, draw, draws), part(wait.count, draw + 1, draws));
            let weight = if wait.count == 0 {
                wait.weight
            } else {
                part(wait.weight, to, wait.count) - part(wait.weight, from, wait.count)
            };
            parts.push((target, weight, to - from));
        }
        parts.sort_unstable();
        let (event, waiter) = (wait.event, wait.task);
        for same in parts.chunk_by(|a, b| a.0 == b.0) {
            let (weight, count) =
                same.iter().fold((0, 0), |sum, (_, weight, count)| (sum.0 + weight, sum.1 + count));
            self.charges.push(Charge { event, waiter, target: same[0].0, weight, count });
        }
    }
}

/// Returns `total * numerator / denominator`, rounded down.
fn part(total: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(total) * u128::from(numerator) / u128::from(denominator)) as u64
}

/// Returns 32 bits that depend on the interval alone: the same stream is charged in the same way, and
/// so is one with other ids. The finalizer of SplitMix64 (Steele and others, OOPSLA 2014).
fn random(start: u64, end: u64) -> u32 {
    let mut bits = start ^ end.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 32) as u32
}
