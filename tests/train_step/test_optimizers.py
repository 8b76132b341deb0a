"""Five steps of each optimizer against PyTorch's recorded float64 values, and what the options refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repro.errors import ReproError
from repro.train_step.clipping import clipped
from repro.train_step.optimizers import OPTIMIZERS, Optimizer
from repro.train_step.options import choose
from tests.train_step import record_torch as cases
from tests.train_step.running import arguments, results

RECORD = np.load(cases.RECORD)


def steps(optimizer: Optimizer, start: list[Any], slopes: list[list[Any]], rate: float) -> list[Any]:
    """The parameters after each step, by the reference."""
    values = [np.asarray(value) for value in start]
    state = [[np.full_like(value, slot.initial) for slot in optimizer.slots] for value in values]
    rows: list[Any] = []
    for number, given in enumerate(slopes, 1):
        for order, slope in enumerate(given):
            arrays = [values[order], np.asarray(slope), *state[order], np.float64(rate), np.int64(number)]
            p, g, *held, r, t = arguments(arrays)
            after, kept = optimizer.update(p, g, held, r, t)
            assert [value.type for value in (after, *kept)] == [value.type for value in (p, *held)]
            values[order], *state[order] = results((after, *kept), arrays)
        rows.append(cases.flat(values))
    return rows


@pytest.mark.parametrize("case", cases.OPTIMIZERS)
def test_five_steps_are_those_of_pytorch(case: str) -> None:
    kind, options, _, _ = cases.OPTIMIZERS[case]
    optimizer = choose("optimizer", OPTIMIZERS, kind, options)
    assert optimizer.default_rate == float(RECORD[f"rate/{case}"])
    found = np.stack(steps(optimizer, *cases.optimizer_operands(), optimizer.default_rate))
    expected = RECORD[f"optimizer/{case}"]
    assert found.shape == expected.shape == (cases.STEPS, 17)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_every_optimizer_has_a_case() -> None:
    assert {kind for kind, *_ in cases.OPTIMIZERS.values()} == set(OPTIMIZERS)


@pytest.mark.parametrize("case", cases.OPTIMIZERS)
def test_f32_steps_stay_close(case: str) -> None:
    """Bias corrections in f64: in f32 the first steps of Adam would be off by 1e-5."""
    kind, options, _, _ = cases.OPTIMIZERS[case]
    optimizer = choose("optimizer", OPTIMIZERS, kind, options)
    start, slopes = cases.optimizer_operands()
    narrow = [[np.float32(slope) for slope in given] for given in slopes]
    found = steps(optimizer, [np.float32(value) for value in start], narrow, optimizer.default_rate)
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(np.stack(found), RECORD[f"optimizer/{case}"], rtol=2e-6, atol=2e-6)


@pytest.mark.full
def test_the_record_is_what_this_pytorch_computes() -> None:
    pytest.importorskip("torch")
    found = cases.expected()
    assert set(found) == set(RECORD.files)
    for name, value in found.items():
        rounding = 1e-9 if name.startswith("digits") else 1e-13  # products of matrices depend on the CPU
        np.testing.assert_allclose(value, RECORD[name], rtol=rounding, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("case", cases.CLIPPING)
def test_clipping_is_that_of_pytorch(case: str) -> None:
    _, slopes = cases.optimizer_operands()
    found = results(clipped(arguments(slopes[0]), cases.CLIPPING[case]), slopes[0])
    np.testing.assert_allclose(cases.flat(found), RECORD[f"clip/{case}"], rtol=1e-14)
    if case == "below":
        assert all(a.tobytes() == np.asarray(b).tobytes() for a, b in zip(found, slopes[0], strict=True))


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("adamax", {}, "no optimizer of this name"),
        ("sgd", {"beta1": 0.9}, "no such option"),
        ("adam", {"beta1": 1.0}, "beta1 is out of range"),
        ("adam", {"epsilon": float("nan")}, "epsilon is out of range"),
        ("adamw", {"weight_decay": -0.1}, "weight_decay is out of range"),
        ("nesterov", {"dampening": 0.5}, "no dampening"),
        ("momentum", {"momentum": float("inf")}, "momentum is out of range"),
        ("rmsprop", {"alpha": -1}, "alpha is out of range"),
        ("adagrad", {"lr_decay": -1}, "lr_decay is out of range"),
    ],
)
def test_wrong_options_are_refused(kind: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ReproError, match=said):
        choose("optimizer", OPTIMIZERS, kind, options)
