#!/usr/bin/env python3
"""Checks the prose of comments, messages and manual pages against the rules in CONTRIBUTING.md.

    prose.py [--list] PATH...

A PATH is a crate's directory, a manual page or a Markdown file. Prints one line of counts for each;
--list prints every hit with its place. Exits with status 1 if a count is above its limit.
"""

import re
import sys
from pathlib import Path

# A word list, its name, and the most hits allowed per 1,000 lines of prose.
RULES = [
    ("what/who", r"\b(?:what|who|whose|whom|whoever|whatever|whosoever|whosesoever)\b", 8),
    ("tell/told", r"\b(?:tell|tells|telling|told)\b", 1),
    ("so many", r"\bso (?:many|much|often|long|few|little)\b(?! as\b)", 1),
    ("it is asked", r"\bit is (?:\w+ )?(?:looked|waited|told|asked|said|spoken|seen|known)\b", 0),
    ("at hand", r"\bat hand\b", 0),
    ("behind", r"\bbehind\b", 0),
    ("anew", r"\banew\b", 0),
    ("worth", r"\bworth\b", 0),
    ("contrary", r"\b(?:the contrary|meanwhile|whichever|nobody|anybody|somebody)\b", 0),
    ("stands", r"\b(?:stands? (?:in|at|before|after|for|on|there|alone)|stood)\b", 1),
]
# The fewest inline comments per line of code in a crate's src/.
INLINE = 0.03

STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)


def rust_lines(text):
    """Yields (line number, kind, text), where kind is doc, inline, code, or message."""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith(("///", "//!")):
            yield number, "doc", bare.lstrip("/!")
        elif bare.startswith("//"):
            yield number, "inline", bare.lstrip("/")
        elif bare:
            yield number, "code", ""
            cut = re.search(r'^[^"]*?\s//\s(.*)$', line)
            if cut:
                yield number, "trailing", cut.group(1)
            for string in STRING.findall(line):
                if " " in string:
                    yield number, "message", string


def prose_of(path):
    """Yields (file, line number, kind, text) of all prose below a path."""
    if path.is_dir():
        for file in sorted(path.rglob("*.rs")):
            if "target" not in file.parts:
                for number, kind, text in rust_lines(file.read_text()):
                    yield file, number, kind, text
    elif path.suffix == ".rs":
        for number, kind, text in rust_lines(path.read_text()):
            yield path, number, kind, text
    else:
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path.suffix == ".md" and line.startswith("```"):
                fenced = not fenced
            if line.strip() and not fenced and not line.startswith('.\\"'):
                yield path, number, "page", line


def check(path, show):
    """Prints the counts of one path; returns whether all are within their limits."""
    counts = {name: 0 for name, _, _ in RULES}
    kinds = {}
    for file, number, kind, text in prose_of(path):
        kinds[kind] = kinds.get(kind, 0) + 1
        for name, pattern, _ in RULES:
            hits = len(re.findall(pattern, text, re.I))
            counts[name] += hits
            if hits and show:
                print(f"{file}:{number}: {name}: {text.strip()}")
    lines = sum(kinds.get(kind, 0) for kind in ("doc", "inline", "trailing", "page"))
    fine = True
    words = []
    for name, _, limit in RULES:
        rate = 1000 * counts[name] / max(lines, 1)
        bad = rate > limit
        fine &= not bad
        words.append(f"{name} {rate:.1f}{' > ' + str(limit) if bad else ''}")
    code = kinds.get("code", 0)
    if code:
        inline = (kinds.get("inline", 0) + kinds.get("trailing", 0)) / code
        bad = inline < INLINE
        fine &= not bad
        words.append(f"inline {inline:.3f}{' < ' + str(INLINE) if bad else ''}")
    print(f"{path}: {lines} lines of prose: " + ", ".join(words))
    return fine


def main():
    """Runs the check over the paths of the command line."""
    show = "--list" in sys.argv
    paths = [Path(word) for word in sys.argv[1:] if word != "--list"]
    results = [check(path, show) for path in paths]
    sys.exit(0 if all(results) else 1)


main()
