//! Loads a BPF program that sampling events run, and that copies more of a stack than the kernel
//! does. Without the rights or on older kernels the kernel's copy is all there is.
//!
//! It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN) and Linux 5.8. For samples in the kernel it
//! needs Linux 5.15 with CONFIG_DEBUG_INFO_BTF.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use crate::perf::bpf::program::{self, BUFFER, LoopLimit, Maps, ProgramConfig};
use crate::perf::bpf::shared_array::{self, GROUP};
use crate::sys::{self, BpfCode, MapKind, ProgramKind, SharedWords};

/// The most bytes that are copied beyond the kernel's copy. That takes some 100 us with interrupts
/// disabled, and is only done for a thread without hints.
pub(crate) const MAX_EXTRA_BYTES: u32 = 1 << 20;

/// Loads programs.
trait Loader {
    /// A loaded program.
    type Program;

    /// Loads a program.
    ///
    /// # Errors
    ///
    /// The errno of bpf(2).
    fn load(&self, instructions: &[u64]) -> Result<Self::Program, i32>;
}

/// The running kernel.
struct Kernel;

impl Loader for Kernel {
    type Program = File;

    fn load(&self, instructions: &[u64]) -> Result<File, i32> {
        let code = BpfCode { instructions, types: None, functions: &[] };
        sys::bpf_program(ProgramKind::PerfEvent, code)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    }
}

/// A loaded program with its maps.
#[derive(Debug)]
pub(crate) struct BpfStackCopier {
    pub(crate) program: File,
    /// The map of the events that write chunks. Kept open, since the kernel empties it on close.
    events: File,
    /// The map of the program that the first one goes on with, also emptied on close.
    _programs: File,
    /// The array shared with the program, see [`shared_array`].
    pub(crate) words: Rc<SharedWords>,
    /// The most bytes of a stack that the kernel and the program copy together.
    pub(crate) max_copy_bytes: u64,
}

impl BpfStackCopier {
    /// Loads the program for stacks of which the kernel copies `copied` bytes, for rings that may
    /// hold at most `room` bytes of chunks, on CPUs up to `last_cpu`.
    ///
    /// # Errors
    ///
    /// bpf(2), mmap(2): EPERM without the rights, EINVAL and EACCES if the verifier rejects the program.
    pub(crate) fn load(copied: u32, room: usize, last_cpu: u32) -> io::Result<Self> {
        Self::load_by(&Kernel, copied, room, last_cpu)
    }

    fn load_by(
        loader: &impl Loader<Program = File>,
        copied: u32,
        room: usize,
        last_cpu: u32,
    ) -> io::Result<Self> {
        let (cpus, count) = (last_cpu + 1, shared_array::word_count(last_cpu));
        let array = MapKind::Array { mapped: true };
        let groups = (count / GROUP) as u32;
        let words = sys::bpf_map(array, (GROUP * size_of::<u64>()) as u32, groups)?;
        let buffers = sys::bpf_map(MapKind::Array { mapped: false }, BUFFER, cpus)?;
        let events = sys::bpf_map(MapKind::PerfEvents, size_of::<u32>() as u32, cpus)?;
        let programs = sys::bpf_map(MapKind::Programs, size_of::<u32>() as u32, 1)?;
        let maps = Maps {
            words: words.as_raw_fd(),
            buffers: buffers.as_raw_fd(),
            events: events.as_raw_fd(),
            programs: programs.as_raw_fd(),
        };
        let config = ProgramConfig {
            copied: copied as i32,
            bound: MAX_EXTRA_BYTES as i32,
            room: i32::try_from(room).unwrap_or(i32::MAX),
            kernel: true,
        };
        let program = load(loader, config, maps).map_err(io::Error::from_raw_os_error)?;
        let copier = load_copier(loader, maps).map_err(io::Error::from_raw_os_error)?;
        sys::bpf_map_set(&programs, 0, &copier)?;
        let words = Rc::new(SharedWords::map(&words, count)?);
        Ok(Self {
            program,
            events,
            _programs: programs,
            words,
            max_copy_bytes: u64::from(copied + MAX_EXTRA_BYTES - 8),
        })
    }

    /// Makes an event that is open on a CPU the one that writes chunks. Returns true if it could.
    pub(crate) fn set_output_event(&self, cpu: u32, event: &File) -> bool {
        sys::bpf_map_set(&self.events, cpu, event).is_ok()
    }

    /// Attaches the program to an event. Returns false if the event cannot run programs.
    pub(crate) fn attach(&self, event: &File) -> bool {
        sys::attach_program(event, &self.program).is_ok()
    }

    /// Returns the number of chunks of a CPU that were lost because the ring was full.
    pub(crate) fn lost_chunks(&self, cpu: u32) -> u64 {
        self.words.get(shared_array::lost_word(cpu))
    }
}

/// Loads the program in the form that this kernel accepts: the verifier of an older one refuses
/// (EINVAL, EACCES) the part that finds the user registers of a sample in the kernel. Returns the errno
/// if it accepts neither.
fn load<L: Loader>(loader: &L, config: ProgramConfig, maps: Maps) -> Result<L::Program, i32> {
    load_either(loader, |kernel| program::program(ProgramConfig { kernel, ..config }, maps))
}

/// Loads the program that copies in the form that this kernel accepts: the verifier of an older one knows
/// no limit of loops but a count. Returns the errno if it accepts neither.
fn load_copier<L: Loader>(loader: &L, maps: Maps) -> Result<L::Program, i32> {
    let limit = |is_recent| if is_recent { LoopLimit::Kernel } else { LoopLimit::Count };
    load_either(loader, |is_recent| program::copier(maps, limit(is_recent)))
}

/// Loads a program in its form for recent kernels, or in that for older ones.
fn load_either<L: Loader>(loader: &L, form: impl Fn(bool) -> Vec<u64>) -> Result<L::Program, i32> {
    match loader.load(&form(true)) {
        Err(libc::EINVAL | libc::EACCES) => loader.load(&form(false)),
        // Missing rights or memory: a shorter program would fail as well.
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    use perf_event_open_sys::bindings::{self, perf_event_attr};

    use crate::os::procfs;
    use crate::perf::bpf::shared_array::HINT_SLOTS;
    use crate::sys::{EventTarget, Ring};

    const CONFIG: ProgramConfig =
        ProgramConfig { copied: 8, bound: MAX_EXTRA_BYTES as i32, room: 1 << 20, kernel: true };
    const MAPS: Maps = Maps { words: 3, buffers: 4, events: 5, programs: 6 };

    /// A kernel that returns these results, and keeps the lengths of the programs.
    struct Answers(RefCell<Vec<Result<u32, i32>>>, RefCell<Vec<usize>>);

    impl Loader for Answers {
        type Program = u32;

        fn load(&self, instructions: &[u64]) -> Result<u32, i32> {
            self.1.borrow_mut().push(instructions.len());
            self.0.borrow_mut().remove(0)
        }
    }

    /// The running kernel, but without limits of loops of its own.
    struct OlderKernel;

    impl Loader for OlderKernel {
        type Program = File;

        fn load(&self, instructions: &[u64]) -> Result<File, i32> {
            const JUMP_AT_LIMIT: u8 = 0xe5;
            let refused = instructions.iter().any(|it| it.to_le_bytes()[0] == JUMP_AT_LIMIT);
            if refused { Err(libc::EINVAL) } else { Kernel.load(instructions) }
        }
    }

    fn loaded(answers: &[Result<u32, i32>]) -> (Result<u32, i32>, Vec<usize>) {
        let kernel = Answers(answers.to_vec().into(), RefCell::default());
        let program = load(&kernel, CONFIG, MAPS);
        (program, kernel.1.into_inner())
    }

    #[test]
    fn older_kernel_gets_a_shorter_program() {
        for errno in [libc::EINVAL, libc::EACCES] {
            let (program, lengths) = loaded(&[Err(errno), Ok(7)]);
            assert_eq!(program, Ok(7));
            assert!(lengths[1] < lengths[0], "{lengths:?}");
            assert_eq!(loaded(&[Err(errno), Err(errno)]).0, Err(errno));
        }
    }

    /// Follows the edges of a program from an instruction in the order of check_cfg() of Linux before 6.7.
    /// Returns the place of an instruction that is not a jump and precedes the head of a loop.
    fn into_loop(code: &[u64], at: usize, states: &mut [Option<bool>]) -> Option<usize> {
        const JUMP: u8 = 0x05;
        const CALL: u8 = 0x85;
        const EXIT: u8 = 0x95;
        let [operation, ..] = code[at].to_le_bytes();
        let is_jump = operation & 7 == JUMP && operation != CALL && operation != EXIT;
        let is_wide = operation == 0x18;
        let target = at.wrapping_add_signed(1 + isize::from((code[at] >> 16) as i16));
        let next =
            (operation != EXIT && operation != JUMP).then_some(at + 1 + usize::from(is_wide));
        states[at] = Some(true);
        for to in next.into_iter().chain(is_jump.then_some(target)) {
            match states[to] {
                None => {
                    if let Some(found) = into_loop(code, to, states) {
                        return Some(found);
                    }
                }
                Some(true) if !is_jump => return Some(at),
                Some(_) => {}
            }
        }
        states[at] = Some(false);
        None
    }

    #[test]
    fn only_jumps_lead_into_loops_as_older_verifiers_require() {
        let copier = program::copier(MAPS, LoopLimit::Count);
        for code in [program::program(CONFIG, MAPS), copier] {
            assert_eq!(into_loop(&code, 0, &mut vec![None; code.len()]), None);
        }
    }

    #[test]
    fn older_kernel_gets_a_loop_with_a_count() {
        let kernel = Answers(RefCell::new(vec![Err(libc::EINVAL), Ok(7)]), RefCell::default());
        assert_eq!(load_copier(&kernel, MAPS), Ok(7));
        let lengths = kernel.1.into_inner();
        assert!(lengths[0] < lengths[1], "{lengths:?}");
    }

    #[test]
    fn missing_rights_are_not_retried() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
            let (program, lengths) = loaded(&[Err(errno)]);
            assert_eq!((program, lengths.len()), (Err(errno), 1));
        }
        assert_eq!(loaded(&[Ok(1)]).1.len(), 1);
    }

    #[test]
    fn kernel_drops_the_samples_of_a_rejected_thread() {
        let copier = BpfStackCopier::load(8192, 1 << 20, 3);
        let Some(copier) = copier.ok().filter(|_| !procfs::is_in_pid_namespace()) else {
            return eprintln!("SKIPPED: no BPF here, or thread ids of a namespace");
        };
        let mut attr = perf_event_attr {
            type_: bindings::PERF_TYPE_SOFTWARE,
            config: u64::from(bindings::PERF_COUNT_SW_CPU_CLOCK),
            ..perf_event_attr::default()
        };
        attr.__bindgen_anon_1.sample_period = 1_000_000;
        let event = sys::perf_event_open(&attr, EventTarget::Task(0), -1).expect("of this thread");
        let ring = Ring::map(&event, 8 * sys::page_size()).expect("it is small");
        assert!(copier.attach(&event));
        let newly_written = || {
            let (before, until_ns) = (ring.head(), sys::thread_cpu_ns() + 20_000_000);
            while sys::thread_cpu_ns() < until_ns {}
            ring.head() - before
        };
        assert!(newly_written() > 0);
        let own = std::fs::read_link("/proc/thread-self").expect("of this thread");
        let tid = own.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        let tid = tid.expect("a number");
        let first = tid as usize % HINT_SLOTS * GROUP;
        copier.words.set(first + 3, 1);
        copier.words.set(first, tid);
        assert_eq!(newly_written(), 0);
        copier.words.set(first, 0);
        assert!(newly_written() > 0);
    }

    /// Runs the real verifier, if the rights allow it.
    #[test]
    fn kernel_loads_the_program() {
        match BpfStackCopier::load(61440, 1 << 20, 3) {
            Ok(copier) => {
                assert_eq!(copier.max_copy_bytes, 61432 + u64::from(MAX_EXTRA_BYTES));
                assert!(BpfStackCopier::load(1024, 1 << 20, 3).is_ok(), "less than a page");
                assert!(BpfStackCopier::load_by(&OlderKernel, 8192, 1 << 20, 3).is_ok());
            }
            Err(_) => {
                let denied = sys::bpf_map(MapKind::PerfEvents, 4, 1).map(drop);
                let error = denied.expect_err("with rights the program must load");
                eprintln!("SKIPPED: no BPF here: {error}");
            }
        }
    }
}
