#!/usr/bin/env python3
"""Compares ARCHITECTURE.md with the tree.

    architecture.py

Every folder in a crate's src/ must have a row with its crate and name, every row must have a folder, and every type
in backquotes must be defined in some crate. Exits with status 1 and prints the differences.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def folders():
    """Returns the folders of all crates as `crate/folder`."""
    return {f"{path.parent.parent.name}/{path.name}" for path in ROOT.glob("nprof*/src/*") if path.is_dir()}


def rows(page):
    """Returns the folders that have a row in a table below the heading of their crate."""
    found, crate = set(), ""
    for line in page.splitlines():
        heading = re.match(r"#+ .*`(nprof(?:-\w+)?)`", line)
        if heading:
            crate = heading.group(1)
        row = re.match(r"\| `(\w+)/` \|", line)
        if row:
            found.add(f"{crate}/{row.group(1)}")
    return found


def undefined_types(page):
    """Returns the types in backquotes that no crate defines."""
    source = "\n".join(path.read_text() for path in ROOT.glob("nprof*/src/**/*.rs"))
    defined = set(re.findall(r"\b(?:struct|enum|trait|type|union)\s+(\w+)", source))
    return {name for name in re.findall(r"`([A-Z][a-z]\w+)`", page) if name not in defined}


def main():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    problems = [f"ARCHITECTURE.md: no row for {name}/" for name in sorted(folders() - rows(page))]
    problems += [f"ARCHITECTURE.md: a row for {name}/, which does not exist" for name in sorted(rows(page) - folders())]
    problems += [f"ARCHITECTURE.md: no type is called {name}" for name in sorted(undefined_types(page))]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


main()
