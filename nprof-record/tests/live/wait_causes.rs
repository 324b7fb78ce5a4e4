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
#include <sys/resource.h>
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
    struct rusage first, last;
    getrusage(RUSAGE_THREAD, &first);
    printf("%lld\n", waiter(how));
    getrusage(RUSAGE_THREAD, &last);
    // Of pages: those for which it was switched out.
    if (file) printf("%.3f\n", (last.ru_nvcsw - first.ru_nvcsw) / (double)PAGES);
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
    // A fast disk takes 30 us for a page: of shorter waits than the interval only some are recorded.
    let options = ["-e", "wait:20000"];
    let name = format!("waits-cause-{how}");
    let recording = Recording::of_program(&name, CAUSES, &[], &options, &operands)?;
    let names = recording.names();
    let truth = *recording.printed().first().expect("the time waited");
    // The hypervisor may answer at once: the time of such a page is none of the virtual machine.
    let switched = recording.printed().get(1).map_or(1.0, |share| share.min(1.0));
    if switched < 0.25 {
        eprintln!("SKIPPED: the disk answered at once");
        return None;
    }
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
    let (waited, least) = (waited as f64, truth * switched * 0.8 - 2e6 - runnable);
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

/// Reads 20 times from a new socket and from a new named pipe with the number 70, which are closed then, and
/// /dev/null opened with that number.
const REUSED: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static void wait_for(int end, int other) {
    char byte;
    if (fork() == 0) {
        usleep(10000);
        _exit(write(other, "x", 1) != 1);
    }
    if (read(end, &byte, 1) != 1) perror("read");
    close(end);
    close(other);
    wait(0);
}
int main(int count, char **words) {
    char name[200];
    for (int i = 0; i < 20; i++) {
        int ends[2], file;
        if (i % 2) {
            snprintf(name, sizeof name, "%s.%d", words[0], i);
            if (mkfifo(name, 0600)) return 1;
            dup2(ends[1] = open(name, O_RDWR), 70);
        } else {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
            dup2(ends[0], 70);
            close(ends[0]);
        }
        wait_for(70, ends[1]);
        file = open("/dev/null", O_RDONLY);
        dup2(file, 70);
        close(file);
        unlink(name);
    }
    usleep(200000);
    return count != 1;
}
"#;

#[test]
fn wait_has_no_other_file_that_got_its_number_later() {
    let name = "waits-reused";
    let Some(recording) = Recording::of_program(name, REUSED, &[], &["-e", "blocked"], &[]) else {
        return;
    };
    let reads: Vec<_> = recording.waits().filter(|wait| wait.call == "read").collect();
    let on = |prefix: &str| reads.iter().filter(|wait| wait.on.starts_with(prefix)).count();
    // Waits shorter than the period are chosen at random.
    assert!(reads.len() >= 10, "{}", reads.len());
    assert_eq!(on("fd:70=/dev/null"), 0, "it was opened later");
    assert!(on("fd:70=socket:[") >= 5, "{:?}", reads.iter().map(|it| &it.on).collect::<Vec<_>>());
    for wait in &reads {
        let is_own = wait.on == "fd:70" || wait.on.starts_with("fd:70=socket:[");
        assert!(is_own || wait.on.contains("/waits-reused"), "{}", wait.on);
    }
}

/// Opens a named pipe by a worker of io_uring(7), which waits for its writer for 300 ms.
const URING: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct io_uring_params p;
    char name[200];
    memset(&p, 0, sizeof p);
    int ring = syscall(SYS_io_uring_setup, 8, &p);
    if (ring < 0) return puts("no io_uring"), 0;
    char *queue = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(0, p.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE,
                                      MAP_SHARED, ring, IORING_OFF_SQES);
    snprintf(name, sizeof name, "%s.fifo", words[0]);
    if (mkfifo(name, 0600)) return 1;
    if (fork() == 0) {
        usleep(300000);
        _exit(open(name, O_WRONLY) < 0);
    }
    entry->opcode = IORING_OP_OPENAT;
    entry->fd = AT_FDCWD;
    entry->addr = (long)name;
    entry->open_flags = O_RDONLY;
    entry->flags = IOSQE_ASYNC;
    *(unsigned *)(queue + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(queue + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    return count != 1;
}
"#;

#[test]
fn worker_of_io_uring_has_its_wait_and_its_times() {
    let options = ["-e", "wall"];
    let recording = Recording::of_program("waits-uring", URING, &[], &options, &[]);
    let Some(recording) = recording else { return };
    if String::from_utf8_lossy(&recording.output.stdout).contains("no io_uring") {
        return eprintln!("SKIPPED: no io_uring here");
    }
    assert_eq!(recording.times.len(), 3, "the program, its child and the worker");
    let slept = recording.times.iter().filter(|times| times.blocked >= 250_000_000).count();
    assert_eq!(slept, 3, "{:?}", recording.times);
}
