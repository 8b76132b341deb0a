"""Index arithmetic: sums, products, floor division and remainder of i64 indices, kept in one normal form.

Every index is an affine sum over atoms (axes, scalars, loaded indices, and floordiv/mod of such sums).
The constructors know each atom's range, so a reshape that undoes a reshape, or a split of a fused axis,
simplifies back to plain strides; that is what lets a load be seen as contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from repro.ir.expressions import FALSE, TRUE, Affine, Apply, Axis, Const, Expr, IndexOp, Scalar, apply, const
from repro.ir.types import I64

_UNBOUNDED = (-(1 << 63), (1 << 63) - 1)
"""What an i64 may be."""


def number(value: int) -> Expr:
    return const(I64, value)


def axis(identity: int, extent: int) -> Axis:
    """The axis variable with that number; an axis of one iteration still has a number."""
    return Axis(I64, (identity, extent), ())


def _parts(index: Expr) -> tuple[int, list[tuple[Expr, int]]]:
    if isinstance(index, Const):
        bits = index.bits
        return (bits - (1 << 64) if bits >> 63 else bits), []
    if isinstance(index, Affine):
        return index.constant, list(zip(index.children, index.coefficients, strict=True))
    return 0, [(index, 1)]


_Key = tuple[object, ...]
_keys: WeakKeyDictionary[Expr, _Key] = WeakKeyDictionary()
"""Each is made once: written out, an index that loads an index that loads one would double with each."""


def _key(atom: Expr) -> _Key:
    """A total order on atoms that depends on their structure alone."""
    found = _keys.get(atom)
    if found is None:
        kind = type(atom).__name__
        leaf = isinstance(atom, Axis | Scalar)
        found = (kind, *atom.fields) if leaf else ("~" + kind, str(atom.fields), *map(_key, atom.children))
        _keys[atom] = found
    return found


def _build(constant: int, terms: Sequence[tuple[Expr, int]]) -> Expr:
    merged: dict[Expr, int] = {}
    for atom, coefficient in terms:
        if isinstance(atom, Axis) and atom.extent == 1:
            continue
        merged[atom] = merged.get(atom, 0) + coefficient
    _recombine(merged)
    kept = [(atom, coefficient) for atom, coefficient in merged.items() if coefficient]
    if not kept:
        return number(constant)
    if constant == 0 and len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    kept.sort(key=lambda term: _key(term[0]))
    return Affine(I64, (constant, tuple(k for _, k in kept)), tuple(atom for atom, _ in kept))


def _recombine(terms: dict[Expr, int]) -> None:
    """(x // d) * d*k + (x mod d) * k == x * k, applied wherever both halves stand in the sum."""
    again = True
    while again:
        again = False
        for remainder in [atom for atom in terms if isinstance(atom, IndexOp) and atom.op == "mod"]:
            scale = terms.get(remainder, 0)
            if not scale:
                continue
            source, divisor = remainder.children[0], remainder.divisor
            base, quotient_terms = _parts(floordiv(source, divisor))
            if base or len(quotient_terms) != 1 or quotient_terms[0][1] != 1:
                continue
            quotient = quotient_terms[0][0]
            if terms.get(quotient, 0) != scale * divisor:
                continue
            source_constant, source_terms = _parts(source)
            if source_constant:
                continue
            del terms[remainder], terms[quotient]
            for atom, coefficient in source_terms:
                terms[atom] = terms.get(atom, 0) + coefficient * scale
            again = True
            break


def add(*indices: Expr) -> Expr:
    constant, terms = 0, list[tuple[Expr, int]]()
    for index in indices:
        base, parts = _parts(index)
        constant += base
        terms += parts
    return _build(constant, terms)


def scale(index: Expr, factor: int) -> Expr:
    base, parts = _parts(index)
    return _build(base * factor, [(atom, k * factor) for atom, k in parts])


def bounds(index: Expr) -> tuple[int, int]:
    """Least and greatest value, inclusive; a loaded index is unbounded, but where it is clamped."""
    if isinstance(index, Axis | Scalar):
        return 0, index.extent - 1
    if isinstance(index, IndexOp):
        low, high = bounds(index.children[0])
        if index.op == "floordiv":
            return low // index.divisor, high // index.divisor
        inside = 0 <= low and high < index.divisor
        return (low, high) if inside else (0, index.divisor - 1)
    if isinstance(index, Const | Affine):
        constant, terms = _parts(index)
        low = high = constant
        for atom, coefficient in terms:
            ends = [end * coefficient for end in bounds(atom)]
            low, high = low + min(ends), high + max(ends)
        return low, high
    match index:
        case Apply(op=("min" | "max") as op, children=(inner, Const() as end)):
            nearer = min if op == "min" else max
            return nearer(bounds(inner)[0], bounds(end)[0]), nearer(bounds(inner)[1], bounds(end)[1])
        case _:
            return _UNBOUNDED


def bounds_where(index: Expr, condition: Expr | None) -> tuple[int, int]:
    """The same, where a condition holds: its comparisons say between which numbers parts of the index lie."""
    rest, low, high = index, 0, 0
    for part, (least, most) in _ranges(condition).items():
        factor = _factor(rest, part)
        rest = add(rest, scale(part, -factor))
        low, high = low + min(factor * least, factor * most), high + max(factor * least, factor * most)
    (everywhere_low, everywhere_high), (rest_low, rest_high) = bounds(index), bounds(rest)
    return max(everywhere_low, rest_low + low), min(everywhere_high, rest_high + high)


def _ranges(condition: Expr | None) -> dict[Expr, tuple[int, int]]:
    """What the comparisons of a conjunction say of sums of axes."""
    found, stack = dict[Expr, tuple[int, int]](), [] if condition is None else [condition]
    while stack:
        match stack.pop():
            case Apply(op="and", children=children):
                stack.extend(reversed(children))
            case Apply(op=("ge" | "lt") as op, children=(Axis() | Affine() as part, Const() as bound)):
                low, high = found.get(part) or bounds(part)
                end, _ = _parts(bound)
                found[part] = (max(low, end), high) if op == "ge" else (low, min(high, end - 1))
            case _:
                pass
    return found


def _factor(index: Expr, part: Expr) -> int:
    """How often a part is in an index, by the first axis that both have; 0 where it is not."""
    for axis in (atom for atom, _ in _parts(part)[1] if isinstance(atom, Axis)):
        whole, own = coefficient(index, axis), coefficient(part, axis)
        if whole and own and whole % own == 0:
            return whole // own
    return 0


def split(index: Expr, divisor: int) -> tuple[Expr, Expr]:
    """index == multiple * divisor + rest, with the rest holding what is not divisible."""
    constant, terms = _parts(index)
    whole = [(atom, k // divisor) for atom, k in terms if k % divisor == 0]
    rest = [(atom, k) for atom, k in terms if k % divisor]
    return _build(constant // divisor, whole), _build(constant % divisor, rest)


def _coarse(index: Expr, divisor: int) -> tuple[int, Expr, Expr] | None:
    """index == g * x + r with 0 <= r < g and g, above 1, a divisor of the divisor; the largest such g."""
    _, terms = _parts(index)
    for g in sorted({math.gcd(divisor, k) for _, k in terms} - {1}, reverse=True):
        multiple, rest = split(index, g)
        low, high = bounds(rest)
        if 0 <= low and high < g:
            return g, multiple, rest
    return None


def floordiv(index: Expr, divisor: int) -> Expr:
    if divisor == 1:
        return index
    multiple, rest = split(index, divisor)
    low, high = bounds(rest)
    if low // divisor == high // divisor:
        return add(multiple, number(low // divisor))
    coarse = _coarse(rest, divisor)
    if coarse is not None:  # (g*x + r) // (g*d) == x // d, since 0 <= r < g
        g, smaller, _ = coarse
        return add(multiple, floordiv(smaller, divisor // g))
    if isinstance(rest, IndexOp) and rest.op == "floordiv":  # (x // a) // b == x // (a*b)
        return add(multiple, floordiv(rest.children[0], rest.divisor * divisor))
    return add(multiple, IndexOp(I64, ("floordiv", divisor), (rest,)))


def mod(index: Expr, divisor: int) -> Expr:
    if divisor == 1:
        return number(0)
    _, rest = split(index, divisor)
    low, high = bounds(rest)
    if low // divisor == high // divisor:
        return add(rest, number(-(low // divisor) * divisor))
    coarse = _coarse(rest, divisor)
    if coarse is not None:  # (g*x + r) mod (g*d) == g * (x mod d) + r, since 0 <= r < g
        g, smaller, fine = coarse
        return add(scale(mod(smaller, divisor // g), g), fine)
    if isinstance(rest, IndexOp) and rest.op == "mod" and rest.divisor % divisor == 0:
        return mod(rest.children[0], divisor)
    return IndexOp(I64, ("mod", divisor), (rest,))


def linear(indices: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The row-major offset of a multi-index."""
    offset, step = list[Expr](), 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        offset.append(scale(index, step))
        step *= extent
    return add(*offset)


def delinear(offset: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """The multi-index of a row-major offset that lies inside the shape; zeros where that has no elements to read."""
    if 0 in shape:
        return (number(0),) * len(shape)
    indices, step = list[Expr](), 1
    for position, extent in reversed(list(enumerate(shape))):
        quotient = floordiv(offset, step)
        indices.append(quotient if position == 0 else mod(quotient, extent))
        step *= extent
    return tuple(reversed(indices))


def divisible(index: Expr, divisor: int) -> bool:
    """Whether every value of an index is known to be a multiple."""
    constant, terms = _parts(index)
    return constant % divisor == 0 and all(k % divisor == 0 for _, k in terms)


def compare(op: str, left: Expr, right: int) -> Expr:
    """`left op right` for op in lt, ge, eq: TRUE or FALSE where the range decides."""
    low, high = bounds(left)
    match op:
        case "lt":
            known = True if high < right else False if low >= right else None
        case "ge":
            known = True if low >= right else False if high < right else None
        case "eq":
            known = False if right < low or right > high else True if low == high == right else None
        case _:
            raise ValueError(op)
    if known is not None:
        return TRUE if known else FALSE
    return apply(op, left, number(right))


def both(*conditions: Expr | None) -> Expr:
    """The conjunction; TRUE where nothing remains to be asked."""
    kept: list[Expr] = []
    for condition in conditions:
        if condition is FALSE:
            return FALSE
        if condition is not None and condition is not TRUE and condition not in kept:
            kept.append(condition)
    if not kept:
        return TRUE
    result = kept[0]
    for condition in kept[1:]:
        result = apply("and", result, condition)
    return result


def coefficient(index: Expr, variable: Axis) -> int | None:
    """The stride of an index along an axis; None where it is not a constant."""
    if variable not in index.free:
        return 0
    if index is variable:
        return 1
    if not isinstance(index, Affine):
        return None
    total = 0
    for atom, k in zip(index.children, index.coefficients, strict=True):
        if atom is variable:
            total += k
        elif variable in atom.free:
            return None
    return total


def inside(index: Expr, extent: int) -> Expr:
    """0 <= index < extent, as a condition."""
    return both(compare("ge", index, 0), compare("lt", index, extent))
