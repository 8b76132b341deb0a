"""CPU machines: the x86-64 micro-architecture levels and AArch64 with NEON."""

from __future__ import annotations

from repro.machines.machine import Machine

_V3 = (
    "+cx8,+cmov,+mmx,+fxsr,+sse,+sse2,+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,"
    "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
)

X86_64_V3 = Machine(
    name="cpu/x86-64-v3",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v3",
    features=_V3,
    vector_bits=256,
    registers=16,
    tile_rows=6,
    tile_vectors=2,
    l1_bytes=32 << 10,
    l2_bytes=512 << 10,
    tile_terms=4,
    permute_bits=256,
    fence="llvm.x86.sse.sfence",
    vector_constraint="v",
    converts_f16=True,
    adds_pairs=True,
    streams=4,
)
X86_64_V4 = Machine(
    name="cpu/x86-64-v4",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v4",
    features=_V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
    vector_bits=512,
    registers=32,
    tile_rows=14,
    tile_vectors=2,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    tile_terms=4,
    permute_bits=512,
    fence="llvm.x86.sse.sfence",
    vector_constraint="v",
    converts_f16=True,
    adds_pairs=True,
    beyond="avx512vnni",
    streams=4,
)
AARCH64 = Machine(
    name="cpu/aarch64",
    triple="aarch64-unknown-linux-gnu",
    cpu="generic",
    features="+neon,+fp-armv8",
    vector_bits=128,
    registers=32,
    tile_rows=8,
    tile_vectors=3,
    l1_bytes=32 << 10,
    l2_bytes=512 << 10,
    converts_f16=True,
    ordered_extremes=True,
)
CPUS: dict[str, Machine] = {machine.name: machine for machine in (X86_64_V3, X86_64_V4, AARCH64)}
