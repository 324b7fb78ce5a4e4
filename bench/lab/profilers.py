"""The profilers: each function runs a command under one and returns a `Profile`."""

import csv
import io
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from lab import work


class Profile(NamedTuple):
    """Numbers of samples by function, a pair of the image's base name and the function's name."""

    of: Counter

    @property
    def samples(self):
        return sum(self.of.values())

    def within(self, image):
        """Returns the samples of one image, by function."""
        inside = Counter()
        for (where, function), samples in self.of.items():
            if where == image:
                inside[function] += samples
        return inside


def plain(function):
    """Returns the part of a function's name that all profilers print: without parameters, symbol
    version, and the suffix of a part that the compiler split off or specialized."""
    end = re.search(r"(?<=.)[@(]|\.(part|isra|constprop|cold|lto_priv)\b", function)
    return function[: end.start()] if end else function


def nprof(command, rate, directory, *options, source=None):
    """Profiles a command with nprof; `options` are those of nprof-record."""
    record = ["nprof-record", "-q", "-F", rate, *options, "-o", "nprof", "--", *command]
    work.cost(record, directory, source)
    return nprof_report(directory)


def nprof_report(directory, stream="nprof"):
    # The other profilers name the function of the symbol table, not inlined calls.
    tsv = work.output(
        f"nprof-symbolize --no-inlines {stream} | nprof-flat --format tsv", directory
    )
    of = Counter()
    for row in rows(tsv):
        image = row["image"].rpartition("/")[2]
        of[image, plain(row["function"])] += int(row["self_samples"])
    return Profile(of)


def nprof_places(command, rate, directory, source=None):
    """Like nprof(), but code without a symbol is named by its address in the image, as by perf."""
    nprof(command, rate, directory, source=source)
    keys = "--by image,function,address --format tsv"
    tsv = work.output(f"nprof-symbolize --no-inlines nprof | nprof-flat {keys}", directory)
    of = Counter()
    for row in rows(tsv):
        name, address = (row[key] for key in ("function", "address"))
        is_named = not re.search(r"\+0x[0-9a-f]+$", name)
        name = plain(name) if is_named else address.rpartition("+")[2]
        of[row["image"].rpartition("/")[2], name] += int(row["self_samples"])
    return Profile(of)


def rows(tsv):
    """Returns the rows of a report in --format tsv as dictionaries."""
    return csv.DictReader(io.StringIO(tsv), delimiter="\t", quoting=csv.QUOTE_NONE)


def stacks(directory, stream="nprof"):
    """Yields the stacks of a recording: a list of functions, root first, and the number of samples."""
    folded = work.output(
        f"nprof-symbolize --no-inlines {stream} | nprof-paths --format folded", directory
    )
    for line in folded.splitlines():
        stack, _, samples = line.rpartition(" ")
        # The first entry is the name of the command.
        yield [plain(function) for function in stack.split(";")[1:]], int(samples)


def perf(command, rate, directory, *options, source=None):
    """Profiles a command with perf and the same clock; `options` are those of perf record."""
    record = ["perf", "record", "-N", "-q", "-F", rate, "-e", "cpu-clock", *options]
    work.cost([*record, "-o", "perf.data", "--", *command], directory, source)
    report = ["perf", "report", "-i", "perf.data", "-q", "--stdio", "-g", "none", "--no-children"]
    lines = work.output([*report, "-F", "sample,sym,dso", "-t", "\t"], directory)
    of = Counter()
    for line in lines.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) == 3:
            samples, symbol, image = fields
            # `[.] name` or `[k] name`
            of[image.rpartition("/")[2], plain(symbol[4:])] += int(samples)
    return Profile(of)


def perf_samples(directory):
    """Returns the number of samples in perf.data."""
    report = ["perf", "report", "-i", "perf.data", "-q", "--stdio", "-g", "none", "--no-children"]
    return sum(map(int, work.output([*report, "-F", "sample"], directory).split()))


def gprof(command, directory, source=None):
    """Profiles a program built with -pg: it samples itself, 100 times per second, and only its own
    functions."""
    work.cost(command, directory, source)
    return gprof_report(command[0], directory)


def gprof_report(program, directory):
    flat = work.output(["gprof", "-b", "-p", program, "gmon.out"], directory)
    of = Counter()
    for line in flat.splitlines():
        #  %time  cumulative  self  [calls  self/call  total/call]  name
        found = re.match(r" *[\d.]+ +[\d.]+ +([\d.]+) +(?:\d+ +[\d.]+ +[\d.]+ +)?(\S.*)$", line)
        if found:
            of[Path(program).name, plain(found[2])] += round(float(found[1]) * 100)
    return Profile(of)


def gprof_calls(program, directory):
    """Returns the number of calls that gprof counted."""
    flat = work.output(["gprof", "-b", "-p", program, "gmon.out"], directory)
    calls = re.findall(r"^ *[\d.]+ +[\d.]+ +[\d.]+ +(\d+) ", flat, re.M)
    return sum(map(int, calls))


def gprof_callers(program, function, directory):
    """Returns how gprof divides the time of a function and its callees among the callers, in
    hundredths of seconds."""
    graph = work.output(["gprof", "-b", "-q", program, "gmon.out"], directory)
    callers = Counter()
    for entry in graph.split("-" * 47):
        own = re.search(r"^\[\d+\] [\d. +]* (\D.*) \[\d+\]$", entry, re.M)
        if own and plain(own[1]) == function:
            parent = r"^ +([\d.]+) +([\d.]+) +\d+/\d+ +(.*) \[\d+\]$"
            for time, below, caller in re.findall(parent, entry[: own.start()], re.M):
                callers[plain(caller)] += round(100 * (float(time) + float(below)))
    return callers


def callgrind(command, directory, source=None):
    """Profiles a command with an emulator: exact numbers of instructions, not time."""
    tool = ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=callgrind"]
    work.cost([*tool, *command], directory, source)
    annotate = ["callgrind_annotate", "--threshold=100", "--auto=no", "callgrind"]
    of = Counter()
    for line in work.output(annotate, directory).splitlines():
        # 1,234 (12.34%)  file:function['LEVEL] [/path/image], for each level of recursion
        found = re.match(r" *([\d,]+) \([ \d.]+%\)  [^:]*:(.*?)(?:'\d+)? \[(.*)\]$", line)
        if found:
            image = found[3].rpartition("/")[2]
            of[image, plain(found[2])] += int(found[1].replace(",", ""))
    return Profile(of)


def samply_problem(directory):
    """Returns the reason why samply cannot record here, or an empty string if it can."""
    if shutil.which("samply") is None:
        return "samply is not installed (make peers)"
    if runs(["samply", "record", "--save-only", "-o", "samply.json", "true"], directory):
        return ""
    if runs(["nprof-record", "-q", "-e", "cycles", "-o", "nprof", "true"], directory):
        return "samply cannot record here"
    return "samply cannot record here: it samples by cycles, and this machine has no counter for them"


def runs(command, directory):
    """Returns True if a command exits with 0."""
    try:
        work.cost(command, directory)
    except work.Failed:
        return False
    return True
