"""Softmax and the normalizations: rows that are summed, then scaled. Columns of a sample stand as [row, units]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from repro.audit.causes.problem import Candidate, NotCoveredError, Problem, Units
from repro.audit.causes.sums import PAIRWISE, PAIRWISE_BLOCK, mean_f64, orders_for, pairwise, sums, total
from repro.audit.probes.steps import Order
from repro.ir.types import F32, F64, Array
from repro.numerics.elementary import evaluate
from repro.numerics.numpy_fma import fma_f32

F = np.float32
ONE = F(1)
FARTHEST = 8
"""Units in the last place within which another runtime's exp is looked for."""


def exp32(x: Array) -> Array:
    return evaluate("exp", [x], F32)


# ── softmax ─────────────────────────────────────────────────────────────────────────────────────────


def _alone(problem: Problem) -> None:
    if problem.after:
        raise NotCoveredError(f"{problem.after[0].op_type} fused behind {problem.node.op_type}")


def softmax(problem: Problem) -> Units:
    _alone(problem)
    data = problem.required(0)
    rows, golden, theirs = (_softmax_rows(problem, array) for array in (data, problem.golden, problem.theirs))
    logarithm = problem.node.op_type == "LogSoftmax"

    def candidates(units: Array) -> Iterator[Candidate]:
        terms = np.ascontiguousarray(rows[units].T)
        shifted = terms - terms.max(axis=0)
        yield from _log_softmax(terms, shifted) if logarithm else _softmax(shifted)

    def remarks(units: Array) -> Sequence[tuple[str, str]]:
        return () if logarithm else _softmax_remarks(rows[units], theirs[units])

    return Units(golden, theirs, candidates, rows.shape[1], remarks)


def _softmax_rows(problem: Problem, array: Array) -> Array:
    """[rows, elements]: along one axis since opset 13; before, all axes from `axis` on are one row. The default tells
    nothing, so what sums to one does."""
    single, flat = _along(array, problem.attribute("axis", -1)), _flat(array, problem.attribute("axis", 1))
    golden = problem.golden.astype(np.float64)
    if problem.node.op_type == "LogSoftmax":
        golden = evaluate("exp", [golden], F64)
    sums_to_one = np.abs(_along(golden, problem.attribute("axis", -1)).sum(axis=1) - 1) < 1e-2
    return single if sums_to_one.all() else flat


def _along(array: Array, axis: int) -> Array:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _flat(array: Array, axis: int) -> Array:
    return array.reshape(int(np.prod(array.shape[: axis % array.ndim])), -1)


def _softmax(shifted: Array) -> Iterator[Candidate]:
    e = exp32(shifted)
    for name, compute in sums(e):
        yield Candidate(f"{name}, one division", lambda compute=compute: (e / compute()).T)
        yield Candidate(f"{name}, times 1 / sum", lambda compute=compute: (e * (ONE / compute())).T)
    yield Candidate("f64 throughout", lambda: _softmax_f64(shifted).T)


def _softmax_f64(shifted: Array) -> Array:
    e = evaluate("exp", [shifted.astype(np.float64)], F64)
    return (e / e.cumsum(axis=0)[-1]).astype(np.float32)


def _log_softmax(terms: Array, shifted: Array) -> Iterator[Candidate]:
    e, greatest = exp32(shifted), terms.max(axis=0)
    for name, compute in sums(e):
        yield Candidate(name, lambda compute=compute: (shifted - evaluate("log", [compute()], F32)).T)
        together = f"{name}, x - (max + log(sum))"
        yield Candidate(together, lambda compute=compute: (terms - (greatest + evaluate("log", [compute()], F32))).T)


def _softmax_remarks(rows: Array, theirs: Array) -> list[tuple[str, str]]:
    """What their exp must have been, whatever the order of the sum: exp(0) is 1, so a row's greatest result is 1 / sum,
    and every other one has to be some exp near the true one, times that, or divided by a sum with that reciprocal."""
    shifted = rows - rows.max(axis=1, keepdims=True)
    reciprocal = theirs.max(axis=1, keepdims=True)
    correct = exp32(shifted)
    product = _least_error(correct, theirs, lambda e: [e * reciprocal])
    quotient = _least_error(correct, theirs, lambda e: [e / s for s in _sums_with(reciprocal)])
    found: list[tuple[str, str]] = []
    count = theirs.size
    if (product >= 0).all() != (quotient >= 0).all():
        by_product = bool((product >= 0).all())
        how = "multiplies by the reciprocal of the sum" if by_product else "divides by the sum"
        other = int(((quotient if by_product else product) >= 0).sum())
        found.append((how, f"possible for all of {count} sampled elements, the other way for {other}"))
    fits = [errors for errors in (product, quotient) if (errors >= 0).all()]
    worst = min((int(errors.max()) for errors in fits), default=0)
    if worst:
        least = min(int((errors > 0).sum()) for errors in fits)
        words = f"exp not correctly rounded (by {worst} ULP or more)"
        found.append((words, f"no correct one gives {least} of {count} sampled elements"))
    elif fits:
        found.append(("another order of the sum", f"a correct exp can give all of {count} sampled elements"))
    return found


def _sums_with(reciprocal: Array) -> list[Array]:
    """f32 sums whose reciprocal may be this one."""
    near = ONE / reciprocal
    bits = near.view(np.int32)
    return [(bits + step).astype(np.int32).view(np.float32) for step in (0, -1, 1)]


def _least_error(correct: Array, theirs: Array, results: Callable[[Array], list[Array]]) -> Array:
    """The least distance of an exp from the correct one with which a result can be theirs; -1 where none within
    FARTHEST can."""
    found = np.full(theirs.shape, -1, np.int64)
    bits = correct.view(np.int32)
    for distance in range(FARTHEST, -1, -1):
        for sign in (1, -1):
            e = (bits + sign * distance).astype(np.int32).view(np.float32)
            for result in results(e):
                found[result == theirs] = distance
    tiny = (correct < np.float32(2.0**-100)) | (theirs < np.float32(2.0**-100))
    found[tiny & (found < 0)] = 0
    return found


# ── normalizations ──────────────────────────────────────────────────────────────────────────────────


def normalization(problem: Problem) -> Units:
    """LayerNormalization and, without a mean, RMSNormalization."""
    _alone(problem)
    data, scale, bias = problem.required(0), problem.required(1), problem.input(2)
    axis = problem.attribute("axis", -1) % data.ndim
    size = int(np.prod(data.shape[axis:]))
    centred = problem.node.op_type == "LayerNormalization"
    rows, golden, theirs = (array.reshape(-1, size) for array in (data, problem.golden, problem.theirs))
    if scale.size not in (1, size) or (bias is not None and bias.size not in (1, size)):
        raise NotCoveredError("a scale of another size than the row")
    column = np.broadcast_to(scale.reshape(-1, 1), (size, 1))
    addend = None if bias is None else np.broadcast_to(bias.reshape(-1, 1), (size, 1))

    def candidates(units: Array) -> Iterator[Candidate]:
        terms = np.ascontiguousarray(rows[units].T)
        return _normalized(terms, column, addend, problem.attribute("epsilon", 1e-5), centred)

    return Units(golden, theirs, candidates, size)


def instance_normalization(problem: Problem) -> Units:
    _alone(problem)
    data, scale, bias = (problem.required(position) for position in range(3))
    size = int(np.prod(data.shape[2:]))
    rows, golden, theirs = (array.reshape(-1, size) for array in (data, problem.golden, problem.theirs))

    def candidates(units: Array) -> Iterator[Candidate]:
        channel = units % data.shape[1]
        terms = np.ascontiguousarray(rows[units].T)
        affine = scale[channel][None, :], bias[channel][None, :]
        return _normalized(terms, *affine, problem.attribute("epsilon", 1e-5), True)

    return Units(golden, theirs, candidates, size)


def _normalized(
    terms: Array, scale: Array | None, bias: Array | None, epsilon: float, centred: bool
) -> Iterator[Candidate]:
    """Every order for mean and variance, then every way of dividing and scaling."""
    assert scale is not None
    for name, mean, variance in _moments(terms, centred):
        for ending, finish in ENDINGS.items():

            def compute(mean: _Lazy = mean, variance: _Lazy = variance, finish: Ending = finish) -> Array:
                deviation = np.sqrt(variance() + np.float32(epsilon))
                return finish(terms, mean(), deviation, scale, bias).T

            yield Candidate(f"{name}, {ending}", compute)
    yield Candidate("f64 throughout", lambda: _normalized_f64(terms, scale, bias, epsilon, centred).T)


_Lazy = Callable[[], Array]
Ending = Callable[[Array, Array, Array, Array, Array | None], Array]


class _Once:
    """A value computed when first asked for."""

    def __init__(self, compute: _Lazy) -> None:
        self._compute = compute
        self._value: Array | None = None

    def __call__(self) -> Array:
        if self._value is None:
            self._value = self._compute()
        return self._value


def _moments(terms: Array, centred: bool) -> Iterator[tuple[str, _Lazy, _Lazy]]:
    """(name, mean, variance), every order with its own mean and with one in f64."""
    count = np.float32(len(terms))
    exact_mean = _Once(lambda: mean_f64(terms))
    squares = {name: _Once(compute) for name, compute in square_sums(terms)}
    for name, order in orders_for(len(terms)):
        if not centred:
            nothing = _Once(lambda: np.zeros(terms.shape[1], F))
            yield from ((words, nothing, _Once(lambda w=words: squares[w]() / count)) for words in _squared(name))
            continue
        own_mean = _Once(lambda order=order: total(order, terms, None, False) / count)
        for words, mean in (("", own_mean), (" (mean in f64)", exact_mean)):
            for fused in (False, True):
                variance = _Once(lambda m=mean, o=order, f=fused: _squares(terms - m(), o, f) / count)
                kind = _squared(name)[fused]
                yield f"{kind}{words}", mean, variance
                one_pass = _Once(lambda m=mean, kind=kind: squares[kind]() / count - m() * m())
                yield f"{kind}{words}, mean of squares less square of mean", mean, one_pass
    if centred and len(terms) > PAIRWISE_BLOCK:
        mean = _Once(lambda: pairwise(terms) / count)
        yield PAIRWISE, mean, _Once(lambda: pairwise((terms - mean()) * (terms - mean())) / count)


def square_sums(terms: Array) -> Iterator[tuple[str, _Lazy]]:
    for name, order in orders_for(len(terms)):
        for fused in (False, True):
            yield _squared(name)[fused], lambda order=order, fused=fused: _squares(terms, order, fused)


def _squared(name: str) -> tuple[str, str]:
    return name, f"{name}, squares by fma"


def _squares(terms: Array, order: Order, fused: bool) -> Array:
    return total(order, terms, terms, fused)


def _affine(normal: Array, scale: Array, bias: Array | None) -> Array:
    return normal * scale if bias is None else normal * scale + bias


def _affine_fma(normal: Array, scale: Array, bias: Array | None) -> Array:
    return normal * scale if bias is None else fma_f32(normal, scale, np.broadcast_to(bias, normal.shape))


def _shifted_fma(terms: Array, mean: Array, inverse: Array) -> Array:
    return fma_f32(terms, np.broadcast_to(inverse, terms.shape), np.broadcast_to(-mean * inverse, terms.shape))


def _rsqrt(deviation: Array) -> Array:
    return ONE / deviation


ENDINGS: dict[str, Ending] = {
    "one division": lambda x, m, d, g, b: _affine((x - m) / d, g, b),
    "one division, fma with the bias": lambda x, m, d, g, b: _affine_fma((x - m) / d, g, b),
    "times 1 / deviation": lambda x, m, d, g, b: _affine((x - m) * _rsqrt(d), g, b),
    "times 1 / deviation, fma with the bias": lambda x, m, d, g, b: _affine_fma((x - m) * _rsqrt(d), g, b),
    "scale / deviation first": lambda x, m, d, g, b: _affine(x - m, g * _rsqrt(d), b),
    "scale / deviation first, fma with the bias": lambda x, m, d, g, b: _affine_fma(x - m, g * _rsqrt(d), b),
    "x * r - mean * r": lambda x, m, d, g, b: _affine(x * _rsqrt(d) + (-m * _rsqrt(d)), g, b),
    "x * r - mean * r, fma": lambda x, m, d, g, b: _affine_fma(_shifted_fma(x, m, _rsqrt(d)), g, b),
}
"""How a row x with mean m, deviation d, scale g and bias b is finished."""


def _normalized_f64(terms: Array, scale: Array, bias: Array | None, epsilon: float, centred: bool) -> Array:
    x = terms.astype(np.float64)
    mean = x.cumsum(axis=0)[-1] / len(x) if centred else np.float64(0)
    centre = x - mean
    variance = (centre * centre).cumsum(axis=0)[-1] / len(x)
    normal = centre / np.sqrt(variance + epsilon) * scale.astype(np.float64)
    return (normal if bias is None else normal + bias.astype(np.float64)).astype(np.float32)
