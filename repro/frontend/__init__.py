"""ONNX in: reading with limits, import to the canonical graph, operators by family."""

from repro.frontend import families as families
from repro.frontend.entry import import_model
from repro.frontend.imported import INFER, EntryGraph, Imported, ParameterSlot, Port
from repro.frontend.load import LoadedModel, load_model
from repro.frontend.ort_artifacts import load_source
from repro.frontend.registry import onnx_op, registered_ops

__all__ = [
    "INFER", "EntryGraph", "Imported", "LoadedModel", "ParameterSlot", "Port", "import_model", "load_model",
    "load_source", "onnx_op", "registered_ops",
]  # fmt: skip
