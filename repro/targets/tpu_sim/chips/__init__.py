"""Chips as data: one TOML file each, named after the chip."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repro.errors import ReproError

DEFAULT = "v5e"


@dataclass(frozen=True)
class Chip:
    """One core of a chip and its links.

    `array` is the side of a matrix unit; `hbm_gbps` and `link_gbps` (per link, one way) are 10^9 bytes a second. The
    unit counts and latencies (cycles) below are this machine's own, the same for every chip.
    """

    name: str
    clock_mhz: int
    matrix_units: int
    array: int
    vmem_mib: int
    hbm_gib: int
    hbm_gbps: int
    link_gbps: int
    torus_dimensions: int
    alu_slots: int = 4
    load_slots: int = 2
    store_slots: int = 1
    cross_slots: int = 2
    alu_latency: int = 2
    load_latency: int = 4
    dma_latency: int = 500
    call_latency: int = 300

    @property
    def vmem_bytes(self) -> int:
        return self.vmem_mib << 20

    @property
    def hbm_bytes(self) -> int:
        return self.hbm_gib << 30

    @property
    def hbm_bytes_per_cycle(self) -> float:
        return self.hbm_gbps * 1000 / self.clock_mhz

    @property
    def link_bytes_per_cycle(self) -> float:
        return self.link_gbps * 1000 / self.clock_mhz

    @property
    def digest(self) -> str:
        """sha256 (hex) over every field, in order."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


_FOLDER = Path(__file__).parent


@cache
def names() -> tuple[str, ...]:
    """Every chip there is a file for."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def chip(name: str = DEFAULT) -> Chip:
    """The chip of that name. Raises ReproError where there is none."""
    if name not in names():
        raise ReproError(f"there is no chip {name!r}", found=name, expected=", ".join(names()))
    return Chip(**tomllib.loads((_FOLDER / f"{name}.toml").read_text()))
