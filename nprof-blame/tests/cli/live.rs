//! Real programs that wait for each other, recorded as root.

use nprof_tests::{Shell, rows};

/// A stage of a pipe, a pair of processes with a socket, or a pool of threads with a queue. In each, one
/// part is slow: `work` takes its time.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile unsigned long sink;
static char line[4096];

__attribute__((noinline)) static void work(long steps) {
    for (long step = 0; step < steps; step++) sink += step * step;
}

/* Makes lines, or copies those of its input. */
static int stage(long lines, long steps) {
    memset(line, 'x', sizeof line);
    while (lines < 0 ? fread(line, sizeof line, 1, stdin) : lines--) {
        work(steps);
        fwrite(line, sizeof line, 1, stdout);
        fflush(stdout);
    }
    return 0;
}

static int client_and_server(long requests, long steps) {
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    if (fork()) {
        close(ends[1]);
        while (requests--) {
            write(ends[0], line, 1);
            read(ends[0], line, 1);
        }
        return 0;
    }
    close(ends[0]);
    while (read(ends[1], line, 1) == 1) {
        work(steps);
        write(ends[1], line, 1);
    }
    return 0;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long queued, is_done;

static void *take_jobs(void *unused) {
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (!queued && !is_done) pthread_cond_wait(&changed, &mutex);
        int has_job = queued > 0;
        queued -= has_job;
        pthread_mutex_unlock(&mutex);
        if (!has_job) return unused;
    }
}

static int pool(long jobs, long steps) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, take_jobs, 0);
    while (jobs--) {
        work(steps);
        pthread_mutex_lock(&mutex);
        queued++;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    is_done = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}

int main(int count, char **words) {
    long number = atol(words[2]), steps = atol(words[3]);
    if (!strcmp(words[1], "stage")) return stage(number, steps);
    return strcmp(words[1], "pool") ? client_and_server(number, steps) : pool(number, steps);
}
"#;

/// Compiles the program as `fast` and as `slow`: threads have the name of their file.
fn shell() -> Shell {
    let shell = Shell::new();
    shell.write("stage.c", PROGRAM);
    shell.run("gcc -O1 -g -pthread -w -o slow stage.c && cp slow fast").quiet();
    shell
}

/// Returns the blamed weight by thread and function of a recorded script. None if waiting cannot be
/// measured here, which is printed.
fn blamed(shell: &Shell, script: &str) -> Option<Vec<(String, String, f64)>> {
    shell.write("script", script);
    let record = "nprof-record -q -e wall -e wakes -o x.raw -- sh script";
    let recorded = shell.run(record);
    if recorded.err.contains("cannot measure waiting") || recorded.err.contains("hides its") {
        eprintln!("SKIPPED: {}", recorded.err);
        return None;
    }
    assert_eq!(recorded.status, 0, "{recorded:?}");
    let charged = shell.run(
        "nprof-symbolize x.raw 2> /dev/null | nprof-blame |
             nprof-flat --match event=blamed --by command,function --format tsv",
    );
    assert_eq!(charged.status, 0, "{charged:?}");
    let row = |row: &nprof_tests::Row| {
        let [command, function] = ["command", "function"].map(|key| row.text(key).to_owned());
        (command, function, row.number("self"))
    };
    Some(rows(&charged.out).iter().map(row).collect())
}

/// Checks that the waiting is explained, and charged to the slow part, most of it to `work`.
#[track_caller]
fn assert_charged(rows: &[(String, String, f64)], command: &str) {
    let sum = |holds: &dyn Fn(&str, &str) -> bool| -> f64 {
        rows.iter().filter(|row| holds(&row.0, &row.1)).map(|row| row.2).sum()
    };
    let all = sum(&|_, _| true);
    let unexplained = ["[unknown waker]", "[not sampled]", "[cycle of waits]", "[depth limit]"];
    let lost = sum(&|_, function| unexplained.contains(&function));
    assert!(lost < 0.05 * all, "{lost} of {all}: {rows:?}");
    // Other programs of the machine make all parts wait for a CPU; timers end no wait of them.
    let outside = ["[waiting for a CPU]", "[interrupt]"];
    let inside = sum(&|_, function| !outside.contains(&function));
    let slow = sum(&|other, function| other == command && !outside.contains(&function));
    assert!(slow >= 0.9 * inside, "{slow} of {inside}: {rows:?}");
    // Interrupts of it have functions of the kernel as leaves.
    let work = sum(&|other, function| other == command && function == "work");
    assert!(work >= 0.8 * inside, "{work} of {inside}: {rows:?}");
}

#[test]
fn slow_stage_of_a_pipe_is_charged_wherever_it_is() {
    let shell = shell();
    let [fast, slow] = ["./fast stage -1 1000", "./slow stage -1 2000000"];
    for stages in [
        ["./slow stage 250 2000000", fast, fast, fast],
        ["./fast stage 250 1000", slow, fast, fast],
        ["./fast stage 250 1000", fast, fast, slow],
    ] {
        let script = format!("{} > /dev/null", stages.join(" | "));
        let Some(rows) = blamed(&shell, &script) else { return };
        assert_charged(&rows, "slow");
    }
}

#[test]
fn slow_input_of_sort_and_uniq_is_charged() {
    let shell = shell();
    let script = "./slow stage 250 2000000 | fold | sort | uniq | gzip > /dev/null";
    let Some(rows) = blamed(&shell, script) else { return };
    assert_charged(&rows, "slow");
}

#[test]
fn slow_server_and_slow_producer_are_charged() {
    let shell = shell();
    for kind in ["pair", "pool"] {
        let script = format!("exec ./slow {kind} 250 2000000");
        let Some(rows) = blamed(&shell, &script) else { return };
        assert_charged(&rows, "slow");
    }
}
