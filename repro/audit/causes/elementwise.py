"""Elementary functions and activations: one element from one element, by the formulas that runtimes use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from repro.audit.causes.epilogue import epilogue
from repro.audit.causes.problem import Candidate, NotCoveredError, Problem, Units, ulps
from repro.ir.types import F32, F64, Array
from repro.numerics.elementary import evaluate
from repro.numerics.numpy_fma import fma_f32

Formula = Callable[..., Array]

ONE, TWO, HALF = np.float32(1), np.float32(2), np.float32(0.5)
SQRT_2 = np.float32(2**0.5)
GELU_SCALE = np.float32((2 / np.pi) ** 0.5)
GELU_CUBE = np.float32(0.044715)
LOG2_E, LN_2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)


def _f32(name: str, *operands: Array) -> Array:
    return evaluate(name, list(operands), F32)


def _f64(name: str, *operands: Array) -> Array:
    return evaluate(name, [np.asarray(x, np.float64) for x in operands], F64)


@dataclass(frozen=True)
class Function:
    """`formulas` by name, of operands in f32; `exact` in f64, within some units of f64's last place. `elementary`:
    golden's own result is the correctly rounded one."""

    formulas: Mapping[str, Formula]
    exact: Formula | None = None
    elementary: bool = False


def _elementary(name: str, **formulas: Formula) -> Function:
    spelled = {words.replace("_", " "): formula for words, formula in formulas.items()}
    return Function(spelled, lambda x: _f64(name, x), True)


def _sigmoid(x: Array) -> Array:
    return ONE / (ONE + _f32("exp", -x))


def _sigmoid_by_sign(x: Array) -> Array:
    e = _f32("exp", -np.abs(x))
    return np.where(x >= 0, ONE / (ONE + e), e / (ONE + e))


def _gelu_tanh(x: Array, cube: Array) -> Array:
    return HALF * x * (ONE + _f32("tanh", GELU_SCALE * (x + GELU_CUBE * cube)))


SIGMOIDS: Mapping[str, Formula] = {
    "1 / (1 + exp(-x))": _sigmoid,
    "exp(x) / (1 + exp(x)) below zero": _sigmoid_by_sign,
    "exp(x) / (1 + exp(x))": lambda x: _f32("exp", x) / (ONE + _f32("exp", x)),
    "1 - 1 / (1 + exp(x)) below zero": lambda x: np.where(x >= 0, _sigmoid(np.abs(x)), ONE - _sigmoid(np.abs(x))),
    "tanh(x / 2) / 2 + 1 / 2": lambda x: _f32("tanh", x * HALF) * HALF + HALF,
}

GELUS: Mapping[str, Formula] = {  # a half may stand anywhere: it rounds nothing
    "(0.5 x) (1 + erf(x / sqrt 2))": lambda x: (HALF * x) * (ONE + _f32("erf", x / SQRT_2)),
    "(0.5 x) (1 + erf(x * (1 / sqrt 2)))": lambda x: (HALF * x) * (ONE + _f32("erf", x * np.float32(2**-0.5))),
    "tanh form, x * x * x": lambda x: _gelu_tanh(x, x * x * x),
    "tanh form, x * (1 + 0.044715 x * x)": lambda x: (
        HALF * x * (ONE + _f32("tanh", GELU_SCALE * x * (ONE + GELU_CUBE * x * x)))
    ),
    "tanh form, cube by pow": lambda x: _gelu_tanh(x, _f32("pow", x, np.full_like(x, 3))),
    "x * sigmoid(1.702 x)": lambda x: x * _sigmoid(np.float32(1.702) * x),
}


def _gelu_exact(x: Array) -> Array:
    return 0.5 * x * _f64("erfc", -x / 2**0.5)


FUNCTIONS: Mapping[str, Function] = {
    "Exp": _elementary("exp", exp2_of_x_times_log2_e=lambda x: _f32("exp2", x * LOG2_E)),
    "Log": _elementary("log", log2_of_x_times_ln_2=lambda x: _f32("log2", x) * LN_2),
    **{name: _elementary(name.lower()) for name in ("Sin", "Cos", "Sinh", "Cosh", "Asin", "Acos", "Atan")},
    **{name: _elementary(name.lower()) for name in ("Asinh", "Acosh", "Atanh", "Erf")},
    "Tan": Function({"sin / cos": lambda x: _f32("sin", x) / _f32("cos", x)}, lambda x: _f64("tan", x), True),
    "Tanh": Function(
        {
            "1 - 2 / (exp(2 x) + 1)": lambda x: ONE - TWO / (_f32("exp", TWO * x) + ONE),
            "2 sigmoid(2 x) - 1": lambda x: TWO * _sigmoid(TWO * x) - ONE,
            "(exp(2 x) - 1) / (exp(2 x) + 1)": lambda x: (_f32("exp", TWO * x) - ONE) / (_f32("exp", TWO * x) + ONE),
            "expm1(2 x) / (expm1(2 x) + 2)": lambda x: _f32("expm1", TWO * x) / (_f32("expm1", TWO * x) + TWO),
        },
        lambda x: _f64("tanh", x),
        True,
    ),
    "Sqrt": Function({"x * (1 / sqrt(x))": lambda x: x * _f32("rsqrt", x)}, np.sqrt, True),
    "Reciprocal": Function({}, lambda x: 1 / x, True),
    "Div": Function({"x * (1 / y)": lambda x, y: x * (ONE / y)}, lambda x, y: x / y, True),
    "Pow": Function(
        {
            "repeated products": lambda x, y: _power(x, y),
            "exp(y log(x))": lambda x, y: _f32("exp", y * _f32("log", x)),
            "exp2(y log2(x))": lambda x, y: _f32("exp2", y * _f32("log2", x)),
        },
        lambda x, y: _f64("pow", x, y),
        True,
    ),
    "Sigmoid": Function(SIGMOIDS, lambda x: 1 / (1 + _f64("exp", -x))),
    "Gelu": Function(GELUS, _gelu_exact),
    "FastGelu": Function(GELUS, None),
    **dict.fromkeys(
        ("Swish", "Silu"),
        Function(
            {
                "x * (1 / (1 + exp(-x)))": lambda x: x * _sigmoid(x),
                "x / (1 + exp(-x))": lambda x: x / (ONE + _f32("exp", -x)),
                **{f"x * ({name})": lambda x, form=form: x * form(x) for name, form in SIGMOIDS.items()},
            },
            lambda x: x / (1 + _f64("exp", -x)),
        ),
    ),
    "Softplus": Function(
        {
            "log(1 + exp(x))": lambda x: _f32("log", ONE + _f32("exp", x)),
            "log1p(exp(x))": lambda x: _f32("log1p", _f32("exp", x)),
            "max(x, 0) + log1p(exp(-|x|))": lambda x: np.maximum(x, 0) + _f32("log1p", _f32("exp", -np.abs(x))),
            "max(x, 0) + log(1 + exp(-|x|))": lambda x: np.maximum(x, 0) + _f32("log", ONE + _f32("exp", -np.abs(x))),
        },
        lambda x: np.maximum(x, 0) + _f64("log1p", _f64("exp", -np.abs(x))),
    ),
    "Softsign": Function(
        {"x * (1 / (1 + |x|))": lambda x: x * (ONE / (ONE + np.abs(x)))}, lambda x: x / (1 + np.abs(x))
    ),
    "HardSwish": Function(
        {
            "x * (clip(x + 3, 0, 6) / 6)": lambda x: x * (np.clip(x + np.float32(3), 0, 6) / np.float32(6)),
            "x * clip(x + 3, 0, 6) / 6": lambda x: x * np.clip(x + np.float32(3), 0, 6) / np.float32(6),
            "x * clip(x + 3, 0, 6) * (1 / 6)": lambda x: x * np.clip(x + np.float32(3), 0, 6) * np.float32(1 / 6),
            "x * clip(x / 6 + 1 / 2, 0, 1), fma": lambda x: x * np.clip(_fma(x, np.float32(1 / 6), HALF), 0, 1),
        },
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
    ),
    "Mish": Function(
        {
            "x * tanh(log1p(exp(x)))": lambda x: x * _f32("tanh", _f32("log1p", _f32("exp", x))),
            "x * tanh(log(1 + exp(x)))": lambda x: x * _f32("tanh", _f32("log", ONE + _f32("exp", x))),
        },
        lambda x: x * _f64("tanh", np.maximum(x, 0) + _f64("log1p", _f64("exp", -np.abs(x)))),
    ),
}
"""By operator. Attributes other than the default's leave formulas that do not fit, never one that does by mistake."""

FORMULAS = tuple(FUNCTIONS)


def _fma(x: Array, scale: np.float32, addend: np.float32) -> Array:
    return fma_f32(x, np.full_like(x, scale), np.full_like(x, addend))


def _power(x: Array, y: Array) -> Array:
    """x^2 and x^3 by products, x^0.5 as a root, x^-1 as a reciprocal; the rest NaN."""
    found = np.full_like(x, np.nan)
    for exponent, value in ((2, x * x), (3, x * x * x), (4, (x * x) * (x * x)), (0.5, np.sqrt(x)), (-1, ONE / x)):
        found = np.where(y == np.float32(exponent), value, found)
    return found


def formula(problem: Problem) -> Units:
    function = FUNCTIONS[problem.node.op_type]
    shape = problem.golden.shape
    given = [problem.arrays[name] for name in problem.node.input if name]
    if any(array.dtype != np.float32 for array in given):
        raise NotCoveredError("operands that are not f32")
    operands = [np.broadcast_to(array, shape) for array in given]

    def at(units: Array) -> list[Array]:
        place = np.unravel_index(units, shape)
        return [operand[place] for operand in operands]

    def candidates(units: Array) -> Iterator[Candidate]:
        addend, finish = epilogue(problem, units)
        values = at(units)
        for name, compute in _all_formulas(function):

            def result(compute: Formula = compute) -> Array:
                made = compute(*values)
                return finish(made if addend is None else made + addend)

            yield Candidate(name, result)

    def remarks(units: Array) -> Sequence[tuple[str, str]]:
        if problem.after or function.exact is None:
            return ()
        exact = function.exact(*(value.astype(np.float64) for value in at(units))).astype(np.float32)
        return _remarks(function, exact, *(array.reshape(-1)[units] for array in (problem.golden, problem.theirs)))

    return Units(problem.golden.reshape(-1), problem.theirs.reshape(-1), candidates, 1, remarks)


def _all_formulas(function: Function) -> Iterator[tuple[str, Formula]]:
    yield from function.formulas.items()
    exact = function.exact
    if exact is not None and not function.elementary:
        yield "exact value, rounded once", lambda *x: exact(*(each.astype(np.float64) for each in x)).astype(np.float32)


def _remarks(function: Function, exact: Array, golden: Array, theirs: Array) -> Sequence[tuple[str, str]]:
    """How far from the true value: a function of golden's is exact, a composite's is rounded in each step."""
    if function.elementary:
        distance = ulps(golden, theirs)
        words = f"not correctly rounded (up to {int(distance.max())} ULP)"
        return [(words, f"{int((distance > 0).sum())} of {distance.size} sampled elements")]
    far, own = (_apart(exact, side) for side in (theirs, golden))
    words = f"another formula or function: {MOST} % within {far} of the exact value"
    return [(words, f"{exact.size} sampled elements; repro's within {own}")]


def _apart(exact: Array, side: Array) -> str:
    """In ULP, or where those say little, since tiny results were cut off, as a difference."""
    far = int(np.percentile(ulps(exact, side), MOST, method="higher"))
    if far <= MOST_ULPS:
        return f"{far} ULP"
    differences = np.abs(exact.astype(np.float64) - side.astype(np.float64))
    return f"{np.percentile(differences, MOST, method='higher'):.1e}"


MOST_ULPS = 1000
MOST = 99
"""Percent of the elements: where a formula cancels, a few results are far from the exact ones in any runtime."""


# ── batch normalization ─────────────────────────────────────────────────────────────────────────────


def batch_normalization(problem: Problem) -> Units:
    data, scale, bias, mean, variance = (problem.required(position) for position in range(5))
    if problem.attribute("training_mode", 0):
        raise NotCoveredError("training mode")
    epsilon = problem.attribute("epsilon", 1e-5)

    def candidates(units: Array) -> Iterator[Candidate]:
        place = np.unravel_index(units, problem.golden.shape)
        addend, finish = epilogue(problem, units)
        if addend is not None:
            raise NotCoveredError("Add fused behind it")
        x, (g, b, m, v) = data[place], (array[place[1]] for array in (scale, bias, mean, variance))
        for (words, deviation), (name, compute) in product(DEVIATIONS.items(), BATCH_NORMALIZATIONS.items()):
            d = deviation(v, epsilon)
            yield Candidate(f"{name}{words}", lambda compute=compute, d=d: finish(compute(x, g, b, m, d)))
        reciprocal = (1 / np.sqrt(v.astype(np.float64) + epsilon)).astype(np.float32)
        for name, compute in INVERTED.items():
            words = f"{name}, r = 1 / deviation in f64"
            yield Candidate(words, lambda compute=compute: finish(compute(x, g, b, m, reciprocal)))

    return Units(problem.golden.reshape(-1), problem.theirs.reshape(-1), candidates, 1)


ROUNDED: Mapping[str, Formula] = {"": lambda x, y, z: x * y + z, ", fma": fma_f32}
"""x * y + z, as two operations or as one."""


def _direct() -> Iterator[tuple[str, Formula]]:
    yield "(x - mean) / deviation * scale + bias", lambda x, g, b, m, d: (x - m) / d * g + b
    yield "(x - mean) * (1 / deviation) * scale + bias", lambda x, g, b, m, d: (x - m) * (ONE / d) * g + b
    yield "scale * (x - mean) / deviation + bias", lambda x, g, b, m, d: g * (x - m) / d + b


FACTORS: Mapping[str, Formula] = {
    "scale / deviation": lambda g, d: g / d,
    "scale * (1 / deviation)": lambda g, d: g * (ONE / d),
}


def _by_factor() -> Iterator[tuple[str, Formula]]:
    for words, factor in FACTORS.items():
        for fused, add in ROUNDED.items():
            shifted = f"(x - mean) * ({words}) + bias{fused}"
            yield shifted, lambda x, g, b, m, d, a=factor, add=add: add(x - m, a(g, d), b)
            for inner, add_inner in ROUNDED.items():
                affine = f"x * a + (bias - mean * a{inner}), a = {words}{fused}"
                yield affine, lambda x, g, b, m, d, a=factor, add=add, i=add_inner: add(x, a(g, d), i(-m, a(g, d), b))


BATCH_NORMALIZATIONS: Mapping[str, Formula] = dict([*_direct(), *_by_factor()])
"""Of x, scale g, bias b, mean m and deviation d."""
DEVIATIONS: Mapping[str, Formula] = {
    "": lambda v, epsilon: np.sqrt(v + np.float32(epsilon)),
    ", deviation in f64": lambda v, epsilon: np.sqrt(v.astype(np.float64) + epsilon).astype(np.float32),
}


def _inverted() -> Iterator[tuple[str, Formula]]:
    for fused, add in ROUNDED.items():
        for inner, add_inner in ROUNDED.items():
            affine = f"x * a + (bias - mean * a{inner}), a = scale * r{fused}"
            yield affine, lambda x, g, b, m, r, add=add, i=add_inner: add(x, g * r, i(-m, g * r, b))


INVERTED: Mapping[str, Formula] = dict(_inverted())
"""Of x, scale g, bias b, mean m and r, the deviation's reciprocal."""
