"""Gradients of the golden models by PyTorch in float64: `python -m tests.autodiff.record_models` writes models.npz.

The models are written here in `torch.nn.functional`, on the initializers of the ONNX files. Of each gradient the record
keeps its largest magnitude, all elements as integers of 1/32767 of that (an error of at most 1.6e-5 of it, so that the
file stays small), and its products with fixed signs, in full precision: no element can be wrong without them.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
RECORD = Path(__file__).with_name("models.npz")
ROWS, TOKENS, CLASSES, SIGNS = 8, 96, 10, 4
HEADS, LAYERS = 4, 2
EPSILON = float(np.float32(1e-5))  # as the files have it
UNITS = 32767

Arrays = dict[str, Any]

FILES = {
    "digits_mlp": "digits_mlp/forward.onnx",
    "digits_cnn": "digits_cnn/forward.onnx",
    "digits_mlp_training_info": "digits_mlp_training_info/model.onnx",
    "nano_gpt": "nano_gpt/forward.onnx",
    "nano_gpt_dynamo": "nano_gpt_dynamo/forward.onnx",
    "nano_gpt_dynamo_unoptimized": "nano_gpt_dynamo/forward_unoptimized.onnx",
}
RECORDED = {name: "nano_gpt" if name.startswith("nano_gpt") else name for name in FILES}
"""Model -> the one whose gradients are recorded; the three GPT files have the same weights."""
ZERO = {"digits_cnn": {"conv1.bias"}}
"""It stands before a normalization: its gradient is zero by algebra, and rounding is all that a program finds."""


def initializers(name: str) -> Arrays:
    """The float tensors of a model's file, by name."""
    found = {item.name: numpy_helper.to_array(item) for item in onnx.load(str(GOLDEN / FILES[name])).graph.initializer}
    return {name: array for name, array in found.items() if array.dtype == np.float32}


def batch(name: str) -> list[Any]:
    """Input and labels."""
    draw = np.random.default_rng([7, *name.encode()])
    if name == "nano_gpt":
        return [draw.integers(0, TOKENS, (8, 32)), draw.integers(0, TOKENS, 256)]
    shape = (ROWS, 1, 8, 8) if name == "digits_cnn" else (ROWS, 64)
    return [draw.random(shape).astype(np.float32), draw.integers(0, CLASSES, ROWS)]


def products(gradient: Any) -> Any:
    """Sums of a gradient's elements under signs drawn for its size."""
    signs = np.random.default_rng(gradient.size).integers(0, 2, (SIGNS, gradient.size)) * 2 - 1
    return (signs * gradient.reshape(-1).astype(np.float64)).sum(axis=1)


# ── the models ──────────────────────────────────────────────────────────────────────────────────────


def _mlp(torch: Any, w: Arrays, x: Any) -> Any:
    linear = torch.nn.functional.linear
    x = torch.relu(linear(x, w["fc1.weight"], w["fc1.bias"]))
    x = torch.relu(linear(x, w["fc2.weight"], w["fc2.bias"]))
    return linear(x, w["fc3.weight"], w["fc3.bias"])


def _cnn(torch: Any, w: Arrays, x: Any) -> Any:
    f = torch.nn.functional
    x = f.conv2d(x, w["conv1.weight"], w["conv1.bias"], padding=1)
    x = torch.relu(f.batch_norm(x, None, None, w["bn1.weight"], w["bn1.bias"], training=True, eps=EPSILON))
    x = torch.relu(f.conv2d(f.max_pool2d(x, 2), w["conv2.weight"], w["conv2.bias"], padding=1))
    return f.linear(x.flatten(1), w["fc.weight"], w["fc.bias"])


def _gpt(torch: Any, w: Arrays, ids: Any) -> Any:
    f = torch.nn.functional

    def dense(x: Any, layer: str) -> Any:
        return f.linear(x, w[f"{layer}.weight"], w[f"{layer}.bias"])

    def normal(x: Any, layer: str) -> Any:
        return f.layer_norm(x, x.shape[-1:], w[f"{layer}.weight"], w[f"{layer}.bias"], eps=EPSILON)

    def heads(x: Any) -> Any:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    x = w["tok.weight"][ids] + w["pos"]
    for block in (f"blocks.{number}" for number in range(LAYERS)):
        q, k, v = map(heads, dense(normal(x, f"{block}.ln1"), f"{block}.qkv").chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ v
        x = x + dense(mixed.transpose(1, 2).flatten(2), f"{block}.proj")
        x = x + dense(f.gelu(dense(normal(x, f"{block}.ln2"), f"{block}.fc")), f"{block}.out")
    return (normal(x, "ln") @ w["head.weight"].T).flatten(0, 1)


MODELS: dict[str, Callable[[Any, Arrays, Any], Any]] = {
    "digits_mlp": _mlp,
    "digits_cnn": _cnn,
    "digits_mlp_training_info": _mlp,
    "nano_gpt": _gpt,
}


def gradients(name: str) -> Arrays:
    """The loss, and the gradient of every tensor that has one, by the PyTorch that is installed."""
    import torch

    tensors = {key: torch.tensor(array.astype(np.float64)) for key, array in initializers(name).items()}
    trained = {key: value.requires_grad_() for key, value in tensors.items() if "running" not in key}
    x, labels = (torch.tensor(array) for array in batch(name))
    output = MODELS[name](torch, tensors, x.double() if x.is_floating_point() else x)
    loss = torch.nn.functional.cross_entropy(output, labels)
    loss.backward()
    slopes: Arrays = {key: value.grad for key, value in trained.items()}
    return {"loss": loss.detach().numpy(), **{key: slope.numpy() for key, slope in slopes.items()}}


def recorded(found: Arrays, name: str) -> Arrays:
    """What is kept of a model's gradients."""
    made: Arrays = {f"{name}/loss": found["loss"]}
    for key, gradient in found.items():
        if key == "loss":
            continue
        if key in ZERO.get(name, ()):
            gradient = np.zeros_like(gradient)
        largest = np.abs(gradient).max()
        made[f"{name}/{key}/largest"] = largest
        made[f"{name}/{key}/units"] = np.rint(gradient * (UNITS / max(largest, 1e-300))).astype(np.int16)
        made[f"{name}/{key}/products"] = products(gradient)
    return made


if __name__ == "__main__":
    kept: Arrays = {}
    for each in MODELS:
        kept |= recorded(gradients(each), each)
    np.savez_compressed(RECORD, **kept)
