"""Tables of constants that no register holds: rows in memory, of an entry of each table that one index looks up.

A lane's entries are one load, of half or all of 128 bits, and those of four lanes are transposed by shuffles that stay
inside of 128 bits. Gathers of columns would access memory for each entry of a lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from repro.ir.expressions import Expr, Lookup, topological
from repro.ir.types import F32, I64
from repro.targets.llvm import scalars, tables
from repro.targets.llvm.text import Function, Val, vector

FEWEST = 64
"""Entries from which on a table is one in memory."""


def columns(roots: Iterable[Expr]) -> Mapping[Expr, Sequence[Lookup]]:
    """By each lookup in a row, all that are: two or four."""
    found = dict[Expr, list[Lookup]]()
    for expr in topological(list(roots)):
        if isinstance(expr, Lookup) and expr.dtype is F32 and len(expr.table) >= FEWEST:
            found.setdefault(expr.index, []).append(expr)
    return {each: row for row in found.values() for each in row}


def looked_up(f: Function, row: Sequence[Lookup], index: Val) -> list[Val]:
    """table[index mod n] of each table in every lane; lanes are a multiple of four."""
    count, size = len(row), len(row[0].table)
    words = ", ".join(f"i32 {word}" for entries in zip(*(each.table for each in row), strict=True) for word in entries)
    table = f.constant(f"[{count * size} x i32] [{words}]")
    place = scalars.binary(f, "and", index, scalars.constant(f, index.dtype, size - 1, index.width))
    found = list[Val]()
    for lane in _lanes(f, f.scaled(place, count // 2)):
        address = f.let(f"getelementptr [2 x i32], ptr {table}, {lane.typed}", I64).text
        found.append(f.let(f"load <{count} x float>, ptr {address}, align {count * F32.bytes}", F32, count))
    return _columns_of_four(f, found) if count == 4 else _columns_of_two(f, found)


def _lanes(f: Function, value: Val) -> list[Val]:
    """As i64s. Two at a time leave their register, since that takes longer than to part them."""
    half = value.width // 2
    pairs, found = f.let(f"bitcast {value.typed} to {vector('i64', half)}", I64, half), list[Val]()
    for number in range(half):
        pair = f.let(f"extractelement {pairs.typed}, i64 {number}", I64)
        found += [f.let(f"and {pair.typed}, {(1 << 32) - 1}", I64), f.let(f"lshr {pair.typed}, 32", I64)]
    return found


def _columns_of_two(f: Function, rows: Sequence[Val]) -> list[Val]:
    """128 bits of one vector hold the first two rows of four, and those of another the others: each column is one
    shuffle."""
    halves = [[row for number, row in enumerate(rows) if number % 4 // 2 == half] for half in (0, 1)]
    first, second = (tables.joined(f, half) for half in halves)
    return [_shuffled(f, first, second, (word, word + 2), (word, word + 2)) for word in (0, 1)]


def _columns_of_four(f: Function, rows: Sequence[Val]) -> list[Val]:
    """Rows two apart are interleaved, twice."""
    parts = [tables.joined(f, rows[first::4]) for first in range(4)]
    for _ in range(2):
        parts = [_interleaved(f, parts[n], parts[n + 2], half) for n in (0, 1) for half in ((0, 1), (2, 3))]
    return parts


def _interleaved(f: Function, a: Val, b: Val, half: tuple[int, int]) -> Val:
    low, high = half
    return _shuffled(f, a, b, (low,), (low,), (high,), (high,))


def _shuffled(f: Function, a: Val, b: Val, *picks: Sequence[int]) -> Val:
    """In each 128 bits, some lanes of a and of b in turn."""
    starts = range(0, a.width, 4)
    lanes = [at + lane + (n % 2) * a.width for at in starts for n, each in enumerate(picks) for lane in each]
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return f.let(f"shufflevector {a.typed}, {b.typed}, <{a.width} x i32> <{mask}>", a.dtype, a.width)
