use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use nprof_object::{FileOffset, RuntimeAddress};
use nprof_preload::protocol::{Allocated, Capture, Content, Hello, Registers};
use nprof_stream::tables::Tables;
use nprof_stream::{Mark, NodeId};
use nprof_unwind::arch;
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, UserStack, Words};

use super::*;
use crate::convert::converter::waiting::WaitSample;
use crate::convert::dictionary::Dictionary;
use crate::convert::process_tree::Membership;
use crate::convert::waits::{self, Random, WaitEvent, WaitState};
use crate::event::{EventSpec, PreloadPeriod, PreloadPlan};
use crate::image::kernel::kallsyms::WaitSymbols;
use crate::os::code_mapping::{Identity, Mmap};
use crate::perf::calls::data::{Call, CallKey};
use crate::perf::calls::points::PointList;
use crate::perf::lost::LostSamples;
use crate::perf::preloaded::{PreloadContent, PreloadRecord};
use crate::perf::record::{self, TaskIds};
use crate::perf::waits::data::{
    self as perf, MeasuredThread, Phase, Progress, StackBytes, WaitPlace, WaitingThread,
};

const COMMAND: u32 = 100;
const EVENT: EventId = EventId(1);
const SIDE: EventId = EventId::NONE;

/// Keeps the records as short lines.
#[derive(Default)]
struct Kept(Vec<String>);

impl Sink for Kept {
    fn take(&mut self, record: &Record<'_>) {
        self.0.push(match record {
            Record::Task(task) => {
                format!("T{} {} {} of {}", task.id, task.pid, task.tid, task.parent)
            }
            Record::Change(change) => {
                let value = String::from_utf8_lossy(change.value);
                let exe = change.extras.get("exe").unwrap_or_default();
                format!(
                    "X{} {} {value} {}",
                    change.task,
                    change.kind,
                    String::from_utf8_lossy(&exe)
                )
            }
            Record::Image(image) => format!("I{} {}", image.id, image.kind),
            Record::Frame(frame) => {
                let side = if frame.kernel { "k" } else { "u" };
                format!("F{} {}+{:#x} {side} {}", frame.id, frame.image, frame.offset, frame.mark)
            }
            Record::Nodes(nodes) => format!("N{} {:?}", nodes.first, nodes.frames),
            Record::Sample(sample) => {
                let extras = String::from_utf8_lossy(sample.extras.encoded());
                format!("S{} {} {extras}", sample.task, sample.node).trim_end().to_owned()
            }
            Record::Lost(lost) => {
                let extras = String::from_utf8_lossy(lost.extras.encoded());
                let line = format!("L{} {} {} {extras}", lost.event, lost.count, lost.cause);
                line.trim_end().to_owned()
            }
            Record::Epoch(_) => "epoch".to_owned(),
            _ => "other".to_owned(),
        });
    }
}

fn sample_id(tid: u32) -> SampleId {
    SampleId { pid: tid, tid, time: 5, cpu: 0 }
}

fn thread_id(tid: u32) -> SampleId {
    SampleId { pid: COMMAND, ..sample_id(tid) }
}

fn ids(pid: u32, parent_pid: u32, tid: u32) -> TaskIds {
    TaskIds { pid, parent_pid, tid }
}

fn converter() -> Converter<Kept> {
    let events = vec![nprof_stream::Event::default()];
    let tree = ProcessTree::for_command(COMMAND, Membership::Descendants);
    let mut converter = Converter::new(Kept::default(), events, 10, tree);
    let exec = KernelRecord::Comm { pid: COMMAND, tid: COMMAND, exec: true, name: b"cmd" };
    converter.handle_record(sample_id(COMMAND), &exec, SIDE);
    converter.handle_record(sample_id(COMMAND), &anonymous(0x1000), SIDE);
    converter.sink.0.clear();
    converter
}

fn anonymous(start: u64) -> KernelRecord<'static> {
    let identity = Identity::default();
    KernelRecord::Mmap(Mmap {
        pid: COMMAND,
        start: RuntimeAddress(start),
        length: 0x1000,
        offset: FileOffset(0),
        identity,
        path: b"//anon"[..].into(),
    })
}

fn sample(stack: StackInput<'_>) -> KernelRecord<'_> {
    KernelRecord::Sample(record::Sample { weight: 7, stack, extra_stack: None, wait: None })
}

/// A sample of which only the instruction pointer is known.
fn leaf(ip: u64) -> KernelRecord<'static> {
    sample(StackInput { ip, ..StackInput::default() })
}

#[test]
fn records_of_other_processes_are_dropped() {
    let mut converter = converter();
    converter.handle_record(sample_id(7), &leaf(0x1234), EVENT);
    converter.handle_record(sample_id(7), &KernelRecord::Fork(ids(8, 7, 8)), SIDE);
    converter.handle_record(
        sample_id(7),
        &KernelRecord::Comm { pid: 7, tid: 7, exec: true, name: b"no" },
        SIDE,
    );
    converter.handle_record(sample_id(7), &KernelRecord::Exit(ids(7, 1, 7)), SIDE);
    assert!(converter.sink.0.is_empty() && !converter.accepts(7) && converter.accepts(COMMAND));
}

#[test]
fn definitions_precede_their_first_sample() {
    let mut converter = converter();
    converter.handle_record(sample_id(COMMAND), &leaf(0x1234), EVENT);
    converter.handle_record(sample_id(COMMAND), &leaf(0x1234), EVENT);
    assert_eq!(
        converter.sink.0,
        ["I1 anon", "F1 1+0x1234 u none", "N1 [FrameId(1)]", "S1 1", "S1 1"]
    );
    assert_eq!(
        (converter.sums[0], converter.counts.incomplete.len()),
        (Sum { samples: 2, weight: 14 }, 0)
    );
}

#[test]
fn frame_of_a_call_is_that_of_its_function_after_other_samples() {
    let mut converter = converter();
    // The probe is at 0x1004, where another function is inlined; 0x1000 is in the function itself.
    let list = PointList::parse(b"f\t/f\t\t0x1004\t0x1000\n").expect("a list");
    converter.set_calls(CallState::new(EVENT, list, 0));
    let words: Vec<u8> = [0x1004_u64, 0x1234].iter().flat_map(|word| word.to_le_bytes()).collect();
    let stack = || StackInput {
        ip: 0x1004,
        user: UserStack::Walked(Words(&words)),
        ..StackInput::default()
    };
    let called = || {
        let sample = record::Sample { weight: 1, stack: stack(), extra_stack: None, wait: None };
        let call = Call { key: CallKey::default(), calls: 5, slice: 0 };
        KernelRecord::Call(sample, call)
    };
    let nodes = [called(), sample(stack()), called(), sample(stack())].map(|record| {
        converter.handle_record(sample_id(COMMAND), &record, EVENT);
        converter.sink.0.last().cloned().expect("a sample")
    });
    assert_eq!((&nodes[0], &nodes[1]), (&nodes[2], &nodes[3]));
    assert_ne!(nodes[0], nodes[1]);
    let frames = |end: &str| converter.sink.0.iter().filter(|line| line.contains(end)).count();
    assert_eq!((frames("+0x1000 u none"), frames("+0x1004 u none")), (1, 1));
}

#[test]
fn kernel_frames_follow_user_frames_and_the_mark_is_the_root() {
    let mut converter = converter();
    let top = 0xffff_ffff_ffff_0000_u64;
    let [kernel, user] = [[top + 1, top + 2], [0x1010, 0x1020]]
        .map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    let stack = StackInput {
        ip: top + 1,
        in_kernel: true,
        kernel: Words(&kernel),
        user: UserStack::Walked(Words(&user)),
    };
    converter.handle_record(sample_id(COMMAND), &sample(stack), EVENT);
    let kept = &converter.sink.0;
    let order: Vec<_> = kept.iter().filter_map(|line| line.strip_prefix('F')).collect();
    assert!(order[0].ends_with("u unwind-failed"), "{kept:?}");
    assert_eq!(order[1..3], ["2 1+0x1020 u none", "3 1+0x1010 u none"]);
    assert!(order[3].ends_with("k none") && order[4].ends_with("k none"), "{kept:?}");
    assert_eq!(converter.counts.incomplete, BTreeMap::from([(Mark::UnwindFailed, 1)]));
}

#[test]
fn samples_of_32_bit_programs_are_counted() {
    let mut converter = converter();
    let registers: Vec<u8> =
        [0x1010_u64; arch::COUNT].iter().flat_map(|word| word.to_le_bytes()).collect();
    for is_compat in [true, false, true] {
        let copied =
            CopiedStack { registers: Words(&registers), is_compat, ..CopiedStack::default() };
        let user = UserStack::Copied(copied);
        let stack = StackInput { ip: 0x1010, user, ..StackInput::default() };
        converter.handle_record(sample_id(COMMAND), &sample(stack), EVENT);
    }
    assert_eq!(converter.counts.compat.samples, 2, "the 64-bit one is not counted");
    let marks = &converter.counts.incomplete;
    assert_eq!(marks.get(&Mark::Bits32), Some(&2), "{marks:?}");
    let lines = &converter.sink.0;
    assert!(lines.iter().any(|line| line.ends_with("u 32-bit")), "{lines:?}");
}

#[test]
fn exec_is_written_with_its_image() {
    let mut converter = converter();
    converter.handle_record(sample_id(COMMAND), &KernelRecord::Fork(ids(101, COMMAND, 101)), SIDE);
    let exec = KernelRecord::Comm { pid: 101, tid: 101, exec: true, name: b"new" };
    converter.handle_record(sample_id(101), &exec, SIDE);
    let identity = Identity::default();
    let mmap = Mmap {
        pid: 101,
        start: RuntimeAddress(0),
        length: 1,
        offset: FileOffset(0),
        identity,
        path: b"/no/such"[..].into(),
    };
    converter.handle_record(sample_id(101), &KernelRecord::Mmap(mmap), SIDE);
    converter.handle_record(sample_id(101), &KernelRecord::Exit(ids(101, COMMAND, 101)), SIDE);
    assert_eq!(converter.sink.0, ["T2 101 101 of 1", "X2 exec new /no/such", "X2 exit  "]);
}

#[test]
fn exec_without_image_is_written_at_exit() {
    let mut converter = converter();
    converter.exit = Some(CommandExit { pid: COMMAND, status: "signal 9".to_owned() });
    converter.handle_record(
        sample_id(COMMAND),
        &KernelRecord::Exit(ids(COMMAND, 1, COMMAND)),
        SIDE,
    );
    assert_eq!(converter.sink.0, ["X1 exec cmd ", "X1 exit signal 9 "]);
}

/// The file of a mapping, of a process that does not exist.
fn file(pid: u32) -> KernelRecord<'static> {
    let identity = Identity::default();
    let start = RuntimeAddress(0);
    let mmap = Mmap {
        pid,
        start,
        length: 1,
        offset: FileOffset(0),
        identity,
        path: b"/no/such"[..].into(),
    };
    KernelRecord::Mmap(mmap)
}

/// A process id above those of all kernels (PID_MAX_LIMIT).
const NO_PROCESS: u32 = 1 << 23;

/// Forks a process that executes a set-user-ID program: the kernel writes an exec, then an exit.
fn execute_set_user_id(converter: &mut Converter<Kept>) {
    let fork = KernelRecord::Fork(ids(NO_PROCESS, COMMAND, NO_PROCESS));
    converter.handle_record(sample_id(COMMAND), &fork, SIDE);
    let comm = |name| KernelRecord::Comm { pid: NO_PROCESS, tid: NO_PROCESS, exec: true, name };
    let later = |time| SampleId { time, ..sample_id(NO_PROCESS) };
    converter.handle_record(later(10), &comm(b"su"), SIDE);
    let exit = KernelRecord::Exit(ids(NO_PROCESS, COMMAND, NO_PROCESS));
    converter.handle_record(later(11), &exit, SIDE);
}

#[test]
fn set_user_id_program_and_its_children_are_recorded() {
    let mut converter = converter();
    execute_set_user_id(&mut converter);
    let later = SampleId { time: 12, ..sample_id(NO_PROCESS) };
    converter.handle_record(later, &file(NO_PROCESS), SIDE);
    (0..4).for_each(|_| converter.end_batch());
    let child = NO_PROCESS + 1;
    converter.handle_record(later, &KernelRecord::Fork(ids(child, NO_PROCESS, child)), SIDE);
    assert!(converter.accepts(NO_PROCESS) && converter.accepts(child));
    let exit = KernelRecord::Exit(ids(NO_PROCESS, COMMAND, NO_PROCESS));
    converter.handle_record(SampleId { time: 13, ..later }, &exit, SIDE);
    let (pid, command) = (NO_PROCESS, COMMAND);
    let expected = [
        format!("T2 {pid} {pid} of 1"),
        "X2 exec su /no/such".to_owned(),
        format!("T3 {child} {child} of 2"),
        "X2 exit  ".to_owned(),
    ];
    assert_eq!(converter.sink.0, expected, "{command} has no other records");
    assert_eq!(converter.counts.ended_by_exec, 0);
}

#[test]
fn exit_after_exec_is_written_if_the_task_is_gone() {
    let mut converter = converter();
    execute_set_user_id(&mut converter);
    assert_eq!(converter.sink.0.len(), 1, "it is in doubt");
    converter.end_batch();
    converter.finish();
    assert_eq!(converter.sink.0[1..], ["X2 exec su ", "X2 exit  "]);
    assert_eq!(converter.counts.ended_by_exec, 1, "no record has followed");
}

#[test]
fn exit_of_task_without_events_is_found_in_proc() {
    let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
    let pid = program.id();
    let tree = ProcessTree::for_command(pid, Membership::AllWithRecords);
    let mut converter = Converter::new(Kept::default(), Vec::new(), 10, tree);
    let exec = KernelRecord::Comm { pid, tid: pid, exec: true, name: b"su" };
    let now = SampleId { time: sys::monotonic_ns(), ..sample_id(pid) };
    converter.handle_record(now, &exec, SIDE);
    // The events end with the exec of the set-user-ID program.
    converter.handle_record(now, &KernelRecord::Exit(ids(pid, 1, pid)), SIDE);
    (0..5).for_each(|_| converter.end_batch());
    let started = [format!("T1 {pid} {pid} of 0"), "X1 exec su ".to_owned()];
    assert_eq!(converter.sink.0, started, "it lives");
    drop(program.stdin.take());
    program.wait().expect("it ends");
    (0..5).for_each(|_| converter.end_batch());
    assert_eq!(converter.sink.0[2..], ["X1 exit  "]);
    assert_eq!(converter.counts.ended_by_exec, 1, "counted once");
}

#[test]
fn task_goes_on_as_new_one_after_wrong_exit() {
    let mut converter = converter();
    let exit = KernelRecord::Exit(ids(COMMAND, 1, COMMAND));
    converter.handle_record(sample_id(COMMAND), &exit, SIDE);
    let later = SampleId { time: 6, ..sample_id(COMMAND) };
    converter.handle_record(later, &leaf(0x1234), EVENT);
    let exit_and_task = ["X1 exec cmd ", "X1 exit  ", "T2 100 100 of 0"];
    assert_eq!(converter.sink.0[..3], exit_and_task);
    assert_eq!(converter.sink.0.last().map(String::as_str), Some("S2 1"));
}

#[test]
fn process_with_lost_fork_record_is_found_in_proc() {
    // The command is the shell; its fork of the other process was lost.
    let mut shell = Command::new("sh")
        .args(["-c", "sleep 1000 & echo $!; read line; kill $!"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    let output = shell.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("UTF-8");
    let child: u32 = line.trim().parse().expect("a process id");
    let command = shell.id();
    let tree = ProcessTree::for_command(command, Membership::Descendants);
    let mut converter = Converter::new(Kept::default(), Vec::new(), 10, tree);
    let exec = KernelRecord::Comm { pid: command, tid: command, exec: true, name: b"old" };
    let now = SampleId { time: sys::monotonic_ns(), ..sample_id(command) };
    converter.handle_record(now, &exec, SIDE);
    assert!(!converter.accepts(child));
    converter.on_sideband_full();
    // In the tree the shell has another name and none of its mappings.
    converter.end_batch();
    assert_eq!(converter.sink.0.pop().as_deref(), Some("X1 comm sh "));
    assert!(converter.tree.needs_maps(command));
    converter.end_batch();
    for tid in [child, 1] {
        assert!(converter.accepts(tid));
        converter.handle_record(sample_id(tid), &leaf(0x1234), EVENT);
    }
    assert!(!converter.accepts(1), "process 1 is no child of the shell");
    let samples = converter.sink.0.iter().filter(|line| line.starts_with('S'));
    assert_eq!(samples.collect::<Vec<_>>(), ["S2 1"]);
    assert!(
        converter.sink.0.contains(&format!("T2 {child} {child} of 1")),
        "{:?}",
        converter.sink.0
    );
    drop(shell.stdin.take());
    shell.wait().expect("it ends");
}

#[test]
fn id_of_a_thread_is_that_of_another_process_after_its_exit_was_lost() {
    let mut converter = converter();
    let thread = KernelRecord::Fork(ids(COMMAND, COMMAND, 101));
    converter.handle_record(sample_id(COMMAND), &thread, SIDE);
    converter.handle_record(thread_id(101), &leaf(0x1001), EVENT);
    converter.sink.0.clear();
    converter.handle_record(sample_id(101), &leaf(0x1001), EVENT);
    assert_eq!(converter.sink.0, ["X2 exit  "], "and no sample");
}

#[test]
fn epoch_defines_live_tasks_again() {
    let mut converter = converter();
    converter.resolver.frames.dictionary = Dictionary::new(1);
    converter.handle_record(
        sample_id(COMMAND),
        &KernelRecord::Fork(ids(COMMAND, COMMAND, 101)),
        SIDE,
    );
    converter.handle_record(sample_id(COMMAND), &leaf(0x1001), EVENT);
    converter.sink.0.clear();
    converter.handle_record(thread_id(101), &leaf(0x1002), EVENT);
    let expected = [
        "epoch",
        "other",
        "T1 100 100 of 0",
        "T2 100 101 of 1",
        "I1 anon",
        "F1 1+0x1002 u none",
        "N1 [FrameId(1)]",
        "S2 1",
    ];
    assert_eq!(converter.sink.0, expected);
}

#[test]
fn live_blocks_have_their_process_after_an_epoch() {
    let mut converter = converter();
    let mut specs = vec![EventSpec::parse("heap.live").expect("a name")];
    let plan = PreloadPlan::split(&mut specs, PreloadPeriod::of_all(None, None))
        .expect("valid")
        .expect("an event");
    converter.set_allocations(AllocationState::new(plan), true);
    let hello = Hello { id: 7, parent_id: 0, started_at_ns: 1, pid: COMMAND, flags: 0, secret: 0 };
    let registers = Registers { ip: 0x1001, sp: 0x8000, ..Registers::default() };
    let allocated = Allocated {
        pointer: 0x10,
        size: 8,
        weight: 8,
        count: 8,
        period: 1,
        capture: Capture { registers, stack: &[] },
    };
    let mut handle = |content| {
        let record = KernelRecord::Preloaded(PreloadRecord { ring: 7, content });
        converter.handle_record(sample_id(COMMAND), &record, SIDE);
    };
    handle(PreloadContent::Started(hello, None));
    handle(PreloadContent::Written(Content::Allocated(allocated)));
    converter.begin_epoch();
    converter.sink.0.clear();
    // Until now the process has not allocated in the new epoch, and may only repeat known stacks.
    converter.end_all_allocators(6);
    let [live] = &converter.sink.0[..] else { panic!("{:?}", converter.sink.0) };
    assert!(live.starts_with("S1 "), "{live}");
}

/// A thread that does not run holds back the records of others in the ring.
#[test]
fn records_that_come_after_the_exit_of_their_thread_are_of_it() {
    const THREAD: u32 = 101;
    let mut converter = converter();
    let mut specs = vec![EventSpec::parse("heap.alloc").expect("a name")];
    let mut plan = PreloadPlan::split(&mut specs, PreloadPeriod::of_all(None, None))
        .expect("valid")
        .expect("an event");
    plan.number_after(0);
    converter.set_allocations(AllocationState::new(plan), true);
    let fork = KernelRecord::Fork(ids(COMMAND, COMMAND, THREAD));
    converter.handle_record(sample_id(COMMAND), &fork, SIDE);
    let exit = KernelRecord::Exit(ids(COMMAND, COMMAND, THREAD));
    converter.handle_record(sample_id(THREAD), &exit, SIDE);
    for _ in 0..4 {
        converter.end_batch();
    }
    assert!(converter.tree.task(THREAD).is_none());
    let registers = Registers { ip: 0x1001, sp: 0x8000, ..Registers::default() };
    let capture = Capture { registers, stack: &[] };
    let allocated = Allocated { pointer: 0x10, size: 8, weight: 8, count: 8, period: 1, capture };
    let mut samples_of = |tid| {
        converter.sink.0.clear();
        let content = PreloadContent::Written(Content::Allocated(allocated));
        let record = KernelRecord::Preloaded(PreloadRecord { ring: 7, content });
        converter.handle_record(SampleId { pid: COMMAND, ..sample_id(tid) }, &record, SIDE);
        converter.sink.0.last().map(|line| line[..3].to_owned())
    };
    assert_eq!(samples_of(THREAD).as_deref(), Some("S2 "));
    assert_eq!(samples_of(COMMAND).as_deref(), Some("S1 "));
    assert_eq!(samples_of(999).as_deref(), Some("S1 "), "of an unknown thread");
}

#[test]
fn lost_samples_and_lost_sideband_records_differ() {
    let mut converter = converter();
    converter.handle_record(sample_id(0), &KernelRecord::Lost(3), EVENT);
    converter.handle_record(sample_id(0), &KernelRecord::Lost(2), SIDE);
    converter.handle_record(sample_id(0), &KernelRecord::Throttle, EVENT);
    converter.on_lost(sample_id(0), LostSamples { own: 0, others: 7 }, EVENT, Cause::Recorder);
    assert_eq!(
        converter.sink.0,
        ["L1 3 ring", "L0 0 ring records=2", "L1 0 throttle", "L1 0 recorder others=7"]
    );
    assert_eq!(converter.counts.lost_others, 7);
    let causes = BTreeMap::from([(Cause::Ring, 3), (Cause::Throttle, 0)]);
    assert_eq!((converter.counts.lost, converter.counts.sideband_lost), (causes, 2));
}

#[test]
fn samples_of_event_without_counter_are_estimated_as_lost() {
    let mut converter = converter();
    let half = CountingTime { enabled_ns: 100, running_ns: 40 };
    converter.sums[0].samples = 400;
    converter.on_multiplexed(sample_id(0), EVENT, half);
    converter.on_multiplexed(sample_id(0), EVENT, CountingTime { running_ns: 100, ..half });
    assert_eq!(converter.sink.0, ["L1 600 multiplex"]);
    converter.sums[0].samples = 0;
    converter.on_multiplexed(sample_id(0), EVENT, half);
    assert_eq!(converter.sink.0.len(), 1, "an event that rarely happens");
    converter.on_multiplexed(sample_id(0), EVENT, CountingTime { running_ns: 0, ..half });
    assert_eq!(converter.sink.0[1..], ["L1 0 multiplex"], "of unknown number");
    assert_eq!(converter.counts.lost, BTreeMap::from([(Cause::Multiplex, 600)]));
}

/// Keeps the stacks of samples, leaf first: `k` in the kernel, the offset in user code, the mark.
#[derive(Default)]
struct Stacks {
    tables: Tables,
    stacks: Vec<Vec<String>>,
}

impl Sink for Stacks {
    fn take(&mut self, record: &Record<'_>) {
        self.tables.apply(record);
        if let Record::Sample(sample) = record {
            let described = |id| match self.tables.frame(id) {
                None => "undefined".to_owned(),
                Some(frame) if frame.mark != Mark::None => frame.mark.to_string(),
                Some(frame) if frame.kernel => "k".to_owned(),
                Some(frame) => format!("{:#x}", frame.offset),
            };
            self.stacks.push(self.tables.stack(sample.node).map(described).collect());
        }
    }
}

#[test]
fn stacks_with_callers_of_earlier_ones_are_right_after_epochs_and_new_mappings() {
    const START: u64 = 0x10_0000;
    let path = std::env::current_exe().expect("a path");
    let identity =
        Identity { inode: std::fs::metadata(&path).expect("a file").ino(), ..Identity::default() };
    let program = KernelRecord::Mmap(Mmap {
        pid: COMMAND,
        start: RuntimeAddress(START),
        length: 0x3000,
        offset: FileOffset(0),
        identity,
        path: path.as_os_str().as_bytes().into(),
    });
    let bytes = |words: &[u64]| words.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
    let kernel = bytes(&[0xffff_ffff_ffff_0001]);
    for limit in (10..40).step_by(4) {
        let tree = ProcessTree::for_command(COMMAND, Membership::Descendants);
        let events = vec![nprof_stream::Event::default()];
        let mut converter = Converter::new(Stacks::default(), events, 10, tree);
        converter.resolver.frames.dictionary = Dictionary::new(limit);
        let exec = KernelRecord::Comm { pid: COMMAND, tid: COMMAND, exec: true, name: b"cmd" };
        converter.handle_record(sample_id(COMMAND), &exec, SIDE);
        converter.handle_record(sample_id(COMMAND), &program, SIDE);
        let thread = KernelRecord::Fork(ids(COMMAND, COMMAND, 101));
        converter.handle_record(sample_id(COMMAND), &thread, SIDE);
        for number in 0..30 {
            // Generated code covers the caller of all.
            if number == 15 {
                converter.handle_record(sample_id(COMMAND), &anonymous(START + 0x2000), SIDE);
            }
            let tid = if number % 5 < 3 { COMMAND } else { 101 };
            // The threads have different outermost callers.
            let offsets = [0x10 + number % 7, 0x1010 + number / 4 % 2, 0x2000 + u64::from(tid)];
            let user = bytes(&offsets.map(|offset| START + offset));
            let in_kernel = number % 3 == 1;
            let stack = StackInput {
                ip: START,
                in_kernel,
                kernel: Words(if in_kernel { &kernel } else { &[] }),
                user: UserStack::Walked(Words(&user)),
            };
            converter.handle_record(thread_id(tid), &sample(stack), EVENT);
            let outermost = if number < 15 { offsets[2] } else { START + offsets[2] };
            let user = [offsets[0], offsets[1], outermost].map(|offset| format!("{offset:#x}"));
            let kernel_part = in_kernel.then(|| "k".to_owned());
            let expected: Vec<_> =
                kernel_part.into_iter().chain(user).chain(["unwind-failed".to_owned()]).collect();
            let found = converter.sink.stacks.last().expect("a sample");
            assert_eq!(found, &expected, "sample {number}, limit {limit}");
        }
    }
}

/// A thread that was about to run when its state was read.
#[test]
fn last_wait_without_stack_is_written_with_its_length() {
    let mut converter = converter();
    converter.handle_record(sample_id(COMMAND), &leaf(0x1001), EVENT);
    let event = Some(WaitEvent { event: EVENT, period: 1000 });
    let random = Random::new(0);
    converter.set_waiting(WaitState::new(event, event, None, random, WaitSymbols::default()));
    let waits = |state, now_ns| {
        let thread =
            MeasuredThread { since_ns: 100, phase: Phase::Waits, state, ..Default::default() };
        let progress = Progress::of_switches(COMMAND, COMMAND, now_ns, thread);
        WaitingThread { progress, stack: StackBytes::default() }
    };
    let (preempted, asleep) = (perf::WaitState(0), perf::WaitState(1));
    for (state, now_ns, weight) in [(preempted, 90_100, 90_000), (asleep, 100_100, 100_000)] {
        converter.sink.0.clear();
        let before = converter.sums[0].weight;
        let threads = [waits(state, now_ns)];
        converter.write_last_waits(&threads);
        converter.write_last_times(&threads);
        assert_eq!(converter.sums[0].weight - before, weight);
        assert!(
            converter.sink.0.iter().any(|line| line.starts_with("S1 ")),
            "{:?}",
            converter.sink.0
        );
    }
}

#[test]
fn sums_of_times_are_unknown_if_those_of_a_thread_are_lost() {
    let mut converter = converter();
    let event = Some(WaitEvent { event: EVENT, period: 1000 });
    let (random, symbols) = (Random::new(0), WaitSymbols::default());
    converter.set_waiting(WaitState::new(event, event, None, random, symbols));
    converter.handle_record(
        sample_id(COMMAND),
        &KernelRecord::Fork(ids(COMMAND, COMMAND, 101)),
        SIDE,
    );
    converter.handle_record(sample_id(101), &KernelRecord::Exit(ids(COMMAND, COMMAND, 101)), SIDE);
    assert!(converter.time_sums().is_some(), "they come after the exit");
    let lost = LostSamples::own(5);
    converter.on_lost(sample_id(COMMAND), lost, EVENT, Cause::Throttle);
    assert!(converter.time_sums().is_some(), "no record was lost");
    converter.on_lost(sample_id(COMMAND), lost, EVENT, Cause::Ring);
    assert!(converter.time_sums().is_none());
    converter.write_times(101, &perf::ThreadTimes::default());
    assert!(converter.time_sums().is_some(), "the lost ones were samples");
    converter.on_sideband_lost(sample_id(COMMAND), 1);
    assert!(converter.time_sums().is_none(), "exits may be lost");
}

/// A reader takes them for those of a sample of `runnable` without any.
#[test]
fn wait_for_a_cpu_outside_of_system_calls_states_no_cause() {
    let mut converter = converter();
    converter.handle_record(sample_id(COMMAND), &leaf(0x1001), EVENT);
    let blocked = WaitEvent { event: EVENT, period: 1000 };
    let runnable = WaitEvent { event: EventId(2), ..blocked };
    let (random, symbols) = (Random::new(0), WaitSymbols::default());
    converter.set_waiting(WaitState::new(Some(blocked), Some(runnable), None, random, symbols));
    let mut extras = |event, place| {
        let (task, node, object, pair) = (TaskId(1), NodeId::NONE, &b""[..], None);
        let wait = WaitSample { time_ns: 1, cpu: 0, task, node, place: Some(place), object, pair };
        converter.write_wait(event, 5000, Some((5000, 5)), &wait);
        converter.sink.0.pop().expect("a sample")
    };
    let asleep = |call| WaitPlace { state: perf::WaitState(1), call, is_of_kernel: false };
    let preempted = WaitPlace::default();
    let in_call = WaitPlace { call: Some((0, 3)), ..preempted };
    assert_eq!(extras(runnable, preempted), "S1 0");
    assert_eq!(extras(blocked, preempted), "S1 0 call=preempted\tstate=R");
    assert_eq!(extras(runnable, asleep(None)), "S1 0 call=page-fault\tstate=S");
    let name = waits::call_name(in_call);
    assert_eq!(extras(runnable, in_call), format!("S1 0 call={name}"));
    assert_eq!(extras(runnable, asleep(in_call.call)), format!("S1 0 call={name}\tstate=S"));
}
