//! Stacks with pages that were never touched, and so are not in memory: large local arrays that are
//! used sparsely. The functions on the stack return within microseconds, so no breakpoint helps.

use nprof_stream::{Mark, Verdict};

use crate::deep_stacks::can_load_bpf;
use crate::support::{Directory, Stream, can_record, record, record_as_other_user, stderr};
use crate::symbols::Symbols;

/// Arrays of 16 and 20 KB, of which only the first byte is used: one in the kernel's copy of 8 KiB,
/// one beyond.
const SPARSE: &str = "
    #include <pthread.h>
    volatile long sink;
    __attribute__((noinline)) long leaf(long n) { for (long i = 0; i < n; i++) sink += i; return 0; }
    __attribute__((noinline)) long inner(void) { volatile char a[16384]; a[0] = 1; leaf(1000); return a[0]; }
    __attribute__((noinline)) long outer(void) { volatile char a[20480]; a[0] = 1; return inner() + a[0]; }
    void *work(void *p) { for (int i = 0; i < 600000; i++) sink += outer(); return p; }
    int main() { pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0); return 0; }";

/// Checks the callers of all complete stacks. Returns the share of samples in `leaf` that are
/// complete.
fn complete_share(program: &str, stream: &Stream) -> f64 {
    assert_eq!(stream.verdict, Verdict::Complete);
    let functions = Symbols::from_file(program);
    let (mut all, mut complete) = (0, 0);
    for sample in &stream.samples {
        let stack = functions.on_stack(sample);
        if stack.first() != Some(&"leaf") {
            continue;
        }
        all += 1;
        if sample.mark == Mark::None {
            complete += 1;
            assert_eq!(stack, ["leaf", "inner", "outer", "work"]);
        }
    }
    assert!(all > 100, "{all} samples");
    f64::from(complete) / f64::from(all)
}

#[test]
fn bpf_copies_pages_beyond_absent_ones() {
    let directory = Directory::new("absent");
    let Some(program) = directory.compile("gcc", SPARSE, &["-O2", "-pthread"]) else { return };
    if !can_record() || !can_load_bpf() {
        eprintln!("SKIPPED: no right to load BPF programs");
        return;
    }
    let file = directory.path("out.nprof");
    let output = record(&["-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let share = complete_share(&program, &Stream::from_file(&file));
    // All but the first on an idle machine; none if the copies end at the absent pages. While the
    // recorder waits for a CPU, the copies may not use more of the rings.
    assert!(share >= 0.2, "{share}: {}", stderr(&output));
}

#[test]
fn absent_pages_are_in_later_copies_unprivileged() {
    let directory = Directory::new("absent-ordinary");
    let Some(program) = directory.compile("gcc", SPARSE, &["-O2", "-pthread"]) else { return };
    let file = directory.path("out.nprof");
    let output = match record_as_other_user(&directory, &file, &program) {
        Ok(output) if output.status.success() => output,
        Ok(output) => return eprintln!("SKIPPED: {}", stderr(&output)),
        Err(error) => return eprintln!("SKIPPED: setpriv: {error}"),
    };
    let stream = Stream::from_file(&file);
    let share = complete_share(&program, &stream);
    // The first samples show the absent pages to the recorder: all that it has by its first drain,
    // which is late on a busy machine.
    assert!(share >= 0.2, "{share}: {}", stderr(&output));
    let mark = stream.samples.iter().map(|sample| sample.mark).find(|&mark| mark != Mark::None);
    assert!(mark.is_none_or(|mark| mark == Mark::PageAbsent), "{mark:?}");
}
