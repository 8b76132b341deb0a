"""A tuning file: schedules that were measured to be faster than the cost model's, an input of the build.

The file is canonical JSON (manifests/schema/tuning.schema.json). An artifact that was built with one carries it, and
its digest stands among the build's parameters. It can change no bit of a result: every schedule realises the
orders that the kernel states, and one that a kernel cannot have is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from repro.artifact import files, schema
from repro.artifact.canonical import Bytes, decode, encode, sha256
from repro.artifact.config import Versions, from_json, to_json
from repro.errors import ReproError
from repro.ir.loops import Kernel
from repro.targets.protocol import CodeTarget

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Tuned:
    """A kernel's schedule on a target, and what it was measured against: nanoseconds of all its calls in a run."""

    target: str
    kernel: str
    """Digest of the loop IR."""
    what: str
    schedule: str
    nanoseconds: int
    default_schedule: str
    default_nanoseconds: int


@dataclass(frozen=True)
class Host:
    """Where it was measured: for people, no build reads it."""

    cpu: str
    cores: int
    threads: int
    """That the runs had."""


@dataclass(frozen=True)
class Tuning:
    """What was found, in ascending order of target and kernel."""

    format: int
    versions: Versions
    host: Host
    kernels: tuple[Tuned, ...]

    @cached_property
    def data(self) -> bytes:
        """The file."""
        return encode(to_json(self))

    @property
    def digest(self) -> str:
        return sha256(self.data)

    @cached_property
    def _schedules(self) -> dict[tuple[str, str], str]:
        return {(each.target, each.kernel): each.schedule for each in self.kernels}

    def schedule(self, target: CodeTarget, kernel: Kernel) -> str:
        """The kernel's schedule: what was found for it, else the cost model's.

        Raises ReproError for one that the kernel cannot have.
        """
        found, default = self._schedules.get((target.name, f"sha256:{kernel.digest}")), target.schedule(kernel)
        if found is None or found == default:
            return default
        reason = "it has one schedule alone" if target.choices is None else target.choices.refusal(kernel, found)
        if reason is not None:
            raise ReproError(
                f"the tuning file has a schedule that kernel {kernel.digest[:12]} cannot have on {target.name}",
                found=f"{found} ({reason})",
                expected=f"such as {default}",
                next="make the file anew with repro tune",
            )
        return found

    def unused(self, used: Iterable[tuple[CodeTarget, Sequence[Kernel]]]) -> int:
        """How many of the schedules are for kernels or targets that a build does not have."""
        known = {(target.name, f"sha256:{kernel.digest}") for target, kernels in used for kernel in kernels}
        return len(self._schedules.keys() - known)


def parse(data: Bytes, what: str) -> Tuning:
    """The tuning of a file's bytes. Raises ReproError naming `what`."""
    document = decode(data, what)
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise ReproError(
            f"{what} is no tuning file that this version reads",
            found=f"format {version}",
            expected=f"format {FORMAT_VERSION}",
            next="make one with repro tune",
        )
    schema.check(document, "tuning", what)
    tuning = from_json(Tuning, document)
    places = [(each.target, each.kernel) for each in tuning.kernels]
    if places != sorted(set(places)):
        wrong = next(b for a, b in pairwise(places) if b <= a)
        raise ReproError(
            f"{what} has its kernels out of order, or one of them twice",
            found=" ".join(wrong),
            expected="each target's kernels once, in ascending order of their digests",
        )
    return tuning


def read(path: Path) -> Tuning:
    """The tuning file at a path. Raises ReproError."""
    return parse(files.read_file(path, f"the tuning file {path}"), f"the tuning file {path}")
