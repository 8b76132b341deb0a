"""The last steps of making a routine: registers of the file, bundles."""

from __future__ import annotations

from repro.targets.tpu_sim.allocation import allocate
from repro.targets.tpu_sim.bundles import pack
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.program import Routine


def finish(routine: Routine, chip: Chip) -> Routine:
    """A routine as a code generator writes it (registers without end, one instruction a bundle), ready to run."""
    return pack(allocate(routine), chip)
