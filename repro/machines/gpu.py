"""NVIDIA machines: virtual architectures, whose PTX the driver turns into code for the chip at hand."""

from __future__ import annotations

from repro.machines.machine import Machine

SM_80 = Machine(
    name="gpu/sm_80",
    triple="nvptx64-nvidia-cuda",
    cpu="sm_80",
    features="+ptx80",
    vector_bits=32,
    registers=255,
    tile_rows=1,
    tile_vectors=1,
    l1_bytes=128 << 10,
    l2_bytes=40 << 20,
    reduction_lanes=1,
)
