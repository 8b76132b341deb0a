"""Lookups in tables of constants by loads: rows in global memory, of an entry of each table that one index looks up.

A tree of selects costs an instruction for 32 bits of each entry but one, about as many to bring the constants into
registers, and these registers. Instead a thread reads its row, 16 bytes at a time, each where it is needed. A warp's
few rows are in the first-level cache, which gives all its threads 16 bytes in four cycles; the cache of constants would
serve one row after another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from repro.ir.expressions import Expr, Lookup
from repro.ir.types import I64, DType
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Function, Val, element, vector

FEWEST = 4
"""Entries of a table from which on it is loaded. The cache gives a warp 32 bits in a cycle of a multiprocessor. Two
selects take as long, on 16 lanes of each of four schedulers, and a table of four is three."""
CHUNK = 16
"""Bytes that a thread reads at a time."""


@dataclass(frozen=True)
class Row:
    """Tables that the same index looks up, in the order in which their entries lie in a row."""

    columns: tuple[Lookup, ...]

    @property
    def dtype(self) -> DType:
        return self.columns[0].dtype

    @property
    def size(self) -> int:
        """Rows, one for each entry of a table."""
        return len(self.columns[0].table)

    @property
    def words(self) -> int:
        """Of 32 bits, that a lane reads."""
        return len(self.columns) * self.dtype.bits // 32

    @property
    def stride(self) -> int:
        """Entries from one row to the next. Rows of several chunks lie an odd number of them apart, so that the same
        chunk of eight rows is in different banks."""
        count, chunk = len(self.columns), CHUNK // self.dtype.bytes
        return 1 << (count - 1).bit_length() if count <= chunk else (-(-count // chunk) | 1) * chunk

    def beside(self, column: Lookup) -> tuple[int, Sequence[Lookup]]:
        """The columns that are read with one, and the place of the first."""
        chunk = CHUNK // self.dtype.bytes
        first = self.columns.index(column) // chunk * chunk
        return first, self.columns[first : first + chunk]


def rows(expressions: Iterable[Expr]) -> Mapping[Expr, Row]:
    """By each lookup among expressions in a table of enough entries, its row; columns in the expressions' order."""
    found = dict[tuple[Expr, DType, int], list[Lookup]]()
    for expr in expressions:
        if isinstance(expr, Lookup) and len(expr.table) >= FEWEST:
            found.setdefault((expr.index, expr.dtype, len(expr.table)), []).append(expr)
    return {column: Row(tuple(columns)) for columns in found.values() for column in columns}


def looked_up(f: Function, row: Row, column: Lookup, index: Val) -> Mapping[Expr, Val]:
    """table[index mod n] of a column in every lane, and of those that are read with it."""
    table, (first, columns) = _constants(f, row), row.beside(column)
    lanes = [_read(f, table, row, first, len(columns), place) for place in _places(f, row, index)]
    return {each: of_lanes(f, values) for each, values in zip(columns, zip(*lanes, strict=True), strict=True)}


def _constants(f: Function, row: Row) -> str:
    """The address of all rows. Constants of several functions share a module: their content is their name."""
    kind, padding = f"i{row.dtype.bits}", [0] * (row.stride - len(row.columns))
    entries = zip(*(column.table for column in row.columns), strict=True)
    words = [f"{kind} {word}" for each in entries for word in (*each, *padding)]
    content = f"[{len(words)} x {kind}] [{', '.join(words)}]"
    name = f"@rows_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    f.declared[f"{name} = internal unnamed_addr addrspace(1) constant {content}, align {CHUNK}"] = None
    return name


def _places(f: Function, row: Row, index: Val) -> list[Val]:
    """Of each lane's row among the rows."""
    place = scalars.binary(f, "and", index, scalars.constant(f, index.dtype, row.size - 1, index.width))
    if place.width == 1:
        return [place]
    return [f.let(f"extractelement {place.typed}, i64 {lane}", place.dtype) for lane in range(place.width)]


def _read(f: Function, table: str, row: Row, first: int, count: int, place: Val) -> list[Val]:
    """So many entries of a row, from the first on."""
    kind = element(row.dtype)
    start = f.let(f"getelementptr [{row.stride} x {kind}], ptr addrspace(1) {table}, {place.typed}, i64 {first}", I64)
    aligned = min(CHUNK, row.stride * row.dtype.bytes)
    text = f"load {vector(kind, count)}, ptr addrspace(1) {start.text}, align {aligned}"
    found = f.let(text, row.dtype, count)
    if count == 1:
        return [found]
    return [f.let(f"extractelement {found.typed}, i64 {number}", row.dtype) for number in range(count)]


def of_lanes(f: Function, values: Sequence[Val]) -> Val:
    """One value of scalars."""
    dtype, width = values[0].dtype, len(values)
    if width == 1:
        return values[0]
    whole = Val("poison", dtype, width)
    for lane, value in enumerate(values):
        whole = f.let(f"insertelement {whole.typed}, {value.typed}, i64 {lane}", dtype, width)
    return whole
