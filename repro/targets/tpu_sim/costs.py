"""What vector instructions cost, in slots of the vector unit: stated assumptions, one table.

A pass is one slot for one cycle on all 1024 lanes. 32-bit operations that real vector units have take one;
64-bit ones are counted as the sequences that 32-bit lanes would need, IEEE f64 as eight passes.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.ir.types import DType


@dataclass(frozen=True)
class Cost:
    """`unit` is held for `busy` cycles; the result comes `latency` cycles after the last (None: as the unit has it)."""

    unit: str
    busy: int = 1
    latency: int | None = None


_F32 = {"div": 10, "sqrt": 12, "rem": 40, "floor": 2, "ceil": 2, "trunc": 2, "round": 2, "convert": 2}
_F64 = {
    "neg": 2,
    "abs": 2,
    "select": 2,
    "bitcast": 1,
    "min": 4,
    "max": 4,
    "div": 64,
    "sqrt": 64,
    "rem": 200,
    "convert": 4,
}
_I32 = {"mul": 4, "div": 24, "rem": 24, "convert": 2}
_I64 = {"add": 3, "sub": 3, "neg": 3, "mul": 12, "div": 96, "rem": 96, "shl": 4, "shr": 4, "convert": 4, "bitcast": 1}
_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")


def alu_passes(operation: str, dtype: DType, result: DType) -> int:
    """Slot-cycles of the vector unit for one scalar operation on 1024 lanes."""
    wide = max(dtype.bits, result.bits) > 32
    if operation == "convert" and (not dtype.computes or not result.computes):
        return 8
    if dtype.is_float or result.is_float:
        if not wide:
            return _F32.get(operation, 1)
        return 4 if operation in _COMPARES else _F64.get(operation, 8)
    if not wide:
        return _I32.get(operation, 1)
    return 4 if operation in _COMPARES else _I64.get(operation, 2)
