//! Processes that fork, execute, end early, or outlive the recorder; programs that are hard to record.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use nprof_preload::protocol::{Content, Settings};
use nprof_preload::{Listener, Losses};

use crate::recorder::{Rings, Workshop, settings};

const FORK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    void *inherited[3];
    for (int index = 0; index < 3; index++) inherited[index] = malloc(30001 + index);
    int status = 0;
    if (fork() == 0) {
        free(inherited[0]);
        malloc(30010);
        if (fork() == 0) {
            free(inherited[1]);
            _exit(0);
        }
        wait(&status);
        _exit(0);
    }
    free(inherited[2]);
    wait(&status);
    return status;
}
"#;

#[test]
fn forked_children_inherit_the_live_blocks() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", FORK, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(run.status.success());
    let [parent, child, grandchild] = &run.processes[..] else {
        panic!("{} processes", run.processes.len())
    };
    assert_eq!((parent.hello.parent_id, child.hello.parent_id), (0, parent.hello.id));
    assert_eq!(grandchild.hello.parent_id, child.hello.id);
    let sizes = |live: &HashMap<u64, u64>| {
        let mut sizes: Vec<_> =
            live.values().copied().filter(|size| (30_001..=30_010).contains(size)).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&parent.totals(&HashMap::new()).live), [30_001, 30_002]);
    let at_fork: HashMap<u64, u64> = parent
        .records()
        .take_while(|record| record.time_ns <= child.hello.started_at_ns)
        .filter_map(|record| match record.content {
            Content::Allocated(block) => Some((block.pointer, block.size)),
            _ => None,
        })
        .collect();
    assert_eq!(sizes(&at_fork), [30_001, 30_002, 30_003]);
    let of_child = child.totals(&at_fork).live;
    assert_eq!(sizes(&of_child), [30_002, 30_003, 30_010]);
    assert_eq!(sizes(&grandchild.totals(&of_child).live), [30_003, 30_010]);
}

/// Another thread of the parent has the lock of the dynamic linker, which no thread of the child releases.
#[test]
fn forked_child_does_not_wait_for_the_dynamic_linker() {
    let workshop = Workshop::new();
    let source = r#"
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int held;
static int hold(struct dl_phdr_info *info, size_t size, void *data) { held = 1; for (;;) pause(); }
static void *body(void *argument) { dl_iterate_phdr(hold, 0); return 0; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, body, 0);
    while (!held) sched_yield();
    pid_t child = fork();
    if (child == 0) {
        free(malloc(3000));
        _exit(0);
    }
    int status = -1;
    for (int round = 0; round < 20000 && waitpid(child, &status, WNOHANG) == 0; round++) usleep(1000);
    kill(child, SIGKILL);
    _exit(status != 0);
}
"#;
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |settings| settings.descriptors = true);
    assert_eq!(run.status.code(), Some(0), "the child does not end");
    let [_, child] = &run.processes[..] else { panic!("{} processes", run.processes.len()) };
    assert!(child.allocations().any(|block| block.size == 3000));
}

#[test]
fn executed_images_have_rings_of_their_own() {
    let workshop = Workshop::new();
    let run = workshop.run(Path::new("/bin/sh"), &["-c", "/bin/true; exec /bin/echo text"], |_| {});
    assert_eq!(run.output, "text\n");
    let shell = run.processes.first().unwrap().pid;
    let images = run
        .processes
        .iter()
        .filter(|process| process.pid == shell && process.hello.parent_id == 0)
        .count();
    assert_eq!(images, 2, "sh and echo");
    assert!(
        run.processes.iter().any(|process| process.pid != shell && process.hello.parent_id == 0),
        "true"
    );
}

/// A signal handler that records all the time, in a program that records all the time. malloc(3) is not safe in
/// handlers, so the handler opens descriptors.
const SIGNALS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
static volatile int hits;
static void handle(int number) { __sync_fetch_and_add(&hits, 1); close(open("/dev/null", O_RDONLY)); }
static void *body(void *argument) {
    while (hits < 5000) free(malloc(50));
    return 0;
}
int main(void) {
    struct itimerval interval = {{0, 50}, {0, 50}};
    pthread_t threads[3];
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &interval, 0);
    for (int index = 0; index < 3; index++) pthread_create(&threads[index], 0, body, 0);
    for (int index = 0; index < 3; index++) pthread_join(threads[index], 0);
    interval.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &interval, 0);
    printf("%d\n", hits);
}
"#;

#[test]
fn signal_handlers_record_within_hooks() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", SIGNALS, &[]).unwrap();
    let run = workshop.run(&program, &[], |settings| settings.descriptors = true);
    assert!(run.status.success());
    let opened =
        run.only().records().filter(|record| matches!(record.content, Content::Opened(_))).count()
            as u64;
    let hits: u64 = run.output.trim().parse().unwrap();
    // A handler that interrupts the writing of a record cannot wait for room, which depends on that record.
    let losses = run.only().losses;
    assert!(opened <= hits && hits <= opened + losses.others, "{opened} of {hits}, {losses:?}");
    assert!(losses.others < hits / 5, "{losses:?}");
    assert_eq!(Losses { others: 0, ..losses }, Losses::default());
    run.only().totals(&HashMap::new());
}

/// Signals end 150 threads while they record; later records of other threads must be read.
#[test]
fn threads_that_end_within_a_hook_hide_no_records() {
    let workshop = Workshop::new();
    let source = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void end(int number) { syscall(SYS_exit, 0); }
static volatile int records;
static void *body(void *argument) {
    for (;;) {
        close(open("/dev/null", O_RDONLY));
        records++;
    }
}
int main(void) {
    signal(SIGUSR1, end);
    for (int round = 0; round < 150; round++) {
        pthread_t thread;
        records = 0;
        pthread_create(&thread, 0, body, 0);
        while (records < 20) sched_yield();
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, 0);
        free(malloc(5000 + round));
    }
}
"#;
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |settings| settings.descriptors = true);
    assert!(run.status.success());
    let marks = run.only().allocations().filter(|block| (5000..5150).contains(&block.size));
    assert_eq!(marks.count(), 150);
    assert_eq!(run.only().losses, Losses::default());
}

/// Leaves hooks from signal handlers by siglongjmp(3), alternately to the caller of the hook and to one that goes
/// on with deeper calls. A handler that interrupts the allocator itself must not leave it. Prints the number of marks.
const JUMPS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
static sigjmp_buf jump;
static volatile int armed;
static unsigned long low, high;
static pthread_t target;
static void handle(int number, siginfo_t *info, void *context) {
    unsigned long ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (!armed || ip < low || ip >= high) return;
    /* After a system call: the thread waits for room, and holds no record. */
    if (*(unsigned short *)(ip - 2) == 0x050f) return;
    armed = 0;
    siglongjmp(jump, 1);
}
static void *send(void *argument) {
    for (;;) { pthread_kill(target, SIGUSR1); usleep(20); }
}
__attribute__((noinline)) static void mark(int depth, int size) {
    volatile char room[200];
    memset((char *)room, depth, sizeof room);
    if (depth > 0) mark(depth - 1, size);
    else free(malloc(size));
    room[0] = 1;
}
int main(void) {
    /* A stack of which the copy takes a while. */
    volatile char room[30000];
    memset((char *)room, 1, sizeof room);
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "r-xp") && strstr(line, "libnprof")) sscanf(line, "%lx-%lx", &low, &high);
    fclose(maps);
    struct sigaction action = {0};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &action, 0);
    target = pthread_self();
    pthread_t sender;
    pthread_create(&sender, 0, send, 0);
    /* On a busy machine, signals may hit hooks seldom. */
    time_t end = time(0) + 10;
    for (volatile int round = 0; round < 40; round++) {
        if (sigsetjmp(jump, 1) == 0) {
            armed = 1;
            while (time(0) < end) free(malloc(100));
        }
        armed = 0;
        mark(round % 2 * 3, 5000 + round);
    }
    printf("%d\n", low > 0);
    fflush(stdout);
    _exit(0);
}
"#;

#[test]
fn longjmp_out_of_a_hook_hides_no_records() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", JUMPS, &[]).unwrap();
    // A jump may also leave a hook before its record.
    for _ in 0..3 {
        // A jump never leaves a wait for room, of which there would be many on a busy machine.
        let run = workshop.run(&program, &[], |settings| {
            (settings.stack_bytes, settings.ring_bytes) = (16 << 10, 16 << 20);
        });
        assert_eq!((run.status.code(), &run.output[..]), (Some(0), "1\n"), "{}", run.status);
        let marks = run.only().allocations().filter(|block| (5000..5040).contains(&block.size));
        assert_eq!(marks.count(), 40, "{:?}", run.only().losses);
        let Losses { others: abandoned, .. } = run.only().losses;
        if abandoned > 0 {
            return;
        }
    }
    println!("SKIPPED: no jump has left a record");
}

#[test]
fn recorder_that_is_gone_changes_nothing() {
    let workshop = Workshop::new();
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    puts("start");
    fflush(stdout);
    getchar();
    unsigned long sum = 0;
    for (int index = 0; index < 20000; index++) {
        char *block = malloc(100);
        sum += (unsigned long)(block != 0);
        if (index % 2) free(block);
    }
    printf("%lu\n", sum);
    return 7;
}
"#;
    let program = workshop.compile("cc", source, &[]).unwrap();
    for wait in [true, false] {
        let mut listener = Listener::bind().unwrap();
        let name = listener.name().to_owned();
        let mut settings = settings(&name, listener.secret());
        settings.wait = wait;
        let mut child = workshop
            .command(&program, &settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut rings = Rings::default();
        while rings.processes.is_empty() {
            rings.read(&mut listener);
        }
        // The recorder is gone, with its socket and its mappings, before most of the allocations.
        drop((rings, listener));
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "start\n20000\n");
        assert_eq!(output.status.code(), Some(7));
    }
}

#[test]
fn records_of_a_killed_program_are_complete() {
    let workshop = Workshop::new();
    let source = r#"
#include <signal.h>
#include <stdlib.h>
int main(void) {
    for (int index = 0; index < 1000; index++) malloc(40000 + index);
    raise(SIGKILL);
}
"#;
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(!run.status.success());
    let live = run.only().totals(&HashMap::new()).live;
    assert_eq!(live.values().filter(|&&size| size >= 40_000).count(), 1000);
}

#[test]
fn starts_without_recorder_and_with_malformed_settings() {
    let workshop = Workshop::new();
    for value in [None, Some(""), Some("no-such-socket:heap=1,fd"), Some("malformed")] {
        let mut command = Command::new("/bin/echo");
        command.arg("text").env("LD_PRELOAD", workshop.path().join("libnprof.so"));
        if let Some(value) = value {
            command.env(nprof_preload::protocol::VARIABLE, value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout, b"text\n");
        assert_eq!(output.stderr, b"", "{value:?}");
    }
}

#[test]
fn acknowledged_process_waits_for_the_recorder() {
    let workshop = Workshop::new();
    for _ in 0..20 {
        let mut listener = Listener::bind().unwrap();
        let name = listener.name().to_owned();
        let settings = Settings { acknowledge: true, ..settings(&name, listener.secret()) };
        let mut child = workshop.command(Path::new("/bin/true"), &settings).spawn().unwrap();
        let connection = loop {
            if let Some(connection) = listener.accept().unwrap() {
                break connection;
            }
        };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", connection.pid)).unwrap();
        assert!(maps.contains("/true") && maps.contains("libnprof.so"), "{maps}");
        drop(connection.socket);
        assert!(child.wait().unwrap().success());
    }
}
