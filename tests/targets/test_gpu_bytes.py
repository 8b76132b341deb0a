"""Contractions of integers on the GPU: in tiles, those of bytes by their instruction, with the reference's bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

from repro.ir.contraction import find
from repro.ir.program import Call, walk
from repro.ir.types import Array
from repro.machines import SM_80
from repro.targets import registry
from repro.targets.gpu import GpuKernel, codes
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from tests.passes.test_byte_products import convolutions, drawn, lowered, model

DP4A = "dp4a.u32.s32"


def check(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[GpuKernel]:
    """The interpreted PTX against the reference, byte by byte; gives the code of the contractions."""
    program, flat, wanted = lowered(proto, inputs)
    program = registry.code_target("gpu").shape(program)
    made = codes(program, SM_80)
    runner = InterpretedExecutable(program, made, [])
    found = [array.tobytes() for array in runner.run(flat)]
    runner.close()
    assert found[:1] == wanted[:1]
    return [code for kernel, code in zip(program.kernels, made, strict=False) if find(kernel) is not None]


@pytest.mark.parametrize("kinds", ["ui", "uu", "ii", "iu"])
@pytest.mark.parametrize("fixed", [("b", "zb"), (), ("a", "za")], ids=lambda names: "-".join(names))
@pytest.mark.parametrize(("m", "n", "k"), [(17, 40, 67), (33, 20, 600), (64, 64, 128)])
def test_products_of_matrices_of_bytes(kinds: str, fixed: tuple[str, ...], m: int, n: int, k: int) -> None:
    left, right = (np.uint8 if kind == "u" else np.int8 for kind in kinds)
    inputs = {
        "a": drawn(1, (m, k), left),
        "b": drawn(2, (k, n), right),
        "za": drawn(3, (), left),
        "zb": drawn(4, (), right),
    }
    (code,) = check(model("MatMulInteger", inputs, fixed), inputs)
    assert code.schedule.startswith("tile=")
    assert DP4A in code.ptx


def test_quads_of_weights_are_made_at_load() -> None:
    inputs = {"a": drawn(1, (17, 68), np.uint8), "b": drawn(2, (68, 40), np.int8), "za": drawn(3, (), np.uint8)}
    program, *_ = lowered(model("MatMulInteger", inputs, ["b", "za"]), inputs)
    shaped = registry.code_target("gpu").shape(program)
    made = {shaped.kernels[call.kernel].digest for call in shaped.once}
    assert made
    assert not made & {shaped.kernels[step.kernel].digest for step in walk(shaped.steps) if isinstance(step, Call)}


@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ((2, 8, 9, 9), (20, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 3, 17, 15), (16, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
        ((1, 64, 7, 7), (24, 64, 1, 1), {}),
        ((1, 12, 8, 8), (48, 4, 3, 3), {"group": 3, "pads": [0, 1, 2, 0]}),
        ((2, 70, 6, 6), (33, 70, 3, 3), {"pads": [1, 1, 1, 1]}),
    ],
    ids=["3x3", "7x7 stride", "1x1", "groups", "odd channels"],
)
@pytest.mark.parametrize("zero", [0, 131])
def test_convolutions_of_bytes(zero: int, shape: Sequence[int], weights: Sequence[int], attributes: Any) -> None:
    """Blanks are the zero point, whatever it is."""
    inputs = {
        "x": drawn(1, shape, np.uint8),
        "w": drawn(2, weights, np.int8),
        "zx": np.array(zero, np.uint8),
        "zw": np.array(0, np.int8),
    }
    found = check(model("ConvInteger", inputs, ("w", "zx", "zw"), **attributes), inputs)
    assert [code.schedule.partition("=")[0] for code in found] == ["tile"]


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.UINT32, TensorProto.INT64])
def test_products_of_wide_integers_wrap(dtype: int) -> None:
    storage = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
    limits, random = np.iinfo(storage), np.random.default_rng(5)
    inputs = {
        name: random.integers(limits.min, limits.max, shape, storage, endpoint=True)
        for name, shape in (("a", (24, 700)), ("b", (700, 40)))
    }
    given = [helper.make_tensor_value_info(name, dtype, array.shape) for name, array in inputs.items()]
    out = helper.make_tensor_value_info("y", dtype, (24, 40))
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "wide", given, [out])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (code,) = check(proto, inputs)
    assert code.schedule.startswith("tile=")


@settings(max_examples=15, deadline=None)
@given(convolution=convolutions())
def test_random_convolutions_of_bytes(convolution: tuple[onnx.ModelProto, dict[str, Array]]) -> None:
    check(*convolution)
