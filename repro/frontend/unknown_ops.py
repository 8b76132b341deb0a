"""The one error for every operator of a model that has no function here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from repro.errors import ReproError
from repro.frontend.limits import FunctionKey, call_key, domain_of
from repro.frontend.load import LoadedModel, function_opsets
from repro.frontend.registry import find_op, known_versions
from repro.frontend.scope import Body, name_of, reads


def unknown_ops(loaded: LoadedModel) -> ReproError:
    """Lists every operator that the outputs may need and that is not supported, with counts and one of its nodes."""
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    pending: list[tuple[Body, Mapping[str, int]]] = [(Body.of_graph(loaded.proto.graph), loaded.opsets)]
    visited: set[FunctionKey] = set()
    while pending:
        body, opsets = pending.pop()
        for index in _reached(body):
            node = body.nodes[index]
            pending.extend((child, opsets) for child in body.children(index))
            function = loaded.functions.get(call_key(node))
            if function is not None:
                if call_key(node) not in visited:
                    visited.add(call_key(node))
                    pending.append((Body.of_function(function), function_opsets(function)))
                continue
            domain = domain_of(node.domain)
            version = opsets.get(domain, 1)
            if find_op(domain, node.op_type, version) is None:
                listed = _listed(node.op_type, domain, version)
                counts[listed] += 1
                places.setdefault(listed, name_of(node))
    return ReproError(
        "the model uses operators that are not supported",
        found=", ".join(f"{name} ×{count} (at '{places[name]}')" for name, count in sorted(counts.items())),
        expected="operators listed in docs/coverage.md, or local functions over them",
        next=_advice(counts),
    )


_ADVICE = {
    "ai.onnx.ml.": "classical machine learning (ai.onnx.ml) is out of scope: build the part of the model that is made "
    "of tensor operators alone; Hummingbird, for one, writes trees and linear models as such",
    "QLinear": "quantize in the QDQ format (QuantizeLinear and DequantizeLinear around float operators)",
    "com.microsoft.Q": "quantize in the QDQ format (QuantizeLinear and DequantizeLinear around float operators)",
    "com.microsoft.": "give the model as it was exported, before ONNX Runtime's optimizer fused operators",
    "": "export with a decomposition of these operators, or add them (docs/adding-an-op.md)",
}
"""What helps, by how the listed names begin; the first that fits."""


def _advice(names: Iterable[str]) -> str:
    starts = {next(start for start in _ADVICE if str(name).startswith(start)) for name in names}
    return "; ".join(dict.fromkeys(advice for start, advice in _ADVICE.items() if start in starts))


def _listed(op: str, domain: str, version: int) -> str:
    name = f"{domain}.{op}" if domain else op
    return f"{name} of opset {version}" if known_versions(domain, op) else name


def _reached(body: Body) -> list[int]:
    """Nodes of a body that its outputs need, ascending."""
    found: set[int] = set()
    stack = list(body.outputs)
    while stack:
        index = body.producer.get(stack.pop())
        if index is None or index in found:
            continue
        found.add(index)
        stack.extend(reads(body.nodes[index]))
        stack.extend(name for child in body.children(index) for name in child.free)
    return sorted(found)
