//! Waiting of processes that exist before the recording: each target, after a delay, with BPF programs
//! and without them; the ways of users without rights.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

use nprof_stream::Mark;

use crate::support::{
    ControlGroup, Directory, copy_recorder, is_refused, record, stderr, wait_until_asleep,
};
use crate::waiting::{PERIOD_NS, Recording};
use crate::waits_by_switches::{is_root, without_bpf};

/// The id of a user without rights.
const USER: [&str; 4] = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];

/// A process that sleeps, and is ended on drop.
struct Sleeper(Child);

impl Sleeper {
    /// Starts it by the words of a command.
    fn start(words: &[&str]) -> Option<Self> {
        let started = Command::new(words[0]).args(&words[1..]).args(["sleep", "600"]).spawn();
        let Ok(child) = started else {
            eprintln!("SKIPPED: there is no {}", words[0]);
            return None;
        };
        wait_until_asleep(child.id());
        Some(Self(child))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Asserts that a process of one thread has waited for all of its time, and that its samples have it.
fn assert_waited(recording: &Recording, pid: u32, interval_ns: u64, case: &str) {
    let of_it = |task| recording.lives.get(&task).is_some_and(|life| life.pid == pid);
    let own: Vec<_> = recording.times.iter().filter(|times| of_it(times.task)).collect();
    let [times] = &own[..] else { panic!("{case}: {} threads", own.len()) };
    assert!(times.wall > 0, "{case}");
    assert_eq!((times.cpu, times.runnable, times.blocked), (0, 0, times.wall), "{case}");
    let weight: u64 =
        recording.waits().filter(|wait| of_it(wait.task)).map(|wait| wait.weight).sum();
    // Only the last part may be shorter than the interval.
    assert!(weight.abs_diff(times.blocked) <= interval_ns, "{case}: {weight} {}", times.blocked);
}

#[test]
fn idle_process_has_its_time_after_a_delay() {
    if !is_root() {
        return eprintln!("SKIPPED: only root records the whole machine");
    }
    let Some(group) = ControlGroup::new("delay") else { return };
    let Some(sleeper) = Sleeper::start(&["env"]) else { return };
    let pid = sleeper.pid();
    let mut members = fs::OpenOptions::new().append(true).open(format!("{}/cgroup.procs", group.0));
    members.as_mut().expect("a group").write_all(pid.to_string().as_bytes()).expect("it enters");
    let (directory, number) = (Rc::new(Directory::new("waits-delay")), pid.to_string());
    let targets = [&["-p", &number][..], &["--cgroup", &group.0], &["-a"]];
    for (target, has_bpf) in targets.iter().flat_map(|it| [(it, true), (it, false)]) {
        let file = directory.path("out");
        let words = ["-e", "wait", "--delay", "0.1", "-d", "0.4", "-o", &file];
        let words = [&words[..], target].concat();
        let output = if has_bpf { Some(record(&words)) } else { without_bpf(&words) };
        let Some(output) = output else { return };
        assert!(output.status.success(), "{target:?}: {}", stderr(&output));
        let recording = Recording::of_output(&directory, "out", output);
        assert!(has_bpf || recording.is_by_switches(), "{target:?}");
        let intervals = if recording.is_by_switches() { 4 } else { 1 };
        assert_waited(&recording, pid, intervals * PERIOD_NS, &format!("{target:?}"));
    }
}

/// A thread that creates a thread each 2 ms, for 2 s. They sleep for 1 s.
const CHURN: &str = r#"
#include <pthread.h>
#include <time.h>
static void *live(void *none) {
    struct timespec t = {1, 0};
    nanosleep(&t, 0);
    return none;
}
int main(void) {
    struct timespec now, end;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += 2;
    do {
        pthread_t thread;
        struct timespec t = {0, 2000000};
        pthread_create(&thread, &small, live, 0);
        nanosleep(&t, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}
"#;

#[test]
fn threads_created_before_the_end_of_a_delay_have_times() {
    // On a busy machine, the recorder may be late, or the program end before the delay does.
    for attempt in 1.. {
        let options = ["-e", "wait", "--delay", "0.5"];
        let recording = Recording::of_program("waits-churn", CHURN, &[], &options, &[]);
        let Some(recording) = recording else { return };
        let begin_ns = recording.times.iter().map(|times| times.end_ns - times.wall).min();
        // The recorder had 800 ms for them, of their 1000.
        let late_ns = begin_ns.map_or(u64::MAX, |begin_ns| begin_ns + 800_000_000);
        let lived = recording.lives.iter().filter(|(_, life)| {
            life.exit_ns.is_some_and(|exit_ns| exit_ns > late_ns) && recording.end.lost == 0
        });
        let has_times = |task| recording.times.iter().any(|times| times.task == task);
        let (measured, missed): (Vec<_>, Vec<_>) = lived.partition(|(task, _)| has_times(**task));
        if !measured.is_empty() && missed.is_empty() {
            break;
        }
        assert!(attempt < 3, "{} threads have no times, {} have", missed.len(), measured.len());
    }
}

/// A function with an array of which all pages but the first and the last are absent waits for ever.
const SPARSE: &str = r#"
#include <unistd.h>
static volatile int waits = 1;
static void __attribute__((noinline)) inner(void) {
    write(1, "\n", 1);
    while (waits) pause();
}
static int __attribute__((noinline)) sparse(void) {
    volatile char array[300000];
    array[0] = array[299999] = 1;
    inner();
    return array[0] + array[299999];
}
int __attribute__((noinline)) outer(void) {
    return sparse() + 1;
}
int main(void) {
    alarm(60);
    return outer();
}
"#;

#[test]
fn callers_beyond_absent_pages_of_a_waiting_thread_are_known() {
    let directory = Rc::new(Directory::new("waits-sparse"));
    let flags = ["-O1", "-fno-optimize-sibling-calls"];
    let Some(program) = directory.compile("gcc", SPARSE, &flags) else { return };
    let started = Command::new(program).stdout(Stdio::piped()).spawn();
    let mut running = Sleeper(started.expect("it has been compiled"));
    let output = running.0.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0]).expect("it says that it waits");
    let (file, pid) = (directory.path("out"), running.pid().to_string());
    for duration in ["0.3", "2.2"] {
        let output = record(&["-e", "blocked", "-d", duration, "-p", &pid, "-o", &file]);
        assert!(output.status.success(), "{}", stderr(&output));
        let recording = Recording::of_output(&directory, "out", output);
        if recording.is_by_switches() {
            return eprintln!("SKIPPED: no BPF programs measure waiting");
        }
        let names = recording.names();
        let stacks: Vec<_> = recording.waits().map(|wait| (wait.mark, names.calls(wait))).collect();
        assert!(!stacks.is_empty());
        for (mark, calls) in &stacks {
            let own = ["main", "outer", "sparse", "inner"];
            assert!(own.iter().all(|name| calls.contains(name)), "{duration}: {mark:?} {calls:?}");
            assert_eq!(*mark, Mark::None, "{duration}: {calls:?}");
        }
    }
}

/// Threads and processes that begin and end all the time, beside three threads that sleep for 3 ms at a time.
const COMING_AND_GOING: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void nap(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, 0);
}
static void spin(long us) {
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long until = end.tv_sec * 1000000 + end.tv_nsec / 1000 + us;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec * 1000000 + now.tv_nsec / 1000 < until);
}
static void *forever(void *none) {
    for (;;) nap(3000);
    return none;
}
static void *shortly(void *number) {
    // Not random(3), of which a forked child may find the lock taken.
    unsigned seed = (unsigned)(long)number;
    spin(300 + rand_r(&seed) % 2000);
    nap(rand_r(&seed) % 3000);
    spin(rand_r(&seed) % 1000);
    return 0;
}
int main(void) {
    pthread_t thread, threads[3];
    alarm(60);
    for (int i = 0; i < 3; i++) pthread_create(&thread, 0, forever, 0);
    for (long round = 0;; round++) {
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, shortly, (void *)(4 * round + i));
        if (fork() == 0) {
            shortly((void *)(4 * round + 3));
            _exit(0);
        }
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
        while (waitpid(-1, 0, WNOHANG) > 0);
    }
}
"#;

#[test]
fn threads_with_samples_have_times_also_at_the_edges_of_a_recording() {
    let directory = Rc::new(Directory::new("waits-edges"));
    let program = directory.compile("gcc", COMING_AND_GOING, &["-O1", "-pthread"]);
    let Some(program) = program else { return };
    let running = Sleeper(Command::new(program).spawn().expect("it has been compiled"));
    let (file, pid) = (directory.path("out"), running.pid().to_string());
    let words = ["-e", "wall", "-d", "0.2", "--descendants", "-p", &pid, "-o", &file];
    for _ in 0..8 {
        let output = record(&words);
        assert!(output.status.success(), "{}", stderr(&output));
        let recording = Recording::of_output(&directory, "out", output);
        if recording.is_by_switches() {
            return eprintln!("SKIPPED: no BPF programs measure waiting");
        }
        let timed: BTreeSet<_> = recording.times.iter().map(|times| times.task).collect();
        let sampled: BTreeSet<_> = recording.samples.iter().map(|sample| sample.task).collect();
        let missing: Vec<_> = sampled.difference(&timed).collect();
        assert!(missing.is_empty() || recording.end.lost > 0, "{missing:?} of {}", timed.len());
        recording.assert_waits_are_exact();
    }
}

#[test]
fn cpu_time_of_attached_processes_that_exit_is_that_of_their_threads() {
    let source = "#include <sys/wait.h>
        #include <time.h>
        #include <unistd.h>
        static void burn(void) { while (clock() < CLOCKS_PER_SEC * 3 / 100); }
        int main(void) {
            for (int i = 0; i < 4; i++) if (!fork()) { burn(); usleep(50000); _exit(0); }
            while (wait(0) > 0);
            burn();
            return 0;
        }";
    let directory = Rc::new(Directory::new("waits-exiting"));
    let Some(program) = directory.compile("gcc", source, &["-O1"]) else { return };
    let running = Sleeper(Command::new(program).spawn().expect("it has been compiled"));
    let (file, pid) = (directory.path("out"), running.pid().to_string());
    let output = record(&["-e", "wall", "--descendants", "-p", &pid, "-o", &file]);
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    if Recording::of_output(&directory, "out", output).is_by_switches() {
        return eprintln!("SKIPPED: no BPF programs measure waiting");
    }
    assert!(message.contains("ms CPU at ") && message.contains("coverage "), "{message}");
}

#[test]
fn times_are_exact_where_stacks_may_not_be_read() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can leave out capabilities");
    }
    let Some(sleeper) = Sleeper::start(&[&["setpriv"], &USER[..]].concat()) else { return };
    let directory = Rc::new(Directory::new("waits-refused"));
    let (file, pid) = (directory.path("out"), sleeper.pid().to_string());
    // As with kernel.yama.ptrace_scope: the threads may not be read, but their events be opened.
    let output = Command::new("setpriv")
        .arg("--bounding-set=-bpf,-sys_admin,-sys_ptrace")
        .args(["--", env!("CARGO_BIN_EXE_nprof-record"), "-e", "wait", "-d", "0.3"])
        .args(["-p", &pid, "-o", &file])
        .output()
        .expect("setpriv has run before");
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains("1 thread has no stacks of waits") && message.contains("ptrace_scope"),
        "{message}"
    );
    let recording = Recording::of_output(&directory, "out", output);
    assert!(recording.is_by_switches());
    assert_waited(&recording, sleeper.pid(), 4 * PERIOD_NS, "refused");
}

#[test]
fn user_records_its_program_where_proc_hides_other_processes() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can mount /proc");
    }
    let directory = Rc::new(Directory::new("waits-hidepid"));
    let (file, recorder) = (directory.path("out"), directory.path("nprof-record"));
    copy_recorder(&recorder);
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(directory.path(""), open).expect("open to all");
    let script = format!(
        "mount -t proc -o hidepid=2 proc /proc || exit 99\n\
         exec setpriv {} {recorder} -e wait -o {file} -- sleep 0.3",
        USER.join(" ")
    );
    let Ok(output) = Command::new("unshare").args(["-m", "sh", "-c", &script]).output() else {
        return eprintln!("SKIPPED: there is no unshare");
    };
    if [Some(99), Some(1)].contains(&output.status.code()) {
        return eprintln!("SKIPPED: {}", stderr(&output));
    }
    if is_refused(&output) {
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let recording = Recording::of_output(&directory, "out", output);
    assert!(recording.is_by_switches());
    let [times] = &recording.times[..] else { panic!("{} threads", recording.times.len()) };
    assert!(times.blocked >= 300_000_000, "{}", times.blocked);
    recording.assert_books_close();
}

#[test]
fn user_without_rights_gets_the_remedy_for_each_target() {
    if !is_root() {
        return eprintln!("SKIPPED: only root can become another user");
    }
    let Some(group) = ControlGroup::new("refused") else { return };
    let directory = Directory::new("waits-rights");
    let recorder = directory.path("nprof-record");
    copy_recorder(&recorder);
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(directory.path(""), open).expect("open to all");
    let (file, own) = (directory.path("out"), std::process::id().to_string());
    for target in [&["-a"][..], &["--cgroup", &group.0], &["-p", &own]] {
        let output: Output = Command::new("setpriv")
            .args(USER)
            .args([&recorder, "-e", "wait", "-d", "0.1", "-o", &file])
            .args(target)
            .output()
            .expect("it runs");
        let message = stderr(&output);
        if output.status.success() {
            eprintln!("SKIPPED: kernel.perf_event_paranoid allows {target:?}");
            continue;
        }
        assert_eq!(output.status.code(), Some(125), "{target:?}: {message}");
        assert!(message.contains("root") || message.contains("CAP_"), "{target:?}: {message}");
    }
}
