#!/usr/bin/env python3
"""Checks the names that Markdown pages use against the repository.

    links.py

In README.md, CONTRIBUTING.md, ARCHITECTURE.md and docs/: every link to a file, every path in backquotes that begins
with a folder of the repository, every `make` target, and every test that is named by `-p CRATE --test NAME` or
`CRATE --test NAME` must exist. Exits with status 1 and prints the names that do not.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]


def missing_links(page, text):
    """Returns the targets of relative links without a file."""
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    return [target for target in targets if not (page.parent / target).exists()]


def missing_paths(text):
    """Returns the paths in backquotes that begin with a folder of the repository and do not exist."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"target"}
    paths = [path for path in re.findall(r"`([\w.-]+/[\w./-]*)`", text) if path.partition("/")[0] in folders]
    # NAME and CRATE in capitals are placeholders.
    return [path for path in paths if not re.search(r"[A-Z]{4}", path) and not (ROOT / path).exists()]


def missing_targets(text):
    """Returns the arguments of `make` in commands that are no targets."""
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY:(.*)$", makefile, re.M)[1].split()
    commands = re.findall(r"`make ([a-z -]+)", text) + re.findall(r"^ +make ([a-z -]+)", text, re.M)
    words = [word for command in commands for word in command.split() if not word.startswith("-")]
    return [f"make {word}" for word in words if word not in phony]


def missing_tests(text):
    """Returns the tests named by crate and target that do not exist."""
    missing = []
    for crate, name in re.findall(r"(nprof-\w+) --test (\w+)", text):
        folder = ROOT / ("tests" if crate == "nprof-tests" else f"{crate}/tests")
        if not (folder / f"{name}.rs").exists() and not (folder / name / "main.rs").exists():
            missing.append(f"{crate} --test {name}")
    return missing


def main():
    """Prints the missing names of all pages."""
    problems = []
    for page in [*PAGES, *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        missing = missing_links(page, text) + missing_paths(text) + missing_targets(text) + missing_tests(text)
        problems += [f"{page.relative_to(ROOT)}: {name} does not exist" for name in missing]
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


main()
