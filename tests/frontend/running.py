"""Running an imported model by the reference, and the same model by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from repro.frontend import Imported, import_model, load_model
from repro.ir.types import Array, to_face, to_storage
from repro.ops.record import evaluate


def by_reference(imported: Imported, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs, as users see them. Inputs that were fixed at build may be among the feeds."""
    arguments = [to_storage(feeds[port.name], port.type.dtype) for port in imported.inputs]
    results = evaluate(imported.graph, arguments, [slot.initial for slot in imported.parameters])
    return [to_face(array, port.type.dtype) for array, port in zip(results, imported.outputs, strict=True)]


def by_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def assert_agrees(
    proto: onnx.ModelProto,
    feeds: Mapping[str, Array],
    tolerance: float = 1e-5,
    expected: Sequence[Array] | None = None,
    **options: Any,
) -> Imported:
    """The reference's outputs equal ONNX Runtime's (or those given); floats to a relative tolerance."""
    imported = import_model(load_model(proto), **options)
    found = by_reference(imported, feeds)
    wanted = by_onnxruntime(proto, feeds) if expected is None else expected
    assert len(found) == len(wanted) > 0
    for left, right in zip(found, wanted, strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        if left.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(left, right)
    return imported


def operations(imported: Imported) -> dict[str, int]:
    """How often each core op stands in the graph itself, regions apart."""
    counts: dict[str, int] = {}
    for node in imported.graph.nodes:
        counts[node.op] = counts.get(node.op, 0) + 1
    return counts
