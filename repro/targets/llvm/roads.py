"""Elementary functions by tables, where the machine has permutes and values are lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from repro.ir.expressions import Expr, Lookup, Rarely, topological
from repro.ir.loops import Kernel
from repro.ir.types import F32
from repro.machines import Machine
from repro.numerics.elementary import quotients, tabled
from repro.numerics.elementary.occurrences import functions
from repro.targets.llvm.rows_in_memory import FEWEST


@dataclass(frozen=True)
class Road:
    """Another way to a value, if the operand's lanes are a multiple of `lanes`; `together` times as many go step by
    step, and of all of them it is asked at once whether one is undecided."""

    operand: Expr
    value: Rarely
    lanes: int
    together: int


def entries(machine: Machine) -> int:
    """Of a table of f32s that the machine looks up."""
    return tabled.entries(machine.permute_bits)


def roads(kernel: Kernel, machine: Machine) -> Mapping[Expr, Road]:
    """By the expressions that they stand for."""
    found, lanes = dict[Expr, Road](), machine.permute_bits // F32.bits
    known = tabled.roads(machine.permute_bits)
    for operand, name, function in functions(kernel.expressions, known):
        argument, value = quotients.road(known[name], name, operand)
        found[function] = Road(argument, value, lanes, _together(value, machine))
    return found


def _together(value: Rarely, machine: Machine) -> int:
    """Registers of lanes at a time: half as many where the tables leave none for values."""
    tables = [expr for expr in topological([value]) if isinstance(expr, Lookup) and expr.dtype is F32]
    held = sum(len(table.table) * F32.bits for table in tables if len(table.table) < FEWEST) // machine.permute_bits
    return tabled.TOGETHER if held <= machine.registers else tabled.TOGETHER // 2
