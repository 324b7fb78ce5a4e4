#!/usr/bin/env python3
"""Finds cycles between the modules of Rust crates.

    modules.py [--arrows] CRATE...

A CRATE is a directory with a src/ folder. Reads `use` declarations and paths of every file (tests left out), follows
re-exports to the file that defines the name, and reports cycles between files and between the entries of src/,
entries beyond twelve, and #[path] attributes. Exits with status 1 if there are any. --arrows prints which entry uses which.
"""

import re
import sys
from pathlib import Path

ENTRIES = 12


def strip(text):
    """Blanks out comments, strings and characters, so that braces and paths are code."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:[^"\\]|\\.)*"|b?\'(?:[^\'\\\n]|\\[^\n]{1,8}?)\'', re.S
    )
    return pattern.sub(lambda match: " " if not match.group().startswith("'") or len(match.group()) > 2 else match.group(), text)


def end_of_item(text, start):
    """Returns the index after the item that begins at `start`: its `;`, or its closing brace."""
    depth = 0
    for index in range(start, len(text)):
        char = text[index]
        if char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
            if depth == 0 and char == "}":
                return index + 1
        elif char == ";" and depth == 0:
            return index + 1
    return len(text)


def without_tests(text):
    """Returns the text without items under #[cfg(test)], and the modules declared there."""
    hidden = set()
    while True:
        match = re.search(r"#\[cfg\((?:any\()?test\b[^\]]*\]", text)
        if not match:
            return text, hidden
        end = end_of_item(text, match.end())
        item = text[match.end() : end]
        declared = re.match(r"\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", item)
        if declared:
            hidden.add(declared.group(1))
        text = text[: match.start()] + text[end:]


def use_tree(tree, prefix):
    """Yields (path, alias) of every leaf of a use tree; a glob's path ends in `*`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace >= 0:
        head = [part for part in re.split(r"\s*::\s*", tree[:brace].strip()) if part]
        body, depth, piece = tree[brace + 1 : tree.rfind("}")], 0, ""
        for char in body + ",":
            if char == "," and depth == 0:
                if piece.strip():
                    yield from use_tree(piece, prefix + head)
                piece = ""
                continue
            depth += {"{": 1, "}": -1}.get(char, 0)
            piece += char
        return
    words = re.split(r"\s+as\s+", tree)
    path = prefix + [part for part in re.split(r"\s*::\s*", words[0].strip()) if part]
    if path and path[-1] == "self":
        path = path[:-1]
    if path:
        yield path, (words[1].strip() if len(words) > 1 else path[-1])


class Crate:
    """The modules of one crate: their files, imports and re-exports."""

    def __init__(self, root):
        self.root = root
        self.src = root / "src"
        self.files = {}
        self.texts = {}
        self.path_attributes = []
        self.roots = [self.src / name for name in ("lib.rs", "main.rs") if (self.src / name).exists()]
        for file in self.roots:
            self.load(file, () if file.name == "lib.rs" or len(self.roots) == 1 else ("bin",))
        self.reexports = {module: list(self.uses(module, True)) for module in self.texts}

    def load(self, file, module):
        """Reads a file as the module and, in turn, the modules that it declares."""
        raw = file.read_text()
        if "#[path" in raw:
            self.path_attributes.append(file)
        text, hidden = without_tests(strip(raw))
        self.files[module] = file
        self.texts[module] = text
        is_root = file.name in ("mod.rs", "lib.rs", "main.rs")
        folder = file.parent if is_root else file.parent / file.stem
        for name in re.findall(r"(?<![\w!])mod\s+(\w+)\s*;", text):
            for child in (folder / f"{name}.rs", folder / name / "mod.rs"):
                if child.exists() and name not in hidden:
                    self.load(child, module + (name,))

    def uses(self, module, public):
        """Yields (path, alias) of the use declarations of a module, of all or of the re-exports."""
        for match in re.finditer(r"(?:(pub(?:\([^)]*\))?)\s+)?\buse\s+([^;]+);", self.texts[module]):
            if not public or match.group(1):
                yield from use_tree(match.group(2), [])

    def absolute(self, module, path):
        """Returns the path from the crate's root, None for other crates."""
        base = module
        if path[0] == "crate":
            return [part for part in path[1:]]
        if path[0] == "self":
            return list(base) + path[1:]
        if path[0] == "super":
            while path and path[0] == "super":
                base, path = base[:-1], path[1:]
            return list(base) + path
        if module + (path[0],) in self.files:
            return list(base) + path
        return None

    def resolve(self, path, seen=frozenset()):
        """Returns the module whose file defines the path's name, following re-exports."""
        length = len(path)
        while length and tuple(path[:length]) not in self.files:
            length -= 1
        module, rest = tuple(path[:length]), path[length:]
        if module not in self.files:
            return None
        if not rest or (module, rest[0]) in seen:
            return module
        seen = seen | {(module, rest[0])}
        globs = []
        for target, alias in self.reexports[module]:
            target = self.absolute(module, target)
            if target is None:
                continue
            if alias == rest[0]:
                return self.resolve(target + rest[1:], seen)
            if target[-1] == "*":
                globs.append(target[:-1])
        definition = rf"\b(?:struct|enum|trait|type|fn|const|static|union|mod|macro_rules!)\s+{re.escape(rest[0])}\b"
        if not re.search(definition, self.texts[module]):
            for glob in globs:
                found = self.resolve(glob + rest, seen)
                if found and re.search(definition, self.texts[found]):
                    return found
        return module

    def arrows(self):
        """Returns the files each file uses, as sets of modules by module."""
        arrows = {}
        for module, text in self.texts.items():
            paths = [path for path, _ in self.uses(module, False)]
            public = {tuple(path) for path, _ in self.uses(module, True)}
            body = re.sub(r"\buse\s+[^;]+;", " ", text)
            paths += [match.split("::") for match in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", body)]
            children = [name[-1] for name in self.files if name[:-1] == module and name]
            for child in children:
                paths += [match.split("::") for match in re.findall(rf"(?<![\w:]){child}(?:::\w+)+", body)]
            targets = set()
            for path in paths:
                if tuple(path) in public:
                    continue
                full = self.absolute(module, [re.sub(r"\s", "", part) for part in path])
                found = full is not None and self.resolve([part for part in full if part != "*"])
                if found is not None and found is not False and found != module:
                    # A path to a folder's root that only names the folder is no use of it.
                    targets.add(found)
            arrows[module] = targets
        return arrows


def cycles(arrows):
    """Returns the strongly connected components of more than one node."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in arrows.get(node, ()):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(part)

    for node in list(arrows):
        if node not in order:
            visit(node)
    return found


def check(root, show):
    """Prints the findings of one crate; returns True if there are none."""
    crate = Crate(root)
    arrows = crate.arrows()
    fine = True
    name = lambda module: str(crate.files[module].relative_to(crate.src))
    for part in cycles(arrows):
        fine = False
        print(f"{root}: cycle of files: " + ", ".join(sorted(map(name, part))))
        for module in part:
            for target in arrows[module]:
                if target in part:
                    print(f"    {name(module)} -> {name(target)}")
    entries, why = {}, {}
    entry = lambda module: crate.files[module].relative_to(crate.src).parts[0].removesuffix(".rs")
    for module, targets in arrows.items():
        for target in targets:
            if entry(module) != entry(target):
                entries.setdefault(entry(module), set()).add(entry(target))
                why.setdefault((entry(module), entry(target)), set()).add(f"{name(module)} -> {name(target)}")
    for part in cycles(entries):
        fine = False
        print(f"{root}: cycle of folders: " + ", ".join(sorted(part)))
        for (source, target), files in sorted(why.items()):
            if source in part and target in part:
                print(f"    {source} -> {target}: " + "; ".join(sorted(files)))
    if show:
        for source in sorted(entries):
            print(f"{root}: {source} -> " + ", ".join(sorted(entries[source])))
    count = len([path for path in crate.src.iterdir()])
    if count > ENTRIES:
        fine = False
        print(f"{root}: {count} entries in src/, more than {ENTRIES}")
    for file in crate.path_attributes:
        fine = False
        print(f"{file}: #[path] attribute")
    return fine


def main():
    """Checks the crates of the command line."""
    sys.setrecursionlimit(10000)
    show = "--arrows" in sys.argv
    results = [check(Path(word), show) for word in sys.argv[1:] if word != "--arrows"]
    sys.exit(0 if all(results) else 1)


main()
