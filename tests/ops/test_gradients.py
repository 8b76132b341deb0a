"""Every op record's gradient: against central differences in f64, and as native code against the reference."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from repro.ir.graph import Graph, Node, Value, argument
from repro.ir.types import BF16, F16, F32, Array, DType, TensorType
from repro.ops import OPS, canonical_nan, convert_to, elementwise
from repro.ops.composite_gradients import activations
from repro.ops.elementwise_gradients import LN_2, LN_10, TWO_OVER_ROOT_PI
from repro.ops.record import Gradient, NotDifferentiable, Sample, evaluate
from repro.targets import cpu
from tests.autodiff.differences import disagreement, float_leaves, gradient_graph, widened
from tests.ops.samples import SAMPLES, draw
from tests.running import run_on_cpu

TOLERANCE = 1e-6

DOMAINS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "pow"), (0.5, 3.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.9, 0.9)),
    "log1p": (-0.5, 3.0),
    "acosh": (1.2, 4.0),
    "tan": (-1.2, 1.2),
}
"""Where a function is smooth. Elsewhere operands are of either sign and 0.6 to 1.6 in size: off the kinks at 0."""


def graph_of(sample: Sample) -> Graph:
    arguments = [argument(index, kind) for index, kind in enumerate(sample.operands)]
    return Graph(sample.operands, (sample.build(*arguments),))


def has_gradient(name: str, sample: Sample) -> bool:
    """Whether floats of a type that computes go in and come out, through an op that has a gradient."""
    if isinstance(OPS[name].gradient, NotDifferentiable):
        return False
    result = graph_of(sample).results[0].dtype
    return result.is_float and result.computes and any(k.dtype.is_float and k.dtype.computes for k in sample.operands)


CASES = [case for case in SAMPLES if has_gradient(case[0], case[2])]
IDS = [f"{name}-{number}" for name, number, _ in CASES]


def smooth(name: str, sample: Sample, generator: np.random.Generator) -> list[Array]:
    """Operands away from kinks, the floats in f64."""
    made: list[Array] = []
    for kind, limits in zip(sample.operands, sample.ranges or (None,) * len(sample.operands), strict=True):
        if not kind.dtype.is_float:
            made.append(draw(kind, limits, generator))
        elif name in DOMAINS:
            made.append(generator.uniform(*DOMAINS[name], kind.shape))
        else:
            made.append(generator.uniform(0.6, 1.6, kind.shape) * generator.choice([-1.0, 1.0], kind.shape))
    return made


def generator_of(name: str, number: int) -> np.random.Generator:
    return np.random.default_rng([number, *name.encode()])


def error_of(name: str, number: int, sample: Sample) -> float:
    generator = generator_of(name, number)
    graph = widened(graph_of(sample))
    return disagreement(graph, smooth(name, sample, generator), generator, float_leaves(graph))


def test_every_op_states_a_gradient_or_why_it_has_none() -> None:
    refused = {name: op.gradient.reason for name, op in OPS.items() if isinstance(op.gradient, NotDifferentiable)}
    assert all(len(reason) > 5 for reason in refused.values())
    tested = {name for name, _, _ in CASES}
    assert set(OPS) - tested - set(refused) == set()
    assert len(CASES) > 100


@pytest.mark.parametrize(("name", "number", "sample"), CASES, ids=IDS)
def test_the_rule_gives_the_slope(name: str, number: int, sample: Sample) -> None:
    assert error_of(name, number, sample) < TOLERANCE


@contextmanager
def gradient_replaced(name: str, gradient: Gradient) -> Generator[None]:
    known = OPS[name]
    OPS[name] = replace(known, gradient=gradient)
    try:
        yield
    finally:
        OPS[name] = known


WRONG: dict[str, Callable[[Node, tuple[Value, ...]], tuple[Value | None, ...]]] = {
    "neg": lambda _, g: (g[0],),
    "mul": lambda node, g: (elementwise("mul", g[0], node.operands[0]), elementwise("mul", g[0], node.operands[1])),
    "max": lambda _, g: (g[0], g[0]),
    "sub": lambda _, g: (g[0], None),
    "sqrt": lambda node, g: (elementwise("div", g[0], node.value),),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found(name: str) -> None:
    sample = next(sample for op, _, sample in CASES if op == name)
    assert error_of(name, 0, sample) < TOLERANCE
    with gradient_replaced(name, WRONG[name]):
        assert error_of(name, 0, sample) > 1e-3


@pytest.mark.parametrize(("name", "number", "sample"), CASES, ids=IDS)
def test_native_code_gives_the_gradient_of_the_reference(name: str, number: int, sample: Sample) -> None:
    machine = cpu.best_machine()
    assert machine is not None
    forward = graph_of(sample)
    made, reached = gradient_graph(forward, float_leaves(forward))
    assert reached
    made = Graph(made.arguments, tuple(canonical_nan(value) for value in made.results))
    generator = generator_of(name, number)
    ranges = (*(sample.ranges or (None,) * len(sample.operands)), None)
    operands = [draw(kind, limits, generator) for kind, limits in zip(made.arguments, ranges, strict=True)]
    expected = evaluate(made, operands)
    found = run_on_cpu(made, operands, (), machine)
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("narrow", [F16, BF16], ids=str)
def test_the_cotangent_of_a_narrow_float_is_narrow(narrow: DType) -> None:
    kind = TensorType(narrow, (4,))
    made, reached = gradient_graph(Graph((kind,), (convert_to(argument(0, kind), F32),)), [0])
    assert reached == [0]
    assert made.types == (kind,)


def test_constants_are_the_nearest_floats() -> None:
    """Of f64, and rounded again of f32."""
    with mpmath.workdps(60):
        exact = {
            LN_2: mpmath.log(2),
            LN_10: mpmath.log(10),
            TWO_OVER_ROOT_PI: 2 / mpmath.sqrt(mpmath.pi),
            activations.ONE_OVER_ROOT_TWO_PI: 1 / mpmath.sqrt(2 * mpmath.pi),
        }
        for stated, value in exact.items():
            assert stated == float(value)
            near = np.float32(stated)
            for other in (np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(9))):
                assert abs(mpmath.mpf(float(near)) - value) < abs(mpmath.mpf(float(other)) - value)


EDGES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("asin", "acos", "atanh"), (-1 + 2**-20, 0.999, 1 - 2**-23)),
    "acosh": (1 + 2**-20, 1.001, 1e5),
    "expm1": (-60.0, -20.0, 1e-9),
    "log1p": (-1 + 2**-20, 1e-9, 1e9),
    "atan": (1e-9, 1e6, 1e9),
    "asinh": (1e-9, 1e6, 1e9),
    "cbrt": (1e-30, -1e-9, 1e30),
    "rsqrt": (1e-12, 1e-3, 1e12),
    "erfc": (-3.0, 3.0, 4.0),
}


@pytest.mark.parametrize("name", EDGES)
def test_nothing_cancels_at_the_edge_of_a_domain(name: str) -> None:
    """In f32, 2e-6 of the slope in f64 at the very same argument; 1 - x * x would be off by parts in a hundred."""
    x = np.array(EDGES[name], np.float32)
    kind = TensorType(F32, x.shape)
    forward = Graph((kind,), (elementwise(name, argument(0, kind)),))
    (narrow,) = evaluate(gradient_graph(forward, [0])[0], [x, np.ones_like(x)])
    wide = gradient_graph(widened(forward), [0])[0]
    (exact,) = evaluate(wide, [x.astype(np.float64), np.ones(x.shape)])
    np.testing.assert_allclose(narrow, exact, rtol=2e-6)
