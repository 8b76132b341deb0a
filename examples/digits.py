"""Train the digits models and say how good they are: `python -m examples.digits mlp`, `python -m examples.digits cnn`.

1797 images of 8 x 8 pixels (see data/README.md). The first 360 of the order that seed 0 draws are the test images; the
rest is trained on. The MLP is shown each image five times an epoch, as it is and moved by one pixel in each direction.
Its optimizer was chosen on 300 of the training images; the test images took no part in that. Test accuracy is that of
the exported model in inference mode.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import repro
from repro import ending
from repro.ir.types import Array
from repro.training.data import order_of

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "digits.json"
TEST_IMAGES, BATCH = 360, 32
SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))


@dataclass(frozen=True)
class Example:
    """A model, how it is trained, and the accuracy on the test images that it has to reach."""

    model: str
    least_accuracy: float
    epochs: int
    flat: bool = False
    shifts: tuple[tuple[int, int], ...] = SHIFTS[:1]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def steps(self) -> int:
        return (1797 - TEST_IMAGES) * len(self.shifts) // BATCH * self.epochs


_NESTEROV = {"optimizer": "nesterov", "learning_rate": 0.1, "weight_decay": 0.001, "schedule": "cosine"}
EXAMPLES = {
    "mlp": Example("digits_mlp", 0.97, 20, True, SHIFTS, _NESTEROV),
    "cnn": Example("digits_cnn", 0.98, 40, options={"optimizer": "adam", "learning_rate": 0.001}),
}


def data(example: Example) -> tuple[dict[str, Array], dict[str, Array]]:
    """What is trained on, and the test images."""
    with np.load(HERE / "data" / "digits.npz") as digits:
        x, y = digits["x"], digits["y"]
    order = order_of(0, 0, len(x))
    test, rest = order[:TEST_IMAGES], order[TEST_IMAGES:]
    moved = np.concatenate([shifted(x[rest], down, right) for down, right in example.shifts])
    return _named(example, moved, np.tile(y[rest], len(example.shifts))), _named(example, x[test], y[test])


def shifted(images: Array, down: int, right: int) -> Array:
    """Images moved by a pixel; what comes in at the edge is empty."""
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return wide[:, :, 1 - down : 9 - down, 1 - right : 9 - right]


def _named(example: Example, images: Array, labels: Array) -> dict[str, Array]:
    return {"input": images.reshape(len(images), -1) if example.flat else images, "labels": labels}


def train(name: str, folder: Path, target: str = "cpu", threads: int | None = None) -> dict[str, Any]:
    """Build, train and measure; what the golden record keeps of it."""
    example = EXAMPLES[name]
    options = dict(example.options)
    if "schedule" in options:
        options["total_steps"] = example.steps
    artifact = repro.build(
        HERE.parent / "golden" / example.model / "forward.onnx",
        folder / f"{name}.repro",
        bind={"N": BATCH},
        loss="softmax_cross_entropy",
        **options,
    )
    training, test = data(example)
    done = repro.train(
        artifact.folder,
        training,
        validation=test,
        epochs=example.epochs,
        checkpoint=folder / f"{name}.checkpoints",
        trace=folder / f"{name}.trace",
        trace_state_every=100,
        target=target,
        threads=threads,
    )
    trained = repro.export(done.checkpoint, folder / f"{name}.onnx")
    right = count_right(inference_mode(onnx.load(trained)), test, folder / f"{name}_trained.repro")
    return {"steps": done.step, "state": done.state, "right": right, "of": TEST_IMAGES}


def inference_mode(model: onnx.ModelProto) -> onnx.ModelProto:
    """The trained model with batch normalization by its running statistics: no image is judged by its neighbours."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            del node.output[1:]
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
    return model


def count_right(model: onnx.ModelProto, test: dict[str, Array], out: Path) -> int:
    """How many test images the model knows."""
    artifact = repro.build(model, out, inputs={"input": test["input"]}, targets=["reference"])
    with artifact.session("infer", "reference") as session:
        logits = session.run({"input": test["input"]})["logits"]
    return int(np.sum(np.argmax(logits, axis=1) == test["labels"]))


def main(words: list[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="+", choices=sorted(EXAMPLES))
    options.add_argument("--out", type=Path, help="keep artifact, checkpoints, trace, metrics and trained model here")
    options.add_argument("--threads", type=int)
    options.add_argument("--bless", action="store_true", help="record the digests of the trained states")
    chosen = options.parse_args(words)
    golden: dict[str, Any] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    good = True
    for name in chosen.names:
        with tempfile.TemporaryDirectory() as temporary:
            done = train(name, chosen.out or Path(temporary), threads=chosen.threads)
        accuracy = done["right"] / done["of"]
        if chosen.bless:
            golden[name] = done
        same = golden.get(name) == done
        good &= same and accuracy >= EXAMPLES[name].least_accuracy
        print(f"{name}: {done['right']} of {done['of']} test images ({accuracy:.2%}) after {done['steps']} steps")
        print(f"  state {done['state']}, {'as' if same else 'NOT as'} recorded")
    if chosen.bless:
        GOLDEN.write_text(json.dumps(golden, indent=2, sort_keys=True) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    ending.run(main)
