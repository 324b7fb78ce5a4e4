"""A Debian of its own in a folder: the compilers, the emulator and the kernels, without changes to the host.

The suite sid has the same compilers for all architectures and a recent QEMU. Its packages come from the
mirror that the host's apt is configured for.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

SUITE = "sid"
# Kernels of released Debian versions come from these suites, at the path below the mirror's host.
OTHER_SUITES = [("debian", "bookworm"), ("debian-security", "bookworm-security")]

PACKAGES = [
    "cargo", "rustc", "gcc", "g++", "libc6-dev", "qemu-system-x86", "qemu-system-arm",
    "gcc-aarch64-linux-gnu", "g++-aarch64-linux-gnu", "libc6-dev-arm64-cross", "libstd-rust-dev:arm64",
    "musl-dev:amd64", "musl-dev:arm64",
]  # fmt: skip

# Mounts in a namespace of its own, so that nothing is left if the harness is killed.
ENTER = """
set -e
root=$1; shift
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2
done
shift
exec chroot "$root" "$@"
"""


class Workshop:
    """The Debian in the folder `root`, and the folders of the host that its programs see."""

    def __init__(self, root, sources, shared):
        self.root = root
        registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry"
        registry.mkdir(parents=True, exist_ok=True)
        self.binds = [(sources, "/src"), (shared, "/shared"), (registry, "/root/.cargo/registry")]

    def command(self, arguments):
        """Returns the host's command that runs a command in here."""
        binds = [str(side) for bind in self.binds for side in bind]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "enter"]
        return [*enter, str(self.root), *binds, "--", *arguments]

    def run(self, arguments, **options):
        """Runs a command in here to its end, which must be success. Returns its output."""
        environment = {**os.environ, "HOME": "/root", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        environment["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        for name in ["CARGO_HOME", "CARGO_TARGET_DIR", "RUSTUP_TOOLCHAIN", "TMPDIR"]:
            environment.pop(name, None)
        environment |= options.pop("environment", {})
        done = subprocess.run(
            self.command(arguments), env=environment, stdout=subprocess.PIPE, text=True, check=True, **options
        )
        return done.stdout

    def prepare(self):
        """Installs the Debian if it is not complete."""
        complete = self.root / "complete"
        if complete.is_file() and complete.read_text() == "\n".join(PACKAGES):
            return
        mirror = debian_mirror()
        if not (self.root / "etc/debian_version").exists():
            shutil.rmtree(self.root, ignore_errors=True)
            include = "--include=ca-certificates"
            subprocess.run(["debootstrap", "--variant=minbase", include, SUITE, self.root, mirror], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        server = mirror.rsplit("/", 1)[0]
        # Signatures are still checked. A mirror that is some weeks old is as good as any here.
        deb = "deb [check-valid-until=no]"
        lines = [f"{deb} {mirror} {SUITE} main"]
        lines += [f"{deb} {server}/{path} {suite} main" for path, suite in OTHER_SUITES]
        (self.root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        self.run(["dpkg", "--add-architecture", "arm64"])
        self.run(["apt-get", "-qq", "update"])
        # Of the versions of a package the newest is installed, which is that of SUITE.
        self.run(["apt-get", "-qq", "install", "--no-install-recommends", "-y", *PACKAGES])
        complete.write_text("\n".join(PACKAGES))

    def package(self, name):
        """Downloads a package and returns the folder on the host with its files."""
        folder = self.root / "packages" / name.replace(":", "_")
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            script = 'cd "$1"; apt-get -qq download "$2"; dpkg -x *.deb .; rm *.deb'
            self.run(["sh", "-ec", script, "sh", f"/packages/{partial.name}", name])
            partial.rename(folder)
        return folder

    def kernel(self, version, arch):
        """Downloads the newest cloud kernel of a version, such as 6.1. Returns the folders with its files; none if
        there is no such kernel."""
        pattern = re.compile(rf"linux-image-({re.escape(version)}\.[0-9].*)-cloud-{arch}")
        names = self.run(["apt-cache", "pkgnames", f"linux-image-{version}"]).split()
        found = [match[1] for name in names if (match := pattern.fullmatch(name.split(":")[0]))]
        if not found:
            return []
        numbers = {release: [int(number) for number in re.findall(r"\d+", release)] for release in found}
        newest = f"{max(found, key=numbers.get)}-cloud-{arch}"
        # Since Linux 7.2 Debian divides a kernel into several packages.
        parts = [f"linux-{part}-{newest}" for part in ("binary", "modules")]
        names = self.run(["apt-cache", "pkgnames", parts[0]]).split()
        return [self.package(f"{name}:{arch}") for name in (parts if parts[0] in names else [f"linux-image-{newest}"])]


def debian_mirror():
    """Returns the address of the mirror of Debian that the host's apt is configured for."""
    format = "$(REPO_URI) $(LABEL)"
    command = ["apt-get", "indextargets", "--format", format, "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        address, _, label = line.partition(" ")
        if label == "Debian":
            return address.rstrip("/")
    raise SystemExit("machines: apt knows no mirror of Debian; run apt-get update")
