"""csprof, table 2, table 3 and figure 1: what do instrumentation and sampling cost, and how much
do they distort?

Distortion is the sum over all functions of the absolute difference between their share and that
of a reference. The paper's reference is DCPI, a sampler driven by the processor's counters. Here
it is perf sampling the clock of the unchanged program without stacks, the nearest thing a machine
without counters has: it disturbs least and sees time. callgrind is exact, but counts
instructions, which take different times.

Profiles are samples, so two of the same work differ: "chance" is what is to be expected from the
number of samples alone. "perf again" is the control: perf at the rate of nprof, held against the
same reference, which holds what the machine does from run to run as well; "runs" is the most any
two runs of the reference differ.

Only the programs' own functions are compared, as gprof sees no others. Shares are over the runs
of all rounds, as the paper's; slow-downs are medians of the rounds, by CPU time, the profilers'
own included.
"""

import itertools
from collections import Counter

from lab import figures, profilers, work
from programs import ALL, program

RATE = 997
REFERENCE_RATE = 4999
ROUNDS, SHORT_ROUNDS = 5, 2
# Programs that live in the first caches: what else the machine does shifts their profiles least.
SHORT = ["queens", "life"]
# csprof, tables 2 and 3: the integer programs.
PAPER = {"bzip2": (113, 1.1), "zlib": (53, 4.2)}
PAPER_DISTORTION = ("paper: median of 11", "", "15", "", "2.9")


def run(report, directory):
    contexts(report, directory)
    programs = [program(name) for name in SHORT] if report.short else ALL
    # A part of the work is enough to see that all goes well.
    found = {
        subject.name: measured(subject, subject.rounds // 6, SHORT_ROUNDS, directory)
        if report.short
        else measured(subject, subject.rounds, ROUNDS, directory)
        for subject in programs
    }
    slow_downs(report, found)
    distortions(report, found)


def slow_downs(report, found):
    """Table 2."""
    rows = []
    for name, one in found.items():
        slow = [f"{one.slow_down(who):.1f}" for who in ("again", "gprof", "nprof")]
        rows.append([name, f"{one.calls:.1e}", *slow, *PAPER.get(name, ())])
    report.say(
        f"Slow-down in per cent: nprof at {RATE} Hz with stacks, gprof at its 100 Hz, the bare "
        "program again as a control. The paper's are of 256.bzip2 and 164.gzip."
    )
    columns = ["program", "calls", "again", "gprof", "nprof", "paper: gprof", "paper: csprof"]
    report.table(columns, rows)


def distortions(report, found):
    """Table 3."""
    seen = [("gprof", 0), ("gprof", 1), ("nprof", 0), ("control", 0), ("nprof", 1)]
    parts = {
        name: [*(one.distortion(who)[at] for who, at in seen), one.between_runs()]
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
        f"nprof's distortion is at most {allowed} points above that of chance, the "
        "control or the runs of the reference",
        beyond <= allowed,
        f"{beyond:.1f} at most",
    )


class Found:
    """What the rounds of a program gave."""

    def __init__(self):
        self.profiles = {who: Counter() for who in ("reference", "nprof", "control", "gprof")}
        self.references = []
        self.cpu = {who: [] for who in ("bare", "again", "nprof", "gprof")}
        self.calls = 0

    def slow_down(self, who):
        """In per cent, the median over the rounds."""
        ratios = [one / bare for one, bare in zip(self.cpu[who], self.cpu["bare"])]
        return 100 * (figures.median(ratios) - 1)

    def distortion(self, who):
        """In points: what was seen, and what chance alone makes."""
        reference = figures.shares(self.profiles["reference"])
        profile = self.profiles[who]
        samples = [sum(self.profiles[one].values()) for one in (who, "reference")]
        return (
            figures.distortion(figures.shares(profile), reference),
            figures.chance(reference, *samples),
        )

    def between_runs(self):
        """In points: the most that two runs of the reference differ."""
        pairs = itertools.combinations(self.references, 2)
        return max(figures.distortion(one, other) for one, other in pairs)


def measured(subject, work_rounds, rounds, directory):
    """Runs a program bare, under nprof, with gprof's instrumentation, and under the reference and
    the control, in turn."""
    name = subject.name
    plain = [subject.build(directory), work_rounds]
    instrumented = [subject.build(directory, profiled=True), work_rounds]
    record = ["nprof-record", "-q", "-F", RATE, "-o", "nprof", "--", *plain]
    found = Found()
    for _ in range(rounds):
        found.cpu["bare"].append(work.cost(plain, directory).cpu)
        found.cpu["nprof"].append(work.cost(record, directory).cpu)
        found.cpu["gprof"].append(work.cost(instrumented, directory).cpu)
        found.cpu["again"].append(work.cost(plain, directory).cpu)
        for who, rate in (("reference", REFERENCE_RATE), ("control", RATE)):
            profile = profilers.perf(plain, rate, directory).within(name)
            found.profiles[who] += profile
            if who == "reference":
                found.references.append(figures.shares(profile))
        found.profiles["nprof"] += profilers.nprof_report(directory).within(name)
        profile = profilers.gprof_report(instrumented[0], directory)
        found.profiles["gprof"] += profile.within(f"{name}-pg")
    found.calls = profilers.gprof_calls(instrumented[0], directory)
    return found


def contexts(report, directory):
    """Figure 1: whose are the calls of c?"""
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
        "Figure 1: c takes as long for a as for b, in half as many calls. Time of c and what it "
        "calls, in per cent, by caller."
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
    # Twice the margin: this is run more often than a report is read.
    margin = 2 * figures.margin(samples)
    report.claim(
        "nprof divides c evenly between a and b", off <= margin, f"{off:.1f} off, ± {margin:.1f}"
    )
