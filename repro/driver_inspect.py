"""What artifacts are made of: the public functions of `repro inspect` and `repro diff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.artifact import comparison, kernel_view, reading
from repro.artifact.canonical import Json
from repro.artifact.comparison import Difference
from repro.driver import load
from repro.errors import ReproError
from repro.signatures import checked
from repro.targets.gpu import ptxas
from repro.targets.tpu_sim.chips import chip
from repro.targets.tpu_sim.estimate import estimate, exact

__all__ = ["code", "diff", "estimates", "inspect", "inspect_kernel"]


@checked
def inspect(path: str | Path) -> dict[str, Json]:
    """What an artifact holds, as one document."""
    return comparison.content(reading.open_artifact(Path(path)))


def code(path: str | Path, target: str) -> str:
    """The code of every entry for a target whose code is text: the program, and its kernels once each."""
    artifact = load(path)
    runner = artifact.runner(target)
    if not runner.code.media_type.endswith("+text"):
        raise ReproError(f"the code of target '{target}' is not text", found=runner.code.media_type)
    parts: dict[str, None] = {}
    for entry in artifact.entries:
        compiled = artifact.compiled(entry, target)
        for part in (compiled.program_object, *compiled.kernel_objects):
            parts[part.decode()] = None
    return "\n".join(parts)


def estimates(path: str | Path, names: Sequence[str]) -> list[dict[str, Json]]:
    """Time, energy and utilisation of one run of each entry on each simulated chip, without running it."""
    found: list[dict[str, Json]] = []
    for entry, program in load(path).programs().items():
        for name in names:
            document = estimate(program, chip(name)).document()
            del document["kernels"]
            found.append({"entry": entry, "exact": exact(program), **document})
    return found


def inspect_kernel(
    path: str | Path, kernel: str, target: str | None = None, device: str = "A100", record: str | Path | None = None
) -> dict[str, Json]:
    """One kernel of an artifact: loops, code for a target (by default the gpu, or the artifact's first), what ptxas
    says (where it is on the PATH), and a device's least time."""
    return kernel_view.inspect_kernel(Path(path), kernel, target, device, ptxas.installed(), record)


@checked
def diff(left: str | Path, right: str | Path) -> tuple[Difference, ...]:
    """Every place where two artifacts differ; empty if they are one."""
    return comparison.differences(reading.open_artifact(Path(left)), reading.open_artifact(Path(right)))
