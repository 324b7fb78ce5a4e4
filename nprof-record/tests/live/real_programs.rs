//! Programs of many kinds: dlopen and dlclose, threads, children, the loader, Rust, code without
//! unwind tables, distant segments.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::support::{Directory, StackSample, Stream, can_record, record, stderr};
use crate::symbols::{Symbols, names};
use nprof_stream::{Mark, Verdict};

/// A compiled program in a directory of its own.
struct Program {
    directory: Directory,
    program: String,
}

impl Program {
    fn compile(name: &str, source: &str, options: &[&str]) -> Option<Self> {
        if !can_record() {
            return None;
        }
        let directory = Directory::new(name);
        let program = directory.compile("gcc", source, options)?;
        Some(Self { directory, program })
    }

    /// Compiles a shared library in the same directory.
    fn library(&self, name: &str, source: &str) {
        let file = self.directory.path(&format!("{name}.c"));
        fs::write(&file, source).expect("written");
        let library = self.directory.path(name);
        let words = ["-O1", "-fPIC", "-shared", &file, "-o", &library];
        assert!(Command::new("gcc").args(words).status().expect("as before").success());
    }

    fn record(&self, how: &[&str], words: &[&str]) -> Stream {
        let file = self.directory.path("out");
        let output = record(&[&["-o", &file][..], how, &["--", &self.program], words].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        stream
    }
}

#[test]
fn libraries_loaded_at_same_address_are_distinguished() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int count, char **names) {
            void *last = 0; int same = 0;
            for (int i = 0; i < 300; i++) {
                void *library = dlopen(names[1 + i % 2], RTLD_NOW);
                if (!library) return 1;
                void (*work)(long) = (void (*)(long))dlsym(library, "work");
                Dl_info info; dladdr((void *)work, &info);
                same += last == info.dli_fbase; last = info.dli_fbase;
                // Of varying length: sampling in step with the loop would miss a library.
                work(20000 + i * 7919 % 20011); dlclose(library);
            }
            return same < 250;
        }"#;
    let Some(program) = Program::compile("libraries", source, &["-O2", "-ldl"]) else { return };
    // Frames of different sizes: the unwind table of the other library gives wrong callers.
    for (name, size) in [("one.so", 3), ("two.so", 300)] {
        let source = format!(
            "volatile long s; __attribute__((noinline)) void inner(long n) {{ \
             volatile long local[{size}]; for (long i = 0; i < n; i++) {{ s += i; local[i % 3] = i; }} }} \
             void work(long n) {{ for (int i = 0; i < 10; i++) inner(n); s++; }}"
        );
        program.library(name, &source);
    }
    let (one, two) = (program.directory.path("one.so"), program.directory.path("two.so"));
    let stream = program.record(&[], &[&one, &two]);
    let mut seen = [0, 0];
    for sample in &stream.samples {
        let images: Vec<_> = sample.frames.iter().map(|(image, _)| image.as_str()).collect();
        for (at, own) in [&one, &two].into_iter().enumerate() {
            let name = own.rsplit('/').next().expect("a name");
            let own_frames = images.iter().take_while(|&&image| image == name).count();
            // The dynamic loader runs the initializers and finalizers of the library, and does so below a
            // function of the C library that catches errors.
            let callers = &images[own_frames..];
            let loader = callers.strip_prefix(&["libc.so.6"]).unwrap_or(callers);
            let is_called_by_loader = loader.first() == Some(&"ld-linux-x86-64.so.2");
            if own_frames > 0 && !is_called_by_loader {
                // A sample may be in `work` itself, between two calls of `inner`.
                assert!(own_frames <= 2, "inner and work: {images:?}");
                let rest = ["program", "libc.so.6", "libc.so.6", "program"];
                assert_eq!(callers, rest, "the callers of work");
                seen[at] += 1;
            }
        }
    }
    assert!(seen.iter().all(|&seen| seen > 10), "{seen:?}");
    assert!(stream.complete() > 0.97, "{}", stream.complete());
}

#[test]
fn programs_and_libraries_in_memory_files_are_images_with_tables() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/mman.h>
        #include <sys/sendfile.h>
        #include <unistd.h>
        extern char **environ;
        static int copy(const char *path, const char *name) {
            int from = open(path, O_RDONLY), to = memfd_create(name, 0);
            while (sendfile(to, from, 0, 1 << 20) > 0);
            return to;
        }
        __attribute__((noinline)) static int call(void (*work)(void)) { work(); return 0; }
        int main(int count, char **words) {
            char path[64], *again[] = { "packed", words[1], "again", 0 };
            if (count == 2) return fexecve(copy("/proc/self/exe", "packed"), again, environ);
            snprintf(path, sizeof path, "/proc/self/fd/%d", copy(words[1], "a/library"));
            void *library = dlopen(path, RTLD_NOW);
            return library ? call((void (*)(void))dlsym(library, "work")) : 1;
        }"#;
    let options = ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-ldl"];
    let Some(program) = Program::compile("memfd", source, &options) else { return };
    let library = "volatile long s; __attribute__((noinline)) void inner(void) { for (long i = 0; i < 1000000000; i++) s += i; } \
                   void work(void) { inner(); s++; }";
    program.library("work.so", library);
    let path = program.directory.path("work.so");
    let stream = program.record(&[], &[&path]);
    let size = fs::metadata(&path).expect("it").len();
    let in_library = stream.samples.iter().filter(|sample| {
        let images: Vec<_> = sample.frames.iter().map(|(image, _)| image.as_str()).collect();
        // From the leaf: inner, work, call, main.
        let expected = ["library", "library", "memfd:packed", "memfd:packed", "libc.so.6"];
        sample.mark == Mark::None && images.starts_with(&expected) && sample.offsets[0] < size
    });
    let (count, all) = (in_library.count(), stream.samples.len());
    assert!(all > 100 && count * 10 > all * 9, "{count} of {all}");
    assert!(stream.complete() > 0.97, "{}", stream.complete());
}

#[test]
fn small_thread_stacks_include_kernel_frames() {
    let source = r#"
        #include <fcntl.h>
        #include <pthread.h>
        #include <unistd.h>
        volatile long c;
        __attribute__((noinline)) void *thread(void *p) {
            char bytes[4096]; int file = open("/dev/zero", O_RDONLY);
            for (int i = 0; i < 30000; i++) { c += read(file, bytes, sizeof bytes); }
            for (int i = 0; i < 20000000; i++) c += i;
            return p;
        }
        int main(void) {
            pthread_attr_t small; pthread_t threads[4];
            pthread_attr_init(&small); pthread_attr_setstacksize(&small, 16384);
            for (int i = 0; i < 4; i++) if (pthread_create(threads + i, &small, thread, 0)) return 1;
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            return 0;
        }"#;
    let options = ["-O2", "-pthread"];
    let Some(program) = Program::compile("small-stacks", source, &options) else { return };
    let stream = program.record(&[], &[]);
    assert_eq!(stream.tasks, 5);
    assert!(stream.complete() >= 0.97, "{}", stream.complete());
    let reading = |sample: &&StackSample| {
        let kernel = sample.frames.iter().take_while(|(_, kernel)| *kernel).count();
        let user: Vec<_> = sample.frames[kernel..].iter().map(|(image, _)| &image[..]).collect();
        kernel > 2 && user == ["libc.so.6", "program", "libc.so.6", "libc.so.6"]
    };
    let in_kernel = stream.samples.iter().filter(|sample| sample.frames[0].1).count();
    // Unprivileged: no kernel frames to check.
    if stream.event.scope == b"user" {
        return;
    }
    let right = stream.samples.iter().filter(reading).count();
    assert!(right > 5 && right * 10 > in_kernel * 4, "{right} of {in_kernel}");
}

#[test]
fn thread_creation_is_unwound_through_kernel_to_main() {
    let source = r#"
        #include <pthread.h>
        void *thread(void *p) { return p; }
        __attribute__((noinline)) int make(void) {
            pthread_t made; if (pthread_create(&made, 0, thread, 0)) return 1;
            return pthread_join(made, 0);
        }
        int main(void) { for (int i = 0; i < 1500; i++) if (make()) return 1; return 0; }"#;
    let options = ["-O1", "-pthread"];
    let Some(program) = Program::compile("makes-threads", source, &options) else { return };
    let symbols = Symbols::from_file(&program.program);
    let stream = program.record(&["-F", "4999"], &[]);
    if stream.event.scope == b"user" {
        return;
    }
    let making = |sample: &&StackSample| {
        let names = names(sample, &symbols);
        let root = ["make", "main", "libc.so.6", "libc.so.6", "_start"];
        sample.frames[0].1 && sample.mark == Mark::None && names.ends_with(&root)
    };
    let made = stream.samples.iter().filter(making).count();
    assert!(made > 20, "{made} of {}", stream.samples.len());
    let by_table = stream.samples.iter().filter(|sample| sample.mark == Mark::NoUnwindInfo).count();
    assert!(by_table * 20 <= stream.samples.len(), "{by_table} of {}", stream.samples.len());
}

#[test]
fn forked_and_spawned_children_have_complete_stacks() {
    let source = r#"
        #include <spawn.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ; volatile long c;
        __attribute__((noinline)) void work(void) { for (int i = 0; i < 80000000; i++) c += i; }
        __attribute__((noinline)) void child(void) { work(); c++; }
        int main(int count, char **words) {
            if (count > 1) { work(); return 0; }
            if (fork() == 0) { if (fork() == 0) { child(); _exit(0); } wait(0); _exit(0); }
            wait(0);
            if (vfork() == 0) { work(); _exit(0); }
            wait(0);
            char *again[] = {words[0], "again", 0}; pid_t pid;
            if (posix_spawn(&pid, words[0], 0, 0, again, environ)) return 1;
            wait(0);
            return 0;
        }"#;
    let Some(program) = Program::compile("children", source, &["-O1"]) else { return };
    let symbols = Symbols::from_file(&program.program);
    let stream = program.record(&[], &[]);
    assert_eq!(stream.tasks, 5);
    assert_eq!(stream.executed, ["program", "program"]);
    let mut seen = BTreeMap::<_, usize>::new();
    for sample in stream.samples.iter().filter(|sample| !sample.frames[0].1) {
        let names = names(sample, &symbols);
        if names[0] == "work" {
            assert_eq!(sample.mark, Mark::None, "{names:?}");
            *seen.entry(names.join(" ")).or_default() += 1;
        }
    }
    let forked = "work child main libc.so.6 libc.so.6 _start";
    let spawned = "work main libc.so.6 libc.so.6 _start";
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), [forked, spawned]);
    assert!(seen[forked] > 5 && seen[spawned] > 10, "{seen:?}");
}

#[test]
fn records_dynamic_loader_before_main() {
    let names: Vec<_> = (0..12_000).map(|number| format!("g{number}")).collect();
    let functions: String = names.iter().map(|name| format!("void {name}(void) {{}}")).collect();
    let source = "extern void *table[]; int main(void) { return table[1] == 0; }";
    let library = format!("{functions} void *table[] = {{ {} }};", names.join(", "));
    let Some(program) = Program::compile("loader", source, &["-c"]) else { return };
    program.library("libmany.so", &library);
    let object = format!("{}.o", program.program);
    fs::rename(&program.program, &object).expect("renamed");
    let many = program.directory.path("libmany.so");
    let words = [&object, &many, "-Wl,-rpath,$ORIGIN", "-o", &program.program];
    assert!(Command::new("gcc").args(words).status().expect("as before").success());
    // ld.so resolves 12,000 symbols before main: some milliseconds.
    let stream = program.record(&["-F", "9973"], &[]);
    let loader = stream.samples.iter().filter(|sample| {
        let root = sample.frames.iter().rfind(|(_, kernel)| !kernel);
        root.is_some_and(|(image, _)| image.starts_with("ld-linux"))
    });
    let marks: Vec<_> = loader.map(|sample| sample.mark).collect();
    let complete = marks.iter().filter(|&&mark| mark == Mark::None).count();
    assert!(marks.len() > 5 && complete * 10 >= marks.len() * 9, "{marks:?}");
}

#[test]
fn unwinds_rust_to_start() {
    let source = r#"
        use std::collections::HashMap;
        fn main() {
            let mut counts = HashMap::<String, usize>::new();
            for number in 0..100_000 { *counts.entry(format!("k{}", number % 1000)).or_default() += 1; }
            let mut numbers: Vec<u32> = (0..600_000u32).map(|n| n.wrapping_mul(2654435761)).collect();
            numbers.sort();
            std::process::exit(i32::from(counts.len() + numbers.len() == 7));
        }"#;
    if !can_record() {
        return;
    }
    let directory = Directory::new("rust");
    let (file, program) = (directory.path("program.rs"), directory.path("program"));
    fs::write(&file, source).expect("written");
    let words = ["--edition=2024", "-O", &file, "-o", &program];
    if !Command::new("rustc").args(words).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there is no rustc");
        return;
    }
    let file = directory.path("out");
    let output = record(&["-F", "4999", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert!(stream.complete() >= 0.97, "{}", stderr(&output));
}

#[test]
fn stack_without_unwind_tables_is_complete_only_at_start() {
    let source = "volatile long c; \
        __attribute__((noinline)) void work(void) { for (long i = 0; i < 600000000; i++) c += i; } \
        int main(void) { work(); return 0; }";
    let options = ["-O2", "-static", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"];
    let Some(program) = Program::compile("no-tables", source, &options) else { return };
    let symbols = Symbols::from_file(&program.program);
    let stream = program.record(&[], &[]);
    let mut in_work = 0;
    for sample in stream.samples.iter().filter(|sample| !sample.frames[0].1) {
        let names = names(sample, &symbols);
        if names[0] == "work" {
            in_work += 1;
            let right = ["work", "main"];
            let known = names.len().min(2);
            assert_eq!(names[..known], right[..known]);
            assert!(sample.mark != Mark::None || names.last() == Some(&"_start"), "{names:?}");
        }
    }
    assert!(in_work > 20, "{in_work}");
}

#[test]
fn distant_segments_map_to_their_file_offsets() {
    let source = r#"
        volatile long c;
        __attribute__((noinline, section(".hot"))) void hot(void) { for (long i = 0; i < 300000000; i++) c += i; }
        __attribute__((noinline, section(".warm"))) void warm(void) { volatile long a[99]; a[1] = 1; hot(); c += a[1]; }
        int main(void) { warm(); return 0; }"#;
    // Post-link optimizers (BOLT) produce such segments: their distances in memory differ from
    // those in the file.
    let options = [
        "-O2",
        "-no-pie",
        "-Wl,--section-start=.hot=0x10000000,--section-start=.warm=0x20000000",
        "-Wl,-z,max-page-size=0x200000",
    ];
    let Some(program) = Program::compile("segments", source, &options) else { return };
    let symbols = Symbols::from_file(&program.program);
    let stream = program.record(&[], &[]);
    let hot = stream
        .samples
        .iter()
        .filter(|sample| !sample.frames[0].1)
        .map(|sample| (sample.mark, names(sample, &symbols)));
    let hot: Vec<_> = hot.filter(|(_, names)| names[0] == "hot").collect();
    let right = ["hot", "warm", "main", "libc.so.6", "libc.so.6", "_start"];
    assert!(hot.len() > 20, "{}", hot.len());
    assert!(hot.iter().all(|(mark, names)| *mark == Mark::None && *names == right), "{hot:?}");
}
