//! Every function that allocates is counted once, and everything it returns can be freed.

use crate::recorder::Workshop;

const FUNCTIONS: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    void *block;
    free(malloc(10001));
    free(calloc(10002, 1));
    free(aligned_alloc(64, 64 * 200));
    if (posix_memalign(&block, 128, 10004)) return 1;
    free(block);
    free(memalign(32, 10005));
    free(valloc(10006));
    free(pvalloc(10007));
    block = malloc(10008);
    block = realloc(block, 10009);
    block = reallocarray(block, 2, 5005);
    free(realloc(block, 1000010));
    free(realloc(0, 10011));
    char text[10013];
    memset(text, 'x', 10012);
    text[10012] = 0;
    free(strdup(text));
    free(0);
    char *line = 0;
    size_t room = 0;
    FILE *file = fmemopen(text, 10012, "r");
    if (getline(&line, &room, file) != 10012) return 1;
    free(line);
    fclose(file);
}
"#;

#[test]
fn each_function_of_c_counts_once() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", FUNCTIONS, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(run.status.success());
    let mut sizes: Vec<u64> = run.only().allocations().map(|block| block.size).collect();
    sizes
        .retain(|&size| (10_001..=10_013).contains(&size) || size == 64 * 200 || size == 1_000_010);
    // The line of getline(3) grows from 120 bytes by doubling.
    assert_eq!(
        sizes,
        [
            10_001, 10_002, 12_800, 10_004, 10_005, 10_006, 10_007, 10_008, 10_009, 10_010,
            1_000_010, 10_011, 10_013
        ]
    );
    assert_eq!(run.only().totals(&Default::default()).live, Default::default());
}
