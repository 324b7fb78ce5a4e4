"""uProfiler, tables 8.2 and 8.3, figures 8.16 to 8.18: are samples attributed to the callers on their
stacks, and are call cycles separated by the function that enters them?

In the first program G works three times as long for E as for D, and calls H twice for D and once
for E. In the second, three call paths call themselves through a shared function, q: gprof sees one
cycle, a profiler with whole stacks sees three.
"""

import re
from collections import Counter

from lab import figures, profilers, sources, work

RATE = 3989
RUNS, SHORT_RUNS = 10, 1
# uProfiler, table 8.2 (the Statistical Profiling Metric), in seconds.
PAPER_SECONDS = {
    "main": 1.09,
    "A": 0.26,
    "B": 3.66,
    "C": 0.53,
    "D": 0.08,
    "E": 0.52,
    "F": 0.79,
    "G": 0.87,
    "H": 0.32,
}
# The loops of the program, a round, in units of 50000.
LOOPS = {"main": 20, "A": 5, "B": 70, "C": 10, "D": 2, "E": 10, "F": 15, "G": 16, "H": 6}
# uProfiler, figure 8.16 (a) and (b).
SPLITS = [
    ("G's own samples, for D", 25.0, 25.3, 5.7),
    ("G's own samples, for E", 75.0, 74.7, 94.3),
    ("samples of H, for D", 66.7, 68.8, 6.3),
    ("samples of H, for E", 33.3, 31.3, 93.7),
]
# uProfiler, table 8.3: seconds of x, y and z; figure 8.18: their call paths.
SPINS = {"x": (3.10, "a q d q x"), "y": (6.23, "b q e q y"), "z": (9.33, "c q f q z")}


def run(report, directory):
    runs = SHORT_RUNS if report.short else RUNS
    propagation(report, directory, runs)
    cycles(report, directory, runs)


def compiled(name, directory, profiled=False):
    """Compiles one of the two programs, without optimization, which would inline the calls."""
    source = sources.PROGRAMS / f"{name}.cpp"
    return sources.compiled(name, [source], directory, "-O0", profiled=profiled)


def recorded(program, directory, runs):
    """Yields the stacks of some runs of a program: functions, root first, and samples."""
    for _ in range(runs):
        profilers.nprof([program], RATE, directory)
        yield from profilers.stacks(directory)


def propagation(report, directory, runs):
    """Table 8.2 and figure 8.16."""
    selves = Counter()
    splits = {"G": Counter(), "H": Counter()}
    for stack, samples in recorded(compiled("propagation", directory), directory, runs):
        leaf = stack[-1]
        selves[leaf] += samples
        if leaf in splits and "G" in stack:
            splits[leaf][stack[stack.index("G") - 1]] += samples
    own = {name: selves[name] for name in LOOPS}
    shares, truth = figures.shares(own), figures.shares(LOOPS)
    paper, samples = figures.shares(PAPER_SECONDS), sum(own.values())
    report.say("The first program: time by routine, in per cent.")
    rows = [
        [name, f"{truth[name]:.1f}", f"{paper[name]:.1f}", f"{shares[name]:.1f}", own[name]]
        for name in LOOPS
    ]
    report.table(["table 8.2", "loops", "paper", "nprof", "samples"], rows)
    # Twice the margin, since the test would fail by chance in 1 of 20 runs otherwise.
    margin = 2 * figures.margin(samples)
    off = max(abs(shares[name] - truth[name]) for name in LOOPS)
    report.claim(
        "shares equal the lengths of the loops", off <= margin, f"{off:.1f} points off, ± {margin:.1f}"
    )
    rows, off_most = [], 0
    for (split, truth, paper, other), (of, caller) in zip(SPLITS, ("GD", "GE", "HD", "HE")):
        samples = sum(splits[of].values())
        share = figures.shares(splits[of]).get(caller, 0)
        margin = 2 * figures.margin(samples)
        off_most = max(off_most, abs(share - truth) / margin)
        rows.append([split, truth, paper, other, f"{share:.1f}", samples])
    report.table(["figure 8.16, %", "truth", "paper", "q-syscollect", "nprof", "samples"], rows)
    report.claim(
        "samples are attributed to the callers on their stacks, within the margin",
        off_most <= 1,
        f"{100 * off_most:.0f} % of it",
    )


def cycles(report, directory, runs):
    """Table 8.3, figures 8.17 and 8.18."""
    through = Counter()
    for stack, samples in recorded(compiled("cycles", directory), directory, runs):
        words = " ".join(stack[stack.index("main") + 1 :] if "main" in stack else stack)
        # Frames below the path are interrupts of the kernel.
        paths = [path for _, path in SPINS.values() if f"{words} ".startswith(f"{path} ")]
        through[paths[0] if paths else words] += samples
    entered = entered_by(directory)
    program = compiled("cycles", directory, profiled=True)
    by_gprof = Counter()
    # At 100 samples per second gprof needs several runs of a program of this length.
    for _ in range(5 * runs):
        work.cost([program], directory)
        by_gprof += profilers.gprof_report(program, directory).within(program.name)
    samples = sum(through.values())
    weight = {name: part for part, name in enumerate(SPINS, 1)}
    rows, off_most, strayed = [], 0, samples
    for name, (seconds, path) in SPINS.items():
        truth = 100 * weight[name] / 6
        share = 100 * through[path] / samples
        gprof = 100 * by_gprof[name] / max(1, sum(by_gprof.values()))
        paper = 100 * seconds / sum(one for one, _ in SPINS.values())
        rows.append([path, *(f"{part:.1f}" for part in (truth, paper, gprof, share))])
        off_most = max(off_most, abs(share - truth))
        strayed -= through[path]
    report.say(
        "The second program: time by call path, in per cent; for the paper and gprof, time of x, y "
        "and z alone. Each path contains another cycle: q d q, q e q, q f q."
    )
    report.table(["figure 8.17", "truth", "paper", "gprof: x, y, z", "nprof"], rows)
    report.table(
        ["figure 8.18: cycle of nprof-paths --view graph", "entered by"],
        [[cycle, ", ".join(sorted(callers))] for cycle, callers in sorted(entered.items())],
    )
    graph = gprof_cycles(program, directory)
    report.say(
        f"Cycles gprof finds: {len(graph)}, of {', '.join(sorted(set().union(*graph)))}; it divides "
        "their time evenly among a, b and c."
    )
    margin = 2 * figures.margin(samples)
    report.claim(
        "each path has its share of the time, within the margin",
        off_most <= margin,
        f"{off_most:.1f} points off, ± {margin:.1f}",
    )
    report.claim(
        "the cycles are separate, each with the function that enters it",
        all({caller} in entered.values() for caller in "abc"),
    )
    report.claim(
        "at most 1 % of the samples are on another path",
        strayed <= samples / 100,
        f"{strayed} of {samples}",
    )


def entered_by(directory):
    """Returns the cycles of nprof-paths in the last recording, with the functions that enter each."""
    tsv = work.output(
        "nprof-symbolize --no-inlines nprof | nprof-paths --view graph --format tsv", directory
    )
    rows = [row for row in profilers.rows(tsv) if "[kernel" not in row["image"]]
    entered = {
        row["index"]: (row["function"], set())
        for row in rows
        if row["kind"] == "function" and row["function"].startswith("cycle ")
    }
    for row in rows:
        if row["kind"] == "caller" and row["index"] in entered:
            entered[row["index"]][1].add(profilers.plain(row["function"]))
    return dict(entered.values())


def gprof_cycles(program, directory):
    """Returns the members of each cycle of gprof."""
    graph = work.output(["gprof", "-b", "-q", program, "gmon.out"], directory)
    found = {}
    for name, cycle in re.findall(r"(\w+)(?:\([^<\n]*\))? <cycle (\d+)>", graph):
        found.setdefault(cycle, set()).add(name)
    return [members for _, members in sorted(found.items())]
