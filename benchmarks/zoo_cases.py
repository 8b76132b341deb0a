# pyright: reportMissingImports=false
# PyTorch and the libraries of models are no part of the lock.
"""What a model of the zoo is, and how both of PyTorch's exporters write it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXPORTERS = ("script", "dynamo")
"""The older `torch.onnx.export`, which traces, and that with dynamo=True."""


@dataclass(frozen=True)
class Case:
    """A model with random weights, in evaluation mode, and its inputs by name (positional arguments of its forward)."""

    name: str
    family: str
    model: Callable[[], Any]
    inputs: Callable[[], dict[str, Any]]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict[str, Mapping[int, str]])
    """Open axes of inputs."""
    classes: int = 0
    """A classifier with so many logits in its first output: its training step is compared as well."""
    opset: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More arguments of the exporter."""


def drawn(*shape: int, seed: int = 0) -> Any:
    """An f32 tensor of normal numbers."""
    import torch

    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def integers(below: int, *shape: int, seed: int = 0) -> Any:
    """An int64 tensor of 0 to below - 1."""
    import torch

    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def made(case: Case) -> Any:
    """The module with the same random weights each time. Weights that start at zeros or ones are moved from there, so
    that no part of the model is without effect."""
    import torch

    torch.manual_seed(0)
    module = case.model().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dtype.is_floating_point and parameter.numel() > 1 and float(parameter.std()) == 0.0:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return module


def training(case: Case) -> Any:
    """The module in training mode, without what draws random numbers: PyTorch's are not ours."""
    import torch

    module = made(case).train()
    for each in module.modules():
        if isinstance(each, torch.nn.Dropout) or type(each).__name__ == "StochasticDepth":
            each.p = 0.0
        for name, value in vars(each).items():
            if "drop" in name and isinstance(value, float):  # what transformers hands to functions
                setattr(each, name, 0.0)
        config: Any = getattr(each, "config", None)
        if hasattr(config, "apply_spec_augment"):
            config.apply_spec_augment = False
    return module


def labels_of(case: Case, output: Any) -> Any:
    """The same each time, of the first output's shape, or classes."""
    if case.classes:
        return integers(case.classes, output.shape[0], *output.shape[2:], seed=3)
    return drawn(*output.shape, seed=3).to(output.dtype)


def not_trained(case: Case, path: Path) -> list[str]:
    """Initializers that PyTorch's optimizer would leave alone: buffers, and parameters that need no gradient."""
    import onnx

    named = made(case).named_parameters(remove_duplicate=False)
    trained = {name for name, each in named if each.requires_grad}
    graph = onnx.load(path, load_external_data=False).graph
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return [each.name for each in graph.initializer if each.data_type in floats and each.name not in trained]


def array_of(tensor: Any) -> Any:
    """An array of a tensor of any type; NumPy has no bf16 of its own."""
    import ml_dtypes
    import torch

    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def export(case: Case, exporter: str, path: Path, train: bool = False) -> None:
    """Write the model. With `train`, in training mode: only the older exporter writes that."""
    import torch

    module, inputs = made(case) if not train else training(case), case.inputs()
    opset = case.opset or (18 if exporter == "dynamo" else 17)
    options: dict[str, Any] = {"input_names": list(inputs), "opset_version": opset, **case.options}
    if exporter == "script":
        options |= {"dynamo": False, "dynamic_axes": {name: dict(axes) for name, axes in case.dynamic.items()}}
    else:
        options |= {"dynamo": True, "external_data": False, "verbose": False}
        if case.dynamic:
            shapes = _dynamic_shapes(inputs, case.dynamic)
            options["dynamic_shapes"] = (shapes,) if _takes_any_number(module) else shapes
    if train:
        options |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, tuple(inputs.values()), str(path), **options)


def _takes_any_number(module: Any) -> bool:
    """Whether its forward is written with *arguments."""
    kinds = [each.kind for each in inspect.signature(module.forward).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def _dynamic_shapes(inputs: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, str]]) -> Any:
    """One entry for each argument, in order; axes of one name are one dimension."""
    import torch

    names = {name for axes in dynamic.values() for name in axes.values()}
    dims = {name: torch.export.Dim(name) for name in names}
    return tuple({axis: dims[dim] for axis, dim in dynamic.get(name, {}).items()} for name in inputs)
