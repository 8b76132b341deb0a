"""The script that shows a drift with the runtime that drifts and little else: a template for each family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import helper

from repro.audit.parts import Part
from repro.audit.records import Executor

SCRIPT = "reproduce.py"

_OPENING = '''"""{what}

Needs {needs}. Prints the elements that differ and their greatest distance; exit code 1 if there are any.
"""
import os, sys
os.chdir(os.path.dirname(os.path.abspath(__file__)))
{environment}import numpy as np
'''

_CLOSING = """found, expected = np.asarray(found), np.load("expected.npz")[name]
if found.dtype != expected.dtype or found.shape != expected.shape:
    sys.exit(f"{name}: {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}")
left, right = (np.ravel(array).view(f"i{array.itemsize}") for array in (expected, found))
wrong = (left != right) & ~np.ravel((found != found) & (expected != expected))  # two NaNs are one value
line = lambda bits: [int(b) if b >= 0 else -int(b & np.iinfo(b.dtype).max) for b in bits]  # floats as integers in a row
ulp = max((abs(a - b) for a, b in zip(line(left[wrong]), line(right[wrong]))), default=0)
print(f"{name}: {wrong.sum()} of {wrong.size} elements differ" + f", at most {ulp} ULP" * (found.dtype.kind == "f"))
sys.exit(1 if wrong.any() else 0)
"""

_ONNXRUNTIME = """import onnxruntime
name = {value}
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{level}
options.intra_op_num_threads, options.inter_op_num_threads = {threads}, 1
session = onnxruntime.InferenceSession("model.onnx", options, {providers})
found = session.run([name], dict(np.load("inputs.npz")))[0]
"""

_ONNX_REFERENCE = """from onnx.reference import ReferenceEvaluator
name = {value}
found = ReferenceEvaluator("model.onnx").run([name], dict(np.load("inputs.npz")))[0]
"""

_TORCH = """import torch
name = {value}
torch.set_num_threads({threads})
given = {{each: torch.from_numpy(array) for each, array in np.load("inputs.npz").items()}}
found = {call}.numpy()
"""

_TORCH_CALLS = {
    "MatMul": "torch.matmul({0}, {1})",
    "Exp": "torch.exp({0})",
    "Erf": "torch.erf({0})",
    "Tanh": "torch.tanh({0})",
    "Sigmoid": "torch.sigmoid({0})",
    "Sqrt": "torch.sqrt({0})",
    "Softmax": "torch.softmax({0}, {axis})",
}
"""Operators that are one call of PyTorch's, by its operands and attributes."""
_DEFAULTS = {"axis": -1}
_SINCE = 13
"""The opset since which they all are: Softmax meant something else before."""

_BY_REPRO = """import onnx
from repro.audit.records import Executor
from {module} import {peer}
name = {value}
executor = Executor({family}, {options})
found = {peer}().run(onnx.load("model.onnx"), dict(np.load("inputs.npz")), executor)[name]
"""

_LEVELS = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}


def scripts(executor: Executor, part: Part, where: str, peers: Mapping[str, str]) -> Iterator[str]:
    """Texts of scripts that run `model.onnx`, or what it says, on `inputs.npz` beside it and compare with
    `expected.npz`: what needs least comes first. The last one is right wherever the executor is what it says."""
    for body, needs in _bodies(executor, part, peers):
        yield _script(executor, where, body, needs)


def _script(executor: Executor, where: str, body: str, needs: str) -> str:
    what = f"{executor.name} gives other bits than repro at {where}.".encode("ascii", "backslashreplace").decode()
    settings = dict(executor.environment)
    opening = _OPENING.format(
        what="".join(c if c.isprintable() and c not in '\\"' else "?" for c in what),
        needs=needs + (f", under {' '.join(executor.emulator)}" if executor.emulator else ""),
        environment=f"os.environ.update({settings!r})\n" if settings else "",
    )
    return opening + body + _CLOSING


def _bodies(executor: Executor, part: Part, peers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The lines that run the model, and what has to be installed for them."""
    name, threads = ascii(part.value), int(executor.option("threads", "1"))
    if executor.family == "onnxruntime":
        other = executor.option("provider")
        providers = [*([f"{other}ExecutionProvider"] if other else []), "CPUExecutionProvider"]
        level = _LEVELS.get(executor.option("level", "all"), "ORT_ENABLE_ALL")
        yield (
            _ONNXRUNTIME.format(value=name, level=level, threads=threads, providers=providers),
            "onnxruntime and numpy",
        )
        return
    if executor.family == "onnx-reference":
        yield _ONNX_REFERENCE.format(value=name), "onnx and numpy"
        return
    call = _torch_call(part)
    if executor.family == "torch" and call and not executor.option("compile"):
        yield _TORCH.format(value=name, threads=threads, call=call), "torch and numpy"
    module, _, peer = peers[executor.family].partition(":")
    options, family = ascii(executor.options), ascii(executor.family)
    yield (
        _BY_REPRO.format(module=module, peer=peer, value=name, family=family, options=options),
        f"repro, by whose peer {executor.family} is run, and what that peer needs",
    )


def _torch_call(part: Part) -> str | None:
    """The one call that the part is, if it is one and all its operands are inputs."""
    (node, *others) = part.nodes
    call = _TORCH_CALLS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    opset = max((item.version for item in part.frame.opset_import if item.domain in ("", "ai.onnx")), default=0)
    if others or call is None or opset < _SINCE or any(name not in part.inputs for name in node.input):
        return None
    attributes = {**_DEFAULTS, **{item.name: helper.get_attribute_value(item) for item in node.attribute}}
    return call.format(*(f"given[{name!a}]" for name in node.input), **attributes)
