//! Measures the cost of the hooks. The tests print figures and assert none.

use std::path::Path;
use std::process::{Command, Stdio};

use nprof_preload::Listener;

use crate::recorder::{Rings, Workshop, settings};

/// Prints the CPU time in ns of a pair of malloc(64) and free, in each of several threads, DEPTH calls deep.
const PAIRS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static long pairs;
static int depth;
__attribute__((noinline)) static double run(int level) {
    if (level > 0) {
        volatile double result = run(level - 1);
        return result;
    }
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (long index = 0; index < pairs; index++) {
        void *volatile block = malloc(64);
        free(block);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / pairs;
}
static void *body(void *argument) {
    *(double *)argument = run(depth);
    return 0;
}
int main(int count, char **arguments) {
    pthread_t threads[64];
    double results[64], sum = 0;
    int number = atoi(arguments[1]);
    pairs = atol(arguments[2]);
    depth = atoi(arguments[3]);
    for (int index = 0; index < number; index++) pthread_create(&threads[index], 0, body, &results[index]);
    for (int index = 0; index < number; index++) pthread_join(threads[index], 0), sum += results[index];
    printf("%f\n", sum / number);
}
"#;

const ROUNDS: usize = 7;

/// Runs a program bare and with the library in turn; returns the smallest figures of both.
fn compare(workshop: &Workshop, program: &Path, arguments: &[&str], period: u64) -> (f64, f64) {
    let (mut bare, mut hooked) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let output = Command::new(program).args(arguments).output().unwrap();
        bare = bare.min(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap());
        let mut listener = Listener::bind().unwrap();
        let name = listener.name().to_owned();
        let mut settings = settings(&name, listener.secret());
        settings.heap_period = period;
        settings.stack_bytes = if period == 1 { 2048 } else { 8192 };
        let mut child = workshop
            .command(program, &settings)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut rings = Rings::default();
        while child.try_wait().unwrap().is_none() {
            rings.read(&mut listener);
            for (process, _) in &mut rings.processes {
                process.forget();
            }
            std::thread::sleep(std::time::Duration::from_micros(if period == 1 {
                0
            } else {
                1000
            }));
        }
        let output = child.wait_with_output().unwrap();
        hooked = hooked.min(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap());
    }
    (bare, hooked)
}

#[test]
#[ignore = "measures for a minute"]
fn prints_the_cost_of_a_pair() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", PAIRS, &["-O2"]).unwrap();
    for (threads, pairs, depth, period) in [
        ("1", "10000000", "3", 524_288),
        ("1", "10000000", "25", 524_288),
        ("8", "2000000", "25", 524_288),
        ("1", "200000", "3", 1),
        ("1", "200000", "25", 1),
    ] {
        let (bare, hooked) = compare(&workshop, &program, &[threads, pairs, depth], period);
        println!(
            "{threads} threads, depth {depth}, period {period}: {bare:.2} ns bare, {hooked:.2} ns, {:+.2}",
            hooked - bare
        );
    }
}
