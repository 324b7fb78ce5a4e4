//! Waiting without BPF: ordinary users, and root without the capability.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;
use std::time::Duration;

use nprof_stream::Mark;

use crate::attach::Running;
use crate::support::{
    Directory, copy_recorder, is_refused, record, record_as_other_user_with, recorder, stderr,
    wait_until_asleep,
};
use crate::waiting::{PERIOD_NS, Recording, Times};
use crate::waits::{EPOLL, SLEEPER, SPINNERS};

pub(crate) fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("Uid:\t0\t"))
}

/// Compiles a program and records it as an ordinary user. None if that is not possible here, which is
/// printed.
fn recorded(name: &str, source: &str, options: &[&str]) -> Option<Recording> {
    let directory = Rc::new(Directory::new(name));
    let program = directory.compile("gcc", source, &["-O1", "-pthread"])?;
    let file = directory.path("out");
    let output = if is_root() {
        match record_as_other_user_with(&directory, &file, &program, options) {
            Ok(output) => output,
            Err(_) => {
                eprintln!("SKIPPED: there is no setpriv");
                return None;
            }
        }
    } else {
        record(&[options, &["-o", &file, "--", &program]].concat())
    };
    if is_refused(&output) {
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let recording = Recording::of_output(&directory, "out", output);
    assert!(recording.is_by_switches(), "{}", stderr(&recording.output));
    Some(recording)
}

#[test]
fn ordinary_user_records_the_time_that_a_program_slept() {
    // The weights are random. On an idle machine the standard deviation is 4 % of the sum, so that
    // one attempt in 100,000 fails; on a busy one the ticks are late.
    for attempt in 0.. {
        let options = ["-e", "wall"];
        let Some(recording) = recorded("switches-sleeper", SLEEPER, &options) else { return };
        let message = stderr(&recording.output);
        assert!(message.contains(" by context switches"), "{message}");
        let slept = recording.printed()[0];
        assert_eq!(recording.times.len(), 9, "one for each thread");
        let mut blocked_ns = 0;
        for Times { wall, cpu, runnable, blocked, .. } in &recording.times {
            let sum = cpu + runnable + blocked;
            assert!(wall.abs_diff(sum) <= wall / 1000 + 4_000_000, "{wall} {sum}");
            blocked_ns += blocked;
        }
        // The first thread is blocked as long as the others live.
        let joined = recording.times.iter().map(|times| times.wall).max().unwrap_or(0);
        let exact = (blocked_ns as f64 - joined as f64) / slept;
        let sampled = recording.weight_of("blocked") as f64 / blocked_ns as f64;
        let in_sleep = recording.weight_in("clock_nanosleep");
        // A wait whose look came late has no call.
        let known = recording.waits().filter(|wait| !wait.call.is_empty() && wait.call != "futex");
        let known: u64 = known.map(|wait| wait.weight).sum();
        let right = in_sleep as f64 / known.max(1) as f64;
        let in_sleep = in_sleep as f64 / slept;
        // A thread that is preempted between its clock and a sleep has slept less than it prints.
        let is_whole = (0.9..1.05).contains(&exact) && (0.8..1.2).contains(&sampled);
        if is_whole && in_sleep > 0.3 && right > 0.95 {
            break;
        }
        assert!(attempt < 4, "{exact}: {sampled} of the time, {in_sleep} in sleeps, {right} right");
    }
}

/// Waits in a recursion of 4000 calls, of some 100 bytes each, and in vfork(2).
const DEEP_AND_VFORK: &str = r#"
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int deep(int level) {
    volatile char room[64] = {0};
    if (level) return deep(level - 1) + room[level & 63];
    return usleep(300000);
}
__attribute__((noinline)) int parent(void) {
    if (vfork() == 0) {
        usleep(300000);
        _exit(0);
    }
    return wait(0) < 0;
}
int main(void) { return deep(4000) + parent(); }
"#;

#[test]
fn ordinary_user_has_deep_stacks_and_those_of_vfork() {
    let options = ["-e", "wait", "--depth", "5000"];
    let Some(recording) = recorded("switches-deep", DEEP_AND_VFORK, &options) else { return };
    let names = recording.names();
    let complete = |function: &str, least: usize| {
        recording
            .waits()
            .filter(|wait| {
                let calls = names.calls(wait);
                let count = calls.iter().filter(|name| **name == function).count();
                wait.mark == Mark::None && count >= least && calls.contains(&"main")
            })
            .map(|wait| wait.weight)
            .sum::<u64>()
    };
    let (deep, parent) = (complete("deep", 4000), complete("parent", 1));
    assert!(deep >= 250_000_000, "{deep}");
    // On 64-bit ARM, the return address is in a register that /proc does not show.
    assert!(parent >= 250_000_000 || cfg!(not(target_arch = "x86_64")), "{parent}");
}

/// After a byte of input or its end, a second thread sleeps and executes the program again under the id of
/// the process, which sleeps half a second.
pub(crate) const EXECUTING_THREAD: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static char **words;
static void *execute(void *none) {
    char byte;
    if (read(0, &byte, 1) < 0) return none;
    usleep(500000);
    execl(words[0], words[0], "again", (char *)0);
    return none;
}
int main(int count, char **all) {
    pthread_t thread;
    words = all;
    if (count > 1) return usleep(500000);
    pthread_create(&thread, 0, execute, 0);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

/// Asserts that three tasks have waited for half a second each: the first thread, the one that executes an
/// image, and that one under the id of the first.
pub(crate) fn assert_books_of_executing_thread(recording: &Recording) {
    let mut times: Vec<_> = recording.times.iter().collect();
    times.sort_unstable_by_key(|times| times.task);
    let [first, other, again] = times[..] else { panic!("{} tasks", times.len()) };
    for times in [first, other, again] {
        assert!(
            times.blocked >= 250_000_000 && times.cpu < 100_000_000,
            "{times:?} of {:?}",
            recording.times
        );
    }
    assert!(again.end_ns - again.wall >= other.end_ns, "its time begins with the exec");
    recording.assert_books_close();
    let own = recording.waits().filter(|wait| wait.task == again.task);
    let (sampled, exact) = (own.map(|it| it.weight).sum::<u64>(), again.blocked + again.runnable);
    assert!(sampled.abs_diff(exact) < 20 * PERIOD_NS, "{sampled} of {exact}");
}

#[test]
fn ordinary_user_has_the_times_of_a_thread_that_executes_an_image() {
    let options = ["-e", "wall"];
    if let Some(recording) = recorded("switches-executing", EXECUTING_THREAD, &options) {
        assert_books_of_executing_thread(&recording);
    }
}

#[test]
fn ordinary_user_has_the_waits_of_an_attached_thread_that_executes_an_image() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can become another user");
    }
    let directory = Rc::new(Directory::new("switches-executing-attached"));
    let flags = ["-O1", "-pthread"];
    let Some(program) = directory.compile("gcc", EXECUTING_THREAD, &flags) else { return };
    let (file, recorder) = (directory.path("out"), directory.path("nprof-record"));
    copy_recorder(&recorder);
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(directory.path(""), open).expect("open to all");
    let as_user = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command
    };
    if as_user().arg("true").status().is_err() {
        return eprintln!("SKIPPED: there is no setpriv");
    }
    let mut running = Running::start(as_user().arg(&program));
    let mut attached = as_user();
    attached.arg(recorder).args(["-e", "wall", "-p", &running.pid(), "-o", &file]);
    let attached = attached.stderr(Stdio::piped()).spawn().expect("it runs");
    // Its first bytes are written when it has attached.
    while !fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.send(b"x");
    let output = attached.wait_with_output().expect("it ends with the process");
    if is_refused(&output) {
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    assert_books_of_executing_thread(&Recording::of_output(&directory, "out", output));
}

#[test]
fn ordinary_user_sees_where_a_hung_process_waits() {
    let directory = Rc::new(Directory::new("switches-hung"));
    if !is_root() {
        return eprintln!("SKIPPED: only root can become another user");
    }
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--", "sleep", "60"];
    let Ok(mut hung) = Command::new("setpriv").args(user).spawn() else {
        return eprintln!("SKIPPED: there is no setpriv");
    };
    let pid = hung.id().to_string();
    wait_until_asleep(hung.id());
    let file = directory.path("out");
    let recorder = directory.path("nprof-record");
    copy_recorder(&recorder);
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(directory.path(""), open).expect("open to all");
    let words = ["-e", "wait", "-p", &pid, "-d", "2.5", "-o", &file];
    let output = Command::new("setpriv").args(&user[..4]).arg(&recorder).args(words).output();
    hung.kill().and_then(|()| hung.wait()).expect("it was started");
    let output = output.expect("it runs");
    if is_refused(&output) {
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let recording = Recording::of_output(&directory, "out", output);
    let [times] = &recording.times[..] else { panic!("{} threads", recording.times.len()) };
    assert_eq!((times.cpu, times.runnable, times.blocked), (0, 0, times.wall));
    assert!(times.wall >= 2_400_000_000, "{}", times.wall);
    assert!(recording.waits().count() >= 3, "one each second, and one at the end");
    let weight = recording.weight_in("clock_nanosleep");
    // Only the last part may be shorter than the interval, 4 ms.
    assert!(weight.abs_diff(times.blocked) <= 4 * PERIOD_NS, "{weight} {}", times.blocked);
    assert!(recording.waits().all(|wait| !wait.frames.is_empty() && wait.state == "S"));
}

#[test]
fn looks_end_no_wait_of_an_epoll_loop() {
    // More looks than by default.
    let options = ["-e", "wall:1000000"];
    let Some(recording) = recorded("switches-epoll", EPOLL, &options) else { return };
    assert_eq!(recording.printed(), [0.0]);
    assert!(recording.weight_in("epoll_wait") > 0, "some waits were looked at");
}

#[test]
fn preempted_threads_wait_for_a_cpu_by_switches() {
    // The weights are random: waits of 3 ms at an interval of 4 ms are 300 samples, a standard deviation
    // of 3 %. On a busy machine the ticks are late.
    for attempt in 1.. {
        let options = ["-e", "wait"];
        let Some(recording) = recorded("switches-spinners", SPINNERS, &options) else { return };
        let spinners: Vec<_> = recording.times.iter().filter(|it| it.cpu > 400_000_000).collect();
        assert_eq!(spinners.len(), 2);
        for Times { wall, cpu, runnable, blocked, .. } in &spinners {
            assert!(*blocked < wall / 100, "{blocked} of {wall}");
            assert!(wall.abs_diff(cpu + runnable) <= wall / 100, "{wall} {cpu} {runnable}");
        }
        let exact: u64 = recording.times.iter().map(|times| times.runnable).sum();
        let ratio = recording.weight_of("runnable") as f64 / exact as f64;
        if (0.75..1.25).contains(&ratio) {
            break;
        }
        assert!(attempt < 3, "{ratio}");
    }
}

/// A process that sleeps in a function, in code that keeps the frame pointer: prints a line first.
const DEEP: &str = r#"
#include <stdio.h>
#include <unistd.h>
static __attribute__((noinline)) int innermost(int n) {
    char unused[200];
    unused[n & 127] = 1;
    for (int i = 0; i < n; i++)
        if (unused[i] != 77) pause();
    return unused[n & 63];
}
static int (*volatile pointer)(int) = innermost;
static __attribute__((noinline)) int middle(int n) { return pointer(n) + 1; }
int main(int count, char **words) {
    (void)words;
    puts("ready");
    fflush(stdout);
    return middle(count) + 2;
}
"#;

/// Starts a program and waits for its first line.
fn started(program: &str) -> Child {
    let mut child = Command::new(program).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    std::io::BufReader::new(out).read_line(&mut line).expect("a line");
    child
}

#[test]
fn stacks_are_complete_without_the_frame_pointer() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can leave out CAP_BPF");
    }
    for options in [&["-O0"][..], &["-O2"], &["-O2", "-fno-omit-frame-pointer"]] {
        let directory = Rc::new(Directory::new("switches-deep"));
        let Some(program) = directory.compile("gcc", DEEP, options) else { return };
        let file = directory.path("out");
        let mut child = started(&program);
        let pid = child.id().to_string();
        let words = ["-e", "blocked", "-p", &pid, "-d", "0.3", "-o", &file];
        let output = without_bpf(&words);
        child.kill().and_then(|()| child.wait()).expect("it was started");
        let Some(output) = output else { return };
        assert!(output.status.success(), "{}", stderr(&output));
        let recording = Recording::of_output(&directory, "out", output);
        assert!(recording.is_by_switches());
        assert!(recording.events.iter().all(|event| !event.fallback.is_empty()));
        assert!(recording.waits().count() > 0);
        for sample in recording.waits() {
            assert_eq!(sample.mark, Mark::None, "{options:?}: {:?}", sample.frames);
            let own = sample.frames.iter().filter(|(image, _)| image.ends_with("program")).count();
            let expected = if options == ["-O0"] { 4 } else { 3 };
            assert!(own >= expected - 1, "{options:?}: {:?}", sample.frames);
        }
    }
}

/// Records as root without CAP_BPF. None if there is no setpriv.
pub(crate) fn without_bpf(words: &[&str]) -> Option<Output> {
    let dropped = ["--bounding-set=-bpf,-sys_admin", "--", env!("CARGO_BIN_EXE_nprof-record")];
    let output = Command::new("setpriv").args(dropped).args(words).output();
    if output.is_err() {
        eprintln!("SKIPPED: there is no setpriv");
    }
    output.ok()
}

/// Four threads that sleep and work, until they are killed: prints a line first.
const BUSY: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static void *work(void *none) {
    for (;;) {
        usleep(6000);
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        long long end = t.tv_sec * 1000000000LL + t.tv_nsec + 500000;
        do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        while (t.tv_sec * 1000000000LL + t.tv_nsec < end);
    }
    return none;
}
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 4; i++) pthread_create(&thread, 0, work, 0);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn both_ways_measure_the_same_times() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can record with BPF");
    }
    let directory = Rc::new(Directory::new("switches-both"));
    let Some(program) = directory.compile("gcc", BUSY, &["-O1", "-pthread"]) else { return };
    let mut child = started(&program);
    // On a busy machine, one of them may start later.
    let is_equal = (0..3).any(|_| {
        let shares = waited_by_both(&directory, &child.id().to_string());
        shares.is_none_or(|[bpf, switches]| {
            eprintln!("{bpf} {switches}");
            (switches - bpf).abs() < 0.05
        })
    });
    child.kill().and_then(|()| child.wait()).expect("it was started");
    assert!(is_equal);
}

/// Returns the share of waiting in the time of the threads of [`BUSY`], as measured with BPF programs
/// and without. None if that is not possible here, which is printed.
fn waited_by_both(directory: &Rc<Directory>, pid: &str) -> Option<[f64; 2]> {
    let (bpf, switches) = (directory.path("bpf"), directory.path("switches"));
    let words = ["-e", "wait", "-p", pid, "-d", "1", "-o"];
    // At the same time, so that other programs disturb both alike.
    let beside = recorder(&words).arg(&bpf).stderr(Stdio::piped()).spawn().expect("it runs");
    let output = without_bpf(&[&words[..], &[&switches]].concat());
    let other = beside.wait_with_output().expect("it ends");
    let output = output?;
    assert!(output.status.success() && other.status.success(), "{}", stderr(&output));
    let both = [("bpf", other), ("switches", output)];
    let both = both.map(|(file, output)| Recording::of_output(directory, file, output));
    if both[0].is_by_switches() {
        eprintln!("SKIPPED: {}", stderr(&both[0].output));
        return None;
    }
    assert!(both[1].is_by_switches());
    // With BPF, the time from the wake-up of a thread to its run counts as runnable.
    Some(both.map(|recording| {
        let times = &recording.times;
        assert_eq!(times.len(), 5);
        let waited = times.iter().map(|times| times.blocked + times.runnable).sum::<u64>();
        waited as f64 / times.iter().map(|times| times.wall).sum::<u64>() as f64
    }))
}

#[test]
fn list_names_the_way_without_bpf() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can enter a pid namespace");
    }
    // From another pid namespace the programs would find no thread.
    let mut listing = Command::new("unshare");
    listing.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_nprof-record"), "-l"]);
    let Ok(output) = listing.output() else { return eprintln!("SKIPPED: there is no unshare") };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |name| text.lines().find(|line| line.split_ascii_whitespace().next() == Some(name));
    let (Some(runnable), Some(wakes)) = (line("runnable"), line("wakes")) else {
        return eprintln!("SKIPPED: {text} {}", stderr(&output));
    };
    assert!(runnable.contains("by context switches"), "{runnable}");
    assert!(wakes.contains("cannot measure waiting"), "{wakes}");
}

#[test]
fn wake_ups_need_bpf() {
    let directory = Directory::new("switches-wakes");
    let file = directory.path("out");
    let words = ["-e", "wait", "-e", "wakes"];
    let Ok(output) = record_as_other_user_with(&directory, &file, "true", &words) else {
        return eprintln!("SKIPPED: there is no setpriv");
    };
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    assert!(message.contains("run as root or with CAP_BPF"), "{message}");
}

#[test]
fn ordinary_user_with_a_low_limit_of_locked_memory_records_waits() {
    let directory = Directory::new("switches-memlock");
    let file = directory.path("nprof");
    // The rings of switches alone took all memory that the kernel lets each user lock beyond the limit. A user
    // of its own: those of other tests are recorded at the same time.
    let script = format!(
        "ulimit -l 0; exec setpriv --reuid=65432 --regid=65534 --clear-groups -- \
                          {} -e wait -o {file} -- sleep 0.2",
        directory.path("nprof-record")
    );
    copy_recorder(&directory.path("nprof-record"));
    fs::set_permissions(directory.path(""), fs::Permissions::from_mode(0o777))
        .expect("open to all");
    let output = Command::new("bash").args(["-c", &script]).output().expect("it is installed");
    let message = stderr(&output);
    if message.contains("setpriv:") {
        return eprintln!("SKIPPED: needs root: {message}");
    }
    assert!(output.status.success() && message.contains(" by context switches"), "{message}");
}

#[test]
fn first_thread_that_has_exited_is_one_task() {
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        static void *goes_on(void *none) {
            for (int i = 0; i < 300; i++) usleep(1000);
            exit(0);
            return none;
        }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, goes_on, 0);
            pthread_exit(0);
        }"#;
    let Some(recording) = recorded("switches-leader", source, &["-e", "wall"]) else { return };
    assert_eq!(recording.lives.len(), 2, "each switch defined the first thread again");
    assert_eq!(recording.times.len(), 2);
    recording.assert_books_close();
}
