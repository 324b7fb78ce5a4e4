//! Causes of waits: programs that wait in one way and measure how long, each with its right stack.

use nprof_stream::Mark;

use crate::support::Directory;
use crate::waiting::Recording;

/// Waits in one way, named by the first operand, in the function `waiter`. Prints the time of the waits
/// in ns: elapsed time less CPU time.
const CAUSES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static long long waited(void) {
    return clock_ns(CLOCK_MONOTONIC) - clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
static void nap(void) {
    struct timespec t = {0, 300000000};
    nanosleep(&t, 0);
}
static void fail(const char *what) {
    perror(what);
    exit(1);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
static void *holder(void *none) {
    pthread_mutex_lock(&mutex);
    pthread_barrier_wait(&held);
    nap();
    pthread_mutex_unlock(&mutex);
    return none;
}

__attribute__((noinline)) static void hold(void) {
    pthread_t thread;
    pthread_barrier_init(&held, 0, 2);
    pthread_create(&thread, 0, holder, 0);
    pthread_barrier_wait(&held);
}

enum { PAGE = 4096, PAGES = 512 };
static int file;
static char *map;
static void open_file(const char *name) {
    static char page[PAGE];
    file = open(name, O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < PAGES; i++)
        if (write(file, page, PAGE) != PAGE) fail(name);
    if (fsync(file) || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)) fail(name);
}

static volatile int turns;
__attribute__((noinline)) static long long waiter(const char *how) {
    static char buffer[PAGE] __attribute__((aligned(PAGE)));
    int ends[2];
    long long before = waited();
    if (!strcmp(how, "sleep")) {
        nap();
    } else if (!strcmp(how, "pipe")) {
        if (pipe(ends)) fail(how);
        if (fork() == 0) nap(), _exit(write(ends[1], "", 1) != 1);
        before = waited();
        if (read(ends[0], buffer, 1) != 1) fail(how);
    } else if (!strcmp(how, "mutex")) {
        hold();
        before = waited();
        pthread_mutex_lock(&mutex);
        fprintf(stderr, "%p\n", (void *)&mutex);
    } else if (!strcmp(how, "disk")) {
        for (int i = 0; i < PAGES; i++)
            if (pread(file, buffer, PAGE, i * PAGE) != PAGE) fail(how);
    } else if (!strcmp(how, "fault")) {
        for (int i = 0; i < PAGES; i++) turns += map[i * PAGE];
    } else if (!strcmp(how, "vfork")) {
        if (vfork() == 0) nap(), _exit(0);
    } else if (!strcmp(how, "stop")) {
        for (;;) turns++;
    }
    return waited() - before;
}

int main(int count, char **words) {
    const char *how = words[1], *name = words[2];
    long long before;
    int status;
    if (!strcmp(how, "disk")) {
        open_file(name);
        if (fcntl(file, F_SETFL, O_DIRECT)) fail("O_DIRECT");
    } else if (!strcmp(how, "fault")) {
        open_file(name);
        map = mmap(0, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
        // Each page is read by itself.
        if (map == MAP_FAILED || madvise(map, PAGES * PAGE, MADV_RANDOM)) fail(how);
    } else if (!strcmp(how, "stop")) {
        pid_t child = fork();
        if (child == 0) waiter(how);
        nap();
        kill(child, SIGSTOP);
        if (waitpid(child, &status, WUNTRACED) != child) fail(how);
        before = clock_ns(CLOCK_MONOTONIC);
        nap();
        kill(child, SIGCONT);
        printf("%lld\n", clock_ns(CLOCK_MONOTONIC) - before);
        waitpid(child, &status, WCONTINUED);
        kill(child, SIGKILL);
        return wait(0) != child;
    }
    printf("%lld\n", waiter(how));
    fflush(stdout);
    // The recorder looks up descriptors of a process that lives.
    nap();
    while (wait(0) > 0) {}
    return count != 3;
}
"#;

/// The truth about a way to wait.
struct Cause {
    /// The functions of the kernel of which one must be the leaf, by the kernel's version.
    leaves: &'static [&'static str],
    call: &'static str,
    state: &'static str,
    /// The start of the object.
    on: &'static str,
}

/// Records the program as it waits, and checks stack, cause and time. None if it was skipped.
fn check(how: &str, cause: &Cause) -> Option<Recording> {
    let file = Directory::new(&format!("waits-file-{how}"));
    let operands = [how, &file.path("file")];
    let options = ["-e", "wait"];
    let name = format!("waits-cause-{how}");
    let recording = Recording::of_program(&name, CAUSES, &[], &options, &operands)?;
    let names = recording.names();
    let truth = *recording.printed().first().expect("the time waited");
    let mut waited = 0;
    for wait in recording.waits() {
        let calls = names.calls(wait);
        let leaf = names.leaf(wait);
        let is_cause = wait.event == "blocked" && wait.call == cause.call;
        let is_in_waiter = calls.contains(&"waiter") && !calls.contains(&"hold");
        if !is_cause || !is_in_waiter || !cause.leaves.contains(&leaf) {
            continue;
        }
        assert_eq!((wait.state.as_str(), wait.mark), (cause.state, Mark::None));
        assert!(wait.on.starts_with(cause.on), "{}", wait.on);
        let root = &calls[calls.len() - 3..];
        assert_eq!(root, ["waiter", "main", "_start"], "{calls:?}");
        waited += wait.weight;
    }
    let runnable = recording.weight_of("runnable") as f64;
    let seen: Vec<_> = recording
        .waits()
        .map(|it| (names.leaf(it), &it.call, &it.state, it.weight, names.calls(it)))
        .collect();
    // The rest of the time the program waited for a CPU, or for locks of the kernel, or its virtual
    // machine did not run. On a busy machine the disk may be faster than the CPU is free.
    let (waited, least) = (waited as f64, truth * 0.8 - 2e6 - runnable);
    // Up to 512 waits, each longer than the program can see by a part of two context switches.
    let most = truth * 1.02 + 512.0 * 10e3;
    assert!(waited >= least.max(1e6) && waited <= most, "{waited} of {truth}: {seen:?}");
    Some(recording)
}

#[test]
fn sleep_waits_for_its_timer() {
    let leaves = &["hrtimer_nanosleep", "common_nsleep"];
    check("sleep", &Cause { leaves, call: "clock_nanosleep", state: "S", on: "" });
}

#[test]
fn reader_of_a_slow_pipe_waits_for_its_writer() {
    let leaves = &["anon_pipe_read", "pipe_read", "pipe_wait_readable"];
    check("pipe", &Cause { leaves, call: "read", state: "S", on: "fd:3" });
}

#[test]
fn contended_mutex_is_a_wait_for_its_futex() {
    let leaves = &["futex_do_wait", "futex_wait_queue"];
    let cause = Cause { leaves, call: "futex", state: "S", on: "futex:0x" };
    let Some(recording) = check("mutex", &cause) else { return };
    let message = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    let address = message.lines().next().expect("the address of the mutex");
    let mut locks = recording.waits().filter(|wait| wait.on == format!("futex:{address}"));
    assert!(locks.any(|wait| wait.lasted_ns > 250_000_000), "{address}");
}

#[test]
fn direct_read_waits_for_the_disk() {
    let leaves =
        &["__iomap_dio_rw", "__blkdev_direct_IO_simple", "blk_io_schedule", "submit_bio_wait"];
    check("disk", &Cause { leaves, call: "pread64", state: "D", on: "fd:3=/" });
}

#[test]
fn fault_on_a_dropped_page_waits_for_the_file() {
    let leaves = &["folio_wait_bit_common", "__folio_lock_or_retry", "__lock_page_or_retry"];
    check("fault", &Cause { leaves, call: "page-fault", state: "D", on: "" });
}

#[test]
fn stopped_thread_waits_where_the_signal_found_it() {
    let leaves = &["do_signal_stop", "get_signal"];
    check("stop", &Cause { leaves, call: "stopped", state: "T", on: "" });
}

#[test]
fn vfork_waits_for_the_exit_of_the_child() {
    let leaves = &["kernel_clone", "wait_for_vfork_done"];
    check("vfork", &Cause { leaves, call: "vfork", state: "D", on: "" });
}
