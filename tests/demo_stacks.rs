//! The stacks of the demonstration program: optimized C++ without frame pointers, in two threads
//! and a shared library, recursive and much inlined.

use std::fs::File;

use nprof_report::profile::{GroupBy, Profile};
use nprof_stream::Mark;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, Tables};
use nprof_tests::{Shell, compile_demo};

/// Numbers of samples by property.
#[derive(Debug, Default)]
struct Counts {
    samples: u64,
    /// The stack has no mark and ends in the function that started the thread.
    complete: u64,
    /// The sample is of the second thread.
    second_thread: u64,
    /// An inlined call is on the stack.
    inlined: u64,
    /// `evaluate` calls itself at least twice.
    recursive: u64,
    /// A frame of libquery.so is on the stack.
    in_library: u64,
    /// A frame of the program itself has no source line.
    no_line: u64,
}

/// Returns the label of a call as text.
fn label(labels: &mut Labels, tables: &Tables, call: Call, key: CallKey) -> String {
    let id = labels.label(tables, call, key);
    String::from_utf8_lossy(labels.names.get(id)).into_owned()
}

impl Counts {
    fn add(
        &mut self,
        labels: &mut Labels,
        tables: &Tables,
        node: nprof_stream::NodeId,
        main_thread: bool,
        samples: u64,
    ) {
        let calls: Vec<Call> = tables.stack_calls(node).collect();
        let mut names = |key| -> Vec<String> {
            calls.iter().map(|&call| label(labels, tables, call, key)).collect()
        };
        let (functions, images) = (names(CallKey::Function), names(CallKey::ImageName));
        let lines = names(CallKey::Line);
        let reaches_start = if main_thread {
            functions.last().is_some_and(|name| name == "_start")
                && functions.iter().any(|name| name == "main")
        } else {
            // std::thread runs its function below std::thread::_State_impl::_M_run.
            functions.iter().any(|name| name.contains("_M_run"))
        };
        let add = |to: &mut u64, holds: bool| *to += if holds { samples } else { 0 };
        add(&mut self.samples, true);
        add(&mut self.complete, reaches_start && tables.stack_mark(node) == Mark::None);
        add(&mut self.second_thread, !main_thread);
        add(&mut self.inlined, calls.iter().any(|call| call.inlined));
        let evaluations = functions.iter().filter(|name| name.starts_with("evaluate(")).count();
        // Three instances on one stack: `evaluate` called itself at least twice.
        add(&mut self.recursive, evaluations >= 3);
        add(&mut self.in_library, images.iter().any(|image| image == "libquery.so"));
        let has_no_line =
            images.iter().zip(&lines).zip(&functions).any(|((image, line), function)| {
                let has_line = [".cpp:", ".hpp:", "/c++/"].iter().any(|file| line.contains(file));
                image == "libquery.so" && !has_line
                    || image == "demo" && function == "main" && !line.contains("main.cpp:")
            });
        add(&mut self.no_line, has_no_line);
    }
}

fn count(stream: &std::path::Path) -> Counts {
    let mut profile = Profile::new(GroupBy { task: true, ..GroupBy::default() });
    let (mut counts, mut labels) = (Counts::default(), Labels::new());
    let file = File::open(stream).expect("the stream is there");
    profile
        .read("the stream", file, |tables, cell, sum| {
            let task = tables.task(cell.task).expect("a sample's task is defined");
            counts.add(&mut labels, tables, cell.node, task.pid == task.tid, sum.samples);
        })
        .expect("the stream can be read");
    assert!(profile.summary.is_complete(), "{:?}", profile.summary.incomplete_inputs);
    counts
}

#[test]
fn stacks_of_optimized_code_are_complete_with_inlined_calls() {
    let shell = Shell::new();
    compile_demo(shell.directory());
    let run = shell.run("nprof-record -o - -- ./demo | nprof-symbolize > demo.nprof");
    assert_eq!(run.stages, [0, 0], "{run:?}");
    assert!(run.err.starts_with("50000 documents, "), "{}", run.err);
    assert_eq!(
        run.err.lines().count(),
        2,
        "one line of the program and one of the recorder: {}",
        run.err
    );

    let counts = count(&shell.path("demo.nprof"));
    let share = |part: u64| part as f64 / counts.samples as f64;
    assert!(counts.samples >= 300, "{counts:?}");
    assert!(share(counts.complete) >= 0.98, "{counts:?}");
    assert!(share(counts.second_thread) >= 0.1, "{counts:?}");
    assert!(share(counts.inlined) >= 0.5, "{counts:?}");
    assert!(share(counts.recursive) >= 0.05, "{counts:?}");
    assert!(share(counts.in_library) >= 0.1, "{counts:?}");
    // PLT stubs, through which calls into other libraries go, have no line information.
    assert!(share(counts.no_line) <= 0.06, "{counts:?}");
}
