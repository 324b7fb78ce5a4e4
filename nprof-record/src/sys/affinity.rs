//! The CPUs on which a thread may run.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs on which the calling thread might run; dropping this lets it run there again.
pub(crate) struct SavedAffinity {
    allowed: CpuSet,
}

impl SavedAffinity {
    /// Saves those of the calling thread.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the machine has more CPUs than a set.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        Ok(Self { allowed: sched_getaffinity(None)? })
    }

    /// Moves the calling thread to this CPU, on which it stays.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such CPU, or the thread must not run there.
    pub(crate) fn stay_on(&self, cpu: usize) -> io::Result<()> {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Errno::INVAL);
        }
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one)
    }
}

impl Drop for SavedAffinity {
    fn drop(&mut self) {
        // It fails if all these CPUs went offline; the kernel has chosen others then.
        let _ = sched_setaffinity(None, &self.allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::thread::sched_getcpu;

    #[test]
    fn thread_stays_on_a_cpu_until_it_is_released() {
        let count = || sched_getaffinity(None).expect("few CPUs").count();
        let before = count();
        let saved = SavedAffinity::of_this_thread().expect("few CPUs");
        assert_eq!(saved.stay_on(CpuSet::MAX_CPU), Err(io::Errno::INVAL));
        let cpu = sched_getcpu();
        saved.stay_on(cpu).expect("it runs there");
        assert_eq!((count(), sched_getcpu()), (1, cpu));
        drop(saved);
        assert_eq!(count(), before);
    }
}
