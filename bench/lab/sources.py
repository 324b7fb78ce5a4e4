"""Where the programs to profile come from: crates' sources, pinned by a lock file, and our own."""

import functools
import json
from pathlib import Path

from lab import work

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "tests/experiments/programs"
MANIFEST = REPOSITORY / "tests/experiments/sources/Cargo.toml"


@functools.cache
def crates():
    """The directories of the crates whose C sources are used, by name."""
    command = ["cargo", "metadata", "-q", "--locked", "--format-version", "1"]
    told = json.loads(work.output([*command, "--manifest-path", MANIFEST], REPOSITORY))
    return {crate["name"]: Path(crate["manifest_path"]).parent for crate in told["packages"]}


def compiled(name, sources, directory, *flags, profiled=False):
    """Compiles a program with -O2 and without frame pointers, and gives its path; `profiled`
    with gprof's instrumentation, under another name.
    """
    output = directory / (f"{name}-pg" if profiled else name)
    compiler = "g++" if any(str(file).endswith(".cpp") for file in sources) else "gcc"
    instrumented = ["-pg"] if profiled else ["-fomit-frame-pointer"]
    # What the sources of others are warned of is not ours to see.
    command = [compiler, "-O2", "-w", *instrumented, *flags, "-o", output, *sources, "-lm"]
    work.output(command, directory)
    return output
