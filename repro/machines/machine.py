"""What a machine description says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property

STACK_BITS = 128
"""To which a caller of native code keeps the stack aligned."""
BUSY = 8
"""Chains side by side that keep a core busy: two multiplications may begin in a cycle, and take four."""
LINE_BYTES = 64
"""Of a line of a CPU's caches; a buffer that a program writes begins with one."""


def whole_lines(size: int) -> int:
    """So many bytes, rounded up to lines of a CPU's caches."""
    return -(-size // LINE_BYTES) * LINE_BYTES


def line_elements(size: int) -> int:
    """Elements of so many bytes in such a line."""
    return max(1, LINE_BYTES // size)


@dataclass(frozen=True)
class Machine:
    """A target of code generation.

    `vector_bits` and `registers` describe the vector unit; cache sizes are bytes, and `l1_ways` are the lines that a
    set of the nearest cache has room for. `tile_rows` by `tile_vectors` accumulators fill the registers of a
    contraction; a turn of its loop has `tile_terms` terms, but for small ones, so that counting takes few instructions
    beside the products. Where a core's other thread is busy, each issues fewer, and then they may be what takes the
    time.
    `reduction_lanes` is the width at which a reduction runs along its own axis (1: in scalars).
    `permute_bits` is the width of a register from which one instruction picks lanes at will, so that a small table can
    be looked up in it (0: there is none). `fence` is the LLVM intrinsic that orders stores which go past the caches
    before all that follows ('': there are no such stores, or they are ordered as others are). `vector_constraint` is
    LLVM's letter for any vector register.
    `converts_f16`: instructions convert between f16 and f32, rounded as rule 3 has it, whatever the mode of flushing.
    `ordered_extremes`: one instruction gives rule 5's maximum (NaN wins, -0 < +0).
    `adds_pairs`, `adds_quads`: an instruction multiplies pairs of i16, or four bytes by four, and adds the products.
    `beyond`: a feature that hosts may have beyond the machine's; code for which it matters is there with and without
    it, and asks at run time ('': there is none).
    `streams`: pages that are read in turn, for hardware to fetch ahead in each, as fast as memory gives (1: one after
    another, asked for by instructions).
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    registers: int
    tile_rows: int
    tile_vectors: int
    l1_bytes: int
    l2_bytes: int
    l1_ways: int = 8
    tile_terms: int = 1
    reduction_lanes: int = 32
    permute_bits: int = 0
    fence: str = ""
    vector_constraint: str = "w"
    converts_f16: bool = False
    ordered_extremes: bool = False
    adds_pairs: bool = False
    adds_quads: bool = False
    beyond: str = ""
    streams: int = 1

    @property
    def attributes(self) -> str:
        """LLVM function attributes: the features, how wide vectors may be, and a stack aligned for them.

        Callers keep it to 16 bytes, and where it begins is chance: with a vector across two pages of it, kernels of
        functions took 1.7 to 2.3 times as long on a Zen 5. LLVM aligns what it moves there only if told beforehand.
        """
        realigned = ' "stackrealign"' if self.vector_bits > STACK_BITS else ""
        return (
            f'nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{self.vector_bits}" "min-legal-vector-width"="{self.vector_bits}"{realigned}'
        )

    @property
    def with_beyond(self) -> Machine:
        """The machine with the feature that a host may have: VNNI, which adds quads."""
        return replace(self, features=f"{self.features},+{self.beyond}", adds_quads=True, beyond="")

    @property
    def l1_set_bytes(self) -> int:
        """Addresses a multiple of so many bytes apart share a set of the nearest cache."""
        return self.l1_bytes // self.l1_ways

    def is_far(self, size: int) -> bool:
        """Whether so many bytes come from beyond the second-level cache."""
        return size > self.l2_bytes

    @property
    def orders_zeros(self) -> bool:
        """Whether an instruction gives the greater or lesser of two numbers, with -0 < +0 (`extremes.py`)."""
        return "+avx512dq" in self.features.split(",")

    @property
    def masks(self) -> bool:
        """Whether an instruction stores some lanes of a vector about as fast as all of them."""
        return "+avx512f" in self.features.split(",")

    @property
    def rounds_to_integers(self) -> bool:
        """Whether LLVM's lrint is one instruction, from f32 to the nearest i32."""
        return "+avx2" in self.features.split(",")

    @property
    def bounds_drop_nans(self) -> bool:
        """Whether what LLVM makes of `x > least ? x : least` gives `least` for every NaN, as MAXPS does; AArch64's
        FMAXNM passes a signaling one on."""
        return "+sse2" in self.features.split(",")

    def lanes(self, bits: int) -> int:
        """Elements of that width in a vector register."""
        return max(1, self.vector_bits // bits)

    def has_register_of(self, bits: int) -> bool:
        """Whether that many are a whole vector register, of those of 128 bits and more up to the widest."""
        return bits in (128, 256, 512) and bits <= self.vector_bits

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) over every field, in order."""
        text = "\n".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))
        return hashlib.sha256(text.encode()).hexdigest()
