//! Names of code generated at run time: perf maps, jitdumps, BPF programs.
//!
//! The programs measure their own CPU time, so the expected share of each function is known. The
//! tests assert shares, not times.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::{
    Directory, StackSample, Stream, can_record, record, recorder, sampled_nodes, stderr,
};
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::{Mark, Verdict};

/// The common part of the programs: maps executable memory, copies a loop there, runs it.
pub(super) const MAKER: &str = r#"
#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
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

pub(super) const PERF_MAP: &str = r#"
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

/// A map that is written after the code ran: at the exit. With the argument "-" the program runs
/// until SIGUSR1, writes the map, reports that, and waits for the end of its standard input.
const LATE_PERF_MAP: &str = r#"
static volatile int stopped;
static void stop(int signal) { stopped = 1; }

int main(int count, char **words) {
    char *code = room(), path[64], end;
    int waits = !strcmp(words[1], "-");
    signal(SIGUSR1, stop);
    do {
        run(code);
        run(code + 4096);
        run(code + 4096);
    } while (waits && !stopped);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    int map = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dprintf(map, "%lx 1000 first\n%lx 1000 second\n", (long)code, (long)code + 4096);
    close(map);
    return waits && (write(1, "done\n", 5) != 5 || read(0, &end, 1) < 0);
}
"#;

/// A map that is removed and written again, with other names.
const NEW_PERF_MAP: &str = r#"
int main(void) {
    char *code = room(), path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    for (int i = 0; i < 2; i++) {
        int map = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
        dprintf(map, "%lx 1000 %s\n", (long)code + 4096 * i, i ? "second" : "first");
        close(map);
        run(code + 4096 * i);
        unlink(path);
    }
    return 0;
}
"#;

/// Writes a jitdump.
pub(super) const DUMP_WRITER: &str = r#"
static char *buffer;
static size_t buffered;
static int dump;
struct record { uint32_t kind, size; uint64_t time; };

/* Writes at once, or into a buffer that is written at the exit. */
static void put(const void *bytes, size_t size) {
    if (buffer) {
        memcpy(buffer + buffered, bytes, size);
        buffered += size;
    } else if (write(dump, bytes, size) != size) {
        abort();
    }
}

static void load(char *code, const char *name) {
    uint64_t fields[5] = { (uint64_t)getpid() << 32 | getpid(), (uint64_t)code, (uint64_t)code, sizeof loop, 1 };
    size_t length = strlen(name) + 1;
    struct record record = { 0, sizeof record + sizeof fields + length + sizeof loop, now(CLOCK_MONOTONIC) };
    char bytes[256];
    memcpy(bytes, &record, sizeof record);
    memcpy(bytes + sizeof record, fields, sizeof fields);
    memcpy(bytes + sizeof record + sizeof fields, name, length);
    memcpy(bytes + sizeof record + sizeof fields + length, loop, sizeof loop);
    put(bytes, record.size);
}

static void moved(char *from, char *to) {
    uint64_t fields[6] = { getpid(), (uint64_t)to, (uint64_t)from, (uint64_t)to, sizeof loop, 1 };
    struct record record = { 1, sizeof record + sizeof fields, now(CLOCK_MONOTONIC) };
    put(&record, sizeof record);
    put(fields, sizeof fields);
}

static void begin(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", directory, getpid());
    dump = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    uint32_t header[10] = { 0x4a695444, 1, sizeof header, 62, 0, getpid() };
    if (write(dump, header, sizeof header) != sizeof header) abort();
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0);
    unlink(path);
}
"#;

/// Three equal times: the last two in one function, at two addresses.
pub(super) const JITDUMP: &str = r#"
int main(int count, char **words) {
    char *code = room();
    begin(words[1]);
    if (LATE) buffer = malloc(4096);
    load(code, "first");
    run(code);
    load(code, "second");
    run(code);
    moved(code, code + 4096);
    run(code + 4096);
    return buffer && write(dump, buffer, buffered) != buffered;
}
"#;

/// A function that uses the frame pointer for something else: only its unwind table leads to its
/// caller.
const UNWINDING: &str = r#"
/* push rbp; mov ebp, 1; 1: dec rdi; jnz 1b; pop rbp; ret */
static const unsigned char code[] =
    { 0x55, 0xbd, 1, 0, 0, 0, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3 };

/* .eh_frame: the CFA is rsp + 8; rsp + 16 after the push; rsp + 8 after the pop. It is 16 bytes after
   the start of the code, to which the entry refers from offset 32. An .eh_frame_hdr of 12 bytes. */
static const unsigned char tables[] = {
    20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    20, 0, 0, 0, 28, 0, 0, 0, 0xd0, 0xff, 0xff, 0xff, 13, 0, 0, 0, 0, 0x41, 0x0e, 16, 0x86, 2, 0x4b, 0x0e,
    8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
};

int main(int count, char **words) {
    char *memory = room();
    memcpy(memory, code, sizeof code);
    begin(words[1]);
    uint64_t sizes[3] = { sizeof tables, 12, 0 };
    struct record record = { 4, sizeof record + sizeof sizes + sizeof tables, now(CLOCK_MONOTONIC) };
    put(&record, sizeof record);
    put(sizes, sizeof sizes);
    put(tables, sizeof tables);
    load(memory, "made");
    run(memory);
    return 0;
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
    let argument = directory.path("");
    let stream = Stream::read(&recorded_bytes(&directory, source, &argument)?);
    assert_eq!(stream.verdict, Verdict::Complete);
    Some(stream)
}

/// Compiles a program and records it with one argument.
fn recorded_bytes(directory: &Directory, source: &str, argument: &str) -> Option<Vec<u8>> {
    recorded_through(directory, &[], source, argument)
}

/// Compiles a program and records it with one argument, started by the words `through`.
fn recorded_through(
    directory: &Directory,
    through: &[&str],
    source: &str,
    argument: &str,
) -> Option<Vec<u8>> {
    let program =
        directory.compile("gcc", &format!("{MAKER}{source}"), &["-O1", "-w", "-DLATE=0"])?;
    if !can_record() {
        return None;
    }
    let file = directory.path("out.nprof");
    let words = [&["-o", &file, "--"], through, &[&program, argument]].concat();
    let output = record(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    Some(fs::read(file).expect("a file"))
}

/// Returns the share of each innermost function: by its name, or of samples that were written when the
/// name was known, by the image of the function. Locations count at the end of the stream, of which the program needs one epoch.
fn shares(bytes: &[u8]) -> BTreeMap<String, f64> {
    let (tables, nodes, verdict) = sampled_nodes(bytes);
    assert_eq!(verdict, Verdict::Complete);
    let mut labels = Labels::new();
    let mut shares = BTreeMap::new();
    for &node in &nodes {
        let call = tables.stack_calls(node).next().expect("a stack");
        let label = labels.label(&tables, call, CallKey::Function);
        let label = String::from_utf8_lossy(labels.names.get(label)).into_owned();
        let name = label.split('+').next().unwrap_or_default();
        *shares.entry(name.to_owned()).or_insert(0.0) += 1.0 / nodes.len() as f64;
    }
    shares
}

/// Fails unless a function has about this share.
fn assert_share(shares: &BTreeMap<String, f64>, name: &str, expected: f64) {
    let share = shares.get(name).copied().unwrap_or(0.0);
    assert!((share - expected).abs() < 0.1, "{name}: {share} in {shares:?}");
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
fn perf_map_written_at_exit_names_code_that_ran_before() {
    let directory = Directory::new("late-map");
    let Some(bytes) = recorded_bytes(&directory, LATE_PERF_MAP, "") else { return };
    let shares = shares(&bytes);
    assert_share(&shares, "first", 0.33);
    assert_share(&shares, "second", 0.67);
}

#[test]
fn perf_map_of_live_process_is_read_at_end_of_recording() {
    let directory = Directory::new("end-map");
    let source = format!("{MAKER}{LATE_PERF_MAP}");
    let Some(program) = directory.compile("gcc", &source, &["-O1", "-w"]) else { return };
    if !can_record() {
        return;
    }
    let file = directory.path("out.nprof");
    let mut program = Command::new(program);
    program.arg("-").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = program.spawn().expect("it runs");
    let pid = running.id().to_string();
    let mut recording = recorder(&["-o", &file, "-p", &pid]).spawn().expect("it runs");
    // Samples are in the file: the recorder has polled the names.
    while fs::metadata(&file).map_or(0, |file| file.len()) < 4096 {
        assert!(recording.try_wait().expect("a status").is_none(), "it ended");
        thread::yield_now();
    }
    kill("-USR1", &pid);
    let mut line = String::new();
    BufReader::new(running.stdout.take().expect("piped")).read_line(&mut line).expect("UTF-8");
    assert_eq!(line, "done\n");
    kill("-INT", &recording.id().to_string());
    assert!(recording.wait().expect("a status").success());
    drop(running.stdin.take());
    running.wait().expect("a status");
    let shares = shares(&fs::read(file).expect("a file"));
    assert!(!shares.contains_key("[anon]"), "{shares:?}");
    assert!(shares["first"] > 0.1 && shares["second"] > 0.3, "{shares:?}");
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().expect("kill").success());
}

#[test]
fn perf_map_that_was_removed_and_written_again_is_read_again() {
    let Some(stream) = recorded("new-map", NEW_PERF_MAP) else { return };
    let [first, second] = ["first", "second"].map(|name| share(&stream, name));
    assert!((0.35..0.65).contains(&first) && (0.35..0.65).contains(&second), "{first} {second}");
}

#[test]
fn jitdump_written_at_exit_names_code_by_time() {
    let directory = Directory::new("late-dump");
    let source = format!("#undef LATE\n#define LATE 1\n{DUMP_WRITER}{JITDUMP}");
    let argument = directory.path("");
    let Some(bytes) = recorded_bytes(&directory, &source, &argument) else { return };
    // Three equal times, of which the last two are in the same function at two addresses.
    let shares = shares(&bytes);
    assert_share(&shares, "first", 0.33);
    assert_share(&shares, "second", 0.67);
}

#[test]
fn jitdump_of_process_in_time_namespace_names_code_by_time() {
    // Two days later than the clock of samples.
    let through = ["unshare", "-T", "--monotonic", "172800"];
    let tried = Command::new(through[0]).args(&through[1..]).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: no time namespace");
    }
    let directory = Directory::new("dump-timens");
    let source = format!("#undef LATE\n#define LATE 1\n{DUMP_WRITER}{JITDUMP}");
    let argument = directory.path("");
    let Some(bytes) = recorded_through(&directory, &through, &source, &argument) else { return };
    let shares = shares(&bytes);
    assert_share(&shares, "first", 0.33);
    assert_share(&shares, "second", 0.67);
}

#[test]
fn jitdump_names_code_by_time() {
    let source = format!("{DUMP_WRITER}{JITDUMP}");
    let Some(stream) = recorded("jitdump", &source) else { return };
    let [first, second] = ["first", "second"].map(|name| share(&stream, name));
    assert!((0.25..0.42).contains(&first) && (0.55..0.75).contains(&second), "{first} {second}");
}

#[test]
fn unwind_table_of_jitdump_leads_to_callers() {
    let source = format!("{DUMP_WRITER}{UNWINDING}");
    let Some(stream) = recorded("dump-table", &source) else { return };
    let through = stream.samples.iter().filter(|sample| {
        let images: Vec<_> = sample.frames.iter().map(|(image, _)| image.as_str()).collect();
        sample.mark == Mark::None && images.starts_with(&["made", "program", "program"])
    });
    let (count, all) = (through.count(), stream.samples.len());
    assert!(count > 100 && count * 10 > all * 9, "{count} of {all}");
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
