"""Runs programs, measures their cost, and alternates between several of them."""

import os
import resource
import subprocess
import time
from typing import NamedTuple

# Perl orders hashes at random without a fixed seed; the locale makes reports English.
ENVIRONMENT = {**os.environ, "PERL_HASH_SEED": "0", "LC_ALL": "C.UTF-8"}


class Cost(NamedTuple):
    """The cost of a command and of the children it waited for."""

    elapsed: float
    """Seconds."""
    cpu: float
    """Seconds of CPU time, user and system."""
    memory: float
    """MiB of the largest process, at least those of this process: the kernel counts the memory of a
    process from fork(2) on, before it executes its program."""


class Failed(Exception):
    """A command did not exit with 0."""


def cost(command, directory, source=None):
    """Runs a command, a list of words; returns its cost. Discards its standard output; `source` is a
    file for its standard input.
    """
    with open(source or os.devnull, "rb") as stdin, open(directory / "err", "w+b") as err:
        begin = time.monotonic()
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=directory,
            env=ENVIRONMENT,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        _, status, used = os.wait4(child.pid, 0)
        elapsed = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            err.seek(0)
            raise Failed(f"{words(command)}: {child.returncode}\n{err.read().decode()}")
    return Cost(elapsed, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def shown(memory):
    """Returns the memory of a cost in whole MiB, or `<N` if it is below that of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{memory:.0f}" if memory > own else f"<{own:.0f}"


def output(command, directory):
    """Runs a command; returns its standard output. A string is a script for bash."""
    if isinstance(command, str):
        command = ["bash", "-e", "-o", "pipefail", "-c", command]
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace")
        raise Failed(f"{words(command)}: {done.returncode}\n{message}")
    return done.stdout.decode(errors="replace")


def in_turn(rounds, cases):
    """Runs all cases, functions by name, alternately; returns the list of results of each. The speed of
    a machine drifts: measurements of one round drift together.
    """
    results = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(case())
    return results


def words(command):
    return " ".join(str(word) for word in command)
