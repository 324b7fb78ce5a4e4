//! Names of code generated at run time: perf maps, jitdumps, BPF programs.
//!
//! The programs measure their own CPU time, so the expected share of each function is known. The
//! tests assert shares, not times.

use std::process::Command;

use crate::support::{Directory, StackSample, Stream, can_record, record, recorder, stderr};
use nprof_stream::{Mark, Verdict};

/// The common part of the programs: maps executable memory, copies a loop there, runs it.
const MAKER: &str = r#"
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* push rbp; mov rbp, rsp; 1: dec rdi; jnz 1b; pop rbp; ret */
static const unsigned char loop[] =
    { 0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3 };

static char *room(void) {
    char *memory = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, loop, sizeof loop);
    memcpy(memory + 4096, loop, sizeof loop);
    return memory;
}

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static __attribute__((noinline)) void run(char *code) {
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + 300000000;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        ((void (*)(long))code)(1000000);
}
"#;

const PERF_MAP: &str = r#"
int main(void) {
    char *code = room(), path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    int map = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dprintf(map, "%lx %zx first one\nthis is no line\n", (long)code, sizeof loop);
    run(code);
    dprintf(map, "%lx 1000 second\n", (long)code);
    run(code);
    if (fork() == 0) { run(code); _exit(0); }
    wait(0);
    run(code + 4096);
    return unlink(path);
}
"#;

const JITDUMP: &str = r#"
static int dump;
struct record { uint32_t kind, size; uint64_t time; };

static void load(char *code, const char *name) {
    uint64_t fields[5] = { (uint64_t)getpid() << 32 | getpid(), (uint64_t)code, (uint64_t)code, sizeof loop, 1 };
    size_t length = strlen(name) + 1;
    struct record record = { 0, sizeof record + sizeof fields + length + sizeof loop, now(CLOCK_MONOTONIC) };
    char bytes[256];
    memcpy(bytes, &record, sizeof record);
    memcpy(bytes + sizeof record, fields, sizeof fields);
    memcpy(bytes + sizeof record + sizeof fields, name, length);
    memcpy(bytes + sizeof record + sizeof fields + length, loop, sizeof loop);
    if (write(dump, bytes, record.size) != record.size) abort();
}

static void moved(char *from, char *to) {
    uint64_t fields[6] = { getpid(), (uint64_t)to, (uint64_t)from, (uint64_t)to, sizeof loop, 1 };
    struct record record = { 1, sizeof record + sizeof fields, now(CLOCK_MONOTONIC) };
    if (write(dump, &record, sizeof record) + write(dump, fields, sizeof fields) != record.size) abort();
}

int main(int count, char **words) {
    char *code = room(), path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", words[1], getpid());
    dump = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    uint32_t header[10] = { 0x4a695444, 1, sizeof header, 62, 0, getpid() };
    if (write(dump, header, sizeof header) != sizeof header) abort();
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0);
    load(code, "first");
    run(code);
    load(code, "second");
    run(code);
    moved(code, code + 4096);
    run(code + 4096);
    return unlink(path);
}
"#;

const BPF: &str = r#"
static int bpf(int command, union bpf_attr *attr) {
    return syscall(__NR_bpf, command, attr, sizeof *attr);
}

static int load(void) {
    static struct bpf_insn code[4003];
    int n = 0;
    code[n++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 1 };
    while (n < 4000)
        code[n++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MUL | BPF_K, .imm = 3 };
    code[n++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 0 };
    code[n++] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    attr.insns = (uint64_t)code;
    attr.insn_cnt = n;
    attr.license = (uint64_t)"GPL";
    strcpy(attr.prog_name, "nprof_test");
    return bpf(BPF_PROG_LOAD, &attr);
}

/* Without arguments: loads a BPF program and runs it. With a command: loads one and executes the
   command with the BPF program as descriptor 9. With "-": runs the BPF program of descriptor 9. */
int main(int count, char **words) {
    int program = count == 2 ? 9 : load();
    if (program < 0) { perror("bpf"); return 77; }
    if (count > 2) { dup2(program, 9); execv(words[1], words + 1); return 77; }
    char packet[64] = "";
    uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + 300000000;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
        union bpf_attr attr;
        memset(&attr, 0, sizeof attr);
        attr.test.prog_fd = program;
        attr.test.data_in = (uint64_t)packet;
        attr.test.data_size_in = sizeof packet;
        attr.test.repeat = 1000;
        if (bpf(BPF_PROG_TEST_RUN, &attr)) { perror("bpf"); return 77; }
    }
    return 0;
}
"#;

/// Compiles and records a program; `None` where that cannot be done here.
fn recorded(name: &str, source: &str) -> Option<Stream> {
    let directory = Directory::new(name);
    let program = directory.compile("gcc", &format!("{MAKER}{source}"), &["-O1", "-w"])?;
    if !can_record() {
        return None;
    }
    let file = directory.path("out.nprof");
    let output = record(&["-o", &file, "--", &program, &directory.path("")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    Some(stream)
}

/// Returns the share of samples with the innermost frame in this image.
fn share(stream: &Stream, image: &str) -> f64 {
    let is_in =
        |sample: &&StackSample| sample.frames.first().is_some_and(|(name, _)| name == image);
    stream.samples.iter().filter(is_in).count() as f64 / stream.samples.len() as f64
}

#[test]
fn perf_map_names_generated_code() {
    let Some(stream) = recorded("perf-map", PERF_MAP) else { return };
    let names = ["first one", "second", "[anon]"];
    let [first, second, unknown] = names.map(|name| share(&stream, name));
    // A perf map has no times: samples around the second write may get either name. The child has
    // its parent's names. The last function is not in the map.
    assert!(first > 0.05 && second > 0.4, "{first} {second}");
    assert!(first + second > 0.7 && (0.15..0.35).contains(&unknown), "{first} {second} {unknown}");
    // The loop keeps a frame pointer: its callers are found through it.
    let through = stream.samples.iter().filter(|sample| {
        let images: Vec<_> = sample.frames.iter().map(|(image, _)| image.as_str()).collect();
        matches!(images[..], ["second", "program", "program", "libc.so.6", ..])
    });
    let complete = through.clone().filter(|sample| sample.mark == Mark::None).count();
    assert!(complete * 10 > through.count() * 9 && complete > 100, "{complete}");
}

#[test]
fn jitdump_names_code_by_time() {
    let Some(stream) = recorded("jitdump", JITDUMP) else { return };
    let [first, second] = ["first", "second"].map(|name| share(&stream, name));
    assert!((0.25..0.42).contains(&first) && (0.55..0.75).contains(&second), "{first} {second}");
}

#[test]
fn names_bpf_programs() {
    let directory = Directory::new("bpf");
    let Some(program) = directory.compile("gcc", &format!("{MAKER}{BPF}"), &["-O1", "-w"]) else {
        return;
    };
    let file = directory.path("out.nprof");
    let words = ["-o", &file, "--", &program];
    // Loaded during the recording (PERF_RECORD_KSYMBOL), and before it (/proc/kallsyms).
    let during = recorder(&words);
    let mut before = Command::new(&program);
    before.arg(env!("CARGO_BIN_EXE_nprof-record")).args(words).arg("-");
    for mut command in [during, before] {
        let output = command.output().expect("it runs");
        if !output.status.success() || stderr(&output).contains("not privileged") {
            eprintln!("SKIPPED: {}", stderr(&output));
            return;
        }
        let stream = Stream::from_file(&file);
        let in_program = stream.samples.iter().filter(|sample| {
            let leaf = sample.frames.first();
            leaf.is_some_and(|(name, kernel)| {
                *kernel && name.starts_with("bpf_prog_") && name.ends_with("_nprof_test")
            })
        });
        let (count, all) = (in_program.count(), stream.samples.len());
        assert!(all > 100 && count * 10 > all * 8, "{count} of {all}: {command:?}");
    }
}
