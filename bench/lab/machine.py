"""The machine and the versions of the programs that figures were measured with."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


def machine():
    """Returns processor, number of CPUs, kernel and distribution on one line."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    name = model[1] if model else platform.machine()
    return f"{name}, {os.cpu_count()} CPUs, Linux {platform.release()}, {system()}"


def system():
    release = platform.freedesktop_os_release()
    return release.get("PRETTY_NAME", release["NAME"]).replace("GNU/Linux ", "")


def versions():
    """Returns the versions of nprof and of the programs it is compared with; "none" if one is missing."""
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
    """Returns the version of inferno from cargo, since its programs have no --version."""
    program = shutil.which("inferno-collapse-perf")
    if program is None:
        return "none"
    listed = ["cargo", "install", "--list", "--root", Path(program).parents[1]]
    output = subprocess.run(listed, capture_output=True, text=True, check=False).stdout
    found = re.search(r"^inferno v([\d.]+)", output, re.M)
    return found[1] if found else "unknown"


def first_number(command):
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "none"
    found = re.search(r"\d+(\.\d+)+", output)
    return found[0] if found else "unknown"
