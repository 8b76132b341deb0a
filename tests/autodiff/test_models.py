"""Gradients of whole models: every float parameter in f64 by central differences, and in f32 as native code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from repro.autodiff import cotangents, obstacles
from repro.frontend import Imported, import_model, load_model
from repro.ir.graph import Graph, Value, argument
from repro.ir.types import Array
from repro.ops import canonical_nan
from repro.ops.record import evaluate
from repro.targets import cpu
from tests.autodiff.differences import STEP, widened
from tests.running import run_on_cpu

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
TOLERANCE = 1e-6
WITHOUT = {"digits_mlp": 0, "digits_cnn": 2, "nano_gpt": 0}
"""Parameters without a gradient: in training, the running statistics of a BatchNormalization."""


def imported(name: str) -> Imported:
    return import_model(load_model(str(GOLDEN / name / "forward.onnx")), bind={"N": 4} if "digits" in name else {})


def parameters_of(graph: Graph) -> list[Value]:
    return [node.value for node in graph.nodes if node.op == "parameter"]


def inputs_of(graph: Graph, generator: np.random.Generator) -> list[Array]:
    return [
        generator.standard_normal(kind.shape).astype(kind.dtype.storage)
        if kind.dtype.is_float
        else generator.integers(0, 8, kind.shape).astype(kind.dtype.storage)
        for kind in graph.arguments
    ]


def gradients(graph: Graph) -> tuple[Graph, list[int]]:
    """The cotangents of the parameters that have one, from the arguments and one cotangent per result; their slots."""
    first = len(graph.arguments)
    seeds = [argument(first + number, value.type) for number, value in enumerate(graph.results)]
    wanted = parameters_of(graph)
    found = cotangents(list(zip(graph.results, seeds, strict=True)), wanted)
    kept = [(value.node["identity"], made) for value, made in zip(wanted, found, strict=True) if made is not None]
    kinds = (*graph.arguments, *(seed.type for seed in seeds))
    return Graph(kinds, tuple(canonical_nan(made) for _, made in kept)), [slot for slot, _ in kept]


def worst_error(name: str) -> float:
    """Over the parameters: |difference quotient - slope| along a random direction, over the sum of the terms' sizes.

    A slope that is zero by the model's own algebra (a bias before a normalization) is measured against 1e-3 of the
    results' sizes.
    """
    model = imported(name)
    graph, generator = widened(model.graph), np.random.default_rng(4)
    inputs = [array.astype(np.float64) if array.dtype == np.float32 else array for array in inputs_of(graph, generator)]
    state = [np.asarray(slot.initial, np.float64) for slot in model.parameters]
    values = evaluate(graph, inputs, state)
    seeds = [generator.standard_normal(array.shape) for array in values]
    scale = sum(float(np.abs(seed * value).sum()) for seed, value in zip(seeds, values, strict=True))
    made, slots = gradients(graph)
    assert len(parameters_of(graph)) - len(slots) == WITHOUT[name]
    worst = 0.0
    for slot, slope in zip(slots, evaluate(made, [*inputs, *seeds], state), strict=True):
        direction = generator.standard_normal(slope.shape)

        def moved(step: float, slot: int = slot, direction: Array = direction) -> float:
            there = [*state[:slot], state[slot] + step * direction, *state[slot + 1 :]]
            results = evaluate(graph, inputs, there)
            return sum(float((seed * value).sum()) for seed, value in zip(seeds, results, strict=True))

        quotient = (moved(STEP) - moved(-STEP)) / (2 * STEP)
        terms = slope * direction
        worst = max(worst, abs(quotient - float(terms.sum())) / max(float(np.abs(terms).sum()), 1e-3 * scale))
    return worst


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn"])
def test_every_parameter_has_its_slope(name: str) -> None:
    assert worst_error(name) < TOLERANCE


@pytest.mark.full
def test_every_parameter_of_a_transformer_has_its_slope() -> None:
    assert worst_error("nano_gpt") < TOLERANCE


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn", pytest.param("nano_gpt", marks=pytest.mark.full)])
@pytest.mark.parametrize("threads", [1, 3])
def test_native_code_gives_the_gradients_of_the_reference(name: str, threads: int) -> None:
    model = imported(name)
    made, _ = gradients(model.graph)
    generator = np.random.default_rng(9)
    operands = inputs_of(made, generator)
    state = [slot.initial for slot in model.parameters]
    machine = cpu.best_machine()
    assert machine is not None
    expected = evaluate(made, operands, state)
    found = run_on_cpu(made, operands, state, machine, threads)
    assert len(expected) > 5
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.tobytes() == wanted.tobytes()


def test_running_statistics_have_no_gradient_in_training() -> None:
    """They do not reach the model's own output at all, so nothing stands in their way either."""
    graph = imported("digits_cnn").graph
    seed = argument(len(graph.arguments), graph.results[0].type)
    wanted = parameters_of(graph)
    found = cotangents([(graph.results[0], seed)], wanted)
    without = [value for value, made in zip(wanted, found, strict=True) if made is None]
    assert len(without) == WITHOUT["digits_cnn"]
    assert all(obstacles(graph.results, value) == () for value in without)
