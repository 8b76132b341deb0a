"""What ONNX Runtime itself makes of its training artifacts: writes ort_training.npz beside this file.

It runs in an environment of its own, as onnxruntime-training has no wheel for the newest NumPy:

    pip install onnxruntime-training-cpu==1.19.2 'numpy<2' torch
    python record_ort_training.py
    python record_ort_training.py external    # takes 8 GB of memory: ort_training/external/checkpoint

For each of the artifacts in ort_training (make_ort_artifacts.py made the small ones) a few steps of train_step,
optimizer.step and lazy_reset_grad: the losses, and after the last of them evenly spaced elements of every parameter and
of its gradient. One model's checkpoint is saved then, with the optimizer's state, and a step from there recorded.
Nothing here imports repro.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("digits_mlp", "digits_cnn", "nano_gpt", "convolutional", "recurrent", "normalized")
ARTIFACTS = Path(__file__).with_name("ort_training")
RESUMED, SAVED = "convolutional", "checkpoint_after_steps"
RECORD = Path(__file__).with_name("ort_training.npz")
STEPS, ROWS, KEPT = 3, 8, 64
EXTERNAL, EXTERNAL_SHAPE = ("w0", "w1", "w2"), (600, 1024, 256)

Arrays = dict[str, Any]


def batch(model: str, step: int) -> list[Any]:
    """Inputs and labels of a step."""
    draw = np.random.Generator(np.random.Philox(1000 * MODELS.index(model) + step))
    if model == "nano_gpt":
        return [draw.integers(0, 96, (8, 32)), draw.integers(0, 96, 256)]
    if model == "recurrent":
        return [draw.integers(0, 11, (5, 4)), draw.integers(0, 10, 4)]
    shape = {
        "digits_mlp": (ROWS, 64),
        "digits_cnn": (ROWS, 1, 8, 8),
        "convolutional": (4, 1, 8, 8),
        "normalized": (ROWS, 6),
    }
    return [draw.random(shape[model], np.float32), draw.integers(0, 10, shape[model][0])]


def sample(array: Any) -> Any:
    """At most KEPT evenly spaced elements of a tensor."""
    flat = np.asarray(array).reshape(-1)
    return flat[np.unique(np.linspace(0, flat.size - 1, min(flat.size, KEPT)).astype(np.int64))]


def recorded(folder: Path, model: str) -> Arrays:
    from onnxruntime.training import api  # pyright: ignore[reportMissingImports]

    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    module = api.Module(str(folder / "training_model.onnx"), state, str(folder / "eval_model.onnx"))
    optimizer = api.Optimizer(str(folder / "optimizer_model.onnx"), module)
    losses: list[float] = []
    module.train()
    for step in range(STEPS):
        outputs = module(*batch(model, step))
        losses.append(float(outputs[0] if isinstance(outputs, list | tuple) else outputs))
        optimizer.step()
        module.lazy_reset_grad()
    made: Arrays = {f"{model}/losses": np.asarray(losses)}
    for name, parameter in state.parameters:
        made[f"{model}/{name}"] = sample(parameter.data)
        if parameter.requires_grad:
            made[f"{model}/{name}_grad"] = sample(parameter.grad)
    if model == RESUMED:  # the state after these steps, and a step from there
        path = ARTIFACTS / model / SAVED
        api.CheckpointState.save_checkpoint(state, str(path), include_optimizer_state=True)
        module(*batch(model, STEPS))
        optimizer.step()
        made |= {f"resumed/{name}": sample(parameter.data) for name, parameter in state.parameters}
    return made


def external() -> None:
    """A checkpoint whose parameters are over 1800 MiB, so that they lie in a second file, which is left out here.

    Of EXTERNAL tensors the first elements are n + 1, 2, 3, 4, and the last is n + 10; all others are zero.
    """
    from onnx import TensorProto
    from onnxruntime.capi import _pybind_state

    def stored(name: str, array: Any) -> bytes:
        made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=array.shape, raw_data=array.tobytes())
        return made.SerializeToString()

    trained: list[bytes] = []
    for number, name in enumerate(EXTERNAL):
        array = np.zeros(EXTERNAL_SHAPE, np.float32)
        array.reshape(-1)[:4], array.reshape(-1)[-1] = (number + 1, 2, 3, 4), number + 10
        trained.append(stored(name, array))
    trained.append(stored("b", np.array([1.5, 2.5, 3.5], np.float32)))
    frozen = [stored("f", np.arange(7, 12, dtype=np.float32))]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "checkpoint"
        write: Any = _pybind_state.save_checkpoint  # pyright: ignore[reportAttributeAccessIssue]
        write(trained, frozen, str(path), False)
        shutil.copy(path, ARTIFACTS / "external" / "checkpoint")


def main() -> None:
    made: Arrays = {}
    for model in MODELS:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(shutil.copytree(ARTIFACTS / model, Path(place) / "artifacts"))
            made |= recorded(copy, model)
    np.savez_compressed(RECORD, **made)


if __name__ == "__main__":
    external() if sys.argv[1:] == ["external"] else main()
