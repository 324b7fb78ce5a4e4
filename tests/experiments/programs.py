"""The programs that the experiments profile: how each is built, and the number of rounds that takes
about a second."""

from typing import NamedTuple

from lab import sources


class Program(NamedTuple):
    name: str
    rounds: int
    """The number of rounds that takes about a second on a machine of 2026."""
    library: tuple = ()
    """The crate and directory of C sources to compile in, then the files to omit; empty for a program
    without a library."""
    language: str = "c"
    flags: tuple = ()

    def build(self, directory, profiled=False):
        """Compiles the program; returns its path."""
        files, flags = [sources.PROGRAMS / f"{self.name}.{self.language}"], [*self.flags]
        if self.library:
            crate, place, *left_out = self.library
            where = sources.crates()[crate] / place
            files += sorted(file for file in where.glob("*.c") if file.name not in left_out)
            flags.append(f"-I{where}")
        return sources.compiled(self.name, files, directory, *flags, profiled=profiled)


BZIP2_TOOLS = ["bzip2.c", "bzip2recover.c", "dlltest.c", "mk251.c", "spewG.c", "unzcrash.c"]
ALL = [
    Program("bzip2", 4, ("bzip2-sys", "bzip2-1.0.8", *BZIP2_TOOLS)),
    Program("zlib", 18, ("libz-sys", "src/zlib")),
    Program("lua", 20, ("lua-src", "lua-5.4.9")),
    # The program of csprof's Figure 1. It runs one round; -O2 would inline its calls.
    Program("contexts", 1, language="cpp", flags=("-O0",)),
    Program("queens", 200),
    Program("spectral", 1000),
    Program("matrix", 120),
    Program("life", 650),
    Program("shapes", 20000, language="cpp"),
    Program("formula", 3000, language="cpp"),
    Program("trees", 120),
]


def program(name):
    return next(program for program in ALL if program.name == name)
