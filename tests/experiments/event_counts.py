"""uProfiler, table 8.1: are the events that samples stand for as many as there were?

The paper samples instructions and cycles, which this machine may not count: here the events are
page faults, system calls (a tracepoint) and the task clock, of a program that makes a known number
of them in 20 equal pieces: one after the other, in threads on one CPU, and in threads on all. The
control is perf stat, counting in the same run: nprof-record runs perf stat, which runs the program.

The paper's estimates are a little low, for what is left of a period when a task ends is not
sampled. nprof samples CPUs, where all that runs shares the periods: what one leaves counts for the
next, and estimates are as often high as low.
"""

import json
import math

from lab import sources, work

TASKS, SHORT_TASKS = 20, 4
# Events and their periods.
EVENTS = {"page-faults": 50, "syscalls:sys_enter_getppid": 100, "task-clock": 1_000_000}
# uProfiler, table 8.1: how far off, in per cent, for instructions and cycles.
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
            # Each task, on each CPU, can win or lose a period; when a clock strikes is chance.
            allowed = 100 * period * 2 * (tasks + 1) / count
            allowed += 300 / math.sqrt(sampled[event]) if event.endswith("clock") else 0
            off_most = max(off_most, abs(off) / allowed)
            shown = [f"{number:.0f}" for number in (count, estimate, sampled[event])]
            rows.append([f"{how}, {event}", *shown, f"{off:+.3f}"])
        rows.append([f"  paper: {how}, instructions and cycles", "", "", "", PAPER[how]])
    report.table(["run, event", "perf stat", "nprof", "samples", "off %"], rows)
    report.claim(
        "what samples stand for is what was counted, to a period for each task and CPU and, of "
        "the clock, three standard deviations",
        off_most <= 1,
        f"at most {100 * off_most:.0f} % of that",
    )


def both(command, directory):
    """Runs a command, and gives how many of each event perf stat counted, and of how many nprof
    took a sample."""
    control = ["perf", "stat", "-x", ";", "-o", "stat", "-e", ",".join(EVENTS)]
    asked = [word for name, period in EVENTS.items() for word in ("-e", f"{name}:{period}")]
    record = ["nprof-record", "-q", *asked, "--unwind", "none", "-o", "nprof"]
    work.cost([*record, "--", *control, *command], directory)
    counted = {}
    for line in (directory / "stat").read_text().splitlines():
        fields = line.split(";")
        if len(fields) > 2:
            # perf tells clocks in milliseconds.
            counted[fields[2]] = float(fields[0]) * (1e6 if fields[1] == "msec" else 1)
    stat = json.loads(work.output(["nprof-format", "stat", "--format", "json", "nprof"], directory))
    sampled = dict.fromkeys(EVENTS, 0)
    for task in stat["tasks"]:
        if task["comm"] == "events":
            for event, samples in zip(stat["events"], task["events"]):
                sampled[event["event"]] += samples
    return counted, sampled
