//! Measures the CPU time that counting adds to a call: the recorder calls a function of its own, or of the
//! kernel, with and without a probe.

use nprof_object::maps;

use super::{CALLS, CallTracer, ENTER, LEAVE, PointWord};
use crate::os::procfs;
use crate::perf::calls::cost::CallCost;
use crate::perf::calls::data::CallKey;
use crate::sys::{self, OwnFunction};

/// The rounds, of which the median counts, and the calls of each: 5 ms in all, and 70 ms where counts are slow.
const ROUNDS: usize = 5;
const CALLS_OF_A_ROUND: u32 = 1000;

impl CallTracer {
    /// Returns the CPU time that counting adds to a call of most functions of the list, in ns: to all but
    /// those with slow places, or to these if there are no others. None if it was not measured.
    pub(crate) fn cost_ns(&self) -> Option<u64> {
        let CallCost { usual_ns, slow_ns } = self.cost.get();
        let has_usual = self.list.points.iter().any(|point| !point.is_slow);
        if has_usual { usual_ns } else { slow_ns }
    }

    /// Returns the number of functions with slow places, if there are others, and the CPU time that
    /// counting adds to their calls.
    pub(crate) fn slow_cost_ns(&self) -> Option<(usize, u64)> {
        let slow = self.list.points.iter().filter(|point| point.is_slow).count();
        let is_mixed = slow > 0 && slow < self.list.points.len();
        Some((slow, self.cost.get().slow_ns?)).filter(|_| is_mixed)
    }

    /// Returns the cost of counting a call of a function in that of most others.
    pub(super) fn cost_times(&self, point: usize) -> u64 {
        if self.list.points[point].is_slow { self.cost.get().slow_times() } else { 1 }
    }

    /// Measures the cost of a call. It stays unknown where the recorder's file is on a file system without
    /// probes.
    ///
    /// The recorder's signals must be blocked: they would end it while a thread waits for the kernel, which
    /// starts with the signal mask of this one.
    pub(crate) fn measure_cost(&self) {
        let has_slow = self.list.points.iter().any(|point| point.is_slow);
        let slow_ns = has_slow.then(|| self.measured_ns(OwnFunction::SLOW)).flatten();
        self.cost.set(CallCost { usual_ns: self.measured_ns(OwnFunction::COUNTED), slow_ns });
    }

    /// Measures the cost of a call of a function of this program, or of the kernel if the list has those.
    fn measured_ns(&self, function: OwnFunction) -> Option<u64> {
        let call = if self.list.is_kernel() { sys::system_call } else { function.call };
        let bare_ns = round_ns(call);
        // The first thread of a process has its id.
        let own_tid = std::process::id();
        let point = self.list.points.len() as u32;
        let counted = self.calls_of(point as usize);
        let program = self.loaded.programs.get(CALLS)?;
        let cookies = [point.into()];
        let mut links = Vec::new();
        if self.list.is_kernel() {
            links.push(sys::attach_kprobes(program, &[self.list.system_call?], &cookies).ok()?);
        } else {
            let entry = own_offset(function.address())?;
            let attach =
                |program, at| sys::attach_uprobes(program, c"/proc/self/exe", &[at], &cookies);
            links.push(attach(program, entry).ok()?);
            if self.counted.is_some() {
                let end = entry + function.end;
                for (name, at) in [(LEAVE, end), (ENTER, entry)] {
                    links.push(attach(self.loaded.programs.get(name)?, at).ok()?);
                }
            }
        }
        // Without an event that takes it, a sample of the first call would be tried at each.
        self.points.set(self.word(point as usize, PointWord::IsSampled), 1);
        self.insert(own_tid, false).ok()?;
        let serial = self.serials.get();
        let mut rounds: Vec<u64> = (0..ROUNDS).map(|_| round_ns(call)).collect();
        self.loaded.threads.remove(&own_tid.to_ne_bytes());
        self.loaded.counters.remove(&CallKey { point, serial }.bytes());
        self.loaded.walks.remove(&own_tid.to_ne_bytes());
        // The path of the function is the first one.
        self.loaded.charges.remove(&CallKey { point: 1, serial }.bytes());
        // The kernel waits for a grace period.
        self.closing.borrow_mut().push(std::thread::spawn(move || drop(links)));
        rounds.sort_unstable();
        let added_ns = rounds[ROUNDS / 2].saturating_sub(bare_ns);
        let counted = self.calls_of(point as usize).saturating_sub(counted);
        (counted >= u64::from(CALLS_OF_A_ROUND)).then_some(added_ns / u64::from(CALLS_OF_A_ROUND))
    }
}

/// Returns the CPU time of a round of calls.
fn round_ns(call: extern "C" fn()) -> u64 {
    let before = sys::thread_cpu_ns();
    (0..CALLS_OF_A_ROUND).for_each(|_| call());
    sys::thread_cpu_ns().saturating_sub(before)
}

/// Returns the offset of an address in the file of this program. None if no file is mapped there.
fn own_offset(address: u64) -> Option<u64> {
    let text = procfs::maps(std::process::id())?;
    let mapping = maps::mappings(&text).find(|it| (it.start.0..it.end.0).contains(&address))?;
    Some(address - mapping.start.0 + mapping.offset.0)
}
