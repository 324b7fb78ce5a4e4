//! Losses: lost samples and lost records of mappings, told apart.

use crate::support::{Directory, Stream, can_record, record, stderr};
use nprof_stream::Verdict;

/// Stops its parent, the recorder, while it maps more than the recorder's ring can hold.
const MAPPING_STORM: &str = r#"
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    kill(getppid(), SIGSTOP);
    for (int i = 0; i < 10000; i++) {
        void *at = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(at, 4096);
    }
    kill(getppid(), SIGCONT);
    while (clock() < CLOCKS_PER_SEC / 20) {}
}
"#;

#[test]
fn lost_records_of_mappings_are_no_lost_samples() {
    let directory = Directory::new("mapping-storm");
    if !can_record() {
        return;
    }
    let Some(program) = directory.compile("gcc", MAPPING_STORM, &[]) else { return };
    let path = directory.path("stream");
    let output = record(&["-o", &path, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&path);
    assert_eq!(stream.verdict, Verdict::Complete);
    let end = stream.end.expect("an end");
    // 112 bytes each, in rings of at most 256 KiB.
    let lost = end.lost_records.expect("known");
    assert!((1..10_000).contains(&lost), "{lost} lost records");
    assert_eq!(end.lost, 0, "{}", stderr(&output));
}
