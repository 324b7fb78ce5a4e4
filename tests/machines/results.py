"""The files that a check left, read with nprof's own tools on the host."""

import json
import subprocess
from pathlib import Path


class Results:
    """The folder of one check of a machine."""

    def __init__(self, machine, folder, root, tools):
        self.machine = machine
        self.folder = folder
        self.root = root
        self.tools = tools

    @property
    def default_event(self):
        """The default event: QEMU emulates counters only for arm64."""
        return "cycles" if self.machine.arch == "arm64" else "cpu-clock"

    def kernel_before(self, major, minor):
        """True if the machine's kernel is older."""
        return [int(number) for number in self.machine.kernel.split(".")] < [major, minor]

    def text(self, name):
        """Returns the content of a file; nothing if there is none."""
        at = self.folder / name
        return at.read_text(errors="replace") if at.exists() else ""

    def lines(self, name):
        return self.text(name).splitlines()

    def truth(self, name="truth"):
        """Returns the numbers that the program printed, by name."""
        numbers = dict(line.rsplit(" ", 1) for line in self.lines(name))
        assert numbers, f"the program printed nothing: {self.text('log')}"
        return {name: int(number) for name, number in numbers.items()}

    def tool(self, name, *words):
        """Runs a tool, which must succeed. Returns its output."""
        done = subprocess.run([self.tools / name, *words], cwd=self.folder, capture_output=True)
        assert done.returncode == 0, f"{name} {' '.join(words)}: {done.returncode}: {done.stderr.decode()}"
        return done.stdout

    def stat(self, stream):
        """Returns the facts on a stream that nprof-format prints, after checking it."""
        self.tool("nprof-format", "check", stream)
        printed = self.tool("nprof-format", "stat", stream).decode()
        pairs = (line.split(maxsplit=1) for line in printed.splitlines() if line)
        # Tables with columns of the same names follow the facts.
        facts = {}
        for words in pairs:
            facts.setdefault(words[0], words[-1])
        return facts

    def symbolized(self, stream):
        """Returns the name of the stream with names, found on the host in the files of the machine."""
        named = f"named-{Path(stream).name}"
        self.tool("nprof-symbolize", "--symfs", str(self.root), "-o", named, stream)
        return named

    def report(self, stream, *options):
        """Returns the report of nprof-flat on a stream."""
        return json.loads(self.tool("nprof-flat", "--format", "json", *options, self.symbolized(stream)))

    def format_text(self, stream):
        """Returns a stream as text."""
        return self.tool("nprof-format", "text", stream).decode(errors="replace")
