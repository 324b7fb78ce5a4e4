//! Processes that the kernel's records alone do not show: set-user-ID programs, lost forks, exited
//! first threads, existing descendants, commands that leave their control group.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, os};

use nprof_stream::{Mark, Reader, Record};

use crate::attach::Running;
use crate::support::{
    ControlGroup, Directory, Stream, can_record, is_refused, named_stacks, record, recorder, stderr,
};

/// Functions of the programs: `burn` uses CPU time, `burn_to_end` does so until standard input is
/// closed.
const BURN: &str = "
#define _GNU_SOURCE\n#include <poll.h>\n#include <pthread.h>\n#include <sched.h>\n#include <stdio.h>
#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/prctl.h>\n#include <sys/wait.h>
#include <time.h>\n#include <unistd.h>
static volatile long work;
static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}
__attribute__((unused)) static void burn(double ms) {
    for (double end = used() + ms; used() < end;) for (int i = 0; i < 1000; i++) work += i;
}
__attribute__((unused)) static void burn_to_end(void) {
    struct pollfd input = { 0, POLLIN, 0 };
    while (poll(&input, 1, 0) == 0) burn(1);
}
";

/// Compiles a program. Returns its directory, the program, and the file for its recording. None if
/// there is no compiler or no right to record.
fn compile(name: &str, main: &str) -> Option<(Directory, String, String)> {
    if !can_record() {
        return None;
    }
    let directory = Directory::new(name);
    let program = directory.compile("gcc", &format!("{BURN}{main}"), &["-O1", "-pthread"])?;
    let file = directory.path("out");
    Some((directory, program, file))
}

/// Sleeps for 300 ms, then a child executes the arguments as root, as sudo(8) and su(1) do; without
/// arguments burns 300 ms itself.
const SET_USER_ID: &str = "int main(int count, char **words) {
    if (count == 1) { burn(300); return 0; }
    usleep(300000);
    if (!fork()) { setreuid(0, 0); execv(words[1], words + 1); _exit(9); }
    wait(0); return 0;
}";

#[test]
fn records_set_user_id_programs_and_their_children() {
    let Some((_directory, program, file)) = compile("suid", SET_USER_ID) else { return };
    let is_set = os::unix::fs::chown(&program, Some(0), None).is_ok()
        && fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).is_ok();
    let user = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"];
    let as_user = [&user[..], &["sh", "-c", "true"]].concat();
    if !is_set || !Command::new(as_user[0]).args(&as_user[1..]).status().is_ok_and(|s| s.success())
    {
        return eprintln!("SKIPPED: not root, or there is no setpriv");
    }
    for words in [&[&program[..]][..], &[&program, &program]] {
        for follow in ["system", "cgroup", "inherit"] {
            let options = ["--follow", follow, "-o", &file, "--"];
            let output = record(&[&options[..], &user, words].concat());
            let message = stderr(&output);
            if message.contains("control group") && !output.status.success() {
                eprintln!("SKIPPED: {message}");
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{message}");
            let stream = Stream::from_file(&file);
            if follow == "inherit" {
                assert!(
                    message.contains("executed a set-user-ID or unreadable program"),
                    "{message}"
                );
                // Root has the rights already.
                assert!(message.contains("of later children; select --follow"), "{message}");
                continue;
            }
            if stream.coverage() < 0.05 && stream.executed.len() < words.len() + 1 {
                return eprintln!("SKIPPED: mounted with nosuid");
            }
            assert!(stream.accounted() > 0.8, "{follow} {words:?}: {message}");
            assert_eq!(stream.exits.len(), stream.tasks, "each task exits once");
            assert_eq!(stream.exits.last().map(String::as_str), Some("0"));
        }
    }
}

/// Sixty workers on one CPU map 32 MiB that they share, and exit at the same time: the release of the
/// memory of each, after its exit record, is interrupted by the others.
const MAPPED_AT_EXIT: &str = "int main(void) {
    int ready[2], end[2]; char byte; size_t size = 32 << 20;
    cpu_set_t one; CPU_ZERO(&one); CPU_SET(sched_getcpu(), &one);
    char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || pipe(ready) || pipe(end)) return 1;
    for (int i = 0; i < 60; i++) if (!fork()) {
        close(end[1]); sched_setaffinity(0, sizeof one, &one);
        for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
        if (write(ready[1], &byte, 1) != 1) return 1;
        return read(end[0], &byte, 1);
    }
    for (int i = 0; i < 60; i++) if (read(ready[0], &byte, 1) != 1) return 1;
    close(end[1]);
    while (wait(0) > 0);
    return 0;
}";

#[test]
fn event_is_recorded_after_the_exit_record_of_its_process() {
    let Some((_directory, program, file)) = compile("late_event", MAPPED_AT_EXIT) else { return };
    // Each worker generates SIGCHLD for its parent at its end.
    let event = "signal:signal_generate:1";
    let output = record(&["-e", event, "--follow", "system", "-o", &file, "--", &program]);
    if !output.status.success() {
        return eprintln!("SKIPPED: {}", stderr(&output));
    }
    let samples = Stream::from_file(&file).samples;
    let from_program = samples.iter().filter(|sample| program.ends_with(&sample.comm)).count();
    assert_eq!(from_program, 61, "{}", stderr(&output));
}

/// Fills the ring of records of processes and mappings of one CPU, which nothing reads, then forks a
/// child that works once the ring is read again.
const LOST_FORK: &str = "int main(void) {
    char byte;
    cpu_set_t one; CPU_ZERO(&one); CPU_SET(sched_getcpu(), &one); sched_setaffinity(0, sizeof one, &one);
    puts(\"ready\"); fflush(stdout); read(0, &byte, 1);
    for (int i = 0; i < 6000; i++) munmap(mmap(0, 4096, 5, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    if (!fork()) {
        if (!fork()) { read(0, &byte, 1); prctl(PR_SET_NAME, \"grandchild\"); burn(300); _exit(0); }
        wait(0); _exit(0);
    }
    puts(\"forked\"); fflush(stdout); wait(0); return 0;
}";

pub(crate) fn signal(signal: &str, process: &Child) {
    let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Records a program that prints "ready", then reads a byte and prints `line`, then reads a byte. The
/// recorder is stopped in between. Returns its messages; as an error if it cannot record.
fn record_with_stop(words: &[&str], line: &str) -> Result<String, String> {
    let mut command = recorder(words);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recording = piped.spawn().expect("it runs");
    let mut lines = BufReader::new(recording.stdout.take().expect("piped")).lines();
    let Some(ready) = lines.next() else {
        return Err(stderr(&recording.wait_with_output().expect("it ends")));
    };
    assert_eq!(ready.expect("UTF-8"), "ready");
    let mut input = recording.stdin.take().expect("piped");
    signal("-STOP", &recording);
    input.write_all(b"x").expect("it reads");
    assert_eq!(lines.next().expect("a line").expect("UTF-8"), line);
    signal("-CONT", &recording);
    input.write_all(b"x").expect("it reads");
    Ok(stderr(&recording.wait_with_output().expect("it ends")))
}

#[test]
fn process_is_recorded_although_its_fork_record_was_lost() {
    let Some((_directory, program, file)) = compile("lost-fork", LOST_FORK) else { return };
    for follow in ["system", "cgroup", "inherit"] {
        let words = ["--follow", follow, "-o", &file, "--", &program];
        let message = match record_with_stop(&words, "forked") {
            Ok(message) => message,
            Err(message) => {
                eprintln!("SKIPPED: {follow}: {message}");
                continue;
            }
        };
        assert!(message.contains("records of processes and mappings were lost"), "{message}");
        assert_eq!(message.contains("may be missing"), follow == "system", "{message}");
        let stream = Stream::from_file(&file);
        // It works for 300 ms at 997 Hz.
        let found = stream.samples.iter().filter(|sample| sample.comm == "grandchild").count();
        // The kernel does not report whose samples were lost.
        let lost = stream.end.as_ref().map_or(0, |end| end.lost) as usize;
        assert!(found > 20 && found + lost > 200, "{follow}: {found} samples; {message}");
    }
}

/// Maps the code of a function a second time while the recorder is stopped and its ring is full, and
/// executes it there once the ring is read again.
const LOST_MAPPING: &str = "
__attribute__((noinline)) static void work_long(void) {
    for (long i = 0; i < 500000000; i++) __asm__ volatile(\"\" : \"+r\"(i));
}
int main(void) {
    char byte, line[512]; unsigned long start, end, offset, at = (unsigned long)work_long;
    cpu_set_t one; CPU_ZERO(&one); CPU_SET(sched_getcpu(), &one); sched_setaffinity(0, sizeof one, &one);
    FILE *maps = fopen(\"/proc/self/maps\", \"r\"), *exe = fopen(\"/proc/self/exe\", \"r\");
    while (fgets(line, sizeof line, maps)
           && (sscanf(line, \"%lx-%lx %*s %lx\", &start, &end, &offset) != 3 || at < start || at >= end));
    puts(\"ready\"); fflush(stdout); read(0, &byte, 1);
    for (int i = 0; i < 6000; i++) munmap(mmap(0, 4096, 5, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    char *copy = mmap(0, end - start, 5, MAP_PRIVATE, fileno(exe), offset);
    puts(\"mapped\"); fflush(stdout); read(0, &byte, 1);
    ((void (*)(void))(copy + (at - start)))();
    return 0;
}";

#[test]
fn code_is_known_although_the_record_of_its_mapping_was_lost() {
    let Some((_directory, program, file)) = compile("lost-mapping", LOST_MAPPING) else { return };
    let message = record_with_stop(&["-o", &file, "--", &program], "mapped").expect("privileged");
    assert!(message.contains("records of processes and mappings were lost"), "{message}");
    let stream = Stream::from_file(&file);
    let (mut known, mut unknown) = (0, 0);
    for sample in &stream.samples {
        // Without the record, the address is that of the anonymous memory before.
        match sample.frames.iter().find(|(_, is_kernel)| !is_kernel) {
            Some((name, _)) if name == "program" => known += 1,
            _ => unknown += 1,
        }
    }
    assert!(known > 100 && unknown < known, "{known} known, {unknown} unknown; {message}");
}

/// The first thread exits; the other one then burns CPU time until standard input is closed.
const FIRST_EXITS: &str = "static void *thread(void *none) {
    char name[64], line[256]; int state = 0;
    snprintf(name, sizeof name, \"/proc/%d/stat\", getpid());
    while (state != 'Z') {
        FILE *stat = fopen(name, \"r\");
        if (fgets(line, sizeof line, stat)) state = strrchr(line, ')')[2];
        fclose(stat);
    }
    puts(\"ready\"); fflush(stdout);
    burn_to_end();
    return none;
}
int main(void) { pthread_t t; pthread_create(&t, 0, thread, 0); pthread_exit(0); }";

#[test]
fn attached_process_lives_without_its_first_thread() {
    let Some((_directory, program, file)) = compile("first-exits", FIRST_EXITS) else { return };
    let running = Running::start(&mut Command::new(&program));
    let threads = fs::read_dir(format!("/proc/{}/task", running.pid())).expect("it runs");
    let threads = threads.map(|entry| entry.expect("an entry").file_name().into_string());
    let second = threads.map(|tid| tid.expect("digits")).max().expect("a thread");
    for id in [running.pid(), second] {
        let output = record(&["-o", &file, "-d", "0.5", "-p", &id]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        assert_eq!(stream.end.as_ref().expect("an end").reason, b"duration");
        assert!(stream.samples.len() > 10, "{}", stderr(&output));
        assert!(stream.complete() > 0.9, "{}", stderr(&output));
    }
    fs::remove_file(&file).expect("removed");
    let mut recording = recorder(&["-q", "-o", &file, "-p", &running.pid()]).spawn().expect("it");
    // A file with a header shows that recording has begun.
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        std::thread::yield_now();
    }
    drop(running);
    assert_eq!(recording.wait().expect("it ends").code(), Some(0));
}

/// A thread executes the program again, after the first thread has exited.
const THREAD_EXECUTES: &str = "static void *thread(void *program) {
    usleep(300000);
    execl(program, program, \"again\", (char *)0);
    return 0;
}
int main(int count, char **words) {
    pthread_t t;
    if (count > 1) { burn(50); return 0; }
    pthread_create(&t, 0, thread, words[0]); pthread_exit(0);
}";

#[test]
fn thread_that_executes_keeps_the_parent_of_its_process() {
    let Some((_directory, program, file)) = compile("thread-executes", THREAD_EXECUTES) else {
        return;
    };
    let script = format!("{program}; true");
    let output = record(&["-o", &file, "--", "sh", "-c", &script]);
    let bytes = fs::read(&file).expect("a file");
    let mut reader = Reader::new(&bytes[..]);
    let (mut tasks, mut roots, mut exits) = (0, 0, 0);
    while let Some(record) = reader.next().expect("a stream") {
        match record {
            Record::Task(task) => {
                tasks += 1;
                roots += u32::from(task.parent.is_none());
            }
            Record::Change(change) => exits += u32::from(change.kind.word() == Some("exit")),
            _ => {}
        }
    }
    // The shell, the first thread, the second one, and that under the id of the first.
    assert_eq!((tasks, roots, exits), (4, 1, 4), "{}", stderr(&output));
}

/// Sleeps for 700 ms, works for 20 ms, and exits.
const LATE: &str = "int main(void) { usleep(700000); burn(20); _exit(0); }";

#[test]
fn member_of_a_control_group_that_runs_shortly_before_its_exit_is_named() {
    let Some((_directory, program, file)) = compile("late_member", LATE) else { return };
    let Some(group) = ControlGroup::new("late") else { return };
    let enter = format!("echo $$ > {}/cgroup.procs && exec {program}", group.0);
    let mut member = Command::new("sh").args(["-c", &enter]).spawn().expect("a shell");
    while !fs::read_to_string(format!("/proc/{}/comm", member.id())).is_ok_and(|it| it != "sh\n") {
        assert!(member.try_wait().expect("a child").is_none(), "it lives for 0.7 s");
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = record(&["--cgroup", &group.0, "-d", "1", "-o", &file]);
    member.wait().expect("a child");
    if is_refused(&output) {
        return;
    }
    let samples = Stream::from_file(&file).samples;
    assert!(!samples.is_empty(), "{}", stderr(&output));
    for sample in &samples {
        assert!(program.ends_with(&sample.comm), "{} {}", sample.comm, stderr(&output));
        assert_ne!(sample.mark, Mark::Unmapped);
    }
}

/// Two children burn CPU time until standard input is closed; their parent waits.
const MASTER: &str = "int main(void) {
    for (int i = 0; i < 2; i++) if (!fork()) { burn_to_end(); _exit(0); }
    puts(\"ready\"); fflush(stdout);
    while (wait(0) > 0); return 0;
}";

#[test]
fn existing_descendants_are_recorded_on_request() {
    let Some((_directory, program, _)) = compile("master", MASTER) else { return };
    let root: &[&str] = &[];
    for user in [root, &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]] {
        let command = |words: &[&str]| {
            let words = [user, words].concat();
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        };
        if !command(&["true"]).status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: cannot become another user");
            continue;
        }
        let running = Running::start(&mut command(&[&program]));
        let attach = |options: &[&str]| {
            let recorder = [env!("CARGO_BIN_EXE_nprof-record"), "-o", "-", "-d", "0.5", "-p"];
            let output = command(&[&recorder[..], &[&running.pid()], options].concat()).output();
            let output = output.expect("it runs");
            (!is_refused(&output)).then(|| (Stream::read(&output.stdout), stderr(&output)))
        };
        let Some((stream, message)) = attach(&[]) else { continue };
        assert!(message.contains("2 existing descendants are not recorded"), "{message}");
        assert!(message.contains("no samples: the processes used 0"), "{message}");
        assert_eq!((stream.tasks, stream.samples.len()), (1, 0));
        let Some((stream, message)) = attach(&["--descendants"]) else { continue };
        assert!(!message.contains("existing descendants"), "{message}");
        assert_eq!(stream.tasks, 3, "{message}");
        assert!(stream.samples.len() > 10, "{message}");
    }
}

/// A thread executes the program again after the first thread has exited, and with that gets its id. It
/// then prints the id that it had, works before and after reading a byte, and exits. With one argument,
/// the program only works.
const LEAVES_ITS_ID: &str = "static void *thread(void *program) {
    char tid[16]; snprintf(tid, sizeof tid, \"%d\", gettid());
    usleep(300000);
    execl(program, program, \"again\", tid, (char *)0);
    return 0;
}
int main(int count, char **words) {
    char byte; pthread_t t;
    if (count == 2) { burn(400); return 0; }
    if (count > 2) { burn(50); puts(words[2]); fflush(stdout); read(0, &byte, 1); burn(50); return 0; }
    pthread_create(&t, 0, thread, words[0]); pthread_exit(0);
}";

#[test]
fn process_with_the_former_id_of_a_thread_is_not_recorded() {
    let Some((_directory, program, file)) = compile("leaves-its-id", LEAVES_ITS_ID) else { return };
    let Some(message) = record_beside_reuse(&program, &file, true) else { return };
    let stream = Stream::from_file(&file);
    assert!(stream.samples.len() > 20, "{message}");
    // With the other process it would be five times as much.
    assert!(stream.coverage() < 2.0, "{message}");
}

/// Records a program that prints a free id and goes on once it has read a byte. Before that another process gets the
/// id, and ends before it if `ends_first`. Returns the messages. None if it cannot be, which is printed.
fn record_beside_reuse(program: &str, file: &str, ends_first: bool) -> Option<String> {
    let mut recording = recorder(&["--follow", "system", "-o", file, "--", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(recording.stdout.take().expect("piped")).lines();
    let Some(line) = lines.next() else {
        let output = recording.wait_with_output().expect("it ends");
        eprintln!("SKIPPED: {}", stderr(&output));
        return None;
    };
    let id: u32 = line.expect("UTF-8").parse().expect("an id");
    let mut other = spawn_with_id(id, program);
    if let Some(other) = other.as_mut().filter(|_| ends_first) {
        other.wait().expect("it ends");
    }
    recording.stdin.take().expect("piped").write_all(b"x").expect("it reads");
    let message = stderr(&recording.wait_with_output().expect("it ends"));
    let Some(mut other) = other else {
        eprintln!("SKIPPED: no process got the id {id}");
        return None;
    };
    other.wait().expect("it ends");
    Some(message)
}

/// Starts a program with an argument as a process with this id. None if other processes take it, or it cannot be
/// chosen.
fn spawn_with_id(id: u32, program: &str) -> Option<Child> {
    (0..100).find_map(|_| {
        fs::write("/proc/sys/kernel/ns_last_pid", (id - 1).to_string()).ok()?;
        let mut other = Command::new(program).arg("other").spawn().expect("it runs");
        if other.id() == id {
            return Some(other);
        }
        other.kill().expect("ours");
        other.wait().expect("it ends");
        None
    })
}

/// Stops its parent, the recorder, while a child exits and more tasks come and go than the recorder's rings
/// can hold. It prints the id of the child, lets the recorder continue once it has read a byte, and
/// works. With an argument it only works, by another name.
const LOSES_AN_EXIT: &str = "
int main(int count, char **words) {
    char byte; int ready[2], end[2];
    if (count > 1) { prctl(PR_SET_NAME, words[1]); burn(400); return 0; }
    if (pipe(ready) || pipe(end)) return 1;
    pid_t child = fork();
    if (!child) { close(end[1]); burn(50); write(ready[1], \"x\", 1); read(end[0], &byte, 1); _exit(0); }
    read(ready[0], &byte, 1);
    kill(getppid(), SIGSTOP);
    for (int i = 0; i < 6000; i++) { pid_t one = fork(); if (!one) _exit(0); waitpid(one, 0, 0); }
    close(end[1]);
    waitpid(child, 0, 0);
    printf(\"%d\\n\", child); fflush(stdout);
    read(0, &byte, 1);
    kill(getppid(), SIGCONT);
    burn(400);
    return 0;
}";

#[test]
fn process_with_the_id_of_one_of_which_the_exit_was_lost_is_not_recorded() {
    let source = format!("#include <signal.h>\n{LOSES_AN_EXIT}");
    let Some((_directory, program, file)) = compile("loses-an-exit", &source) else { return };
    let Some(message) = record_beside_reuse(&program, &file, false) else { return };
    let stream = Stream::from_file(&file);
    assert!(stream.end.as_ref().expect("an end").lost_records > Some(0), "{message}");
    let of = |comm: &str| stream.samples.iter().filter(|sample| sample.comm == comm).count();
    assert_eq!(of("other"), 0, "{message}");
    assert!(of("program") > 300, "{}: {message}", of("program"));
}

/// A chain of processes: each works for some ms, forks the next one and exits. It begins before the recording, and
/// lasts for two seconds; the first process waits for all.
const CHAIN: &str = "int main(void) {
    struct timespec t;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!fork()) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        for (time_t end = t.tv_sec + 3; t.tv_sec < end; clock_gettime(CLOCK_MONOTONIC, &t)) {
            burn(3);
            if (fork()) _exit(0);
        }
        _exit(0);
    }
    puts(\"ready\"); fflush(stdout);
    while (wait(0) > 0) {}
    return 0;
}";

#[test]
fn processes_forked_by_one_that_exits_while_it_is_found_have_its_mappings() {
    let Some((_directory, program, file)) = compile("chain", CHAIN) else { return };
    let running = Running::start(&mut Command::new(&program));
    let output = record(&["-d", "1", "-o", &file, "--descendants", "-p", &running.pid()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stacks = named_stacks(&fs::read(&file).expect("a file"));
    let unmapped = stacks.iter().filter(|stack| stack.mark == Mark::Unmapped).count();
    assert!(stacks.len() > 100, "{}", stderr(&output));
    assert!(unmapped * 20 < stacks.len(), "{unmapped} of {}", stacks.len());
}

/// A child works for 500 ms and prints its id, then its parent, which has waited for it, exits at
/// once. With an argument nothing waits for the child.
const WAITS_AND_EXITS: &str = "int main(int count, char **words) {
    char byte;
    puts(\"ready\"); fflush(stdout); read(0, &byte, 1);
    if (count > 1 && fork()) { read(0, &byte, 1); return 0; }
    pid_t child = fork();
    if (!child) { burn(500); printf(\"%d\\n\", getpid()); fflush(stdout); _exit(0); }
    if (count == 1) waitpid(child, 0, 0);
    _exit(0);
}";

#[test]
fn cpu_time_of_exited_children_is_known() {
    let Some((_directory, program, file)) = compile("waits-and-exits", WAITS_AND_EXITS) else {
        return;
    };
    let coverage = |message: &str| {
        let stream = Stream::from_file(&file);
        assert!(stream.samples.len() > 20, "{message}");
        let end = stream.end.as_ref().expect("an end");
        // None if the recorder could not run for a second.
        end.task_ns.map(|_| stream.coverage())
    };
    let mut running = Running::start(&mut Command::new(&program));
    let recording = recorder(&["-o", &file, "-p", &running.pid()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    // The header is written first, the task only when it is followed.
    let bytes = || fs::metadata(&file).map_or(0, |metadata| metadata.len());
    let mut before = 0;
    for _ in 0..2 {
        while bytes() <= before {
            std::thread::sleep(Duration::from_millis(1));
        }
        before = bytes();
    }
    running.send(b"x");
    // Waits for it: its times are gone with it.
    drop(running);
    let message = stderr(&recording.wait_with_output().expect("it ends"));
    // It was many times as much: the time was that of the parent alone.
    assert!(coverage(&message).is_none_or(|coverage| coverage < 3.0), "{message}");

    // A daemon of a command that outlives it.
    let mut recording = recorder(&["-o", &file, "--", &program, "daemon"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(recording.stdout.take().expect("piped")).lines();
    let mut input = recording.stdin.take().expect("piped");
    assert_eq!(lines.next().expect("a line").expect("UTF-8"), "ready");
    input.write_all(b"x").expect("it reads");
    let daemon = lines.next().expect("a line").expect("UTF-8");
    let stat = || fs::read_to_string(format!("/proc/{daemon}/stat"));
    while stat().is_ok_and(|stat| !stat.contains(") Z")) {
        std::thread::yield_now();
    }
    input.write_all(b"x").expect("it reads");
    let message = stderr(&recording.wait_with_output().expect("it ends"));
    assert!(coverage(&message).is_none_or(|coverage| coverage < 3.0), "{message}");
}

#[test]
fn command_that_leaves_its_control_group_is_noticed() {
    let main = "int main(void) { burn(200); return 0; }";
    let Some((directory, program, file)) = compile("leaver", main) else { return };
    let script = format!(
        "mount=$(awk '/ - cgroup2 / {{ print $5; exit }}' /proc/self/mountinfo); \
         group=$(sed -n 's/^0:://p' /proc/self/cgroup); \
         echo $$ > \"$mount${{group%/*}}/cgroup.procs\" && exec {program}"
    );
    let output = record(&["--follow", "cgroup", "-o", &file, "--", "sh", "-c", &script]);
    let message = stderr(&output);
    if !output.status.success() {
        return eprintln!("SKIPPED: {message}");
    }
    assert!(message.contains("of CPU time outside of its control group"), "{message}");
    assert!(Stream::from_file(&file).coverage() < 0.5, "{message}");
    let output = record(&["--follow", "cgroup", "-o", &file, "--", &program]);
    assert!(!stderr(&output).contains("control group"), "{}", stderr(&output));
    // One for which the command does not wait: it waits for the end of its output.
    let leaver = directory.path("leaver.sh");
    fs::write(&leaver, &script).expect("written");
    let words = format!("(setsid sh {leaver} &); cat");
    let output = record(&[
        "--follow",
        "cgroup",
        "-o",
        &file,
        "--",
        "sh",
        "-c",
        &format!("{{ {words} < /dev/null; }} | cat"),
    ]);
    let message = stderr(&output);
    assert!(message.contains("1 process left the control group of the command"), "{message}");
}

/// A child with the memory of its parent, and an id of its own, runs code that the parent maps later: the record of
/// the mapping has the id of the parent.
const SHARED_MEMORY: &str = "
#include <fcntl.h>
#include <sys/stat.h>
static void (*volatile later)(void);
__attribute__((noinline, aligned(64))) void spin(void) {
    for (volatile long i = 0; i < 800000000; i++);
}
static int child(void *none) {
    while (!later) usleep(1000);
    later();
    _exit(0);
}
int main(void) {
    char *stack = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (clone(child, stack + (1 << 20), CLONE_VM | SIGCHLD, 0) < 0) return 1;
    usleep(100000);
    struct stat status;
    int file = open(\"/proc/self/exe\", O_RDONLY);
    if (fstat(file, &status)) return 1;
    char *copy = mmap(0, status.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    extern char __executable_start;
    later = (void (*)(void))(copy + ((char *)spin - &__executable_start));
    wait(0);
    return 0;
}";

#[test]
fn mappings_of_a_process_that_shares_its_memory_are_found() {
    let source = format!("#include <signal.h>\n{SHARED_MEMORY}");
    let Some((_directory, program, file)) = compile("shared-memory", &source) else { return };
    let output = record(&["-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stacks = named_stacks(&fs::read(&file).expect("a stream"));
    assert!(stacks.len() > 50, "{}", stacks.len());
    let unmapped = stacks.iter().filter(|stack| stack.mark == Mark::Unmapped).count();
    // Mappings are read again at most every 10 ms.
    assert!(unmapped * 10 < stacks.len(), "{unmapped} of {}", stacks.len());
}
