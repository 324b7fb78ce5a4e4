//! Copies of stacks beyond what the kernel copies itself, by a BPF program that sampling events
//! run, where the rights and the kernel allow it. Where they do not, all is as without.
//!
//! It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), Linux 5.8, and for stacks below kernel
//! code 5.15 with CONFIG_DEBUG_INFO_BTF.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use crate::perf::bpf::program::{self, BUFFER, Maps, ProgramConfig};
use crate::perf::bpf::shared_array::{self, GROUP};
use crate::sys::{self, MapKind, SharedWords};

/// The most bytes that are copied beyond the kernel's copy. To copy them takes some 100 us, in
/// which interrupts are disabled; that much is only copied of a thread of which nothing is known.
const MAX_EXTRA_BYTES: u32 = 1 << 20;

/// Loads programs.
trait Loader {
    /// A loaded one.
    type Program;

    /// Loads one.
    ///
    /// # Errors
    ///
    /// The errno of bpf(2).
    fn load(&self, instructions: &[u64]) -> Result<Self::Program, i32>;
}

/// The kernel that runs.
struct Kernel;

impl Loader for Kernel {
    type Program = File;

    fn load(&self, instructions: &[u64]) -> Result<File, i32> {
        sys::bpf_program(instructions).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

/// A loaded program, with what it works on.
#[derive(Debug)]
pub(crate) struct BpfStackCopier {
    program: File,
    /// The events that write parts; the kernel empties it when it is closed.
    events: File,
    /// What is shared with the program, see [`crate::perf::stack_chunks`].
    pub(crate) words: Rc<SharedWords>,
    /// How much of a stack is copied at most, by the kernel and the program, bytes.
    pub(crate) max_copy_bytes: u64,
}

impl BpfStackCopier {
    /// One for stacks of which the kernel copies `copied` bytes, for rings in which at most `room`
    /// bytes of parts may be at a time, on CPUs up to number `last_cpu`. `None` where there can be
    /// none.
    pub(crate) fn load(copied: u32, room: usize, last_cpu: u32) -> Option<Self> {
        let (cpus, count) = (last_cpu + 1, shared_array::word_count(last_cpu));
        let array = MapKind::Array { mapped: true };
        let groups = u32::try_from(count / GROUP).ok()?;
        let words = sys::bpf_map(array, (GROUP * size_of::<u64>()) as u32, groups).ok()?;
        let buffers = sys::bpf_map(MapKind::Array { mapped: false }, BUFFER, cpus).ok()?;
        let events = sys::bpf_map(MapKind::PerfEvents, size_of::<u32>() as u32, cpus).ok()?;
        let maps = Maps {
            words: words.as_raw_fd(),
            buffers: buffers.as_raw_fd(),
            events: events.as_raw_fd(),
        };
        let config = ProgramConfig {
            copied: copied as i32,
            bound: MAX_EXTRA_BYTES as i32,
            room: i32::try_from(room).unwrap_or(i32::MAX),
            kernel: true,
        };
        let program = load(&Kernel, config, maps)?;
        let words = Rc::new(SharedWords::map(&words, count).ok()?);
        Some(Self {
            program,
            events,
            words,
            max_copy_bytes: u64::from(copied + MAX_EXTRA_BYTES - 8),
        })
    }

    /// Lets parts be written by this event, which is open on a CPU. Whether it could be done.
    pub(crate) fn set_output_event(&self, cpu: u32, event: &File) -> bool {
        sys::bpf_map_event(&self.events, cpu, event).is_ok()
    }

    /// Lets an event run the program, unless it is of a kind that runs others. Whether it does.
    pub(crate) fn attach(&self, event: &File) -> bool {
        match sys::attach_program(event, &self.program) {
            Ok(()) => true,
            // It does already.
            Err(error) => error.raw_os_error() == Some(libc::EEXIST),
        }
    }

    /// How many parts of a CPU's were lost, as there was no room for them.
    pub(crate) fn lost_chunks(&self, cpu: u32) -> u64 {
        self.words.get(shared_array::lost_word(cpu))
    }

    /// So many bytes of a CPU's parts were read.
    pub(crate) fn add_read_bytes(&self, cpu: u32, bytes: u64) {
        self.words.add(shared_array::read_word(cpu), bytes);
    }
}

/// Loads the program as this kernel takes it: the verifier of an older one refuses (EINVAL,
/// EACCES) what finds the user's stack below kernel code.
fn load<L: Loader>(loader: &L, config: ProgramConfig, maps: Maps) -> Option<L::Program> {
    for kernel in [true, false] {
        match loader.load(&program::program(ProgramConfig { kernel, ..config }, maps)) {
            Ok(program) => return Some(program),
            Err(libc::EINVAL | libc::EACCES) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const CONFIG: ProgramConfig =
        ProgramConfig { copied: 8, bound: MAX_EXTRA_BYTES as i32, room: 1 << 20, kernel: true };
    const MAPS: Maps = Maps { words: 3, buffers: 4, events: 5 };

    /// A kernel that answers with these, and keeps how long the programs were.
    struct Answers(RefCell<Vec<Result<u32, i32>>>, RefCell<Vec<usize>>);

    impl Loader for Answers {
        type Program = u32;

        fn load(&self, instructions: &[u64]) -> Result<u32, i32> {
            self.1.borrow_mut().push(instructions.len());
            self.0.borrow_mut().remove(0)
        }
    }

    fn loaded(answers: &[Result<u32, i32>]) -> (Option<u32>, Vec<usize>) {
        let kernel = Answers(answers.to_vec().into(), RefCell::default());
        let program = load(&kernel, CONFIG, MAPS);
        (program, kernel.1.into_inner())
    }

    #[test]
    fn older_kernel_gets_a_shorter_program() {
        for errno in [libc::EINVAL, libc::EACCES] {
            let (program, lengths) = loaded(&[Err(errno), Ok(7)]);
            assert_eq!(program, Some(7));
            assert!(lengths[1] < lengths[0], "{lengths:?}");
            assert_eq!(loaded(&[Err(errno), Err(errno)]).0, None);
        }
    }

    #[test]
    fn missing_rights_are_not_retried() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
            let (program, lengths) = loaded(&[Err(errno)]);
            assert_eq!((program, lengths.len()), (None, 1));
        }
        assert_eq!(loaded(&[Ok(1)]).1.len(), 1);
    }

    /// What the verifier says, where there are rights to ask it.
    #[test]
    fn kernel_loads_the_program() {
        match BpfStackCopier::load(61440, 1 << 20, 3) {
            Some(extender) => {
                assert_eq!(extender.max_copy_bytes, 61432 + u64::from(MAX_EXTRA_BYTES))
            }
            None => {
                let denied = sys::bpf_map(MapKind::PerfEvents, 4, 1).map(drop);
                let error = denied.expect_err("with rights the program must load");
                eprintln!("SKIPPED: no BPF here: {error}");
            }
        }
    }
}
