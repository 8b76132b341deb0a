"""Gradients of every golden model against PyTorch's recorded float64 values, in f32 as native code and in f64.

An error is relative to the largest magnitude of the tensor's gradient. The gradient of a bias before a normalization is
zero by algebra: there the largest of the model's gradients is the measure.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from repro.frontend import EntryGraph, import_model, load_model
from repro.frontend.training_info import training_step
from repro.ir.types import Array
from repro.ops.record import evaluate
from repro.targets import cpu
from repro.train_step import gradients, training_of
from tests.autodiff import record_models as cases
from tests.autodiff.differences import widened
from tests.running import run_on_cpu

RECORD = np.load(cases.RECORD)
F32_LIMIT, F32_PRODUCTS_LIMIT, F64_LIMIT = 2e-5, 1e-6, 1e-12
"""The first is that of the record's integers; native code is within 8e-7 of PyTorch."""
F64_GPT_LIMIT = 3e-8
"""Gelu's root of two is a constant of f32, in f64 too: 1.7e-8 off PyTorch's."""
QUANTUM = 0.51 / cases.UNITS
"""How far the record's integers may be off, relative to the largest."""
INFO = "digits_mlp_training_info"


@cache
def entry_of(name: str) -> EntryGraph:
    """A graph whose results are the loss and `<initializer>.grad` of each initializer."""
    path = str(cases.GOLDEN / cases.FILES[name])
    if name == INFO:  # the model's own step, its gradients made outputs of it
        proto = onnx.load(path)
        algorithm = proto.training_info[0].algorithm
        algorithm.output.extend(onnx.ValueInfoProto(name=f"{key}.grad") for key in cases.initializers(name))
        return training_step(load_model(proto), {"N": cases.ROWS}).entry
    imported = import_model(load_model(path), {"N": cases.ROWS} if "digits" in name else {})
    return gradients(imported, training_of({"loss": "softmax_cross_entropy"}))


def by_parameter(name: str, entry: EntryGraph, results: Any) -> dict[str, Any]:
    """The loss, and the gradients by the name and in the shape that PyTorch's parameters have."""
    found = {port.name: array for port, array in zip(entry.outputs, results, strict=False)}
    made = {"loss": found["loss"]}
    own, torch_like = cases.initializers(name), cases.initializers(cases.RECORDED[name])
    for key, array in own.items():
        if "running" in key:
            continue
        slope = found[f"{key}.grad"]
        if key in torch_like:
            made[key] = slope
        else:  # the exporter has transposed it, and named it anew
            same = [other for other, known in torch_like.items() if np.array_equal(known.T, array)]
            assert len(same) == 1, key
            made[same[0]] = slope.T
    return made


def recorded(name: str) -> dict[str, tuple[Any, float, Any]]:
    """By parameter: the gradient within QUANTUM, its largest magnitude, its exact products."""
    start = f"{cases.RECORDED[name]}/"
    keys = [key.removeprefix(start).rpartition("/")[0] for key in RECORD.files if key.startswith(start)]
    found: dict[str, tuple[Any, float, Any]] = {}
    for key in dict.fromkeys(key for key in keys if key):
        largest = float(RECORD[f"{start}{key}/largest"])
        units = RECORD[f"{start}{key}/units"].astype(np.float64)
        found[key] = (units * (largest / cases.UNITS), largest, RECORD[f"{start}{key}/products"])
    return found


def check(name: str, found: dict[str, Any], limit: float, products_limit: float) -> None:
    """Every element within the limit, and the products of each tensor within theirs."""
    expected = recorded(name)
    assert found.keys() == {"loss", *expected}
    assert len(expected) >= 6
    np.testing.assert_allclose(found["loss"], RECORD[f"{cases.RECORDED[name]}/loss"], rtol=limit)
    overall = max(largest for _, largest, _ in expected.values())
    for key, (exact, largest, products) in expected.items():
        zero = key in cases.ZERO.get(cases.RECORDED[name], ())
        assert (largest == 0) == zero
        scale = overall if zero else largest
        assert found[key].shape == exact.shape
        assert np.abs(found[key] - exact).max() <= max(limit, QUANTUM) * scale, key
        difference = cases.products(found[key]) - products
        assert np.abs(difference).max() <= products_limit * scale * found[key].size ** 0.5, key


@pytest.mark.parametrize("name", cases.FILES)
def test_native_gradients_are_those_of_pytorch(name: str) -> None:
    entry, machine = entry_of(name), cpu.best_machine()
    assert machine is not None
    state: list[Array] = [slot.initial for slot in entry.parameters]
    inputs = [np.asarray(array) for array in cases.batch(cases.RECORDED[name])]
    results = run_on_cpu(entry.graph, inputs, state, machine, 2)
    found = by_parameter(name, entry, results)
    assert all(array.dtype == np.float32 for array in found.values())
    check(name, found, F32_LIMIT, F32_PRODUCTS_LIMIT)


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


@pytest.mark.parametrize("name", cases.FILES)
def test_gradients_in_float64_are_those_of_pytorch(name: str) -> None:
    entry = entry_of(name)
    state = [_wide(slot.initial) for slot in entry.parameters]
    inputs = [_wide(np.asarray(array)) for array in cases.batch(cases.RECORDED[name])]
    results = evaluate(widened(entry.graph), inputs, state)
    found = by_parameter(name, entry, results)
    assert all(array.dtype == np.float64 for array in found.values())
    limit = F64_GPT_LIMIT if "gpt" in name else F64_LIMIT
    check(name, found, limit, limit)


@pytest.mark.parametrize("name", cases.MODELS)
def test_the_record_is_what_this_pytorch_computes(name: str) -> None:
    pytest.importorskip("torch")
    found = cases.recorded(cases.gradients(name), name)
    assert found.keys() == {key for key in RECORD.files if key.startswith(f"{name}/")}
    for key, value in found.items():
        if key.endswith("/units"):
            assert np.abs(value.astype(int) - RECORD[key]).max() <= 1, key  # half a unit can round either way
        else:
            np.testing.assert_allclose(value, RECORD[key], rtol=1e-8, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("error", [0.0, 3e-5])
def test_one_wrong_element_is_found(error: float) -> None:
    """An element of a gradient that is off by 3e-5 of the largest."""
    found: dict[str, Any] = {"loss": RECORD["digits_mlp/loss"]}
    found |= {key: np.array(exact) for key, (exact, _, _) in recorded("digits_mlp").items()}
    largest = recorded("digits_mlp")["fc2.weight"][1]
    found["fc2.weight"][5, 7] += error * largest
    if not error:
        check("digits_mlp", found, F32_LIMIT, 1.0)
        return
    with pytest.raises(AssertionError, match=r"fc2\.weight"):
        check("digits_mlp", found, F32_LIMIT, 1.0)
