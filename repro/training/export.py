"""Trained weights back into the model that they were trained from."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from repro.artifact import tensors
from repro.artifact.loaded import LoadedArtifact
from repro.errors import ReproError
from repro.training.checkpoint import Checkpoint


def exported(artifact: LoadedArtifact, checkpoint: Checkpoint) -> onnx.ModelProto:
    """The artifact's source model; each weight has the value of the checkpoint. Nothing else changes.

    Raises ReproError for a checkpoint of another artifact.
    """
    check_origin(artifact, checkpoint)
    loaded = artifact.source
    made = onnx.ModelProto()
    made.CopyFrom(loaded.proto)
    weights = {weight.name: weight for weight in artifact.config.weights}
    for tensor in made.graph.initializer:
        if tensor.name in weights and tensor.name in checkpoint.state:
            _fill(tensor, tensors.to_bytes(checkpoint.state[tensor.name]))
        elif tensor.data_location == TensorProto.EXTERNAL:
            array = loaded.tensor(tensor, tensor.name)[1]
            _fill(tensor, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return made


def check_origin(artifact: LoadedArtifact, checkpoint: Checkpoint) -> None:
    """Raises ReproError unless a checkpoint's tensors are those of the artifact's training step."""
    document = checkpoint.document
    entry = artifact.entries.get(document.entry)
    if entry is None or entry.graph != document.graph:
        raise ReproError(
            "the checkpoint was trained with another graph",
            found=f"{checkpoint.path}: {document.graph}",
            expected=entry.graph if entry else f"an artifact with an entry '{document.entry}'",
            next="give the artifact that it was trained from, or a checkpoint of this one's training",
        )


def _fill(tensor: TensorProto, data: bytes) -> None:
    """Give an initializer its bytes inside the model."""
    for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data"):
        tensor.ClearField(name)
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = data
