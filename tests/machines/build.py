"""Builds the tools as static programs, and the test programs, for each architecture."""

import shutil
from pathlib import Path

# Names of an architecture for Debian, Rust and GNU, and the folder of the libraries in the workshop.
TARGETS = {
    "amd64": ("x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
    "arm64": ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "usr/aarch64-linux-gnu/lib", "ld-linux-aarch64.so.1"),
}
TOOLS = ["nprof-record", "nprof-symbolize", "nprof-flat", "nprof-annotate", "nprof-format"]
LIBRARIES = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"]

# Programs, their source and their options besides -g and the architecture's.
PROGRAMS = [
    ("loops-c", "loops.c", ["-O2", "-fomit-frame-pointer"]),
    ("loops-static", "loops.c", ["-O2", "-fomit-frame-pointer", "-static"]),
    ("loops-cpp", "loops.cpp", ["-O2", "-fomit-frame-pointer", "-pthread"]),
    ("waits", "waits.c", ["-O2", "-pthread"]),
    ("heap", "heap.c", ["-O2"]),
    ("blocks", "blocks.cpp", ["-O2", "-pthread"]),
    ("files", "files.c", ["-O2"]),
    ("calls", "calls.c", ["-O2", "-fno-optimize-sibling-calls"]),
    ("calls-instrumented", "calls.c", ["-O2", "-fno-optimize-sibling-calls", "-finstrument-functions"]),
    ("calls-pg", "calls.c", ["-O2", "-fno-optimize-sibling-calls", "-pg"]),
    ("routines", "routines.c", ["-O1"]),
    ("deep", "deep.c", ["-O1"]),
    ("storm", "storm.c", ["-O1"]),
    ("limited", "limited.c", ["-O1", "-static"]),
    ("counted", "counted.c", ["-O1", "-static"]),
]


def tools(workshop, arch, names=TOOLS, release=False):
    """Compiles tools as static programs. Returns the folder on the host with them."""
    target = TARGETS[arch][0]
    linker = f"{TARGETS[arch][1]}-gcc"
    variable = target.upper().replace("-", "_")
    environment = {
        "CARGO_TARGET_DIR": f"/build-{arch}",
        f"CARGO_TARGET_{variable}_LINKER": linker,
        f"CARGO_TARGET_{variable}_RUSTFLAGS": "-Ctarget-feature=+crt-static",
        f"CC_{target.replace('-', '_')}": linker,
        # Without debug information the tools fit into the memory of a machine.
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_PROFILE_DEV_STRIP": "debuginfo",
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
    }
    # The package nprof has the program cargo-nprof, too.
    packages = [word for name in names if name != "cargo-nprof" for word in ("--package", name)]
    command = ["cargo", "build", "--quiet", "--locked", "--manifest-path", "/src/Cargo.toml", "--bins"]
    command += ["--target", target]
    # Without debuginfod: a static program cannot load the libraries with which glibc looks up host names.
    command.append("--no-default-features")
    if "nprof-export" in names:
        command += ["--features", "nprof-export/parquet"]
    if release:
        command.append("--release")
    workshop.run([*command, *packages], environment=environment)
    return workshop.root / f"build-{arch}" / target / ("release" if release else "debug")


def programs(workshop, arch, sources, folder):
    """Compiles the test programs into a folder below the workshop's root."""
    target, gnu, _, _ = TARGETS[arch]
    inside = f"/{folder.relative_to(workshop.root)}"
    shutil.rmtree(workshop.root / "programs", ignore_errors=True)
    shutil.copytree(sources, workshop.root / "programs")
    folder.mkdir(parents=True)
    for name, source, options in PROGRAMS:
        compiler = "g++" if source.endswith("cpp") else "gcc"
        command = [f"{gnu}-{compiler}", "-g", "-Wall", f"/programs/{source}", "-o", f"{inside}/{name}", *options]
        workshop.run(command)
    for name in ["heap", "loops"]:
        workshop.run(musl_command(gnu, f"/programs/{name}.c", f"{inside}/{name}-musl"))
    rust = ["rustc", "--edition", "2024", "-O", "-g", "--target", target, "-C", f"linker={gnu}-gcc"]
    workshop.run([*rust, "/programs/loops.rs", "-o", f"{inside}/loops-rust"])


def musl_command(gnu, source, output):
    """Returns the command that compiles a program for the library musl, for which Debian has no cross compiler."""
    musl = gnu.replace("-gnu", "-musl")
    folder = f"/usr/lib/{musl}"
    return [
        f"{gnu}-gcc", "-g", "-O2", "-pie", "-fPIE", "-nostdinc", "-isystem", f"/usr/include/{musl}", "-nostdlib",
        f"-Wl,-dynamic-linker,{musl_loader(gnu)}", f"{folder}/Scrt1.o", f"{folder}/crti.o", source, f"-L{folder}",
        "-lc", f"{folder}/crtn.o", "-o", output,
    ]  # fmt: skip


def musl_loader(gnu):
    """Returns the path of the dynamic linker that programs for musl name; it is the library, too."""
    return f"/lib/ld-musl-{gnu.split('-')[0]}.so.1"


def root(workshop, arch, sources):
    """Returns a folder with the files of a machine: tools, programs, the libraries they need and a shell."""
    folder = workshop.root / "roots" / arch
    shutil.rmtree(folder, ignore_errors=True)
    programs(workshop, arch, sources, folder / "programs")
    (folder / "nprof").mkdir()
    built = tools(workshop, arch)
    for tool in TOOLS:
        shutil.copy(built / tool, folder / "nprof")
    _, gnu, libraries, loader = TARGETS[arch]
    (folder / "lib").mkdir()
    for library in [*LIBRARIES, loader]:
        at = find_library(workshop.root, libraries, library)
        shutil.copy(at, folder / "lib" / library)
    musl = workshop.root / "usr/lib" / gnu.replace("-gnu", "-musl") / "libc.so"
    shutil.copy(musl, folder / musl_loader(gnu).lstrip("/"))
    # The place of the loader that x86-64 executables name.
    (folder / "lib64").symlink_to("lib")
    (folder / "bin").mkdir()
    busybox = workshop.package(f"busybox-static:{arch}")
    shutil.copy(next(path for path in [busybox / "bin/busybox", busybox / "usr/bin/busybox"] if path.exists()),
                folder / "bin/busybox")  # fmt: skip
    (folder / "etc").mkdir()
    (folder / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    return folder


def find_library(root, folder, name):
    """Returns the file of a library of the workshop; links in there are relative to its root."""
    for at in [root / folder / name, root / "usr/lib64" / name, Path(root, "usr/lib", name)]:
        if at.exists():
            return at.resolve()
    raise SystemExit(f"machines: {name} is in no package that the workshop installs")
