//! With a period of 1 every allocation is recorded.

use nprof_preload::protocol::Content;

use crate::recorder::Workshop;

/// Prints the bytes and calls of each size class between two blocks of known sizes, which mark the part to check.
const SITES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static void *site(size_t size) { return malloc(size); }
int main(void) {
    unsigned long bytes = 0, calls = 0;
    free(malloc(11111));
    for (int round = 0; round < 50; round++)
        for (int index = 0; index < 200; index++) {
            size_t size = index < 190 ? 16 + index * 37 : (size_t)1 << (index - 180 + 7);
            void *block = site(size);
            bytes += size; calls++;
            if (round % 10 != 9) free(block);
        }
    free(malloc(22222));
    printf("%lu %lu\n", bytes, calls);
}
"#;

#[test]
fn counts_every_byte_and_call() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", SITES, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(run.status.success());
    let between: Vec<_> = run
        .only()
        .allocations()
        .skip_while(|block| block.size != 11_111)
        .skip(1)
        .take_while(|block| block.size != 22_222)
        .collect();
    let bytes: u64 = between.iter().map(|block| block.size).sum();
    assert_eq!(format!("{bytes} {}\n", between.len()), run.output);
    assert!(
        between
            .iter()
            .all(|block| block.weight == block.size && u64::from(block.count) == block.size)
    );
    // The blocks of each tenth round, and the buffer of stdout.
    let totals = run.only().totals(&Default::default());
    assert_eq!(totals.live.len(), 5 * 200 + 1);
    assert_eq!(run.only().losses, Default::default());
}

#[test]
fn stack_copy_begins_at_the_caller() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", SITES, &["-no-pie"]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    let blocks: Vec<_> = run.only().allocations().filter(|block| block.size == 16 + 37).collect();
    assert_eq!(blocks.len(), 50);
    let registers = blocks[0].capture.registers;
    for block in &blocks {
        assert_eq!(block.capture.registers.ip, registers.ip);
        assert_eq!(block.capture.registers.sp, registers.sp);
        assert_eq!(block.capture.stack.len(), 2048);
    }
    // The return address is in the program, and so is the one of its caller, within the first words of the stack.
    let is_code = |address: u64| (0x40_0000..0x40_4000).contains(&address);
    assert!(is_code(registers.ip), "{:#x}", registers.ip);
    let words: Vec<_> = blocks[0]
        .capture
        .stack
        .chunks(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    assert!(words.iter().take(8).any(|&word| is_code(word)), "{words:x?}");
}

#[test]
fn times_and_threads_are_those_of_the_program() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", SITES, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    let process = run.only();
    let times: Vec<_> = process.records().map(|record| record.time_ns).collect();
    assert!(times.is_sorted());
    assert!(process.records().all(|record| record.tid as i32 == process.pid));
    assert_eq!(process.hello.pid as i32, process.pid);
    assert_eq!(process.hello.parent_id, 0);
}

const THREADS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#define BLOCKS 2000
static void *blocks[8][BLOCKS];
static void *allocate(void *argument) {
    long thread = (long)argument;
    for (int index = 0; index < BLOCKS; index++) blocks[thread][index] = malloc(1000 + thread);
    return 0;
}
static void *release(void *argument) {
    long thread = (long)argument;
    for (int index = 0; index < BLOCKS; index++) free(blocks[(thread + 3) % 8][index]);
    return 0;
}
int main(void) {
    pthread_t threads[8];
    for (int half = 0; half < 2; half++) {
        for (long thread = 0; thread < 8; thread++) pthread_create(&threads[thread], 0, half ? release : allocate, (void *)thread);
        for (int thread = 0; thread < 8; thread++) pthread_join(threads[thread], 0);
    }
}
"#;

#[test]
fn blocks_freed_by_other_threads_are_not_live() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", THREADS, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    let totals = run.only().totals(&Default::default());
    for thread in 0..8 {
        let blocks = run.only().allocations().filter(|block| block.size == 1000 + thread).count();
        assert_eq!(blocks, 2000, "thread {thread}");
    }
    assert!(!totals.live.values().any(|size| (1000..1008).contains(size)));
    let tids: std::collections::BTreeSet<_> =
        run.only().records().map(|record| record.tid).collect();
    assert_eq!(tids.len(), 17);
}

#[test]
fn failed_realloc_keeps_the_block() {
    let source = r#"
#include <stdlib.h>
int main(void) {
    void *block = malloc(777);
    if (realloc(block, (size_t)1 << 60) != 0) return 1;
    return 0;
}
"#;
    let workshop = Workshop::new();
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(run.status.success());
    assert!(run.only().records().any(|record| matches!(record.content, Content::Kept(_))));
    assert_eq!(
        run.only().totals(&Default::default()).live.values().filter(|&&size| size == 777).count(),
        1
    );
}
