"""What every instruction has, and what meanings are built of.

A meaning is a kernel over the instruction's operands as flat arrays (registers of 1024 elements, memory from
the place that the instruction names, so the address is added before), sources first, what it writes last.
The simulator executes an instruction by code compiled from that kernel or by NumPy, which tests hold to it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import ClassVar

from repro.ir import index as ix
from repro.ir.expressions import Expr
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import DType
from repro.targets.tpu_sim.costs import Cost
from repro.targets.tpu_sim.operands import LANES, Index, Pattern, Reg, Span

FAR = 1 << 40
"""The extent of memory in a meaning: the simulator checks addresses before."""


@dataclass(frozen=True)
class Instruction:
    """`when`, where given, is a predicate of the scalar core: the instruction runs if its value is at least 0."""

    mnemonic: ClassVar[str]
    unit: ClassVar[str]

    @property
    def predicate(self) -> Index | None:
        """Its `when`."""
        return getattr(self, "when", None)

    @property
    def reads(self) -> tuple[Reg, ...]:
        """Registers it reads."""
        return ()

    @property
    def writes(self) -> Reg | None:
        """The register it writes."""
        return None

    @property
    def memory_reads(self) -> tuple[Span, ...]:
        """What it reads of memory."""
        return ()

    @property
    def memory_writes(self) -> tuple[Span, ...]:
        """What it writes of memory."""
        return ()

    @property
    def result_type(self) -> DType | None:
        """The type of what it writes to a register."""
        return None if self.writes is None else getattr(self, "result", None) or getattr(self, "dtype", None)

    def cost(self) -> Cost:
        """Cycles that do not depend on the chip; transfers and the matrix unit are timed by the chip's data."""
        return Cost(self.unit)


@cache
def field_names(kind: type[Instruction]) -> tuple[str, ...]:
    """The operands of a kind of instruction, in their order."""
    return tuple(field.name for field in fields(kind))


LANE = ix.axis(0, LANES)


def array_of(dtype: DType, elements: int = LANES, writable: bool = False) -> BufferParameter:
    return BufferParameter(dtype, elements, writable)


def lanewise_kernel(buffers: list[BufferParameter], offset: Expr, value: Expr, when: Expr | None = None) -> Kernel:
    return Kernel(tuple(buffers), (), (LANE,), 0, (Store(len(buffers) - 1, offset, value, when),))


def lane_offset(pattern: Pattern) -> Expr:
    """The element that each lane stands for, from the place named."""
    parts, step = list[Expr](), LANES
    for count, stride in pattern.digits:
        step //= count
        parts.append(ix.scale(ix.mod(ix.floordiv(LANE, step), count), stride))
    return ix.add(*parts)
