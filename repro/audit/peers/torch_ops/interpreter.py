"""A model run node by node: by the table, or by onnx's reference evaluator where the table has no entry."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor

from repro.audit.peers.peer import PeerError
from repro.audit.peers.torch_ops.call import TABLE, Call, Function, Unsupported
from repro.audit.peers.torch_ops.tensors import to_numpy, to_torch
from repro.audit.records import Outcome
from repro.ir.types import Array

for _module in ("elementwise", "indexing", "layers", "moves", "pooling", "recurrent", "reductions", "sampling"):
    importlib.import_module(f"repro.audit.peers.torch_ops.{_module}")

OLDEST_OPSET = 7
"""From here on operators broadcast as NumPy does."""
REFERENCE = "onnx reference evaluator"

Values = dict[str, Any]
"""Tensors by name; lists of them for sequences; arrays for what PyTorch has no element type for."""


class Interpreter:
    """Runs one model. `table` maps operators to functions; `fallbacks` are the nodes that ran elsewhere, with why."""

    def __init__(self, model: ModelProto, table: Mapping[str, Function] = TABLE) -> None:
        self.graph = model.graph
        self._ir = model.ir_version
        self._opsets = {item.domain: item.version for item in model.opset_import}
        self._table = table
        self._initial = {item.name: _value(numpy_helper.to_array(item)) for item in model.graph.initializer}
        self.fallbacks: dict[str, str] = {}

    @property
    def initializers(self) -> Mapping[str, Any]:
        return self._initial

    def run(self, inputs: Mapping[str, Any]) -> Values:
        """All values of the main graph by name. `inputs` may have initializers' names, and then stand for them."""
        values: Values = {**self._initial, **inputs}
        missing = [item.name for item in self.graph.input if item.name not in values]
        if missing:
            raise PeerError(Outcome.FAILED, f"inputs are missing: {', '.join(missing)}")
        self._run(self.graph.node, values)
        return values

    def _run(self, nodes: Iterable[NodeProto], values: Values) -> None:
        for node in nodes:
            outputs = self._outputs(node, values)
            for name, value in zip(node.output, outputs, strict=False):
                if name:
                    values[name] = value

    def _outputs(self, node: NodeProto, values: Values) -> Sequence[Any]:
        if node.op_type == "If" and not node.domain:
            return self._branch(node, values)
        if node.op_type == "Loop" and not node.domain:
            return self._loop(node, values)
        opset = self._opsets.get(node.domain, 1)
        function = self._table.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        inputs = [values[name] if name else None for name in node.input]
        if function is None or opset < OLDEST_OPSET:
            return self._by_reference(node, values, "not in the table")
        if any(isinstance(value, np.ndarray) for value in inputs):
            return self._by_reference(node, values, "an element type that PyTorch lacks")
        call = Call.of(node, opset)
        try:
            found = function(call, *inputs)
        except Unsupported as reason:
            return self._by_reference(node, values, str(reason))
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            return self._by_reference(node, values, f"the kernel: {_first_line(error)}")
        if call.unread:
            return self._by_reference(node, values, f"attributes {', '.join(sorted(call.unread))}")
        return found if isinstance(found, tuple) else (found,)

    # ── control flow ────────────────────────────────────────────────────────────────────────────────

    def _body(self, graph: GraphProto, values: Values, given: Mapping[str, Any]) -> list[Any]:
        own = {item.name: _value(numpy_helper.to_array(item)) for item in graph.initializer}
        inner: Values = {**values, **own, **given}
        self._run(graph.node, inner)
        return [inner[item.name] for item in graph.output]

    def _branch(self, node: NodeProto, values: Values) -> list[Any]:
        branches = {item.name: item.g for item in node.attribute}
        return self._body(branches["then_branch" if bool(values[node.input[0]]) else "else_branch"], values, {})

    def _loop(self, node: NodeProto, values: Values) -> list[Any]:
        body = next(item.g for item in node.attribute if item.name == "body")
        names = [item.name for item in body.input]
        limit = int(values[node.input[0]]) if node.input[0] else None
        going = bool(values[node.input[1]]) if len(node.input) > 1 and node.input[1] else True
        carried = [values[name] for name in node.input[2:]]
        rows: list[list[Any]] = [[] for _ in body.output[1 + len(carried) :]]
        count = 0
        while going and (limit is None or count < limit):
            given = [torch.tensor(count), torch.tensor(going), *carried]
            going, *found = self._body(body, values, dict(zip(names, given, strict=False)))
            going, carried = bool(going), found[: len(carried)]
            for kept, value in zip(rows, found[len(carried) :], strict=True):
                kept.append(value)
            count += 1
        if not count and rows:
            raise PeerError(Outcome.REFUSED, f"node '{node.name}' (Loop) stacks the results of no iteration")
        return [*carried, *(torch.stack(kept) for kept in rows)]

    # ── elsewhere ───────────────────────────────────────────────────────────────────────────────────

    def _by_reference(self, node: NodeProto, values: Values, reason: str) -> list[Any]:
        """Gradients do not pass: where one is needed the run is refused."""
        names = dict.fromkeys([*(name for name in node.input if name), *(n for n in _outer(node) if n in values)])
        if any(isinstance(values[name], Tensor) and values[name].requires_grad for name in names):
            what = f"node '{node.name}' ({node.op_type}) has no kernel with a gradient here: {reason}"
            raise PeerError(Outcome.REFUSED, what)
        self.fallbacks[node.name or node.output[0]] = f"{REFERENCE}: {reason}"
        given = {name: _array(values[name]) for name in names}
        found = _evaluate(node, given, self._opsets, self._ir)
        return [_value(each) for each in found]


def _evaluate(node: NodeProto, given: Mapping[str, Any], opsets: Mapping[str, int], ir: int) -> list[Any]:
    inputs = [ValueInfoProto(name=name) for name in given]
    outputs = [ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir)
    try:
        found = iter(ReferenceEvaluator(model).run(None, dict(given)))
    except Exception as error:  # the evaluator raises what it likes
        what = f"node '{node.name}' ({node.op_type}) is in no table, and the reference evaluator: {_first_line(error)}"
        raise PeerError(Outcome.REFUSED, what) from error
    return [next(found) if name else None for name in node.output]


def _outer(node: NodeProto) -> Iterable[str]:
    """Names that a node's subgraphs read, their own among them."""
    for item in node.attribute:
        for graph in (item.g, *item.graphs):
            for inner in graph.node:
                yield from inner.input
                yield from _outer(inner)


def _value(found: Any) -> Any:
    """A tensor, a list of them, or, where PyTorch has no such element type, the array."""
    if isinstance(found, list):
        return [_value(each) for each in found]
    if found is None:
        return None
    array: Array = np.asarray(found)
    try:
        return to_torch(array)
    except Unsupported:
        return array


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(each) for each in value]
    return to_numpy(value) if isinstance(value, Tensor) else value


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
