"""csprof, table 2, table 3 and figure 1: how much do instrumentation and sampling slow a program down,
and how much do they distort its profile?

Distortion is the sum over all functions of the absolute difference between their share and that
of a reference. The paper's reference is DCPI, a sampler driven by the processor's counters. The
reference here is perf, sampling the clock of the unchanged program without stacks: on a machine
without counters this disturbs least and still measures time. callgrind is exact, but counts
instructions, which take different times.

Two profiles of the same work differ, since they are samples: "chance" is the distortion expected from
the number of samples alone. "perf again" is the control, perf at the rate of nprof compared with the
same reference: it includes the variation of the machine from run to run. "runs" is the largest
distortion between two runs of the reference.

Only the programs' own functions are compared, since gprof knows no others. Shares are over the runs
of all rounds, as in the paper. Slow-downs are medians over the rounds, by CPU time including that of
the profiler.
"""

import itertools
from collections import Counter

from lab import figures, profilers, work
from programs import ALL, program

RATE = 997
REFERENCE_RATE = 4999
ROUNDS, SHORT_ROUNDS = 5, 2
# Programs that fit into the first-level caches: other work on the machine shifts their profiles least.
SHORT = ["queens", "life"]
# csprof, tables 2 and 3: the integer programs.
PAPER = {"bzip2": (113, 1.1), "zlib": (53, 4.2)}
PAPER_DISTORTION = ("paper: median of 11", "", "15", "", "2.9")


def run(report, directory):
    contexts(report, directory)
    programs = [program(name) for name in SHORT] if report.short else ALL
    # The short form checks that the experiment works: a sixth of the work is enough.
    found = {
        subject.name: measured(subject, subject.rounds // 6, SHORT_ROUNDS, directory)
        if report.short
        else measured(subject, subject.rounds, ROUNDS, directory)
        for subject in programs
    }
    slow_downs(report, found)
    distortions(report, found)


def slow_downs(report, found):
    """Prints table 2."""
    rows = []
    for name, one in found.items():
        slow = [f"{one.slow_down(profiler):.1f}" for profiler in ("again", "gprof", "nprof")]
        rows.append([name, f"{one.calls:.1e}", *slow, *PAPER.get(name, ())])
    report.say(
        f"Slow-down in per cent: nprof at {RATE} Hz with stacks, gprof at its 100 Hz, and a second "
        "bare run as the control. The paper's figures are those of 256.bzip2 and 164.gzip."
    )
    columns = ["program", "calls", "again", "gprof", "nprof", "paper: gprof", "paper: csprof"]
    report.table(columns, rows)


def distortions(report, found):
    """Prints table 3."""
    seen = [("gprof", 0), ("gprof", 1), ("nprof", 0), ("control", 0), ("nprof", 1)]
    parts = {
        name: [*(one.distortion(profiler)[at] for profiler, at in seen), one.between_runs()]
        for name, one in found.items()
    }
    rows = [
        [name, len(found[name].profiles["reference"]), *(f"{part:.1f}" for part in parts[name])]
        for name in found
    ]
    medians = [figures.median(column) for column in zip(*parts.values())]
    rows.append(["median", "", *(f"{part:.1f}" for part in medians)])
    report.say("Distortion in points.")
    columns = ["program", "functions", "gprof", "chance", "nprof", "perf again", "chance", "runs"]
    report.table(columns, [*rows, PAPER_DISTORTION])
    beyond = max(one[2] - max(one[3:]) for one in parts.values())
    allowed = 15 if report.short else 5
    report.claim(
        f"nprof's distortion exceeds the largest of chance, control and variation of the "
        f"reference by at most {allowed} points",
        beyond <= allowed,
        f"by {beyond:.1f} at most",
    )


class Measured:
    """The measurements of a program over all rounds."""

    def __init__(self):
        self.profiles = {profiler: Counter() for profiler in ("reference", "nprof", "control", "gprof")}
        self.references = []
        self.cpu = {profiler: [] for profiler in ("bare", "again", "nprof", "gprof")}
        self.calls = 0

    def slow_down(self, profiler):
        """Returns the median over the rounds, in per cent."""
        ratios = [one / bare for one, bare in zip(self.cpu[profiler], self.cpu["bare"])]
        return 100 * (figures.median(ratios) - 1)

    def distortion(self, profiler):
        """Returns the distortion and that expected by chance, in points."""
        reference = figures.shares(self.profiles["reference"])
        profile = self.profiles[profiler]
        samples = [sum(self.profiles[one].values()) for one in (profiler, "reference")]
        return (
            figures.distortion(figures.shares(profile), reference),
            figures.chance(reference, *samples),
        )

    def between_runs(self):
        """Returns the largest distortion between two runs of the reference, in points."""
        pairs = itertools.combinations(self.references, 2)
        return max(figures.distortion(one, other) for one, other in pairs)


def measured(subject, work_rounds, rounds, directory):
    """Runs a program bare, under nprof, with gprof's instrumentation, and under the reference and
    the control, in turn."""
    name = subject.name
    plain = [subject.build(directory), work_rounds]
    instrumented = [subject.build(directory, profiled=True), work_rounds]
    record = ["nprof-record", "-q", "-F", RATE, "-o", "nprof", "--", *plain]
    found = Measured()
    for _ in range(rounds):
        found.cpu["bare"].append(work.cost(plain, directory).cpu)
        found.cpu["nprof"].append(work.cost(record, directory).cpu)
        found.cpu["gprof"].append(work.cost(instrumented, directory).cpu)
        found.cpu["again"].append(work.cost(plain, directory).cpu)
        for profiler, rate in (("reference", REFERENCE_RATE), ("control", RATE)):
            profile = profilers.perf(plain, rate, directory).within(name)
            found.profiles[profiler] += profile
            if profiler == "reference":
                found.references.append(figures.shares(profile))
        found.profiles["nprof"] += profilers.nprof_report(directory).within(name)
        profile = profilers.gprof_report(instrumented[0], directory)
        found.profiles["gprof"] += profile.within(f"{name}-pg")
    found.calls = profilers.gprof_calls(instrumented[0], directory)
    return found


def contexts(report, directory):
    """Prints figure 1: the time of c by caller."""
    subject = program("contexts")
    plain = subject.build(directory)
    instrumented = subject.build(directory, profiled=True)
    bare = work.cost([plain], directory).cpu
    slow = work.cost([instrumented], directory).cpu
    by_gprof = profilers.gprof_callers(instrumented, "c", directory)
    profilers.nprof([plain], RATE, directory)
    by_nprof = Counter()
    for stack, samples in profilers.stacks(directory):
        if "c" in stack:
            by_nprof[stack[stack.index("c") - 1]] += samples
    samples = sum(by_nprof.values())
    report.say(
        "Figure 1: c takes as long for a as for b, in half as many calls. Time of c and its "
        "callees, in per cent, by caller."
    )
    rows = []
    for caller, truth, paper in (("a", "50", "33"), ("b", "50", "67")):
        shares = [figures.shares(one).get(caller, 0) for one in (by_gprof, by_nprof)]
        rows.append([caller, truth, paper, *(f"{share:.1f}" for share in shares)])
    rows.append(["samples", "", "", "", samples])
    report.table(["caller", "truth", "paper: gprof", "gprof", "nprof"], rows)
    report.say(
        f"With -pg the program takes {slow / bare:.1f} times as long (table 1: 3 to 14 times)."
    )
    off = abs(figures.shares(by_nprof).get("a", 0) - 50)
    # Twice the margin, since the test would fail by chance in 1 of 20 runs otherwise.
    margin = 2 * figures.margin(samples)
    report.claim(
        "nprof divides c evenly between a and b", off <= margin, f"{off:.1f} off, ± {margin:.1f}"
    )
