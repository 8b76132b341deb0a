"""How a model of the zoo trains: its gradients and the losses of a few steps, beside PyTorch's."""

# pyright: reportMissingImports=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import repro
from benchmarks.zoo_cases import Case, array_of, labels_of, not_trained, training
from repro.artifact.build import Request, imported_entries
from repro.bench.measuring import peak_resident, resident
from repro.frontend import load_model
from repro.ops.record import evaluate
from repro.train_step import training_of

Row = dict[str, Any]
Arrays = dict[str, Any]

STEPS, RATE = 3, 1e-3
NEXT_TO_NOTHING = 1e-6
"""A loss, in f32, of what was learned by heart: a smaller one is not compared with."""
SMALL = 1e-3
"""A gradient's error is held against its greatest magnitude, but at least this much of the greatest of any."""


def gradients(case: Case, path: Path, inputs: Arrays) -> Row:
    """The greatest difference from PyTorch's gradients in float64, of the reference's gradients and of PyTorch's own:
    over a gradient's greatest magnitude. Nothing is compiled: that a target has the reference's bits is shown
    elsewhere."""
    import torch

    truth, labels = _torch_gradients(case, torch.float64)
    theirs, _ = _torch_gradients(case, None)
    options = training_of({"loss": _loss(case), "frozen": ",".join(not_trained(case, path)), "trainable": "*"})
    bind = {f"{name}[{axis}]": size for name, array in inputs.items() for axis, size in enumerate(array.shape)}
    request = Request(load_model(path), bind, {}, (), None, 0, 0, options, gradients=True)
    entry = next(each for each in imported_entries(request)[1] if each.name == "gradients")
    given = {**inputs, "labels": labels}
    results = evaluate(entry.graph, [given[port.name] for port in entry.inputs], [p.initial for p in entry.parameters])
    found = {port.name.removesuffix(".grad"): value for port, value in zip(entry.outputs, results, strict=True)}
    missing = sorted(truth.keys() - found.keys())
    if missing:
        raise repro.ReproError("parameters without a gradient", found=", ".join(missing))
    return {"repro": _error(found, truth), "torch": _error(theirs, truth), "count": len(truth)}


def _error(found: Mapping[str, Any], truth: Mapping[str, Any]) -> float:
    least = SMALL * max(float(np.max(np.abs(value))) for value in truth.values() if value.size)
    return max(
        float(np.max(np.abs(found[name].astype(np.float64) - value)) / max(float(np.max(np.abs(value))), least))
        for name, value in truth.items()
        if value.size
    )


def _loss(case: Case) -> str:
    return "softmax_cross_entropy" if case.classes else "mse"


def _torch_loss(case: Case, module: Any, inputs: Any) -> tuple[Any, Any]:
    """The loss, and the labels that it took."""
    import torch

    found = module(*inputs)
    first = found[0] if isinstance(found, tuple) else found
    labels = labels_of(case, first)
    criterion = torch.nn.functional.cross_entropy if case.classes else torch.nn.functional.mse_loss
    return criterion(first, labels), labels


def _torch_gradients(case: Case, dtype: Any) -> tuple[Arrays, Any]:
    """By every name that a parameter has, in `dtype` or as the model is; and the labels in the model's own type."""
    module = training(case)
    inputs = list(case.inputs().values())
    if dtype is not None:
        module = module.to(dtype)
        inputs = [each.to(dtype) if each.is_floating_point() else each for each in inputs]
    loss, labels = _torch_loss(case, module, inputs)
    loss.backward()
    named = module.named_parameters(remove_duplicate=False)
    found = {name: each.grad.numpy() for name, each in named if each.grad is not None}
    labels = array_of(labels if not labels.is_floating_point() else labels.float())
    return _once(found), labels


def _once(found: Arrays) -> Arrays:
    """A parameter under several names by the first: so the exporter names it."""
    seen: set[int] = set()
    kept: Arrays = {}
    for name, value in found.items():
        at = value.__array_interface__["data"][0]
        if at not in seen or not value.size:
            kept[name] = value
        seen.add(at)
    return kept


def losses(case: Case, path: Path, folder: Path, inputs: Arrays, target: str) -> Row:
    """The losses of a few steps of AdamW, and the greatest relative difference from PyTorch eager's."""
    theirs = _torch_step(case)
    wanted = [theirs() for _ in range(STEPS)]
    repro.build(
        path, folder, loss=_loss(case), optimizer="adamw", learning_rate=RATE, trainable="*",
        frozen=",".join(not_trained(case, path)), targets=target, force=True,
        bind={f"{name}[{axis}]": size for name, array in inputs.items() for axis, size in enumerate(array.shape)},
    )  # fmt: skip
    step = _step(case, folder, inputs)
    found = [step() for _ in range(STEPS)]
    differences = (abs(a - b) / max(abs(b), NEXT_TO_NOTHING) for a, b in zip(found, wanted, strict=True))
    return {"losses": found, "torch": wanted, "difference": max(differences)}


def _step(case: Case, folder: Path, inputs: Arrays) -> Callable[[], float]:
    """Of what `losses` built."""
    session = repro.load(folder).session("train_step", threads=1)
    given = {**inputs, "labels": _labels(case)}
    return lambda: float(session.run(given)["loss"])


def _labels(case: Case) -> Any:
    import torch

    with torch.no_grad():
        return array_of(_torch_loss(case, training(case), case.inputs().values())[1])


def _torch_step(case: Case, *_: object) -> Callable[[], float]:
    """PyTorch eager's."""
    import torch

    module = training(case)
    optimizer = torch.optim.AdamW(module.parameters(), RATE)
    inputs = list(case.inputs().values())

    def step() -> float:
        optimizer.zero_grad()
        loss, _ = _torch_loss(case, module, inputs)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


SIDES: Mapping[str, Callable[[Case, Path, Arrays], Callable[[], float]]] = {"repro": _step, "torch": _torch_step}
"""What opens a training step, which returns its loss."""


def peak(case: Case, folder: Path, inputs: Arrays, side: str) -> int:
    """The most bytes that are resident over three steps, less those before the first. For a process of its own."""
    step = SIDES[side](case, folder, inputs)
    before = resident()
    for _ in range(3):
        step()
    return peak_resident() - before
