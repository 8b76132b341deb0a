"""Whose payload a NaN has on a chip reaches no output: programs give the reference's bytes whatever it is (rule 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from passes import pipeline
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, F64, I32, Array, TensorType
from repro.machines import SM_80
from repro.ops import add, bitcast_to, canonical_nan, convert_to, div, elementwise, maximum, minimum, mul, sub
from repro.ops.record import evaluate
from repro.targets.gpu import codes
from repro.targets.gpu.interpreter import arithmetic, grid
from repro.targets.gpu.interpreter.executable import InterpretedExecutable
from tests.targets.test_gpu_blocks import GRAPHS

EDGES = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41, -1.5)
PAYLOADS = {
    "one for all": {4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF},
    "negative": {4: 0xFFC12345, 8: 0xFFF8000000012345},
}
"""The first is what the PTX ISA says of results in f32 ("canonical NaN")."""


def elements() -> Graph:
    """Results that are NaN for many reasons, and the bits of one."""
    kind = TensorType(F32, (64,))
    x, y = argument(0, kind), argument(1, kind)
    wide = convert_to(x, F64)
    made = [f(x, y) for f in (add, sub, mul, div, maximum, minimum)]
    made += [elementwise(name, x) for name in ("exp", "sqrt", "tanh")]
    made += [mul(wide, wide), convert_to(div(wide, wide), F32)]
    return Graph((kind, kind), (*map(canonical_nan, made), bitcast_to(canonical_nan(sub(x, y)), I32)))


@pytest.fixture(params=PAYLOADS)
def payload(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation that rounds, and every least or greatest, gives NaNs of one payload."""
    bits = PAYLOADS[request.param]

    def marked(function: Callable[..., Array]) -> Callable[..., Array]:
        def run(*operands: Array) -> Array:
            found = np.array(function(*operands))
            size = found.dtype.itemsize
            found.view(f"u{size}")[np.isnan(found)] = bits[size]
            return found

        return run

    names = ("add", "sub", "mul", "div", "fma", "sqrt", "rcp", "min", "max")
    known = dict(arithmetic._TABLE)
    for words, operation in known.items():
        if words[0] in names and operation.result.kind == "f":
            known[words] = replace(operation, function=marked(operation.function))
    assert sum(known[words] is not arithmetic._TABLE[words] for words in known) > 20
    monkeypatch.setattr(arithmetic, "_TABLE", known)
    monkeypatch.setattr(grid, "_decoded", grid._decoded.__wrapped__)


@pytest.mark.usefixtures("payload")
@pytest.mark.parametrize("name", ["elements", "masked", "norm"])
def test_no_payload_is_seen(name: str) -> None:
    graph = elements() if name == "elements" else GRAPHS[name]()
    generator = np.random.default_rng(7)
    inputs = [generator.standard_normal(kind.shape).astype(np.float32) for kind in graph.arguments]
    inputs[0].reshape(-1)[: len(EDGES)] = EDGES
    if name == "elements":
        inputs[1].reshape(-1)[: len(EDGES)] = EDGES[::-1]
    wanted = [
        np.where(np.isnan(x), x.dtype.type(np.nan), x) if x.dtype.kind == "f" else x
        for x in evaluate(graph, inputs, ())
    ]
    program = pipeline.run(graph).program
    found = InterpretedExecutable(program, codes(program, SM_80), ()).run(inputs)
    assert any(np.isnan(each).any() for each in wanted)
    assert [each.tobytes() for each in found[: len(wanted)]] == [each.tobytes() for each in wanted]
