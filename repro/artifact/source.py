"""The source model as an artifact keeps it: the graph in one blob, each float initializer in its own.

A weight is named by its digest as ONNX external data, beside the model blob; so the folder of blobs is a
model that onnx itself can load, and no weight is stored twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from onnx import ModelProto, StringStringEntryProto, TensorProto

from repro.artifact.canonical import Bytes
from repro.artifact.config import Tensor
from repro.artifact.layout import Layer
from repro.artifact.media import SOURCE_TYPE, TENSOR_TYPE
from repro.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, F64, DType, TensorType

MODEL_TITLE = "source/model.onnx"
_WEIGHT_TYPES: dict[int, DType] = {
    TensorProto.FLOAT: F32,
    TensorProto.DOUBLE: F64,
    TensorProto.FLOAT16: F16,
    TensorProto.BFLOAT16: BF16,
    TensorProto.FLOAT8E4M3FN: F8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: F8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: F8E5M2FNUZ,
}

Message = TypeVar("Message")


@dataclass(frozen=True)
class StoredSource:
    """The layers of a source model, and its weights in the order of its initializers."""

    model: Layer
    weights: tuple[Tensor, ...]
    weight_layers: tuple[Layer, ...]


def store(model: ModelProto, read: Callable[[TensorProto], Bytes]) -> StoredSource:
    """Take the float initializers out of a model. `read` gives a tensor's raw bytes, external ones too."""
    stripped = _copy_without(model, "graph")
    _merge_without(stripped.graph, model.graph, "initializer")
    weights: list[Tensor] = []
    layers: list[Layer] = []
    for tensor in model.graph.initializer:
        dtype = _WEIGHT_TYPES.get(tensor.data_type)
        kept = stripped.graph.initializer.add()
        if dtype is None and tensor.data_location != TensorProto.EXTERNAL:
            kept.CopyFrom(tensor)
            continue
        data = read(tensor)
        _merge_without(kept, tensor, *_DATA_FIELDS)
        if dtype is None:
            kept.raw_data = bytes(data)
            continue
        layer = Layer(f"weights/{len(layers):05}", TENSOR_TYPE, data)
        kept.data_location = TensorProto.EXTERNAL
        location = layer.digest.removeprefix("sha256:")
        fields = {"location": location, "offset": "0", "length": str(len(data))}
        kept.external_data.extend(StringStringEntryProto(key=key, value=value) for key, value in fields.items())
        layers.append(layer)
        weights.append(Tensor(tensor.name, str(TensorType(dtype, tuple(tensor.dims))), layer.digest))
    blob = stripped.SerializeToString(deterministic=True)
    return StoredSource(Layer(MODEL_TITLE, SOURCE_TYPE, blob), tuple(weights), tuple(layers))


_DATA_FIELDS = (
    "raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data",
    "external_data", "data_location",
)  # fmt: skip


def _copy_without(message: Message, *names: str) -> Message:
    made: Any = type(message)()
    _merge_without(made, message, *names)
    return made


def _merge_without(target: Any, source: Any, *names: str) -> None:
    """Copy the known fields of a message, but for those named. A copy of everything would hold the weights twice."""
    for field, value in source.ListFields():
        if field.name in names:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)


def opsets(model: ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}
