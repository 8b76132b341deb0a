"""What the fields of an instruction hold: registers, indices, places in memory, patterns; each with its text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from repro.ir.types import BY_NAME, Array, DType

SUBLANES, COLUMNS = 8, 128
LANES = SUBLANES * COLUMNS
"""Elements of a vector register: 8 sublanes of 128."""
REGISTERS = 64
"""The register file; numbers from here on are spill slots."""


@dataclass(frozen=True)
class Reg:
    """A vector register: 1024 elements of one type. 32 bits a lane; 64-bit elements take this one and the next."""

    number: int

    def __str__(self) -> str:
        return f"r{self.number}"


@dataclass(frozen=True)
class Term:
    """`coefficient * ((counter // divisor) mod modulus)`; a modulus of 0 leaves the quotient as it is."""

    counter: str
    coefficient: int
    divisor: int = 1
    modulus: int = 0

    def value(self, counters: Mapping[str, int]) -> int:
        quotient = counters[self.counter] // self.divisor
        return self.coefficient * (quotient % self.modulus if self.modulus else quotient)

    def __str__(self) -> str:
        digit = self.counter
        if self.divisor != 1:
            digit += f"/{self.divisor}"
        if self.modulus:
            digit += f"%{self.modulus}"
        return f"{self.coefficient}*{digit}"


@dataclass(frozen=True)
class Index:
    """A value of the scalar core: a constant and terms over loop counters (`i0`) and arguments (`s0`)."""

    constant: int = 0
    terms: tuple[Term, ...] = ()

    def value(self, counters: Mapping[str, int]) -> int:
        return self.constant + sum(term.value(counters) for term in self.terms)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms)
        return Index(self.constant + other.constant, self.terms + other.terms)

    def __mul__(self, factor: int) -> Index:
        terms = (Term(t.counter, t.coefficient * factor, t.divisor, t.modulus) for t in self.terms)
        return Index(self.constant * factor, tuple(terms) if factor else ())

    def __str__(self) -> str:
        return "+".join([*(str(term) for term in self.terms), *([str(self.constant)] if self._shown else [])])

    @property
    def _shown(self) -> bool:
        return self.constant != 0 or not self.terms


def counter(name: str, coefficient: int = 1, divisor: int = 1, modulus: int = 0) -> Index:
    """The index of one counter."""
    return Index(0, (Term(name, coefficient, divisor, modulus),))


_TERM = re.compile(r"(-?\d+)\*([is]\d+)(?:/(\d+))?(?:%(\d+))?")


def parse_index(text: str) -> Index:
    constant, terms = 0, list[Term]()
    for part in text.split("+"):
        found = _TERM.fullmatch(part)
        if found is None:
            constant += int(part)
            continue
        coefficient, name, divisor, modulus = found.groups()
        terms.append(Term(name, int(coefficient), int(divisor or 1), int(modulus or 0)))
    return Index(constant, tuple(terms))


@dataclass(frozen=True)
class Ref:
    """A place: element `offset` of HBM argument `b<number>` or of VMEM area `v<number>`."""

    space: str
    number: int
    offset: Index = Index()

    def __str__(self) -> str:
        return f"{self.space}{self.number}[{self.offset}]"

    @property
    def name(self) -> str:
        return f"{self.space}{self.number}"


@dataclass(frozen=True)
class Span:
    """Elements of memory that an instruction touches: from the place on, (count, stride) of each dimension; `box` is
    None where data, or another instruction, decide which."""

    ref: Ref
    box: tuple[tuple[int, int], ...] | None = None


def hbm(number: int, offset: Index | int = 0) -> Ref:
    return Ref("b", number, offset if isinstance(offset, Index) else Index(offset))


def vmem(number: int, offset: Index | int = 0) -> Ref:
    return Ref("v", number, offset if isinstance(offset, Index) else Index(offset))


def parse_ref(text: str) -> Ref:
    name, _, offset = text.partition("[")
    if name[0] not in "bv" or not offset.endswith("]"):
        raise ValueError(f"not a place in memory: {text!r}")
    return Ref(name[0], int(name[1:]), parse_index(offset[:-1]))


@dataclass(frozen=True)
class Pattern:
    """Where the 1024 lanes lie: digits (count, stride), outermost first; the counts multiply to 1024.

    `8:512,128:1` takes 8 rows of 128 elements whose starts are 512 apart; `1024:0` is one element for all lanes.
    """

    digits: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if prod(count for count, _ in self.digits) != LANES:
            raise ValueError(f"a pattern of {self}: its counts do not multiply to {LANES}")

    def __str__(self) -> str:
        return ",".join(f"{count}:{stride}" for count, stride in self.digits)

    @property
    def lanes(self) -> Array:
        """The element that each lane stands for, i64 [1024]."""
        total = np.zeros(1, np.int64)
        for count, stride in self.digits:
            total = (total[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
        return total

    @property
    def runs(self) -> int:
        """Pieces that lie side by side or are one element, none longer than a row of 128: what an access costs."""
        count, stride = self.digits[-1]
        if stride not in (0, 1):
            return LANES
        pieces = prod(each for each, step in self.digits[:-1] if step != 0)
        return pieces * (-(-count // COLUMNS) if stride else 1)


LINEAR = Pattern(((LANES, 1),))
SPLAT = Pattern(((LANES, 0),))


def parse_pattern(text: str) -> Pattern:
    pairs = [part.split(":") for part in text.split(",")]
    return Pattern(tuple((int(count), int(stride)) for count, stride in pairs))


@dataclass(frozen=True)
class Dim:
    """A dimension of a transfer: `count` steps of the given strides (elements), at most `limit` of them."""

    count: int
    source: int
    target: int
    limit: Index | None = None

    def __str__(self) -> str:
        limit = "" if self.limit is None else f":{self.limit}"
        return f"{self.count}:{self.source}:{self.target}{limit}"

    def steps(self, counters: Mapping[str, int]) -> int:
        return self.count if self.limit is None else max(0, min(self.count, self.limit.value(counters)))


def parse_dims(text: str) -> tuple[Dim, ...]:
    dims = list[Dim]()
    for part in text.split(","):
        count, source, target, *limit = part.split(":")
        dims.append(Dim(int(count), int(source), int(target), parse_index(limit[0]) if limit else None))
    return tuple(dims)


def parse_reg(text: str) -> Reg:
    if not text.startswith("r"):
        raise ValueError(f"not a register: {text!r}")
    return Reg(int(text[1:]))


def parse_dtype(text: str) -> DType:
    return BY_NAME[text]
