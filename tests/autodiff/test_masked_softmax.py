"""Rows that are wholly masked are rows of NaN in a Softmax, of which a selection makes 0: so exporters write attention.
Their gradient is +0, as PyTorch's own is, and all other rows keep the bits of the plain Softmax's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper, parser

import repro
from repro.artifact.checks import Status
from repro.frontend import import_model, load_model
from repro.ir.graph import Graph
from repro.ir.types import Array
from repro.machines import CPUS
from repro.ops.record import evaluate
from repro.targets.cpu.host import runs_here
from repro.train_step import gradients, training_of
from tests.autodiff.differences import gradient_graph, widened

SHAPE = (2, 2, 5, 4)
RANDOM = np.random.default_rng(5)
HEADS: dict[str, Any] = {name: RANDOM.standard_normal(SHAPE).astype(np.float32) for name in "qkv"}
LABELS: Any = RANDOM.standard_normal(SHAPE).astype(np.float32)
MASK: Any = RANDOM.random((2, 1, 5, 5)) > 0.4
MASK[0, 0, 1], MASK[1, 0, 3:] = False, False
DEAD: Any = np.broadcast_to(~MASK.any(-1), (2, 2, 5))
ALIVE = ~DEAD

GUARDS = {
    "as exported": "nan = IsNaN(p)  z = Where(nan, zero, p)",
    "the other way round": "nan = IsNaN(p)  some = Not(nan)  z = Where(some, p, zero)",
    "by rows": "low_s = Equal(s, low)  as_int = Cast<to = 6>(low_s)  least = ReduceMin<axes = [-1]>(as_int)"
    "  dead = Cast<to = 9>(least)  z = Where(dead, zero, p)",
    "by elements": "z = Where(mask, p, zero)",
}
MASKS = {"added": "bias = Where(mask, zero, low)  s = Add(raw, bias)", "chosen": "s = Where(mask, raw, low)"}
SOFTMAX = "p = Softmax<axis = -1>(s)"
NARROW = (
    "half = Cast<to = 10>(s)  p = Softmax<axis = -1>(half)  nan = IsNaN(p)  none = Cast<to = 10>(zero)"
    "  guarded = Where(nan, none, p)  z = Cast<to = 1>(guarded)"
)


def attention(lines: str, mask: str = "added") -> ModelProto:
    """scaled_dot_product_attention of the initializers q, k, v and a mask; the lines make z of s."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        attention (bool[2, 1, 5, 5] mask) => (float[2, 2, 5, 4] y) {{
            zero = Constant<value_float = 0.0>()  low = Log(zero)  root = Constant<value_float = 0.70710678>()
            turned = Transpose<perm = [0, 1, 3, 2]>(k)  scaled = Mul(q, root)  other = Mul(turned, root)
            raw = MatMul(scaled, other)  {MASKS[mask]}  {lines}  y = MatMul(z, v)
        }}""")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in HEADS.items())
    return model


def truth(dead: Any = DEAD) -> dict[str, Any]:
    """Gradients of the mean of the squares of y - LABELS in float64, with p = 0 in dead rows."""
    q, k, v = (HEADS[name].astype(np.float64) for name in "qkv")
    s = np.where(MASK, q @ k.swapaxes(2, 3) / 2, -np.inf)
    e = np.exp(s - np.where(dead, 0, s.max(-1))[..., None])
    p = e / np.where(dead, 1, e.sum(-1))[..., None]
    g = 2 * (p @ v - LABELS) / LABELS.size
    h = g @ v.swapaxes(2, 3)
    slope = p * (h - (h * p).sum(-1, keepdims=True)) / 2
    return {"q": slope @ k, "k": slope.swapaxes(2, 3) @ q, "v": p.swapaxes(2, 3) @ g}


def slopes(model: ModelProto, wide: bool) -> dict[str, Array]:
    imported = import_model(load_model(model))
    entry = gradients(imported, training_of({"loss": "mse"}))
    dtype: Any = np.float64 if wide else np.float32
    graph = widened(entry.graph) if wide else entry.graph
    given = {"mask": MASK, "labels": LABELS.astype(dtype)}
    parameters = [slot.initial.astype(dtype) for slot in entry.parameters]
    found = evaluate(graph, [given[port.name] for port in entry.inputs], parameters)
    made = {port.name.removesuffix(".grad"): each for port, each in zip(entry.outputs, found, strict=True)}
    return {name: made[name] for name in HEADS}


def test_pytorch_has_these_gradients() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(HEADS[name], dtype=torch.float64, requires_grad=True) for name in "qkv")
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor(MASK))
    torch.nn.functional.mse_loss(y, torch.tensor(LABELS, dtype=torch.float64)).backward()
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), truth()[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("guard", GUARDS)
def test_rows_without_a_key_have_a_gradient_of_zero(guard: str, mask: str) -> None:
    model, expected = attention(f"{SOFTMAX}  {GUARDS[guard]}", mask), truth()
    assert DEAD.any()
    for wide, tolerance in ((True, 1e-7), (False, 2e-6)):  # the scale's root is a constant of f32
        found = slopes(model, wide)
        for name, array in found.items():
            np.testing.assert_allclose(array, expected[name], rtol=0, atol=tolerance * abs(expected[name]).max())
        assert not np.any(found["q"][DEAD])
        assert np.all(found["q"][ALIVE & (MASK.sum(-1) > 1)])


def test_a_softmax_of_halves_is_the_same() -> None:
    for name, array in slopes(attention(NARROW), False).items():
        np.testing.assert_allclose(array, truth()[name], rtol=0, atol=2e-3 * abs(truth()[name]).max())
        assert name != "q" or not array[DEAD].any()


HEAD = """<ir_version: 8, opset_import: ["" : 17]>
    of_scores (float[6, 70] s) => (float[6, 70] z) """
SCANNED = """{
    z = Scan<num_scan_inputs = 1, body = each (float[70] row) => (float[70] z_row) {
        zero = Constant<value_float = 0.0>()  p = Softmax<axis = 0>(row)  nan = IsNaN(p)  z_row = Where(nan, zero, p)
    }>(s)
}"""


def of_scores(lines: str) -> Graph:
    """z of the scores s alone."""
    body = lines if lines.startswith("{") else f"{{ zero = Constant<value_float = 0.0>()  {lines} }}"
    return import_model(load_model(parser.parse_model(HEAD + body))).graph


def test_other_rows_keep_the_bits_of_a_plain_softmax() -> None:
    s, g = (RANDOM.standard_normal((6, 70)).astype(np.float32) for _ in range(2))
    s[:4, 40:] = -np.inf
    s[1], g[0, :3], g[2] = -np.inf, np.inf, -0.0
    s[4, 3] = np.nan
    plain, guarded = (
        evaluate(gradient_graph(of_scores(lines), [0])[0], [s, g])[0]
        for lines in ("z = Softmax<axis = -1>(s)", f"{SOFTMAX}  {GUARDS['as exported']}")
    )
    assert np.isnan(plain[[1, 4]]).all()
    assert not guarded[[1, 4]].view(np.uint32).any()
    rest = [0, 2, 3, 5]
    assert guarded[rest].tobytes() == plain[rest].tobytes()
    assert np.isnan(guarded[0]).any()


def test_a_nan_that_the_loss_saw_stays() -> None:
    graph = of_scores(f"{SOFTMAX}  nan = IsNaN(p)  y = Where(nan, zero, p)  z = Add(y, p)")
    s = RANDOM.standard_normal((6, 70)).astype(np.float32)
    s[1] = -np.inf
    (z,) = evaluate(graph, [s])
    (slope,) = evaluate(gradient_graph(graph, [0])[0], [s, 2 * z])
    assert np.isnan(slope[1]).all()
    assert np.isfinite(slope[[0, 2, 3, 4, 5]]).all()


def test_a_loop_has_the_gradient_of_its_rows() -> None:
    s, g = (RANDOM.standard_normal((6, 70)).astype(np.float32) for _ in range(2))
    s[2] = -np.inf
    graphs = (of_scores(SCANNED), of_scores(f"{SOFTMAX}  {GUARDS['as exported']}"))
    scanned, whole = (evaluate(gradient_graph(graph, [0])[0], [s, g])[0] for graph in graphs)
    assert scanned.tobytes() == whole.tobytes()
    assert not scanned[2].view(np.uint32).any()


@pytest.mark.parametrize("lines", [f"{SOFTMAX}  {GUARDS['as exported']}", NARROW], ids=["f32", "f16"])
def test_every_target_has_the_references_bits(lines: str, tmp_path: Path) -> None:
    model, inputs = attention(lines), {"mask": MASK, "labels": LABELS}
    targets = ["cpu/x86-64-v3", "cpu/x86-64-v4", "gpu", "tpu-sim"]
    built = repro.build(model, tmp_path / "out", targets=targets, inputs=inputs, loss="mse", gradients=True)
    run_here = [name for name in targets[:2] if runs_here(CPUS[name]) is None]
    report = repro.verify(built.folder, targets=["reference", *run_here, "gpu/interpreter", "tpu-sim"])
    assert report.exit_code == 0
    ran = [check.name for check in report.checks if check.status is Status.GOOD and "gradients on" in check.name]
    for target in ("reference", "cpu/", "gpu/interpreter", "tpu-sim/"):
        assert any(f" on {target}" in name for name in ran), target
