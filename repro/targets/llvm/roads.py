"""Elementary functions by tables in registers, where the machine has permutes and values are lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from repro.ir.expressions import Expr
from repro.ir.loops import Kernel
from repro.ir.types import F32
from repro.machines import Machine
from repro.numerics.elementary import tabled
from repro.numerics.elementary.value import Value
from repro.targets.functions import functions


@dataclass(frozen=True)
class Road:
    """Another way to a value, if the operand's lanes are a multiple of `lanes`."""

    operand: Expr
    value: Expr
    lanes: int


def entries(machine: Machine) -> int:
    """Of a table of f32s: as many as two registers hold that a permute takes lanes from."""
    return 2 * machine.permute_bits // F32.bits


def roads(kernel: Kernel, machine: Machine) -> Mapping[Expr, Road]:
    """By the expressions that they stand for."""
    known = tabled.ROADS.get(entries(machine), {})
    lanes = machine.permute_bits // F32.bits
    return {
        function: Road(operand, known[name](Value(operand)).expr, lanes)
        for operand, name, function in functions(kernel.expressions, known)
    }
