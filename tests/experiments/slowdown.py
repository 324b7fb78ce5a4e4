"""nprofile, figures 18 to 21: how much longer does a program take while it is profiled, at several
rates, with and without stacks?

Beside nprof stand perf, gprof, samply where it can record, and the floor: sampling all CPUs into
rings that nobody reads, with as much of the stack as nprof has the kernel copy. Each round runs all in
turn; what is printed is the median of the rounds, in per cent of the bare run of the same round,
and the bare program again as a control of what a machine makes of the same.

The paper's rates go up to 27000 samples a second. Its charts are pictures; of their numbers the
text gives none, but that sampling costs "significantly" less than gprof, which for bzip2 csprof
puts at 113 % and for parser at 167 %, and its own at 1.1 % and 4.6 % (table 2).
"""

from lab import figures, profilers, sources, work
from agreement import make_sentences
from programs import program

RATES, SHORT_RATES = [100, 997, 4999, 19997], [997]
ROUNDS, SHORT_ROUNDS = 5, 1
# Bytes of the stack: what nprof has the kernel copy, where it can have more copied of deep ones
# (nprof-record(1), "Deep stacks"), and what perf needs to see as much.
FLOOR_STACK, PERF_STACK = 8192, 32768


def run(report, directory):
    floor = directory / "floor"
    work.output(["gcc", "-O2", "-o", floor, sources.REPOSITORY / "bench/floor.c"], directory)
    trouble = profilers.samply_trouble(directory)
    if trouble:
        report.say(f"{trouble}. It is left out.")
    subject = program("bzip2")
    rounds = 1 if report.short else subject.rounds
    plain = [subject.build(directory), rounds]
    instrumented = [subject.build(directory, profiled=True), rounds]
    seen = slowed(report, plain, directory, samply=not trouble, instrumented=instrumented)
    show(report, "bzip2 (figures 18 and 20)", seen)
    if not report.short:
        sentences = directory / "sentences"
        sentences.write_text(make_sentences(60))
        parser = ["link-parser", "en", "-graphics=0", "-verbosity=0"]
        seen = slowed(report, parser, directory, samply=not trouble, source=sentences)
        show(report, "link-parser (figures 19 and 21; no gprof: Debian's build has no -pg)", seen)


def commands(rate, directory, samply):
    """What a command is run under: by who and whether with stacks."""
    record = ["nprof-record", "-q", "-F", rate, "-o", "nprof"]
    perf = ["perf", "record", "-N", "-q", "-F", rate, "-e", "cpu-clock", "-o", "perf.data"]
    floor = directory / "floor"
    under = {
        "floor": [floor, rate, "none"],
        "nprof": [*record, "--unwind", "none", "--"],
        "perf": [*perf, "--"],
        "floor, stacks": [floor, rate, FLOOR_STACK],
        "nprof, stacks": [*record, "--"],
        "perf, stacks": [*perf, "--call-graph", f"dwarf,{PERF_STACK}", "--"],
    }
    if samply:
        options = ["--save-only", "-r", rate, "-o", "samply.json", "--"]
        under["samply, stacks"] = ["samply", "record", *options]
    return under


def slowed(report, command, directory, samply, instrumented=None, source=None):
    """The costs of a command, run bare, with gprof's instrumentation, and under all: by name and
    rate, 0 for what has none."""
    cases = {("bare", 0): command, ("again", 0): command}
    if instrumented:
        cases["gprof", 0] = instrumented
    for rate in SHORT_RATES if report.short else RATES:
        for who, under in commands(rate, directory, samply).items():
            cases[who, rate] = [*under, *command]
    rounds = SHORT_ROUNDS if report.short else ROUNDS
    return work.in_turn(
        rounds,
        {
            case: lambda words=words: work.cost(words, directory, source)
            for case, words in cases.items()
        },
    )


def show(report, title, seen):
    """Prints the slow-downs, by elapsed and by CPU time."""
    rates = sorted({rate for _, rate in seen if rate})
    names = [name for name in dict.fromkeys(name for name, _ in seen) if name != "bare"]

    def slow_down(name, rate, part):
        costs = seen.get((name, rate), [])
        pairs = zip(costs, seen["bare", 0])
        ratios = [getattr(one, part) / getattr(bare, part) for one, bare in pairs]
        return f"{100 * (figures.median(ratios) - 1):.1f}" if ratios else ""

    for part, what in (("elapsed", "run time"), ("cpu", "CPU time, the profiler's own included")):
        report.say(f"{title}: {what}, slow-down in per cent, by rate in Hz.")
        rows = [
            [name, slow_down(name, 0, part), *(slow_down(name, rate, part) for rate in rates)]
            for name in names
        ]
        report.table(["", "at no rate", *rates], rows)
