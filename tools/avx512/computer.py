"""An emulated computer with AVX-512, whose only process is a program of ours: Linux in Bochs, started from a CD."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import time
from pathlib import Path

from repro.errors import ReproError

NEEDED = {
    "bochs": "bochs",
    "gcc": "gcc",
    "grub-mkrescue": "grub-common grub-pc-bin",
    "mformat": "mtools",
    "xorriso": "xorriso",
}
FILES = {
    "/usr/share/bochs/BIOS-bochs-latest": "bochsbios",
    "/usr/share/bochs/VGABIOS-lgpl-latest": "vgabios",
    "/usr/lib/x86_64-linux-gnu/bochs/plugins/libbx_term_gui.so": "bochs-term",
}
KERNELS = "vmlinuz-*-cloud-amd64"

GRUB = """
set timeout=0
menuentry jobs {
    linux /vmlinuz console=ttyS0,115200 panic=-1 nokaslr nopku mitigations=off tsc=reliable lpj=1000000 \\
        nosmp acpi=off noapic clearcpuid=xsaves,xsavec
    initrd /initrd
}
"""
"""Bochs says two sizes of XSAVES's area, and Linux takes no vectors then: hence clearcpuid. The rest saves time."""

SETTINGS = """
cpu: model=corei7_skylake_x, count=1, ips=100000000
memory: guest=2048, host=2048
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=jobs.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial
log: log
display_library: term
sound: driver=dummy, waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
panic: action=fatal
clock: sync=none
"""


def missing() -> list[str]:
    """Debian packages that are wanted and not there."""
    lacking = [package for tool, package in NEEDED.items() if shutil.which(tool) is None]
    lacking += [package for path, package in FILES.items() if not Path(path).exists()]
    return lacking if list(Path("/boot").glob(KERNELS)) else [*lacking, "linux-image-cloud-amd64"]


def run(program: Path, seconds: float) -> str:
    """What the program prints, as init. Raises ReproError where it has not ended within the seconds."""
    folder = program.parent
    _disk(program)
    (folder / "settings").write_text(SETTINGS)
    serial = folder / "serial"
    serial.unlink(missing_ok=True)
    ours, theirs = pty.openpty()  # Bochs draws its screen on a terminal
    environment = os.environ | {"TERM": "xterm"}
    command = ["bochs", "-q", "-f", "settings", "-rc", "/dev/null"]
    emulator = subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.write(ours, b"c\n")  # its debugger's word for: go on
    end = time.monotonic() + seconds
    try:
        while emulator.poll() is None and time.monotonic() < end:
            _drain(ours)
            text = serial.read_text(errors="replace") if serial.exists() else ""
            if "\nend " in text:
                return text[text.index("\nbegin ") :]
    finally:
        os.killpg(emulator.pid, signal.SIGKILL)  # a script stands before the emulator itself
        emulator.wait()
        os.close(ours)
        os.close(theirs)
    raise ReproError("the emulated computer did not end", found=f"see {serial} and {folder / 'log'}", next="--seconds")


def _drain(terminal: int) -> None:
    """Take what was drawn, for half a second: a full terminal would stop the emulator."""
    end = time.monotonic() + 0.5
    os.set_blocking(terminal, False)
    while time.monotonic() < end:
        try:
            os.read(terminal, 1 << 16)
        except BlockingIOError:
            time.sleep(0.05)


def _disk(program: Path) -> None:
    """jobs.iso: a kernel, and a first file system of the program alone."""
    folder = program.parent
    disk = folder / "disk"
    (disk / "boot" / "grub").mkdir(parents=True, exist_ok=True)
    (disk / "initrd").write_bytes(_archive(program.read_bytes()))
    shutil.copyfile(sorted(Path("/boot").glob(KERNELS))[-1], disk / "vmlinuz")
    (disk / "boot" / "grub" / "grub.cfg").write_text(GRUB)
    subprocess.run(["grub-mkrescue", "-o", folder / "jobs.iso", disk], check=True, capture_output=True)


def _archive(init: bytes) -> bytes:
    """A first file system in cpio's "newc" form (Linux: driver-api/early-userspace/buffer-format): init and devices."""
    character, directory, executable = 0o020666, 0o040755, 0o100755
    entries = [
        ("dev", directory, (0, 0), b""), ("dev/console", character, (5, 1), b""),
        ("dev/ttyS0", character, (4, 64), b""), ("init", executable, (0, 0), init), ("TRAILER!!!", 0, (0, 0), b""),
    ]  # fmt: skip
    made = bytearray()
    for number, (name, mode, device, data) in enumerate(entries, 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        made += b"070701" + b"".join(b"%08X" % each for each in fields) + name.encode() + b"\0"
        made += bytes(-len(made) % 4) + data
        made += bytes(-len(made) % 4)
    return bytes(made)
