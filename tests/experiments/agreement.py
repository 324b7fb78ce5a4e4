"""nprofile, figures 14 to 17: do profilers agree on the top ten functions, and how much do five
runs of each vary?

The paper's programs are SPEC's 256.bzip2 and 197.parser. The programs here are bzip2's library, which
compresses and decompresses in memory, and link-parser, the successor of the parser. link-parser is
Debian's build: gprof cannot profile it (program and library would have to be rebuilt with -pg), and
it is stripped, so that the address where a function begins is its name.
"""

import bisect
import math
import re
from collections import Counter

from lab import figures, profilers, work
from programs import program

RATE, SHORT_RATE = 4999, 1999
RUNS, SHORT_RUNS = 5, 3
TOP = 10
PARSER_IMAGE = "liblink-grammar.so"


def run(report, directory):
    bzip2(report, directory)
    if not report.short:
        link_parser(report, directory)


def bzip2(report, directory):
    rate, runs = (SHORT_RATE, SHORT_RUNS) if report.short else (RATE, RUNS)
    subject = program("bzip2")
    rounds = subject.rounds // 2 if report.short else subject.rounds
    plain = [subject.build(directory), rounds]
    cases = {
        "nprof": lambda: profilers.nprof(plain, rate, directory).within("bzip2"),
        "perf": lambda: profilers.perf(plain, rate, directory).within("bzip2"),
    }
    if not report.short:
        instrumented = [subject.build(directory, profiled=True), rounds]
        cases["gprof"] = lambda: profilers.gprof(instrumented, directory).within("bzip2-pg")
    profiles = work.in_turn(runs, cases)
    if not report.short:
        exact = profilers.callgrind([plain[0], 1], directory)
        profiles["callgrind"] = [exact.within("bzip2")]
    report.say(f"bzip2, {runs} runs each at {rate} Hz; gprof at 100 Hz, callgrind once.")
    compare(report, profiles, "fig. 14, 16")


def link_parser(report, directory):
    sentences = directory / "sentences"
    sentences.write_text(make_sentences(150))
    command = ["link-parser", "en", "-graphics=0", "-verbosity=0"]
    brief = directory / "few-sentences"
    brief.write_text(make_sentences(5))

    library = work.output("ldd $(command -v link-parser) | awk '/liblink-g/ { print $3 }'", directory)
    frames = work.output(["readelf", "--debug-dump=frames", library.strip()], directory)
    begins = sorted(int(start, 16) for start in re.findall(r" FDE .* pc=([0-9a-f]+)\.\.", frames))

    def inside(profile):
        image = next(image for image, _ in profile.of if image.startswith(PARSER_IMAGE))
        return profile.within(image)

    profiles = work.in_turn(
        RUNS,
        {
            "nprof": lambda: inside(
                profilers.nprof_places(command, RATE, directory, source=sentences)
            ),
            "perf": lambda: inside(profilers.perf(command, RATE, directory, source=sentences)),
        },
    )
    profiles["callgrind"] = [inside(profilers.callgrind(command, directory, source=brief))]
    profiles = {
        profiler: [by_begin(profile, begins) for profile in found] for profiler, found in profiles.items()
    }
    report.say(
        f"link-parser, in its library, {RUNS} runs each at {RATE} Hz; callgrind once, on fewer "
        "sentences. No gprof: Debian's build has no -pg."
    )
    compare(report, profiles, "fig. 15, 17")


def make_sentences(count):
    """Returns English sentences, the same on each call."""
    subject = ["The old miller", "A tired student", "My neighbour's dog", "The committee", "Nobody"]
    verb = ["saw", "remembered", "has often praised", "wanted to sell", "could not find"]
    object_ = ["the boat with the red sail", "a letter from her sister", "what I had written"]
    place = ["near the river", "when the rain had stopped", "although it was late", "in spring"]
    lists = [subject, verb, object_, place, ["before the guests arrived.", "because of the noise."]]
    lines = []
    for number in range(count):
        parts = []
        for words in lists:
            number, at = divmod(number * 7 + 3, len(words))
            parts.append(words[at])
        lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def by_begin(profile, begins):
    """Replaces the addresses without a name, `0xADDRESS`, of a profile by the beginning of the function
    that contains them."""
    merged = Counter()
    for name, samples in profile.items():
        _, is_place, address = name.rpartition("0x")
        at = bisect.bisect_right(begins, int(address, 16)) if is_place else 0
        merged[f"+{begins[at - 1]:#x}" if at else name] += samples
    return merged


def compare(report, profiles, figure):
    """Prints the shares of the top ten functions and their spread over the runs, and checks both."""
    of = {profiler: [figures.shares(profile) for profile in found] for profiler, found in profiles.items()}
    samples = {
        profiler: figures.mean([sum(profile.values()) for profile in found])
        for profiler, found in profiles.items()
    }

    def mean(profiler, function):
        return figures.mean([shares.get(function, 0) for shares in of[profiler]])

    def spread(profiler, function):
        return figures.deviation([shares.get(function, 0) for shares in of[profiler]])

    names = {function for shares in of["nprof"] for function in shares}
    top = sorted(names, key=lambda name: (-mean("nprof", name), name))[:TOP]
    repeated = [profiler for profiler in of if len(of[profiler]) > 1]
    rows = [
        [name, *(f"{mean(profiler, name):.2f}" for profiler in of)]
        + [f"{spread(profiler, name):.2f}" for profiler in repeated]
        for name in top
    ]
    margins = {profiler: figures.margin(samples[profiler]) for profiler in repeated}
    rows.append(["samples", *(f"{samples[profiler]:.0f}" if profiler in repeated else "" for profiler in of)])
    rows[-1] += [""] * len(repeated)
    rows.append(["margin", *([""] * len(of)), *(f"{margins[profiler]:.2f}" for profiler in repeated)])
    columns = [f"share %, {figure}", *of, *(f"± {profiler}" for profiler in repeated)]
    report.table(columns, rows)

    def allowed(name):
        """Returns the difference allowed, in points: the margins of both, and three standard errors of
        the variation between runs."""
        error = math.hypot(*(spread(profiler, name) / math.sqrt(len(of[profiler])) for profiler in repeated))
        return margins["nprof"] + margins["perf"] + 3 * error

    apart = max(
        ((abs(mean("nprof", name) - mean("perf", name)), allowed(name)) for name in top),
        key=lambda one: one[0] / one[1],
    )
    report.claim(
        "nprof and perf agree on the top ten within their margins and the spread of the runs",
        apart[0] <= apart[1],
        f"at most {apart[0]:.2f} points apart, {apart[1]:.2f} allowed",
    )
    # The short form has three runs: too few to estimate a spread.
    if not report.short:
        wide = max(top, key=lambda name: spread("nprof", name))
        bound = max(margins["nprof"], 2.5 * spread("perf", wide))
        report.claim(
            "runs of nprof vary by at most the margin or, if the program itself varies, by at most "
            "2.5 times the variation of perf's runs (exceeded by chance in 1 of 20)",
            spread("nprof", wide) <= bound,
            f"{spread('nprof', wide):.2f} of {bound:.2f}",
        )
