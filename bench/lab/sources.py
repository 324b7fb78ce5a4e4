"""The sources of the programs to profile: crates, pinned by a lock file, and files in this repository."""

import functools
import json
from pathlib import Path

from lab import work

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "tests/experiments/programs"
MANIFEST = REPOSITORY / "tests/experiments/sources/Cargo.toml"


@functools.cache
def crates():
    """Returns the directories of the crates with C sources, by name."""
    command = ["cargo", "metadata", "-q", "--locked", "--format-version", "1"]
    metadata = json.loads(work.output([*command, "--manifest-path", MANIFEST], REPOSITORY))
    return {crate["name"]: Path(crate["manifest_path"]).parent for crate in metadata["packages"]}


def compiled(name, sources, directory, *flags, profiled=False):
    """Compiles a program with -O2 and without frame pointers; returns its path. With `profiled`, adds
    gprof's instrumentation and uses another name.
    """
    output = directory / (f"{name}-pg" if profiled else name)
    compiler = "g++" if any(str(file).endswith(".cpp") for file in sources) else "gcc"
    instrumented = ["-pg"] if profiled else ["-fomit-frame-pointer"]
    # -w: warnings about third-party sources cannot be fixed here.
    command = [compiler, "-O2", "-w", *instrumented, *flags, "-o", output, *sources, "-lm"]
    work.output(command, directory)
    return output
