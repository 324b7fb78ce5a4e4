//! The causes of losses in rings, and the remedies.

use nprof_stream::Cause;

use super::{Summary, duration};
use crate::perf::plan::OpenMode;
use crate::session::delays::DelayCause;

/// Delays below this fill no ring by themselves: rings for samples last a quarter of a second, or
/// a few times this where little memory can be locked.
const SHORT_DELAY_NS: u64 = 20_000_000;

impl Summary {
    /// Returns the cause of losses in rings, and the remedy. `has_lost_samples` is false if only records
    /// of processes and mappings were lost: their rings have a fixed size, which no option for samples
    /// relieves.
    pub(super) fn cause_of_losses(&self, has_lost_samples: bool) -> String {
        // A ring of all CPUs has the records of all processes.
        let is_shared = self.open_mode == OpenMode::System && self.subject.is_some();
        // Without a long delay it was a burst.
        let (cause, longest_ns) =
            self.delay.map_or((DelayCause::Work, 0), |delay| (delay.cause, delay.longest_ns));
        let time = duration(longest_ns);
        let remedy = if is_shared {
            "; if they are others than the recorded ones, --follow cgroup omits them".to_owned()
        } else if self.open_mode == OpenMode::Task {
            format!("; {}, which has larger rings for them", self.how_to_record_system())
        } else {
            String::new()
        };
        match cause {
            _ if longest_ns < SHORT_DELAY_NS && !has_lost_samples => {
                format!("processes started or mapped memory in a burst{remedy}")
            }
            _ if longest_ns < SHORT_DELAY_NS => {
                format!("records came in a burst; {}", self.fewer())
            }
            DelayCause::Output if !self.has_reader => format!(
                "nprof-record waited {time} for writes to its file; write to a faster file system, such as /dev/shm"
            ),
            DelayCause::Output => format!(
                "nprof-record waited {time} for the reader of its output; write to a file with -o, \
                 and read it later"
            ),
            DelayCause::Stopped => {
                format!("nprof-record was stopped for {time}; let it run while it records")
            }
            DelayCause::NoCpu => {
                // Events of their own relieve the recorder only of the samples of others.
                let is_of_others = is_shared && self.lost_others > self.lost.values().sum();
                let remedy = match (self.has_priority, is_of_others) {
                    (false, false) => "run it as root or with CAP_SYS_NICE",
                    (false, true) => {
                        "run it as root or with CAP_SYS_NICE, or select --follow inherit"
                    }
                    // Only real-time programs and the hypervisor run before it.
                    (true, _) => {
                        "start it by `chrt -R -f 99`, so that no real-time program runs before it, or \
                         leave it a CPU, by taskset(1) for the programs"
                    }
                };
                format!("nprof-record waited {time} for a CPU; {remedy}")
            }
            DelayCause::Work if self.sideband_lost > 0 => {
                format!(
                    "processes start or map memory faster than nprof-record reads \
                     ({time} at a time){remedy}"
                )
            }
            DelayCause::Work => {
                format!("nprof-record worked {time} at a time; {}", self.fewer())
            }
        }
    }

    /// Returns the remedy against too much data in the rings.
    fn fewer(&self) -> &'static str {
        if self.is_weighed {
            "lower --stack-size: every occurrence of the event is written, also with -F or -c"
        } else {
            "lower --stack-size, or sample less often with -F or -c"
        }
    }

    /// Counts lost samples for which the CPU time has no room as those of other processes: the parts of both
    /// are estimated by the samples that the rings kept, those of a time when they were not full.
    pub(in crate::session) fn bound_losses(&mut self) {
        let Some((clock, _)) = self.clock.zip(self.task_ns) else { return };
        let most = (self.expected() - clock.samples as f64).ceil() as u64;
        if self.lost_others > 0
            && let Some(lost) = self.lost.get_mut(&Cause::Ring)
            && *lost > most
        {
            self.lost_others += *lost - most;
            *lost = most;
        }
    }
}
