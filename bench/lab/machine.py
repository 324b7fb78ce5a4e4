"""What the figures were measured on."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


def machine():
    """One line: processor, number of CPUs, kernel."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    name = model[1] if model else platform.machine()
    return f"{name}, {os.cpu_count()} CPUs, Linux {platform.release()}, {system()}"


def system():
    release = platform.freedesktop_os_release()
    return release.get("PRETTY_NAME", release["NAME"]).replace("GNU/Linux ", "")


def versions():
    """Of the programs nprof stands beside; "none" for those that are not here."""
    return {
        "nprof": first_number(["nprof-record", "--version"]),
        "perf": first_number(["perf", "--version"]),
        "samply": first_number(["samply", "--version"]),
        "inferno": inferno(),
        "gprof": first_number(["gprof", "--version"]),
        "valgrind": first_number(["valgrind", "--version"]),
        "g++": first_number(["g++", "--version"]),
    }


def inferno():
    """inferno's programs do not tell their version; cargo, which installed them, does."""
    program = shutil.which("inferno-collapse-perf")
    if program is None:
        return "none"
    listed = ["cargo", "install", "--list", "--root", Path(program).parents[1]]
    said = subprocess.run(listed, capture_output=True, text=True, check=False).stdout
    found = re.search(r"^inferno v([\d.]+)", said, re.M)
    return found[1] if found else "unknown"


def first_number(command):
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "none"
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "unknown"
