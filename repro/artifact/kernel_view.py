"""One kernel of an artifact, as `inspect --kernel` shows it: what it computes, its code, and what it must cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from repro.artifact import files, reading
from repro.artifact.canonical import Json, decode
from repro.artifact.config import CompiledKernel
from repro.artifact.reading import Stored
from repro.errors import ReproError
from repro.ir.parse_kernel import parse_kernel
from repro.machines.devices import DEVICES, Device
from repro.targets import registry
from repro.targets.gpu import GpuKernel
from repro.targets.gpu.floor import work
from repro.targets.gpu.ptxas import assemble
from repro.targets.gpu.sass import hottest_loop
from repro.targets.tpu_sim.chips import Chip, chip
from repro.targets.tpu_sim.program import parse_routine
from repro.targets.tpu_sim.target import NAME as TPU_SIM
from repro.targets.tpu_sim.timing import time_routine

GPU = "gpu"


def kernel_content(
    stored: Stored, name: str, target: str | None, device: Device, ptxas: str | None, record: Mapping[str, Any] | None
) -> dict[str, Json]:
    """The kernel whose digest begins with `name` (`k_` before it may stand), with its code for a target.

    For GPU code: how it is launched, what `ptxas` (a path, or None) says of it, its floor on a device, and what a
    record of a device measured. For the simulated TPU: its routine, and the cycles of a call. Raises ReproError where
    the artifact has no such kernel or target.
    """
    target = _built(stored, target)
    found = _find(stored, name, target)
    text = bytes(stored.by_digest(found.kernel)).decode()
    code = bytes(stored.by_digest(found.code))
    content: dict[str, Json] = {
        "kernel": found.kernel,
        "target": target,
        "schedule": found.schedule,
        "code": found.code,
        "code_bytes": len(code),
        "loops": text,
    }
    if target.startswith(f"{TPU_SIM}/"):
        return content | _tpu_sim(code, chip(target.removeprefix(f"{TPU_SIM}/")))
    return content | (_gpu(text, code, device, ptxas, record, found.kernel) if target == GPU else {})


def _built(stored: Stored, target: str | None) -> str:
    """A family's name stands for what it builds, where the artifact has that; None for the gpu, or for its first."""
    held = [each.name for each in stored.config.targets]
    if target is None:
        return GPU if GPU in held or not held else held[0]
    family = registry.family_of(target)
    own = [] if family is None or target in held else [code.name for code in family.built if code.name in held]
    return own[0] if own else target


def inspect_kernel(
    path: Path, name: str, target: str | None, device: str, ptxas: str | None, record: str | Path | None
) -> dict[str, Json]:
    """`kernel_content` of an artifact on disk, with the floor on a device by name."""
    if device not in DEVICES:
        raise ReproError("there is no such device", found=device, expected=", ".join(DEVICES))
    measured = None if record is None else _record(Path(record))
    return kernel_content(reading.open_artifact(path), name, target, DEVICES[device], ptxas, measured)


def _record(path: Path) -> Mapping[str, Any]:
    """A record of a run on a device; its `kernels` are nanoseconds by digest. Raises ReproError if it is none."""
    document: Any = decode(files.read_file(path, f"'{path}'"), f"'{path}'")
    if not isinstance(document, dict):
        raise ReproError(f"'{path}' is no record of a device", expected="what verify --record writes")
    return cast("Mapping[str, Any]", document)


def _find(stored: Stored, name: str, target: str) -> CompiledKernel:
    targets = {each.name: each for each in stored.config.targets}
    if target not in targets:
        names = ", ".join(targets) or "none"
        raise ReproError(
            "the artifact has no code for this target", found=target, expected=names, next="build it with --targets"
        )
    kernels = {kernel.kernel: kernel for entry in targets[target].entries for kernel in entry.kernels}
    prefix = name.removeprefix("k_").removeprefix("sha256:")
    found = [kernel for digest, kernel in kernels.items() if digest.removeprefix("sha256:").startswith(prefix)]
    if len(found) != 1:
        names = ", ".join("k_" + digest.removeprefix("sha256:")[:16] for digest in kernels)
        what = "no kernel has this name" if not found else "several kernels have this name"
        raise ReproError(what, found=name, expected=f"one of {names}")
    return found[0]


def _gpu(
    text: str, code: bytes, device: Device, ptxas: str | None, record: Mapping[str, Any] | None, digest: str
) -> dict[str, Json]:
    kernel, made = parse_kernel(text), GpuKernel.parse(code)
    needed = work(kernel)
    return {
        "schedule": made.schedule,
        "ptx": made.ptx,
        "launches": [asdict(launch) for launch in made.launches],
        "workspace_bytes": made.workspace_bytes,
        "assembled": None if ptxas is None or not made.ptx else _assembled(made, ptxas),
        "floor": {
            "device": device.name,
            "bytes": needed.bytes,
            "f32_operations": needed.f32,
            "f64_operations": needed.f64,
            "nanoseconds": math.ceil(needed.seconds(device) * 1e9),
            "bound": needed.bound(device),
        },
        "measured_nanoseconds": None if record is None else record.get("kernels", {}).get(digest),
    }


def _tpu_sim(code: bytes, on: Chip) -> dict[str, Json]:
    routine = parse_routine(code.decode())
    timing = time_routine(routine, on)
    return {
        "routine": routine.text,
        "simulated": {
            "chip": on.name,
            "cycles": timing.cycles,
            "nanoseconds": timing.cycles * 1000 // on.clock_mhz,
            "vmem_bytes": routine.vmem_bytes,
            "counts": {name: timing.counts[name] for name in sorted(timing.counts)},
        },
    }


def _assembled(made: GpuKernel, ptxas: str) -> dict[str, Json]:
    """By entry: registers, spills, and the share of fma in the hottest loop in parts of a thousand."""
    result = assemble(made.ptx, ptxas)
    content: dict[str, Json] = {}
    for name, used in result.entries.items():
        loop = hottest_loop(result.cubin, name)
        content[name] = {
            **asdict(used),
            "fma_per_mille": None if loop is None else loop.fma * 1000 // loop.instructions,
        }
    return content
