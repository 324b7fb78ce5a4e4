"""Prospect, section "Example Use": a workload of several processes that is mostly kernel, seen
system-wide.

The paper runs four clients of netperf's TCP_RR at once, and shows the hits of each process in user
and in kernel mode. Here four clients and their servers exchange requests through TCP on this
machine, while nprof-record -a samples all of it; what each process used in user and system mode
by getrusage(2) stands beside.
"""

import re
import signal
import subprocess
import time

from lab import figures, profilers, sources, work

RATE = 1024
PAIRS = 4
EXCHANGES, SHORT_EXCHANGES = 100000, 20000
# Prospect, "Statistics of Run" and "Extrapolated Summary of Processes".
PAPER_SYSTEM = 100 * 58579 / 61667
PAPER_CLIENT = 100 * 14838 / (14838 + 728)
PAPER_TIME = 100 * 57.08 / (2.94 + 57.08)


def run(report, directory):
    program = sources.compiled("requests", [sources.PROGRAMS / "requests.c"], directory)
    exchanges = SHORT_EXCHANGES if report.short else EXCHANGES
    told = recorded([program, PAIRS, exchanges], directory)
    used = {
        int(pid): (name, float(user), float(system))
        for name, pid, user, system in re.findall(r"^(\w+) (\d+) ([\d.]+) ([\d.]+)$", told, re.M)
    }
    seen = samples_by_process(directory)
    period = 1 / RATE
    rows, ratios = [], []
    for pid, (name, user, system) in sorted(used.items(), key=lambda item: item[1][0]):
        in_user, in_kernel = seen.get(pid, (0, 0))
        samples = in_user + in_kernel
        by_nprof = 100 * in_kernel / max(samples, 1)
        by_rusage = 100 * system / (user + system)
        ratios.append((samples * period / (user + system), samples))
        times = [f"{in_user * period:.3f}", f"{in_kernel * period:.3f}", f"{by_nprof:.1f}"]
        rows.append([name, *times, f"{user:.3f}", f"{system:.3f}", f"{by_rusage:.1f}"])
    kernel = sum(in_kernel for _, in_kernel in (seen.get(pid, (0, 0)) for pid in used))
    whole = sum(sum(seen.get(pid, (0, 0))) for pid in used)
    user, system = (sum(one[part] for one in used.values()) for part in (1, 2))
    rows.append(
        ["all", f"{(whole - kernel) * period:.3f}", f"{kernel * period:.3f}"]
        + [f"{100 * kernel / whole:.1f}", f"{user:.3f}", f"{system:.3f}"]
        + [f"{100 * system / (user + system):.1f}"]
    )
    columns = ["process", "nprof user s", "kernel s", "kernel %", "rusage user s", "system s", "%"]
    report.table(columns, rows)
    report.say(
        f"Of the paper: one of four clients {PAPER_CLIENT:.1f} % kernel, all hits on the system "
        f"{PAPER_SYSTEM:.1f} % kernel; by time(1) {PAPER_TIME:.1f} % system."
    )
    # How many samples fall on a process varies by the square root of their number, at most.
    far = [abs(one - 1) / (0.1 + 3 / max(samples, 1) ** 0.5) for one, samples in ratios]
    report.claim(
        "every process was seen, with its CPU time within 10 % and three standard deviations",
        len(ratios) == 2 * PAIRS and max(far) <= 1,
        f"{100 * min(ratios)[0]:.0f} to {100 * max(ratios)[0]:.0f} %",
    )
    # The kernel's own division of user and system is by ticks, a sample as well.
    bound = 3 + 2 * figures.margin(whole)
    off = abs(100 * kernel / whole - 100 * system / (user + system))
    report.claim(
        "the kernel's share of all is getrusage's within 3 points and margins",
        off <= bound,
        f"{off:.1f} points apart, {bound:.1f} allowed",
    )
    kernel_functions(report, directory)


def recorded(command, directory):
    """Runs a command while the whole system is sampled, and gives what it printed."""
    stream = directory / "nprof"
    # The paper's profiles are flat: without stacks.
    record = ["nprof-record", "-q", "-a", "--unwind", "none", "-F", str(RATE), "-o", str(stream)]
    with subprocess.Popen(record, cwd=directory) as recorder:
        try:
            # The stream begins when sampling does.
            while recorder.poll() is None and not (stream.exists() and stream.stat().st_size):
                time.sleep(0.01)
            told = work.output(command, directory)
        finally:
            recorder.send_signal(signal.SIGINT)
    return told


def samples_by_process(directory):
    """User and kernel samples of each process."""
    tsv = work.output(
        "nprof-symbolize --no-inlines nprof | nprof-flat --by process,image --format tsv", directory
    )
    seen = {}
    for row in profilers.rows(tsv):
        pid = int(row["process"].split()[0])
        user, kernel = seen.get(pid, (0, 0))
        own = int(row["self_samples"])
        if row["image"].startswith("[kernel"):
            seen[pid] = (user, kernel + own)
        else:
            seen[pid] = (user + own, kernel)
    return seen


def kernel_functions(report, directory):
    """The paper's "Global KERNEL Profile"."""
    profile = profilers.nprof_report(directory)
    inside = [
        (samples, function)
        for (image, function), samples in profile.of.items()
        if image.startswith("[kernel")
    ]
    rows = [[function, samples] for samples, function in sorted(inside, reverse=True)[:8]]
    report.say("The kernel's functions with the most samples:")
    report.table(["function", "samples"], rows)
