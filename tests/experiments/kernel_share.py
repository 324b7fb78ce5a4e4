"""Prospect, section "Example Use": a system-wide profile of several processes that spend most of
their time in the kernel.

The paper runs four clients of netperf's TCP_RR at once, and shows the hits of each process in user
and in kernel mode. Here four clients and their servers exchange requests through TCP on this
machine, while nprof-record -a samples the whole system. The control is the user and system time of
each process by getrusage(2).
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
    output = recorded([program, PAIRS, exchanges], directory)
    used = {
        int(pid): (name, float(user), float(system))
        for name, pid, user, system in re.findall(r"^(\w+) (\d+) ([\d.]+) ([\d.]+)$", output, re.M)
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
        f"In the paper: one of four clients {PAPER_CLIENT:.1f} % kernel, all hits on the system "
        f"{PAPER_SYSTEM:.1f} % kernel; by time(1) {PAPER_TIME:.1f} % system."
    )
    # The standard deviation of a number of samples is at most its square root.
    far = [abs(one - 1) / (0.1 + 3 / max(samples, 1) ** 0.5) for one, samples in ratios]
    report.claim(
        "the profile has every process, with its CPU time within 10 % and three standard deviations",
        len(ratios) == 2 * PAIRS and max(far) <= 1,
        f"{100 * min(ratios)[0]:.0f} to {100 * max(ratios)[0]:.0f} %",
    )
    # The kernel divides user and system time by its own ticks, which are samples, too.
    bound = 3 + 2 * figures.margin(whole)
    off = abs(100 * kernel / whole - 100 * system / (user + system))
    report.claim(
        "the kernel's share equals that of getrusage within 3 points and twice the margin",
        off <= bound,
        f"{off:.1f} points apart, {bound:.1f} allowed",
    )
    kernel_functions(report, directory)


def recorded(command, directory):
    """Runs a command while nprof-record samples the whole system; returns its output."""
    stream = directory / "nprof"
    # The paper's profiles are flat, so stacks are not needed.
    record = ["nprof-record", "-q", "-a", "--unwind", "none", "-F", str(RATE), "-o", str(stream)]
    with subprocess.Popen(record, cwd=directory) as recorder:
        try:
            # nprof-record writes the first bytes of the stream when sampling has begun.
            while recorder.poll() is None and not (stream.exists() and stream.stat().st_size):
                time.sleep(0.01)
            output = work.output(command, directory)
        finally:
            recorder.send_signal(signal.SIGINT)
    return output


def samples_by_process(directory):
    """Returns the user and kernel samples of each process."""
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
    """Prints the paper's "Global KERNEL Profile"."""
    profile = profilers.nprof_report(directory)
    inside = [
        (samples, function)
        for (image, function), samples in profile.of.items()
        if image.startswith("[kernel")
    ]
    rows = [[function, samples] for samples, function in sorted(inside, reverse=True)[:8]]
    report.say("The kernel's functions with the most samples:")
    report.table(["function", "samples"], rows)
