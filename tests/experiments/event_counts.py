"""uProfiler, table 8.1: is the number of samples times the period the number of events?

The paper samples instructions and cycles, which this machine may not be able to count. Here the
events are page faults, system calls (a tracepoint) and the task clock of a program that causes a known
number of them in 20 equal pieces: in sequence, in threads on one CPU, and in threads on all CPUs. The
control is perf stat, which counts in the same run: nprof-record runs perf stat, which runs the program.

The paper's estimates are a little low, since the rest of a period is not sampled when a task ends.
nprof samples CPUs, on which all tasks share the periods: the rest of one task's period counts for the
next task, and estimates are as often high as low.
"""

import json
import math

from lab import sources, work

TASKS, SHORT_TASKS = 20, 4
# Events and their periods.
EVENTS = {"page-faults": 50, "syscalls:sys_enter_getppid": 100, "task-clock": 1_000_000}
# uProfiler, table 8.1: errors in per cent, for instructions and cycles.
PAPER = {
    "sequential": "-0.004, -0.052",
    "one CPU": "-0.004, -0.052",
    "all CPUs": "-0.251, -0.495",
}
RUNS = {"sequential": ["sequential"], "one CPU": ["threads"], "all CPUs": ["threads"]}


def run(report, directory):
    tasks = SHORT_TASKS if report.short else TASKS
    program = sources.compiled("events", [sources.PROGRAMS / "events.cpp"], directory, "-pthread")
    rows, off_most = [], 0
    for how, words in RUNS.items():
        pinned = ["taskset", "-c", "0"] if how == "one CPU" else []
        counted, sampled = both([*pinned, program, *words, tasks], directory)
        for event, period in EVENTS.items():
            estimate, count = sampled[event] * period, counted[event]
            off = 100 * (estimate / count - 1)
            # Each task can gain or lose one period on each CPU. Clock samples vary by chance as well.
            allowed = 100 * period * 2 * (tasks + 1) / count
            allowed += 300 / math.sqrt(sampled[event]) if event.endswith("clock") else 0
            off_most = max(off_most, abs(off) / allowed)
            shown = [f"{number:.0f}" for number in (count, estimate, sampled[event])]
            rows.append([f"{how}, {event}", *shown, f"{off:+.3f}"])
        rows.append([f"  paper: {how}, instructions and cycles", "", "", "", PAPER[how]])
    report.table(["run, event", "perf stat", "nprof", "samples", "off %"], rows)
    report.claim(
        "samples times period equal the counted events, within a period for each task and CPU and, "
        "for the clock, three standard deviations",
        off_most <= 1,
        f"at most {100 * off_most:.0f} % of that",
    )


def both(command, directory):
    """Runs a command; returns the number of events that perf stat counted, and the number of samples
    that nprof took, by event."""
    control = ["perf", "stat", "-x", ";", "-o", "stat", "-e", ",".join(EVENTS)]
    events = [word for name, period in EVENTS.items() for word in ("-e", f"{name}:{period}")]
    record = ["nprof-record", "-q", *events, "--unwind", "none", "-o", "nprof"]
    work.cost([*record, "--", *control, *command], directory)
    counted = {}
    for line in (directory / "stat").read_text().splitlines():
        fields = line.split(";")
        if len(fields) > 2:
            # perf stat prints clocks in milliseconds.
            counted[fields[2]] = float(fields[0]) * (1e6 if fields[1] == "msec" else 1)
    stat = json.loads(work.output(["nprof-format", "stat", "--format", "json", "nprof"], directory))
    sampled = dict.fromkeys(EVENTS, 0)
    for task in stat["tasks"]:
        if task["comm"] == "events":
            for event, samples in zip(stat["events"], task["events"]):
                sampled[event["event"]] += samples
    return counted, sampled
