"""Small models in ONNX's text form, and the golden ones with their bindings, for tests of the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, parser

GOLDEN = Path(__file__).parents[2] / "golden"


def golden_models() -> dict[str, dict[str, Any]]:
    """Path and bindings of each forward model among the golden cases, by the first case that has it."""
    cases = json.loads((GOLDEN / "cases.json").read_text())
    found: dict[str, dict[str, Any]] = {}
    for case in cases.values():
        found.setdefault(case["model"], {"model": GOLDEN / case["model"], "bind": case.get("bind", {"N": 4})})
    for each in found.values():
        dims = [
            dim.dim_param for item in onnx.load(each["model"]).graph.input for dim in item.type.tensor_type.shape.dim
        ]
        each["bind"] = each["bind"] if "N" in dims else {}
    return {str(Path(name).with_suffix("")): each for name, each in found.items()}


def model(text: str, functions: str = "", opset: int = 17, imports: str = "") -> ModelProto:
    """A model from a graph in ONNX's text form."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{imports}]>\n{text}\n{functions}')


CHAIN = """g (float[N, 4] x, float[4, 3] w) => (float[N, 3] y)
<float[3] b = {0.1, 0.2, 0.3}>
{
  h = MatMul(x, w)
  biased = Add(h, b)
  e = Exp(biased)
  y = Tanh(e)
}"""
"""Four nodes, two of which every runtime computes in its own way."""

DECIDED = """g (float[2, 3] x, int64 rate) => (float[2, 3] y, float[2, 3] z)
<int64 wide = {16000}, float[1] unused = {1}>
{
  same = Equal(rate, wide)
  y, kept = If (same) <
    then_branch = t () => (float[2, 3] a, float[2, 3] b) <float[1] half = {0.5}> {
      s = Shape(x)
      i = Constant<value_int = 1>()
      extent = Gather(s, i)
      three = Constant<value_int = 3>()
      fits = Equal(extent, three)
      inner = If (fits) <
        then_branch = tt () => (float[2, 3] r) { h = Mul(x, half) r = Exp(h) },
        else_branch = te () => (float[2, 3] r) { r = Neg(x) }
      >
      a = Add(inner, half)
      b = Identity(x)
    },
    else_branch = e () => (float[2, 3] a, float[2, 3] b) { a = Neg(x) b = Abs(x) }
  >
  h = Add(kept, y)
  z = Sub(h, x)
}"""
"""An If that `rate` decides, around one that a shape decides; `h` is a name inside and outside."""

UNDECIDED = """g (float[3] x, bool flag, int64 n) => (float[3] y)
{
  seen = Mul(x, x)
  chosen = If (flag) <
    then_branch = t () => (float[3] r) { r = Exp(seen) },
    else_branch = e () => (float[3] r) { r = Neg(seen) }
  >
  go = Constant<value = bool {1}>()
  times = Constant<value = int64 {3}>()
  y = Loop (times, go, chosen) <
    body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] v2) { c2 = Identity(c) v2 = Add(v, seen) }
  >
}"""
"""An If that only a run decides and a Loop; their bodies read `seen` from outside."""

FUNCTION = """g (float[2] x) => (float[2] y) { t = local.twice(x) y = local.twice(t) }"""
TWICE = """<domain: "local", opset_import: ["" : 17]>
twice (x) => (y) { y = Add(x, x) }"""
