"""One machine in emulation: boots a kernel, lets it run its checks, and ends it after a limit."""

import io
import os
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

# Modules of the disk for the results, if they are not part of the kernel. Debian's kernels for clouds have neither
# 9p nor another way to share a folder with the host.
MODULES = ["virtio_pci", "virtio_blk"]
DISK_BYTES = 512 << 20
# The clock of a machine advances by 2 ns with each instruction, and at once to the next timer while all processors
# are idle: times do not depend on the load of the host.
CLOCK = ["-icount", "shift=1,sleep=off"]
# A machine that uses less than a second of CPU time in this many seconds does nothing any more, however busy the host.
STALL_S = 300


@dataclass
class Machine:
    """The processors, kernel and options of a machine."""

    arch: str
    kernel: str
    cpus: int = 2
    memory_mib: int = 2048
    # Seconds of the emulator's CPU time until the machine is ended: a busy host does not shorten them.
    limit: int = 600
    # True if the clock counts instructions. Many processors would share one: each has a part of its time only.
    counts_instructions: bool = True
    # Seconds of the machine's clock for one check.
    check_limit: int = 90
    # More options of the kernel's command line.
    parameters: list = field(default_factory=list)
    # It runs the checks that are for this purpose.
    purpose: str = ""

    @property
    def name(self):
        """A name for folders and tables."""
        words = [self.arch, self.kernel, f"{self.cpus}cpu", *self.parameters]
        return "-".join(word.replace("/", "_").replace("=", "_") for word in words)

    def command(self, kernel, initrd, disk):
        """Returns the command of QEMU, with paths as it sees them."""
        board = {
            "amd64": ["qemu-system-x86_64", "-M", "q35", "-cpu", "max"],
            # Pointer authentication by the architecture's algorithm takes most of the time in emulation.
            "arm64": ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on"],
        }[self.arch]
        console = {"amd64": "ttyS0", "arm64": "ttyAMA0"}[self.arch]
        # On a busy host the emulated timer may be late when the kernel of amd64 tests it, which then panics.
        line = [f"console={console}", "quiet", "panic=-1", "no_timer_check", *self.parameters]
        clock = CLOCK if self.counts_instructions else []
        disk = f"file={disk},format=raw,if=none,id=out"
        return [
            *board, "-accel", "tcg", *clock, "-smp", str(self.cpus), "-m", str(self.memory_mib),
            "-nographic", "-nic", "none", "-no-reboot", "-kernel", kernel, "-initrd", initrd,
            "-append", " ".join(line), "-drive", disk, "-device", "virtio-blk-pci,drive=out",
        ]  # fmt: skip

    def boot(self, workshop, image, initrd, out):
        """Runs the machine to its end.

        `image` and `initrd` are bytes, `out` is the folder for the results, below the workshop's shared one.
        Returns None if the machine switched itself off after all checks, otherwise the reason.
        """
        shutil.rmtree(out, ignore_errors=True)
        Path(out).mkdir(parents=True)
        disk = Path(out, "disk")
        with open(disk, "wb") as file:
            file.truncate(DISK_BYTES)
        for name, content in [("kernel", image), ("initrd", initrd)]:
            Path(out, name).write_bytes(content)
        inside = f"/shared/{Path(out).name}"
        command = self.command(f"{inside}/kernel", f"{inside}/initrd", f"{inside}/disk")
        with open(Path(out, "console"), "wb") as console:
            started = time.monotonic()
            emulator = subprocess.Popen(
                workshop.command(command), stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
            )
            try:
                reason = self.wait(emulator)
            finally:
                emulator.kill()
                emulator.wait()
                for name in ["kernel", "initrd"]:
                    Path(out, name).unlink()
                unpack(disk, Path(out, "out"))
        self.seconds = time.monotonic() - started
        if reason is None and emulator.returncode != 0:
            reason = f"QEMU: status {emulator.returncode}"
        if reason is not None:
            return f"{reason}: see {console.name}"
        if not Path(out, "out/done").exists():
            return f"it went down before its checks were done: see {console.name}"
        return None

    def wait(self, emulator):
        """Waits for the end of the emulator, and returns None; or the reason to end it."""
        progress_s, progress_at = 0.0, time.monotonic()
        while True:
            try:
                emulator.wait(1)
                return None
            except subprocess.TimeoutExpired:
                used_s, now = cpu_seconds(emulator.pid), time.monotonic()
            if used_s > self.limit:
                return f"ended after {self.limit} s of CPU time"
            if used_s >= progress_s + 1:
                progress_s, progress_at = used_s, now
            elif now > progress_at + STALL_S:
                return f"ended: it did nothing for {STALL_S} s"


def cpu_seconds(pid):
    """Returns the CPU time of a process that was not waited for."""
    # The name of the program, in parentheses, may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def unpack(disk, folder):
    """Unpacks the archives that the machine wrote one after the other to its disk, and removes the disk."""
    folder.mkdir()
    written = disk.read_bytes().rstrip(b"\0")
    # The end of the last archive, which consists of zeros.
    content = io.BytesIO(written + bytes(2 * tarfile.BLOCKSIZE - len(written) % tarfile.BLOCKSIZE))
    if written:
        with tarfile.open(fileobj=content, ignore_zeros=True) as archives:
            archives.extractall(folder, filter="data")
    disk.unlink()
