"""nprofile, figures 18 to 21: how much longer does a program take while it is profiled, at several
rates, with and without stacks?

nprof is compared with perf, gprof, samply where it can record, and the floor: sampling of all CPUs into
rings that no process reads, with as many bytes of stack as nprof lets the kernel copy. Each round runs
all of them alternately. The tables show medians over the rounds, in per cent of the bare run of the
same round; a second bare run is the control.

The paper's rates go up to 27000 samples per second. It shows charts without numbers; its text only
states that sampling costs "significantly" less than gprof. csprof (table 2) measures 113 % for gprof on
bzip2 and 167 % on parser, and 1.1 % and 4.6 % for itself.
"""

from lab import figures, profilers, sources, work
from agreement import make_sentences
from programs import program

RATES, SHORT_RATES = [100, 997, 4999, 19997], [997]
ROUNDS, SHORT_ROUNDS = 5, 1
# Bytes of stack per sample: the kernel's copy for nprof as root, where a BPF program copies the rest of
# deep stacks (nprof-record(1), "Deep stacks"); and the size that perf needs for equally deep stacks.
FLOOR_STACK, PERF_STACK = 8192, 32768


def run(report, directory):
    floor = directory / "floor"
    work.output(["gcc", "-O2", "-o", floor, sources.REPOSITORY / "bench/floor.c"], directory)
    problem = profilers.samply_problem(directory)
    if problem:
        report.say(f"{problem}. It is omitted.")
    subject = program("bzip2")
    rounds = 1 if report.short else subject.rounds
    plain = [subject.build(directory), rounds]
    instrumented = [subject.build(directory, profiled=True), rounds]
    seen = slowed(report, plain, directory, samply=not problem, instrumented=instrumented)
    show(report, "bzip2 (figures 18 and 20)", seen)
    if not report.short:
        sentences = directory / "sentences"
        sentences.write_text(make_sentences(60))
        parser = ["link-parser", "en", "-graphics=0", "-verbosity=0"]
        seen = slowed(report, parser, directory, samply=not problem, source=sentences)
        show(report, "link-parser (figures 19 and 21; no gprof: Debian's build has no -pg)", seen)


def commands(rate, directory, samply):
    """Returns the words to put before a command, by profiler and stack mode."""
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
    """Returns the costs of a command, bare, with gprof's instrumentation and under each profiler, by
    name and rate. The rate is 0 for the first two."""
    cases = {("bare", 0): command, ("again", 0): command}
    if instrumented:
        cases["gprof", 0] = instrumented
    for rate in SHORT_RATES if report.short else RATES:
        for profiler, under in commands(rate, directory, samply).items():
            cases[profiler, rate] = [*under, *command]
    rounds = SHORT_ROUNDS if report.short else ROUNDS
    return work.in_turn(
        rounds,
        {
            case: lambda words=words: work.cost(words, directory, source)
            for case, words in cases.items()
        },
    )


def show(report, title, seen):
    """Prints the slow-downs, by run time and by CPU time."""
    rates = sorted({rate for _, rate in seen if rate})
    names = [name for name in dict.fromkeys(name for name, _ in seen) if name != "bare"]

    def slow_down(name, rate, part):
        costs = seen.get((name, rate), [])
        pairs = zip(costs, seen["bare", 0])
        ratios = [getattr(one, part) / getattr(bare, part) for one, bare in pairs]
        return f"{100 * (figures.median(ratios) - 1):.1f}" if ratios else ""

    for part, title_of_part in (("elapsed", "run time"), ("cpu", "CPU time, the profiler's own included")):
        report.say(f"{title}: {title_of_part}, slow-down in per cent, by rate in Hz.")
        rows = [
            [name, slow_down(name, 0, part), *(slow_down(name, rate, part) for rate in rates)]
            for name in names
        ]
        report.table(["", "at no rate", *rates], rows)
