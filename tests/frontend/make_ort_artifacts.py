"""Small models for operators that the larger artifacts do not have, as ONNX Runtime's own tool writes them.

    python make_ort_artifacts.py export FOLDER      with torch: FOLDER/<name>.onnx
    python make_ort_artifacts.py generate FOLDER    with onnxruntime-training-cpu 1.19.2: the artifacts of each

They go to the folder ort_training beside this file; the larger ones there are of the models in golden. Nothing here
imports repro.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx

ARTIFACTS = Path(__file__).with_name("ort_training")
NEWEST_IR = 10
"""Of the runtime; the onnx package of its environment may write a newer one."""


def models() -> dict[str, tuple[Any, Any, str, bool]]:
    """By name: the module, an example of its input, that input's name, and whether its batch is open."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Convolutional(nn.Module):
        """LeakyRelu, average pool, grouped convolution, Sigmoid, Tanh."""

        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Conv2d(1, 4, 3, padding=1)
            self.t = nn.Conv2d(4, 6, 3, groups=2)
            self.l, self.d = nn.Linear(6 * 2 * 2, 10), nn.Linear(10, 10)

        def forward(self, x: Any) -> Any:
            x = functional.avg_pool2d(functional.leaky_relu(self.c(x), 0.1), 2)
            return torch.tanh(self.d(self.l(torch.sigmoid(self.t(x)).flatten(1)))) * 2

    class Recurrent(nn.Module):
        """LSTM, GRU, slice, mean, quotient, split and concatenation, erf, softmaxes, Gelu."""

        def __init__(self) -> None:
            super().__init__()
            self.e, self.r, self.g = nn.Embedding(11, 6), nn.LSTM(6, 5), nn.GRU(5, 4)
            self.l, self.q = nn.Linear(4, 10), nn.Parameter(torch.rand(1, 4) + 1)

        def forward(self, ids: Any) -> Any:
            x = self.g(self.r(self.e(ids))[0])[0]
            a, b = torch.split(x[1:, :, :].mean(0) / self.q, [1, 3], 1)
            x = torch.cat([torch.erf(b), a], 1)
            return self.l(functional.gelu(functional.softmax(x, 1) + functional.log_softmax(x, 1)))

    class Normalized(nn.Module):
        """Layer normalization, QuickGelu, broadcasts."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.n = nn.Linear(6, 8), nn.Parameter(torch.rand(8)), nn.LayerNorm(8)
            self.l = nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            y = self.n(self.a(x) * self.b + x.sum(1, keepdim=True))
            return self.l(y * torch.sigmoid(1.702 * y))

    torch.manual_seed(0)
    return {
        "convolutional": (Convolutional().train(), torch.rand(4, 1, 8, 8), "input", False),
        "recurrent": (Recurrent().train(), torch.randint(0, 11, (5, 4)), "ids", False),
        "normalized": (Normalized().train(), torch.rand(4, 6), "input", True),
    }


def export(folder: Path) -> None:
    import torch

    for name, (module, example, given, is_open) in models().items():
        torch.onnx.export(
            module,
            (example,),
            str(folder / f"{name}.onnx"),
            dynamo=False,
            opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            input_names=[given],
            output_names=["logits"],
            dynamic_axes={given: {0: "N"}, "logits": {0: "N"}} if is_open else None,
        )


def generate(folder: Path) -> None:
    from onnxruntime.training import artifacts

    for path in sorted(folder.glob("*.onnx")):
        model: Any = onnx.load(path)
        for node in model.graph.node:
            if node.op_type == "LayerNormalization":  # its gradient needs the statistics to be named
                node.output.extend(f"{node.output[0]}.{name}" for name in ("mean", "inverse"))
        floats = [item.name for item in model.graph.initializer if item.data_type == onnx.TensorProto.FLOAT]
        made = ARTIFACTS / path.stem
        made.mkdir(parents=True, exist_ok=True)
        artifacts.generate_artifacts(
            model,
            requires_grad=[name for name in floats if not name.startswith(("/", "onnx"))],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=str(made),
        )
        for part in made.glob("*.onnx"):
            written = onnx.load(part)
            written.ir_version = min(written.ir_version, NEWEST_IR)
            onnx.save(written, part)


if __name__ == "__main__":
    {"export": export, "generate": generate}[sys.argv[1]](Path(sys.argv[2]))
