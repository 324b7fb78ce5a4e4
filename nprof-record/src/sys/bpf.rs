//! bpf(2): programs and their types.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys as perf;

use crate::sys::system::check;

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const BTF_LOAD: libc::c_int = 18;

/// Of `enum bpf_attach_type`: BPF_TRACE_ITER, BPF_TRACE_KPROBE_MULTI (Linux 5.18), and
/// BPF_TRACE_UPROBE_MULTI (Linux 6.6).
pub(super) const ITERATOR: u32 = 28;
pub(super) const KPROBE_MULTI: u32 = 42;
pub(super) const UPROBE_MULTI: u32 = 48;

/// The name of the maps and the program in bpftool(8).
pub(super) const NAME: [u8; 16] = *b"nprof_record\0\0\0\0";

/// The licence of the program. It calls helpers that the kernel reserves for GPL-compatible
/// programs; it is available under the MIT licence, too.
const LICENCE: &CStr = c"Dual MIT/GPL";

/// The bytes for the verifier's last words.
const LOG_BYTES: usize = 1 << 16;

/// The beginnings of the lines after the reason, from `print_verification_stats` in kernel/bpf/verifier.c.
const STATISTICS: [&str; 3] = ["verification time", "stack depth", "processed"];

/// The kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// A perf event runs it (BPF_PROG_TYPE_PERF_EVENT).
    PerfEvent,
    /// A tracepoint runs it (BPF_PROG_TYPE_RAW_TRACEPOINT).
    RawTracepoint,
    /// Many places of a file run it (BPF_PROG_TYPE_KPROBE).
    Uprobes,
    /// Many functions of the kernel run it (BPF_PROG_TYPE_KPROBE).
    Kprobes,
    /// An iterator runs it for each of its objects (BPF_PROG_TYPE_TRACING): the function of the
    /// iterator, as a number of the kernel's types.
    Iterator(u32),
    /// [`bpf_run`] runs it (BPF_PROG_TYPE_SYSCALL, Linux 5.14).
    Syscall,
}

impl ProgramKind {
    /// Returns the number of the kind.
    fn number(self) -> u32 {
        match self {
            Self::PerfEvent => 7,
            Self::Uprobes | Self::Kprobes => 2,
            Self::RawTracepoint => 17,
            Self::Iterator(_) => 26,
            Self::Syscall => 31,
        }
    }

    /// Returns the flags with which it is loaded.
    fn flags(self) -> u32 {
        match self {
            // BPF_F_SLEEPABLE, without which the kernel refuses the kind.
            Self::Syscall => 1 << 4,
            _ => 0,
        }
    }
}

/// A program to load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BpfCode<'a> {
    pub(crate) instructions: &'a [u64],
    /// The types of the program, loaded by [`bpf_types`].
    pub(crate) types: Option<&'a File>,
    /// Records of `struct bpf_func_info`, 8 bytes each: the type of each function of the program.
    pub(crate) functions: &'a [u8],
}

/// The part of `union bpf_attr` for [`PROG_LOAD`], up to the function of an iterator.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// The part for [`BTF_LOAD`].
#[repr(C)]
struct BtfLoad {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
}

/// The part for [`PROG_TEST_RUN`].
#[repr(C)]
#[derive(Default)]
struct ProgRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
}

/// Calls bpf(2) with a structure that is a prefix of `union bpf_attr` for the command. The kernel
/// takes the rest as zero.
///
/// # Safety
///
/// All pointers in the structure must be valid for the accesses of the command.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and length are those of a live, initialized structure, which the kernel may
    // also write; the caller guarantees the pointers in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    check(result as libc::c_int)
}

/// Returns a pointer as an argument of the kernel. Its provenance is exposed, because the kernel
/// accesses the memory through the number.
pub(super) fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

/// Calls bpf(2) for a command that returns a descriptor; closed on exec.
///
/// # Safety
///
/// That of [`bpf`]; the command returns a new descriptor.
pub(super) unsafe fn open<T>(command: libc::c_int, attr: &mut T) -> io::Result<File> {
    // SAFETY: the caller guarantees the pointers.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just created this descriptor; nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Loads a program; closed on exec.
///
/// # Errors
///
/// bpf(2): EPERM without CAP_BPF and CAP_PERFMON, EINVAL and EACCES if the verifier rejects it,
/// ENOSYS.
pub(crate) fn bpf_program(kind: ProgramKind, code: BpfCode<'_>) -> io::Result<File> {
    load(kind, code, &mut [])
}

/// Returns the reason for which the verifier rejects a program. None if it does not, or the program does not get as
/// far.
pub(crate) fn verifier_refusal(kind: ProgramKind, code: BpfCode<'_>) -> Option<String> {
    let mut log = vec![0; LOG_BYTES];
    load(kind, code, &mut log).err()?;
    let log = String::from_utf8_lossy(&log);
    let mut lines = log.split(['\n', '\0']).map(str::trim);
    // Statistics follow.
    let is_reason =
        |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|it| line.starts_with(it));
    lines.rfind(is_reason).map(str::to_owned)
}

fn load(kind: ProgramKind, code: BpfCode<'_>, log: &mut [u8]) -> io::Result<File> {
    const FUNCTION_BYTES: usize = 8;
    let (expected_attach_type, attach_btf_id) = match kind {
        ProgramKind::Iterator(function) => (ITERATOR, function),
        ProgramKind::Uprobes => (UPROBE_MULTI, 0),
        ProgramKind::Kprobes => (KPROBE_MULTI, 0),
        _ => (0, 0),
    };
    let mut attr = ProgLoad {
        prog_type: kind.number(),
        insn_cnt: code.instructions.len() as u32,
        insns: address(code.instructions.as_ptr()),
        license: address(LICENCE.as_ptr()),
        prog_flags: kind.flags(),
        prog_name: NAME,
        expected_attach_type,
        attach_btf_id,
        // BPF_LOG_STATS, without the instructions.
        log_level: if log.is_empty() { 0 } else { 4 },
        log_size: log.len() as u32,
        log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        ..ProgLoad::default()
    };
    if let Some(types) = code.types {
        attr.prog_btf_fd = types.as_raw_fd() as u32;
        attr.func_info_rec_size = FUNCTION_BYTES as u32;
        attr.func_info = address(code.functions.as_ptr());
        attr.func_info_cnt = (code.functions.len() / FUNCTION_BYTES) as u32;
    }
    // SAFETY: the instructions are a live slice of `insn_cnt` instructions of 8 bytes, the functions
    // one of `func_info_cnt` records; the licence is a live string with a terminating NUL. The kernel
    // only reads them, during the call, which returns a descriptor. It writes the log, a live slice of
    // `log_size` bytes, of which all values are valid.
    unsafe { open(PROG_LOAD, &mut attr) }
}

/// Loads the types of programs; closed on exec.
///
/// # Errors
///
/// bpf(2): EINVAL if they are not valid.
pub(crate) fn bpf_types(types: &[u8]) -> io::Result<File> {
    let btf_size = types.len() as u32;
    let btf = address(types.as_ptr());
    let mut attr = BtfLoad { btf, btf_log_buf: 0, btf_size, btf_log_size: 0 };
    // SAFETY: the types are a live slice of `btf_size` bytes, which the kernel only reads, during the
    // call; it returns a descriptor.
    unsafe { open(BTF_LOAD, &mut attr) }
}

/// Runs a program of the kind [`ProgramKind::Syscall`] once, which reads and writes `context`.
///
/// # Errors
///
/// bpf(2).
pub(crate) fn bpf_run(program: &File, context: &mut [u8]) -> io::Result<()> {
    let mut attr = ProgRun {
        prog_fd: program.as_raw_fd() as u32,
        ctx_size_in: context.len() as u32,
        ctx_in: context.as_mut_ptr().expose_provenance() as u64,
        ..ProgRun::default()
    };
    // SAFETY: the context is a live, writable slice of `ctx_size_in` bytes, which the kernel copies
    // and writes back during the call. All bytes are valid values of it.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }.map(drop)
}

/// Attaches a program to an event and those inherited from it. It runs at each overflow, before the
/// sample is written, until the event is closed.
///
/// # Errors
///
/// ioctl(2): EINVAL for events that run other kinds of programs. An event that has a program keeps it.
pub(crate) fn attach_program(event: &File, program: &File) -> io::Result<()> {
    let program = program.as_raw_fd() as u32;
    // SAFETY: both descriptors are open, and the request takes a number, no pointer.
    match check(unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program) }) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_states_why_it_rejects_a_program() {
        fn code(instructions: &[u64]) -> BpfCode<'_> {
            BpfCode { instructions, types: None, functions: &[] }
        }
        // r0 = 0; exit.
        let whole = [0xb7, 0x95];
        if let Err(error) = bpf_program(ProgramKind::PerfEvent, code(&whole)) {
            return eprintln!("SKIPPED: verifier_states_why_it_rejects_a_program: {error}");
        }
        assert_eq!(verifier_refusal(ProgramKind::PerfEvent, code(&whole)), None);
        let reason = verifier_refusal(ProgramKind::PerfEvent, code(&whole[1..]));
        assert_eq!(reason.as_deref(), Some("R0 !read_ok"));
    }
}
