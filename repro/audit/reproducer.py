"""The script that shows a drift with the runtime that drifts and little else: a template for each family."""

from __future__ import annotations

from collections.abc import Mapping

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

_BY_REPRO = """import onnx
from repro.audit.records import Executor
from {module} import {peer}
name = {value}
executor = Executor({family}, {options})
found = {peer}().run(onnx.load("model.onnx"), dict(np.load("inputs.npz")), executor)[name]
"""

_LEVELS = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}


def script(executor: Executor, value: str, where: str, peers: Mapping[str, str]) -> str:
    """The text of a script that runs `model.onnx` on `inputs.npz` beside it and compares with `expected.npz`."""
    body, needs = _body(executor, value, peers)
    what = f"{executor.name} gives other bits than repro at {where}.".encode("ascii", "backslashreplace").decode()
    settings = dict(executor.environment)
    opening = _OPENING.format(
        what="".join(c if c.isprintable() and c not in '\\"' else "?" for c in what),
        needs=needs + (f", under {' '.join(executor.emulator)}" if executor.emulator else ""),
        environment=f"os.environ.update({settings!r})\n" if settings else "",
    )
    return opening + body + _CLOSING


def _body(executor: Executor, value: str, peers: Mapping[str, str]) -> tuple[str, str]:
    """The lines that run the model, and what has to be installed for them."""
    name = ascii(value)
    if executor.family == "onnxruntime":
        other = executor.option("provider")
        providers = [*([f"{other}ExecutionProvider"] if other else []), "CPUExecutionProvider"]
        level = _LEVELS.get(executor.option("level", "all"), "ORT_ENABLE_ALL")
        threads = executor.option("threads", "1")
        body = _ONNXRUNTIME.format(value=name, level=level, threads=int(threads), providers=providers)
        return body, "onnxruntime and numpy"
    if executor.family == "onnx-reference":
        return _ONNX_REFERENCE.format(value=name), "onnx and numpy"
    module, _, peer = peers[executor.family].partition(":")
    options, family = executor.options, ascii(executor.family)
    body = _BY_REPRO.format(module=module, peer=peer, value=name, family=family, options=ascii(options))
    return body, f"repro, by whose peer {executor.family} is run, and what that peer needs"
