"""NVIDIA machines: virtual architectures, whose PTX the driver turns into code for the chip at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

from repro.machines.machine import Machine


@dataclass(frozen=True, kw_only=True)
class GpuMachine(Machine):
    """What else there is to know of a GPU.

    `multiprocessors` is the number on the chip that tiles are chosen for; each issues `schedulers` instructions in a
    cycle, one of a warp, and has `register_file` registers of 32 bits for its threads.
    """

    multiprocessors: int
    f64_cost: int
    """Times as long as an operation in f32 that one in f64 takes."""
    schedulers: int = 4
    register_file: int = 65536
    shared_bytes: int = 160 << 10
    """Of shared memory that one block of threads may have."""
    memory_bytes: int = 1900
    """That come from memory in a cycle."""
    cache_bytes: int = 3000
    """That come from the second-level cache in a cycle."""
    near_bytes: int = 128
    """That a multiprocessor's shared memory or first-level cache gives its threads in a cycle: 32 banks of 4 bytes
    (CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and later)."""
    paces: tuple[int, ...] = (64, 74, 79)
    """Hundredths of the cycles in which a scheduler issues that runs tiles of one warp, of two, or of three and more
    (measured on an H200, docs/gpu.md)."""
    blocks_pace: int = 48
    """The same of blocks that multiply by tiles among other kernels (attention, measured there): a step's copies wait
    for the second-level cache, and few other warps do something meanwhile."""
    resident_bytes: int = 228 << 10
    """Of shared memory that all blocks on a multiprocessor have together."""


SM_80 = GpuMachine(
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
    multiprocessors=132,
    f64_cost=2,
)
"""Code for compute capability 8.0 and all later ones, in sizes for the SXM forms of H100 and H200."""
GRAPHICS = replace(
    SM_80,
    name="gpu/graphics",
    multiprocessors=128,
    f64_cost=64,
    shared_bytes=96 << 10,
    memory_bytes=400,
    resident_bytes=100 << 10,
)
"""The same for chips with one f64 unit to 64 of f32, in sizes for an RTX 4090."""
