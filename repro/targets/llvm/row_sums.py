"""What the sum of a row tells of its terms, so that nothing else need find it out.

Rule 5's maximum is a NaN where one of its terms is, and +0 rather than -0; finding either takes instructions beside the
maximum of numbers. A softmax needs neither. Where a term is a NaN, so is the sum of the row's exponentials, whatever
number was taken from them before, and so is all that is computed with that sum (rule 4 leaves a NaN's bits open). And
a zero's sign changes nothing in x - max but a zero's sign, which exp does not see.

Nor need its results be searched for NaN (rule 4 makes them one in outputs) where the sum is a number above 0 and below
infinity: then each of its terms is finite, so that their quotients are numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

from passes.rename import rewritten
from repro.ir.expressions import Apply, Expr, Reduce, apply, topological
from repro.ir.loops import Kernel
from repro.ir.types import F32
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.occurrences import functions

KEEP_NAN = frozenset({"add", "sub", "mul", "div", "fma", "neg", "abs", "sqrt", "convert"})
"""Operations on floats of which each result is a NaN if an operand is."""


@dataclass(frozen=True)
class Needs:
    """Whether a NaN among the terms must be found, and the order of zeros kept."""

    nan: bool = True
    zeros: bool = True


def quotients(kernel: Kernel) -> Mapping[Expr, Reduce]:
    """Values that are numbers if a sum is above 0 and below infinity, with that sum: a term of it that is divided by
    it, or the logarithm of such a quotient, from which the term's exponential was taken."""
    present, found = frozenset(kernel.expressions), dict[Expr, Reduce]()
    for total in kernel.expressions:
        if not isinstance(total, Reduce) or total.combiner != "add" or total.has_present or total.dtype is not F32:
            continue
        apart = [axis for axis in kernel.axes if axis not in total.free]
        if [axis.extent for axis in apart] == [axis.extent for axis in total.axes]:
            (term,) = rewritten(total.terms, dict(zip(total.axes, apart, strict=True)))
            made = [apply("sub", each, FUNCTIONS["log"](total)) for each in _logarithms(term)]
            found |= {value: total for value in (apply("div", term, total), *made) if value in present}
    return found


def _logarithms(term: Expr) -> list[Expr]:
    """The operand, where the term is an exponential."""
    return [operand for operand, _, function in functions(topological([term]), ("exp",)) if function is term]


def needs(kernel: Kernel) -> Mapping[Reduce, Needs]:
    """Of the kernel's extremes of floats that are not of some terms only."""
    reductions = [expr for expr in kernel.expressions if isinstance(expr, Reduce) and not expr.has_present]
    extremes = [each for each in reductions if each.combiner in ("max", "min") and each.dtype.is_float]
    if not extremes:
        return {}
    sums = [each for each in reductions if each.combiner == "add" and each.dtype.is_float]
    known = {function: (name, operand) for operand, name, function in functions(kernel.expressions, ("exp", "log"))}
    of = _Functions(kernel, known)
    return {each: Needs(of.show_nan(each, sums), of.show_zeros(each)) for each in extremes}


class _Functions:
    """A kernel whose elementary functions are operations like others."""

    def __init__(self, kernel: Kernel, known: Mapping[Expr, tuple[str, Expr]]) -> None:
        self.kernel, self.known = kernel, known

    def show_nan(self, extreme: Reduce, sums: list[Reduce]) -> bool:
        """Whether something stored depends on it where a term of it is a NaN."""
        nan = {each for each in sums if self._is_nan_with(each, extreme)}
        return not all(self._settled(store.expressions, extreme, nan) for store in self.kernel.stores)

    def _is_nan_with(self, total: Reduce, extreme: Reduce) -> bool:
        """Whether the sum is a NaN where a term of the extreme is: each of them makes a term of the sum one. An extreme
        inside of the sum's terms, another one for each, is none of that row."""
        same = [axis.extent for axis in total.axes] == [axis.extent for axis in extreme.axes]
        if not same or not extreme.free.isdisjoint(total.axes):
            return False
        (term,) = rewritten(extreme.terms, dict(zip(extreme.axes, total.axes, strict=True)))
        found = {term}
        for expr in topological(total.terms):
            if self._keeps_nan(expr, found):
                found.add(expr)
        return total.terms[0] in found

    def _settled(self, roots: tuple[Expr, ...], extreme: Reduce, nan: Set[Expr]) -> bool:
        """Whether the roots are the same whatever the extreme is, where some values are NaN."""
        found, same = set(nan), set[Expr]()
        for expr in topological(roots):
            if self._keeps_nan(expr, found):
                found.add(expr)
            if expr in found or (expr is not extreme and all(child in same for child in expr.children)):
                same.add(expr)
        return all(root in same for root in roots)

    def _keeps_nan(self, expr: Expr, found: Set[Expr]) -> bool:
        if expr in self.known:
            return self.known[expr][1] in found
        kept = isinstance(expr, Apply) and expr.op in KEEP_NAN and expr.dtype.is_float
        return kept and any(child in found for child in expr.children)

    def show_zeros(self, extreme: Reduce) -> bool:
        """Whether it is used for more than to be taken from what exp is taken of."""
        users = self._users()
        return not all(
            isinstance(user, Apply)
            and user.op == "sub"
            and user.children[0] is not extreme
            and all(self._is_exp(each) for each in users[user])
            for user in users[extreme]
        )

    def _users(self) -> Mapping[Expr, list[Expr | None]]:
        """By what they use; None for a store."""
        found = defaultdict[Expr, list[Expr | None]](list)
        stack = [root for store in self.kernel.stores for root in store.expressions]
        for root in stack:
            found[root].append(None)
        seen = set[Expr]()
        while stack:
            expr = stack.pop()
            if expr not in seen:
                seen.add(expr)
                _, operand = self.known.get(expr, ("", None))
                operands = expr.children if operand is None else (operand,)
                for each in operands:
                    found[each].append(expr)
                stack.extend(operands)
        return found

    def _is_exp(self, expr: Expr | None) -> bool:
        return expr is not None and self.known.get(expr, ("",))[0] == "exp"
