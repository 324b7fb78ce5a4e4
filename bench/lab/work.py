"""Running programs: to their end, with what they cost, and several of them in turn."""

import os
import resource
import subprocess
import time
from typing import NamedTuple

# perl does the same work every time; reports are in English.
SURROUNDINGS = {**os.environ, "PERL_HASH_SEED": "0", "LC_ALL": "C.UTF-8"}


class Cost(NamedTuple):
    """What a command and the children it waited for took."""

    elapsed: float
    """Seconds."""
    cpu: float
    """Seconds of CPU time, user and system."""
    memory: float
    """MiB, of the largest process; but never less than this process itself has, as the kernel
    counts a new process's memory from before it executes its program."""


class Failed(Exception):
    """A command ended badly."""


def cost(command, directory, source=None):
    """Runs a command, a list of words, and gives its cost. Its standard output is dropped;
    `source` is a file for its standard input.
    """
    with open(source or os.devnull, "rb") as stdin, open(directory / "err", "w+b") as err:
        begin = time.monotonic()
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=directory,
            env=SURROUNDINGS,
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
    """A cost's memory in whole MiB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{memory:.0f}" if memory > own else f"<{own:.0f}"


def output(command, directory):
    """Runs a command and gives its standard output; a string is a script for bash."""
    if isinstance(command, str):
        command = ["bash", "-e", "-o", "pipefail", "-c", command]
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env=SURROUNDINGS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")
        raise Failed(f"{words(command)}: {done.returncode}\n{said}")
    return done.stdout.decode(errors="replace")


def in_turn(rounds, cases):
    """Runs all cases, functions by name, so many times in turn, and gives the list of what each
    returned. Machines drift: what stands side by side drifts together.
    """
    results = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(case())
    return results


def words(command):
    return " ".join(str(word) for word in command)
