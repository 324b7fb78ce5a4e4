"""The file system of a machine: an archive in the format newc of cpio(5), which the kernel unpacks into memory."""

import lzma
import os
import stat
from pathlib import Path


def archive(folders, files):
    """Returns the archive of all files of some folders, and of files given as {path: bytes}."""
    parts, seen = [], set()

    def add(path, mode, content):
        if path in seen:
            return
        seen.add(path)
        name = path.encode() + b"\0"
        # Inode, mode, user, group, links, time, size, two devices of two numbers, bytes of the name, checksum.
        fields = [len(seen), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        parts.extend([padded(header + name), padded(content)])

    def add_parents(path):
        for parent in reversed(Path(path).parents[:-1]):
            add(str(parent), stat.S_IFDIR | 0o755, b"")

    for path, content in files.items():
        add_parents(path)
        add(path, stat.S_IFREG | 0o755, content)
    for folder in folders:
        for directory, names, file_names in os.walk(folder):
            for name in sorted(names + file_names):
                at = Path(directory, name)
                path = str(at.relative_to(folder))
                add_parents(path)
                if at.is_symlink():
                    add(path, stat.S_IFLNK | 0o777, os.readlink(at).encode())
                elif at.is_dir():
                    add(path, stat.S_IFDIR | 0o755, b"")
                else:
                    add(path, stat.S_IFREG | 0o755, at.read_bytes())
    add("TRAILER!!!", 0, b"")
    return b"".join(parts)


def padded(content):
    return content + bytes(-len(content) % 4)


def modules(folders, names):
    """Returns modules of a kernel, unpacked in some folders, and all those they need, in the order of loading.

    The result is {name: bytes}. Names that are no modules, because the kernel contains them, are skipped.
    """
    files = {}
    for at in (at for folder in folders for at in folder.glob("**/*.ko*")):
        files[at.name.split(".")[0].replace("-", "_")] = at
    loaded = {}

    def load(name):
        at = files.get(name)
        if at is None or name in loaded:
            return
        content = lzma.decompress(at.read_bytes()) if at.suffix == ".xz" else at.read_bytes()
        for needed in needs(content):
            load(needed)
        loaded[name] = content

    for name in names:
        load(name)
    return loaded


def needs(module):
    """Returns the names of the modules that a module needs: `depends=` in its section .modinfo."""
    start = module.find(b"\0depends=")
    if start < 0:
        return []
    end = module.index(b"\0", start + 1)
    return [name.replace("-", "_") for name in module[start + 9 : end].decode().split(",") if name]
