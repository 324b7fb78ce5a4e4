//! Programs that heap events miss: their number, and the probe that replaces them.

use std::process::{Command, Output};

use crate::allocations::{Allocations, compile};
use crate::support::{Directory, Stream, record, record_as_other_user_with, stderr};

/// Returns the event that the recorder proposes for programs without heap events.
fn probe_of(output: &Output) -> String {
    let text = stderr(output);
    let after = text.split("such as -e '").nth(1).expect("a probe");
    after.split('\'').next().expect("its end").to_owned()
}

#[test]
fn static_program_is_counted_as_unseen() {
    let directory = Directory::new("heap-static");
    let options = ["-O1", "-static", "-w"];
    let source = "#include <stdlib.h>\nint main(void) { return malloc(1 << 20) == 0; }";
    let has_static = Command::new("gcc").args(["-print-file-name=libc.a"]).output();
    if !has_static.is_ok_and(|it| it.stdout.starts_with(b"/")) {
        return eprintln!("SKIPPED: no static C library");
    }
    let Some(program) = directory.compile("gcc", source, &options) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "heap", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let message = "1 process without heap events; the first is program";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    let end = Stream::from_file(&file).end.expect("an end");
    assert_eq!(end.unseen, Some(1));
    assert!(probe_of(&output).starts_with(&format!("uprobe:{program}:0x")), "{}", stderr(&output));
}

#[test]
fn program_with_an_environment_of_its_own_is_counted_as_unseen() {
    let directory = Directory::new("heap-environment");
    let file = directory.path("out");
    let command = ["env", "-i", "/bin/sh", "-c", "sleep 0.2; exit 3"];
    let output = record(&[&["-e", "heap", "-o", &file, "--"], &command[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let message = "an environment without LD_PRELOAD or with one of their own";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    assert!(Stream::from_file(&file).end.expect("an end").unseen >= Some(1));
}

/// The library cannot map its table of sampled blocks.
#[test]
fn process_at_its_limit_of_memory_goes_on_and_loses_records() {
    let directory = Directory::new("heap-limit");
    let source = "
        #include <stdlib.h>
        #include <sys/resource.h>
        int main(void) {
            struct rlimit limit = {12 << 20, 12 << 20};
            if (setrlimit(RLIMIT_AS, &limit)) return 2;
            for (int i = 0; i < 100; i++) {
                char *volatile block = malloc(10000);
                if (!block) return 1;
                free(block);
            }
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "heap:4k", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("(ulimit -v, ulimit -d)"), "{}", stderr(&output));
}

#[test]
fn forked_children_without_a_free_descriptor_are_counted() {
    let directory = Directory::new("heap-no-descriptor");
    let source = "
        #include <stdlib.h>
        #include <sys/resource.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            char *volatile block = malloc(5 << 20);
            struct rlimit limit = {0, 1024};
            if (setrlimit(RLIMIT_NOFILE, &limit)) return 2;
            for (int i = 0; i < 3; i++) {
                if (fork() == 0) {
                    block = malloc(5 << 20);
                    _exit(block == 0);
                }
                int status = 1;
                wait(&status);
                if (status != 0) return 3;
            }
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "heap", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let message = "3 processes without heap events, forked by program: no descriptor was free";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    assert_eq!(Stream::from_file(&file).end.expect("an end").unseen, Some(3));
}

/// They exit before they are noticed, and most have no record.
#[test]
fn short_processes_are_not_counted_as_unseen() {
    let directory = Directory::new("heap-short");
    let source = "
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            for (int i = 0; i < 500; i++) {
                if (fork() == 0) {
                    free(malloc(10));
                    execl(\"/bin/true\", \"true\", (char *)0);
                }
                wait(0);
            }
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let options = ["-e", "heap"];
    let output = record_as_other_user_with(&directory, &file, &program, &options);
    let Ok(output) = output else { return eprintln!("SKIPPED: no setpriv") };
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stderr(&output).contains("without heap"), "{}", stderr(&output));
}

#[test]
fn allocator_in_the_executable_is_counted_and_its_probe_has_the_bytes() {
    let directory = Directory::new("heap-own-allocator");
    let source = "
        #include <stdlib.h>
        __attribute__((noinline)) void *_rjem_malloc(size_t size) { return malloc(size); }
        int main(void) {
            for (int i = 0; i < 100; i++) free(_rjem_malloc(3000));
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "heap", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let message = "1 process with an allocator in the executable; the first is program";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    let end = Stream::from_file(&file).end.expect("an end");
    assert_eq!(end.unseen, Some(1));
    let probe = probe_of(&output);
    let output = record(&["-e", &probe, "-o", &file, "--", &program]);
    if !output.status.success() {
        return eprintln!("SKIPPED: no uprobes: {}", stderr(&output));
    }
    let heap = Allocations::read(&file, &program);
    assert_eq!(heap.weight(&probe, "main"), 300_000);
}

#[test]
fn library_with_deep_binding_is_reported() {
    let directory = Directory::new("heap-deep-binding");
    let library = "#include <stdlib.h>\nvoid take(void *block) { free(block); }";
    let Some(library) = directory.compile("gcc", library, &["-shared", "-fPIC"]) else { return };
    let shared = directory.path("deep.so");
    std::fs::rename(library, &shared).expect("renamed");
    let source = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        int main(int count, char **words) {
            void (*take)(void *) = dlsym(dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND), \"take\");
            take(malloc(100));
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let output = record(&["-e", "heap", "-o", &directory.path("out"), "--", &program, &shared]);
    assert!(output.status.success(), "{}", stderr(&output));
    // The record comes at its end, often after that of its exit.
    let deep = "1 process loaded a library with RTLD_DEEPBIND";
    for message in [deep, "the first is program", "is not in heap events"] {
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}
