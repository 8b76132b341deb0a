"""The node cases of onnx.backend.test, run by the torch peer's table."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from onnx import numpy_helper

from repro.audit.peers.torch_ops.call import TABLE, Unsupported
from repro.audit.peers.torch_ops.interpreter import Interpreter
from repro.audit.peers.torch_ops.tensors import to_numpy, to_torch
from repro.ir.types import Array
from tests.conformance import runner
from tests.conformance.exceptions import EXCEPTIONS

_NARROW = "rounds to f16 or bf16 after every node; the case's tolerance is below an ulp of those"
_DRAWN = "draws from PyTorch's own stream, or NumPy's"
_GRADIENT = "the operator Gradient has no implementation outside of a training runtime"
_OPTIONAL = "gives an optional sequence"

DIFFERENT: dict[str, str] = {
    "test_attention_4d_fp16": _NARROW,
    "test_attention_4d_causal_fp16_expanded": _NARROW,
    **{name: _NARROW for name in EXCEPTIONS if "bf16_expanded" in name},
    **{f"test_bernoulli{kind}_expanded": _DRAWN for kind in ("", "_double", "_seed")},
    **{f"test_training_dropout{kind}": _DRAWN for kind in ("", "_default", "_mask", "_default_mask")},
    "test_gradient_of_add": _GRADIENT,
    "test_gradient_of_add_and_mul": _GRADIENT,
    "test_if_opt": _OPTIONAL,
}  # fmt: skip
"""Cases that do not give the expected values, each with its reason."""


@dataclass
class Ran:
    """What became of a case: why it failed, if it did, and the operators that a kernel ran."""

    failure: str = ""
    by_kernel: set[str] = field(default_factory=set[str])


def chosen() -> Iterator[str]:
    """Cases with an operator of the table, or control flow."""
    known = {*TABLE, "If", "Loop"}
    for name, case in runner.cases().items():
        if not case.model.functions and known & set(runner.operators(case)):
            yield name


def run_case(name: str) -> Ran:
    case = runner.cases()[name]
    ran = Ran()
    for given, wanted in case.data_sets:
        interpreter = Interpreter(case.model)
        named = zip(case.model.graph.input, given, strict=False)
        try:
            with torch.no_grad():
                values = interpreter.run({item.name: _value(each) for item, each in named if each is not None})
            found = [values[item.name] for item in case.model.graph.output]
            pairs = zip(_flat(found), _flat(wanted), strict=True)
            failures = [runner._compare(_array(mine), _array(theirs), case) for mine, theirs in pairs]
        except Exception as error:  # whatever it is, it is this case's
            return Ran(f"{type(error).__name__}: {error}")
        ran.failure = ran.failure or next((each for each in failures if each), "")
        nodes = [node for node in case.model.graph.node if (node.name or node.output[0]) not in interpreter.fallbacks]
        ran.by_kernel |= {node.op_type for node in nodes}
    return ran


def _flat(values: list[Any]) -> list[Any]:
    return [part for value in values for part in (value if isinstance(value, list) else [value])]


def _array(value: Any) -> Array:
    return to_numpy(value) if isinstance(value, torch.Tensor) else runner._array(value)


def _value(given: Any) -> Any:
    if isinstance(given, list):
        return [_value(each) for each in given]
    array = numpy_helper.to_array(given) if hasattr(given, "raw_data") else runner._array(given)
    try:
        return to_torch(array)
    except Unsupported:
        return array
