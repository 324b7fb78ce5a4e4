//! Runs the recorder for real. Tests that lack a right, a compiler or a tool print SKIPPED and
//! pass.

// Stacks with pages that are not in memory, with BPF and without.
mod absent_pages;
// Heap and fd events: bytes by caller, leaks, the peak, fork and exec, users without rights.
mod allocations;
// Calls of functions that the compiler instrumented: exact and sampled counts by function and caller.
mod instrumented;
// Recording processes, the system and cgroups that run already; several events, delay, CPUs.
mod attach;
// Stacks deeper than the kernel's copy, with BPF and with hardware breakpoints.
mod deep_stacks;
// Event names: the list of `-l`, periods, exact counts, tracepoints, probes, losses by event.
mod events;
// Many processes, threads and recorders at once: all of them are recorded, limits are named.
mod fork_storms;
// Programs of Go: goroutines, the stacks of threads, stripped programs.
mod go_programs;
// Every caller of generated programs without unwind tables is right, by compilers and options.
mod generated_programs;
// Frames that no compiler made: stubs generated at run time, signal handlers, coroutines.
mod hand_made_frames;
// An event by routine: exact counts by function, path, thread and second.
mod routines;
// Code without unwind tables: musl, and `main` of Rust programs that abort on panic.
mod no_unwind_tables;
// Processes that the kernel's records alone do not show.
mod process_life;
// File size limits, namespaces, a recorder killed at once, commands that ignore interrupts, no /proc.
mod odd_environments;
// Programs of many kinds: dlopen and dlclose, threads, children, the loader, Rust, odd segments.
mod real_programs;
// Running a command: exit status, output, descriptors, signals, unprivileged use.
mod run_command;
// Java without frame pointers: callers are right in the interpreter and in compiled code.
mod java;
// Calls: exact counts, functions that do not return, the limit, rights.
mod calls;
// Calls of running processes, control groups, the system, after a delay, on further CPUs.
mod calls_of_targets;
// Heap events of programs whose bytes, calls and leaks are known by construction.
mod heap_truth;
// Losses: lost samples and lost records of mappings, told apart.
mod losses;
mod missed_allocations;
// Names of code generated at run time: perf maps, jitdumps, BPF programs.
mod runtime_code;
mod runtime_machine_code;
// Node.js and Python: generated code is named, and its stacks are complete and right.
mod runtimes;
// Complete stacks and the reasons of incomplete ones; the ways to capture stacks; CPU modes.
mod stack_capture;
// Runs the recorder and reads its stream.
mod support;
// Function names of a recorded program.
mod symbols;
// Recordings of waiting, as the tests of waits read them.
mod waiting;
// Programs that wait in one way: stack, cause and time.
mod wait_causes;
// Servers under load.
mod wait_servers;
// Waits of odd lengths and numbers, lost samples, control groups.
mod wait_shapes;
// Waiting of processes that exist before: by target, after a delay, without rights.
mod wait_targets;
// Waiting in windows of time.
mod wait_windows;
// Waiting: lengths, causes, threads that wait all the time, exact times of each thread.
mod waits;
// Waiting without BPF: times, stacks and calls by context switches and looks at blocked threads.
mod waits_by_switches;
// Wake-ups: pairs of waits and wakers, interrupts.
mod wakes;
// Signals, job control, terminals and inherited state are the same with and without the recorder.
mod transparency;
// Every stack of generated programs is right, by all optimization levels and linkers.
mod unusual_code;
