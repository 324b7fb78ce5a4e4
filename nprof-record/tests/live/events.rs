//! Event names: `-l` agrees with `-e`, periods hold, counts are exact, losses have their event.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use nprof_stream::{Reader, Record};
use object::{Object, ObjectSection, ObjectSymbol};

use crate::support::{Directory, Stream, can_record, is_refused, record, recorder, stderr};

/// A line of the list that `-l` prints.
struct Line {
    name: String,
    group: String,
    state: String,
}

fn listed() -> Vec<Line> {
    let output = record(&["-l"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().expect(line).to_owned();
        let (name, group, _unit) = (word(), word(), word());
        Line { name, group, state: words.collect::<Vec<_>>().join(" ") }
    };
    text.lines().map(line).collect()
}

/// True if `-l` lists an event as available; prints SKIPPED if not.
fn has(name: &str) -> bool {
    let line = listed().into_iter().find(|line| line.name == name);
    let state = line.map_or("not listed".to_owned(), |line| line.state);
    let has = state.starts_with("available");
    if !has {
        eprintln!("SKIPPED: {name}: {state}");
    }
    has
}

#[test]
fn reports_unused_options() {
    let listed = record(&["-l", "-F", "99"]);
    assert_eq!(listed.status.code(), Some(125));
    assert!(listed.stdout.is_empty(), "{}", stderr(&listed));
    if !can_record() {
        return;
    }
    let directory = Directory::new("of-no-use");
    let file = directory.path("out");
    // An event with a period of its own does not use the frequency.
    for (event, is_reported) in [("cpu-clock:1000000", true), ("cpu-clock", false)] {
        let output = record(&["-e", event, "-F", "99", "-o", &file, "--", "true"]);
        assert_eq!(stderr(&output).contains("-F is not used"), is_reported, "{event}");
    }
}

/// Reports add up events of one name.
#[test]
fn event_requested_twice_is_recorded_once() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("twice");
    let file = directory.path("out");
    let record_events = |events: &[&str]| {
        let options = events.iter().flat_map(|event| ["-e", event]);
        let words: Vec<_> = options.chain(["-o", &file, "--", "true"]).collect();
        record(&words)
    };
    for (events, count) in [
        (["cpu-clock", "nprof.clk_unhalted"], 1),
        (["page-faults", "faults"], 1),
        (["cpu-clock/u", "cpu-clock/k"], 2),
    ] {
        // A machine with counters samples cycles by default.
        let is_apart = events.contains(&"nprof.clk_unhalted") && has("cycles");
        let output = record_events(&events);
        assert!(output.status.success(), "{}", stderr(&output));
        let mut reader = Reader::new(fs::File::open(&file).expect("it was written"));
        let mut found = 0;
        while let Some(record) = reader.next().expect("a stream") {
            found += usize::from(matches!(record, Record::Event(_)));
        }
        assert_eq!(found, if is_apart { 2 } else { count }, "{events:?}");
    }
    for events in [["cpu-clock", "cpu-clock:5ms"], ["cpu-clock", "cpu-clock/k"]] {
        let output = record_events(&events);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("cpu-clock is requested twice"), "{}", stderr(&output));
    }
}

#[test]
fn list_matches_what_can_be_opened() {
    if !can_record() {
        return;
    }
    let listed = listed();
    let names: BTreeSet<_> = listed.iter().map(|line| &line.name).collect();
    assert_eq!(names.len(), listed.len(), "no name twice");
    let is_available = |name| {
        let line = listed.iter().find(|line| line.name == name).expect("it is listed");
        line.state.starts_with("available")
    };
    let output = record(&["-a", "-d", "0.01", "-o", "/dev/null"]);
    assert_eq!(output.status.success(), is_available("system-wide"), "{}", stderr(&output));
    // Thousands of tracepoints share one rule: try the first and those with rules of their own.
    let is_odd = |line: &&Line| line.group != "tracepoint" || !line.state.starts_with("available");
    let first = listed.iter().find(|line| line.group == "tracepoint");
    // Lines with placeholders, such as uprobe:PATH:0xOFFSET, are no names.
    let is_name = |line: &&Line| !["N", "PATH", "FUNCTION"].iter().any(|it| line.name.contains(it));
    let events = listed.iter().filter(|line| line.group != "feature");
    for Line { name, state, .. } in events.filter(is_odd).chain(first).filter(is_name) {
        // A wake-up is recorded for the wait that it ends.
        let needed: &[&str] = if name == "wakes" { &["-e", "blocked"] } else { &[] };
        let command = ["-e", name, "-o", "/dev/null", "--", "true"];
        let output = record(&[needed, &command].concat());
        let message = stderr(&output);
        if state.starts_with("available") {
            assert_eq!(output.status.code(), Some(0), "{name}: {message}");
        } else {
            assert_eq!(output.status.code(), Some(125), "{name}: {state}");
            let reason = state.split(':').next().expect("a word");
            assert!(message.contains(reason), "{state}: {message}");
        }
    }
}

/// Lists events in a new mount namespace without and with tracefs, and saves the mounts before and
/// after the first list.
const LISTS: &str = "umount -a -t tracefs,debugfs; cat /proc/self/mountinfo > before; \
                     \"$0\" -l > without; cat /proc/self/mountinfo > after; \
                     mount -t tracefs nodev /sys/kernel/tracing; \"$0\" -l > with";

#[test]
fn list_is_equal_without_tracefs_and_mounts_nothing() {
    let directory = Directory::new("mounts");
    let read = |name: &str| fs::read_to_string(directory.path(name)).expect("a file");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", LISTS, env!("CARGO_BIN_EXE_nprof-record")]);
    let output = command.current_dir(directory.path(".")).output();
    if !output.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no mount namespace, or no tracefs");
        return;
    }
    assert_eq!(read("before"), read("after"));
    assert_eq!(read("without"), read("with"));
    assert!(read("with").contains("sched:sched_switch"));
}

#[test]
fn list_write_error_fails_but_closed_pipe_does_not() {
    let full = fs::File::create("/dev/full").expect("/dev/full");
    let output = recorder(&["-l"]).stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("cannot write the list"));
    let mut command = recorder(&["-l"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert_eq!(record(&["-l", "true"]).status.code(), Some(125), "-l runs nothing");
}

#[test]
fn rejects_unknown_event_with_alternatives() {
    for (event, reason) in [
        ("cylces", "did you mean cycles"),
        ("cpu-clock:0", "the period 0 is not between"),
        ("cpu-clock/x", "unknown modifier /x in cpu-clock/x: write /u, /k or /uk"),
        ("no-such-pmu/event=1/", "this machine has no PMU \"no-such-pmu\""),
        ("uprobe:/no/such/file:0x10", "No such file"),
        ("uprobe:/bin/sh", "expected uprobe:PATH:0xOFFSET"),
    ] {
        let output = record(&["-e", event, "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{event}");
        assert!(stderr(&output).contains(reason), "{event}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{event}");
    }
}

#[test]
fn weights_equal_requested_period() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("period");
    let file = directory.path("out");
    // 50 processes touch 2,000 pages or more, for any page size.
    let script = "i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done";
    let weights = |event: &str| {
        let output = record(&["-e", event, "-o", &file, "--", "sh", "-c", script]);
        assert!(output.status.success(), "{event}: {}", stderr(&output));
        let stream = Stream::from_file(&file);
        let weights: BTreeSet<_> = stream.samples.iter().map(|sample| sample.weight).collect();
        (stream.event.period, stream.samples.len(), weights)
    };
    let (period, samples, seen) = weights("page-faults:100");
    assert_eq!((period, seen), (Some(100), BTreeSet::from([100])));
    assert!((2..500).contains(&samples), "{samples} samples of 100 faults each");
    let (period, _, seen) = weights("cpu-clock:2000000");
    assert_eq!((period, seen), (Some(2_000_000), BTreeSet::from([2_000_000])));
}

/// Two threads on the first two CPUs of the process wake each other for a second, each after some ten
/// microseconds of work. Prints the milliseconds of CPU time of each.
const PING_PONG: &str = r#"
    #define _GNU_SOURCE
    #include <linux/futex.h>
    #include <pthread.h>
    #include <sched.h>
    #include <stdio.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    static int turns[2], cpus[2];
    static long used[2], end;
    static volatile long work;
    static long ms(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    static void *play(void *number) {
        long own = (long)number;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpus[own], &one);
        sched_setaffinity(0, sizeof one, &one);
        prctl(PR_SET_NAME, own ? "second" : "first");
        for (int ends = 0; !ends;) {
            while (!__atomic_exchange_n(&turns[own], 0, __ATOMIC_SEQ_CST))
                syscall(SYS_futex, &turns[own], FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
            for (int i = 0; i < 3000; i++) work++;
            ends = ms(CLOCK_MONOTONIC) > end;
            __atomic_store_n(&turns[!own], 1, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &turns[!own], FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
        }
        used[own] = ms(CLOCK_THREAD_CPUTIME_ID);
        return 0;
    }
    int main(void) {
        cpu_set_t all;
        int found = 0;
        sched_getaffinity(0, sizeof all, &all);
        for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
            if (CPU_ISSET(cpu, &all)) cpus[found++] = cpu;
        if (found < 2) return 0;
        pthread_t threads[2];
        turns[0] = 1;
        // The same for both: one that ended later would wait for the other forever.
        end = ms(CLOCK_MONOTONIC) + 1000;
        for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, play, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
        printf("%ld %ld\n", used[0], used[1]);
    }"#;

#[test]
fn threads_that_wake_each_other_have_samples_on_both_cpus() {
    let directory = Directory::new("ping-pong");
    let Some(program) = directory.compile("gcc", PING_PONG, &["-O1", "-pthread"]) else { return };
    if !can_record() {
        return;
    }
    let file = directory.path("out");
    // The timers of the CPUs are at other distances from each other in each recording.
    for _ in 0..3 {
        let output = record(&["-e", "cpu-clock", "-o", &file, "--", &program]);
        assert!(output.status.success(), "{}", stderr(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if printed.is_empty() {
            return eprintln!("SKIPPED: one CPU");
        }
        let used = printed.split_whitespace().map(|word| word.parse::<u64>().expect("ms"));
        let samples = Stream::from_file(&file).samples;
        for (name, used) in ["first", "second"].into_iter().zip(used) {
            let own = samples.iter().filter(|sample| sample.comm == name);
            let sampled = own.map(|sample| sample.weight).sum::<u64>() / 1_000_000;
            // The kernel charges a thread from its wake-up on.
            assert!(sampled * 10 >= used * 4, "{name}: {sampled} of {used} ms");
        }
    }
}

/// Touches the number of pages given by its argument, each once.
const FAULTS: &str = "
    #include <stdlib.h>
    #include <sys/mman.h>
    int main(int count, char **words) {
        long pages = atol(words[1]);
        volatile char *p = mmap(0, pages << 12, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise((void *)p, pages << 12, MADV_NOHUGEPAGE);
        for (long i = 0; i < pages; i++) p[i << 12] = 1;
        return 0;
    }";

/// Stops the recorder (its parent) while 60,000 pages are touched, so that the rings overflow.
const UNREAD: &str = "kill -STOP $PPID; \"$0\" 60000; kill -CONT $PPID; \"$0\" 100";

#[test]
fn lost_samples_are_counted_for_their_event() {
    let directory = Directory::new("losses");
    let Some(program) = directory.compile("gcc", FAULTS, &["-O1"]) else { return };
    if !can_record() {
        return;
    }
    let file = directory.path("out");
    let events = ["-e", "cpu-clock", "-e", "page-faults:1", "-o", &file];
    let output = record(&[&events[..], &["--", "sh", "-c", UNREAD, &program]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    // By event id. Id 0 counts losses of unknown events: before Linux 6.0 the kernel has no
    // PERF_FORMAT_LOST, which counts them for each event.
    let (mut samples, mut lost) = ([0; 3], [0; 3]);
    let bytes = fs::read(&file).expect("a stream");
    let mut reader = Reader::new(&bytes[..]);
    while let Some(record) = reader.next().expect("a stream") {
        match record {
            Record::Sample(sample) => samples[sample.event.0 as usize] += 1,
            // The division between the command and others is an estimate, the sum is exact.
            Record::Lost(record) => lost[record.event.0 as usize] += record.count + record.others(),
            _ => {}
        }
    }
    assert!(lost[2] + lost[0] > 0, "{}", stderr(&output));
    assert!(samples[2] + lost[2] + lost[0] >= 60_100, "{samples:?} and {lost:?} lost");
    assert!(lost[1] < 30_000, "lost page faults are not counted as lost cpu-clock: {lost:?}");
}

#[test]
fn count_option_sets_period_of_events_without_one() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("count");
    let file = directory.path("out");
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let events = ["-c", "2000000", "-e", "cpu-clock:5000000", "-e", "task-clock", "-g"];
    let output = record(&[&events[..], &["-o", &file, "--", "sh", "-c", script]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(
        (stream.event.name.as_slice(), stream.event.period),
        (&b"task-clock"[..], Some(2_000_000))
    );
    let weights: BTreeSet<_> = stream.samples.iter().map(|sample| sample.weight).collect();
    assert_eq!(weights, BTreeSet::from([2_000_000, 5_000_000]));
}

#[test]
fn tracepoint_samples_every_occurrence() {
    if !can_record() || !has("syscalls:sys_enter_getpriority") {
        return;
    }
    let directory = Directory::new("tracepoint");
    let source = "#include <sys/resource.h>\n\
                  int main(void) { for (int i = 0; i < 300; i++) getpriority(PRIO_PROCESS, 0); }";
    let Some(program) = directory.compile("gcc", source, &["-O1"]) else { return };
    let file = directory.path("out");
    for event in ["syscalls:sys_enter_getpriority", "syscalls:sys_enter_getpriority/u"] {
        let output = record(&["-e", event, "--unwind", "none", "-o", &file, "--", &program]);
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        assert_eq!((stream.samples.len(), stream.event.period), (300, Some(1)), "{event}");
    }
}

#[test]
fn uprobe_samples_every_call() {
    if !can_record() || !has("uprobe:PATH:0xOFFSET") {
        return;
    }
    let directory = Directory::new("uprobe");
    let source = "__attribute__((noinline)) int f(int x) { __asm__ volatile(\"\"); return x + 1; }\n\
                  int main(void) { int x = 0; for (int i = 0; i < 123; i++) x = f(x); return x != 123; }";
    let Some(program) = directory.compile("gcc", source, &["-O1"]) else { return };
    let event = format!("uprobe:{program}:{:#x}", offset(&program, "f"));
    let file = directory.path("out");
    let output = record(&["-e", &event, "--unwind", "none", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.samples.len(), 123);
    assert_eq!(stream.event.name, event.as_bytes());
}

/// Writes 1000 bytes 30 times in `few`, 7 bytes 10 times in `small`, and fails 5 times.
const WRITES: &str = "
    #include <unistd.h>
    #include <fcntl.h>
    static char bytes[1000];
    __attribute__((noinline)) void few(int fd) {
        for (int i = 0; i < 30; i++) if (write(fd, bytes, 1000) != 1000) _exit(1);
        __asm__ volatile(\"\");
    }
    __attribute__((noinline)) void small(int fd) {
        for (int i = 0; i < 10; i++) if (write(fd, bytes, 7) != 7) _exit(1);
        __asm__ volatile(\"\");
    }
    int main(void) {
        int fd = open(\"/dev/null\", O_WRONLY);
        few(fd);
        small(fd);
        for (int i = 0; i < 5; i++) if (write(-1, bytes, 7) != -1) return 1;
        return 0;
    }";

/// Returns the weight of the samples that have a frame in a function of 64 bytes or less from this
/// offset.
fn weight_below(stream: &Stream, image: &str, start: u64) -> u64 {
    let is_inside = |(frame, offset): (&(String, bool), &u64)| {
        frame.0 == image && (start..start + 64).contains(offset)
    };
    let samples = stream.samples.iter();
    let below = samples.filter(|it| it.frames.iter().zip(&it.offsets).any(is_inside));
    below.map(|sample| sample.weight).sum()
}

#[test]
fn tracepoint_weighed_by_field_counts_bytes_by_path() {
    if !can_record() || !has("syscalls:sys_exit_write") {
        return;
    }
    let directory = Directory::new("field");
    let options = ["-O1", "-falign-functions=64"];
    let Some(program) = directory.compile("gcc", WRITES, &options) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "syscalls:sys_exit_write*ret", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let refused = "syscalls:sys_exit_write*ret: 5 events not counted";
    assert!(stderr(&output).contains(refused), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!((&stream.event.unit[..], stream.event.period), (&b"bytes"[..], None));
    let bytes = |name| weight_below(&stream, "program", offset(&program, name));
    assert_eq!((bytes("few"), bytes("small")), (30_000, 70));
    assert_eq!(stream.samples.len(), 40);
    // With a period larger values stay exact, and no other values occur.
    let event = "syscalls:sys_exit_write*ret:100";
    let output = record(&["-e", event, "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.event.period, Some(100));
    assert_eq!(weight_below(&stream, "program", offset(&program, "few")), 30_000);
    let weights: BTreeSet<_> = stream.samples.iter().map(|sample| sample.weight).collect();
    assert!(weights.is_subset(&BTreeSet::from([100, 1000])), "{weights:?}");
}

/// The kernel copies the 512 vectors of each writev(2) in `vectors` into a block of 8192 bytes; `maps` maps 20 times
/// 3 MiB.
const KERNEL_MEMORY: &str = "
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <sys/uio.h>
    static struct iovec parts[512];
    __attribute__((noinline)) int vectors(int fd) {
        int failed = 0;
        for (int i = 0; i < 50; i++) failed += writev(fd, parts, 512) != 0;
        return failed;
    }
    __attribute__((noinline)) int maps(void) {
        int failed = 0;
        for (int i = 0; i < 20; i++) failed += mmap(0, 3 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
        return failed;
    }
    int main(void) { return vectors(open(\"/dev/null\", O_WRONLY)) + maps(); }";

#[test]
fn memory_of_the_kernel_and_mappings_have_their_bytes_by_path() {
    let events = ["kmem:kmalloc", "syscalls:sys_enter_mmap"];
    if !can_record() || !events.iter().all(|event| has(event)) {
        return;
    }
    let directory = Directory::new("kernel-memory");
    let options = ["-O1", "-falign-functions=64"];
    let Some(program) = directory.compile("gcc", KERNEL_MEMORY, &options) else { return };
    let file = directory.path("out");
    // Events are recorded one after the other: a sample states the event by its number alone.
    let cases = [
        ("kmem:kmalloc*bytes_alloc", "vectors", 8192, 50),
        ("syscalls:sys_enter_mmap*len", "maps", 3 << 20, 20),
    ];
    for (event, function, bytes, calls) in cases {
        let output = record(&["-e", event, "-o", &file, "--", &program]);
        assert!(output.status.success(), "{}", stderr(&output));
        let mut stream = Stream::from_file(&file);
        assert_eq!(&stream.event.unit[..], b"bytes");
        // The kernel may allocate other memory below these functions, such as page tables and accounts.
        stream.samples.retain(|sample| sample.weight == bytes);
        // Of another function, the weight would be 0.
        let weight = weight_below(&stream, "program", offset(&program, function));
        assert_eq!(weight, bytes * calls, "{event}");
    }
}

#[test]
fn uprobe_weighed_by_register_sums_arguments() {
    if !can_record() || !has("uprobe:PATH:0xOFFSET") {
        return;
    }
    let directory = Directory::new("register");
    let source = "__attribute__((noinline)) int f(long x) { __asm__ volatile(\"\"); return x > 9; }\n\
                  int main(void) { int n = -90; for (long i = -3; i < 100; i++) n += f(i); return n; }";
    let Some(program) = directory.compile("gcc", source, &["-O1"]) else { return };
    let event = format!("uprobe:{program}:{:#x}*di", offset(&program, "f"));
    let file = directory.path("out");
    let output = record(&["-e", &event, "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("3 events not counted"), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    // 1 to 99; 0 weighs nothing.
    let weight: u64 = stream.samples.iter().map(|sample| sample.weight).sum();
    assert_eq!((weight, stream.samples.len(), &stream.event.unit[..]), (4950, 99, &b"value"[..]));
    let refused = record(&["-e", &event, "--unwind", "none", "-o", &file, "--", &program]);
    assert!(stderr(&refused).contains("--unwind dwarf only"), "{}", stderr(&refused));
}

/// Returns the file offset of a function, as uprobes expect it.
fn offset(program: &str, function: &str) -> u64 {
    let bytes = fs::read(program).expect("a program");
    let elf = object::File::parse(&*bytes).expect("ELF");
    let symbol = elf.symbol_by_name(function).expect("a function");
    let section = elf.section_by_index(symbol.section_index().expect("a section")).expect("there");
    symbol.address() - section.address() + section.file_range().expect("in the file").0
}

#[test]
fn unprivileged_list_names_missing_capability() {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command.args(user).arg(env!("CARGO_BIN_EXE_nprof-record")).arg("-l");
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: there is no setpriv");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        eprintln!("SKIPPED: {}", stderr(&output));
        return;
    }
    let probe = text.lines().find(|line| line.starts_with("uprobe:")).expect("a line");
    assert!(!probe.ends_with("available"), "{probe}");
    assert!(["CAP_SYS_ADMIN", "CONFIG_"].iter().any(|remedy| probe.contains(remedy)), "{probe}");
    let tracepoints: Vec<_> = text.lines().filter(|line| line.contains(" tracepoint ")).collect();
    assert!(!tracepoints.is_empty());
    assert!(!tracepoints.iter().any(|line| line.ends_with("available")), "{tracepoints:?}");
}

/// The same page faults end the periods of both recorders; the kernel gives the samples of one of
/// them the id of the other's event.
#[test]
fn samples_of_events_that_another_recorder_has_too_keep_their_event() {
    const FAULTS: &str = r"
        #include <sys/mman.h>
        int main(void) {
            volatile char *page = mmap(0, 500 << 12, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise((void *)page, 500 << 12, MADV_NOHUGEPAGE);
            for (int i = 0; i < 500; i++) page[i << 12] = 1;
        }";
    let directory = Directory::new("events-of-both");
    let Some(program) = directory.compile("cc", FAULTS, &["-O1"]) else { return };
    let files = ["outer", "inner"].map(|name| directory.path(name));
    let events = ["-e", "cpu-clock", "-e", "page-faults:1", "-o"];
    let [outer, inner] = [&files[0], &files[1]].map(|file| [&events[..], &[file, "--"]].concat());
    let recorder = [env!("CARGO_BIN_EXE_nprof-record")];
    let output = record(&[&outer[..], &recorder, &inner, &[&program]].concat());
    if is_refused(&output) {
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    for file in &files {
        let bytes = fs::read(file).expect("a stream");
        let (mut reader, mut period, mut faults) = (Reader::new(&bytes[..]), None, 0);
        while let Some(record) = reader.next().expect("a stream") {
            match record {
                Record::Event(event) if event.name == b"cpu-clock" => period = event.period,
                Record::Sample(sample) if sample.event.0 == 1 => {
                    assert_eq!(Some(sample.weight), period, "{file}");
                }
                Record::Sample(sample) => faults += sample.weight,
                // The stacks of 500 faults nearly fill a ring: a recorder that gets no CPU loses some.
                Record::Lost(lost) if lost.event.0 == 2 => faults += lost.count + lost.others(),
                _ => {}
            }
        }
        assert!(faults >= 500, "{file}: {faults}");
    }
}
