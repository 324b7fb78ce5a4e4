//! Samples by bytes.

use crate::recorder::Workshop;

const PLAN: &str = r#"
#include <stdlib.h>
int main(void) {
    for (int index = 0; index < 4; index++) malloc(100000 + index);
    for (int index = 0; index < 40000; index++) {
        void *block = malloc(24 + index % 1000);
        if (index % 4) free(block);
    }
}
"#;

#[test]
fn large_blocks_are_exact_and_small_ones_unbiased() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", PLAN, &[]).unwrap();
    let truth: f64 = (0..40_000).map(|index| f64::from(24 + index % 1000)).sum();
    let (mut means, runs, period) = (Vec::new(), 20, 65_536);
    for _ in 0..runs {
        let run = workshop.run(&program, &[], |settings| settings.heap_period = period);
        let process = run.only();
        let large: Vec<_> = process.allocations().filter(|block| block.size >= 100_000).collect();
        assert_eq!(large.len(), 4);
        assert!(
            large.iter().all(|block| block.weight == block.size && (1..=2).contains(&block.count))
        );
        let small = process.allocations().filter(|block| block.size < 1100);
        let weight: u64 = small.map(|block| block.weight).sum();
        // In one thread the sum differs by less than a period; the allocations of the C library add a few KiB.
        assert!((weight as f64 - truth).abs() < 2.0 * period as f64, "{weight} instead of {truth}");
        means.push(weight as f64);
        // Three of four sampled blocks are freed, and none twice.
        process.totals(&Default::default());
    }
    let mean = means.iter().sum::<f64>() / f64::from(runs);
    // The standard error of the mean is at most period / sqrt(6 * 20), 0.03 % of the sum.
    assert!((mean / truth - 1.0).abs() < 0.003, "{mean} instead of {truth}");
}

/// Sizes above half of the address space are negative as the hooks subtract them.
#[test]
fn sizes_that_no_block_has_change_nothing() {
    let source = r#"
#include <stdint.h>
#include <stdlib.h>
int main(void) {
    size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 2, (size_t)3 << 62, (size_t)1 << 62, (size_t)1 << 48};
    for (int index = 0; index < 6; index++)
        if (malloc(sizes[index]) || calloc(1, sizes[index]) || realloc(0, sizes[index])) return 1;
    for (int index = 0; index < 1000; index++) free(malloc(1000));
    free(malloc(70000));
}
"#;
    let workshop = Workshop::new();
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |settings| settings.heap_period = 65_536);
    assert!(run.status.success());
    let weight: u64 = run.only().allocations().map(|block| block.weight).sum();
    assert!(weight.abs_diff(1_070_000) < 2 * 65_536, "{weight}");
}

/// Each run is a process of one allocation, so that a bias at the start of a thread shows.
#[test]
fn short_threads_are_sampled_without_bias() {
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
static void *body(void *argument) { free(malloc(3000)); return 0; }
int main(void) {
    for (int index = 0; index < 5000; index++) {
        pthread_t thread;
        pthread_create(&thread, 0, body, 0);
        pthread_join(thread, 0);
    }
}
"#;
    let workshop = Workshop::new();
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |settings| settings.heap_period = 30_000);
    assert!(run.status.success());
    let samples = run.only().allocations().filter(|block| block.size == 3000).count() as f64;
    // Binomial with 5000 threads and probability 0.1, standard deviation 21: six of them.
    assert!((samples - 500.0).abs() < 130.0, "{samples} of 5000");
    run.only().totals(&Default::default());
}
