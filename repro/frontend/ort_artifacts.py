"""A folder of ONNX Runtime's training artifacts as one model with training_info.

The folder holds `training_model.onnx` (a forward and backward pass that adds each gradient to a buffer),
`optimizer_model.onnx` (one optimizer over sequences of tensors), `eval_model.onnx` and `checkpoint` (where the
parameters start). A step there is train_step(), optimizer.step(), lazy_reset_grad(). Here the graph is eval_model's;
the algorithm is the training model's, then the optimizer's; what ONNX Runtime changes in place is bound to state:
parameters, running statistics, gradient buffers, moments and the count of steps. So one form of training graph is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import helper

from repro.errors import ReproError
from repro.frontend.limits import MAX_MODEL_BYTES, domain_of
from repro.frontend.load import LoadedModel, load_model
from repro.frontend.ort_algorithm import algorithm_of
from repro.frontend.ort_checkpoint import SavedState, read_checkpoint

TRAINING, OPTIMIZER, EVALUATION, CHECKPOINT = (
    "training_model.onnx", "optimizer_model.onnx", "eval_model.onnx", "checkpoint",
)  # fmt: skip


def load_source(source: str | Path | bytes | onnx.ModelProto) -> LoadedModel:
    """A model, or a folder of training artifacts. Raises ReproError."""
    if isinstance(source, str | Path) and Path(source).is_dir():
        return load_artifacts(Path(source))
    return load_model(source)


def load_artifacts(folder: Path) -> LoadedModel:
    """The artifacts of a folder as one model. Raises ReproError where they are not what ONNX Runtime writes."""
    missing = [name for name in (TRAINING, OPTIMIZER, EVALUATION, CHECKPOINT) if not (folder / name).is_file()]
    if missing:
        raise ReproError(
            "the folder holds no training artifacts",
            found=f"'{folder}' without {', '.join(missing)}",
            expected=", ".join((TRAINING, OPTIMIZER, EVALUATION, CHECKPOINT)),
            next="give the .onnx file itself, or make the folder with onnxruntime.training.artifacts",
        )
    training, optimizer, evaluation = (load_model(folder / name).proto for name in (TRAINING, OPTIMIZER, EVALUATION))
    saved = read_checkpoint(_bytes(folder / CHECKPOINT), folder)
    return load_model(joined(training, optimizer, evaluation, saved), folder)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_MODEL_BYTES + 1)
    except OSError as error:
        raise ReproError("the checkpoint cannot be read", found=f"'{path}': {error.strerror}") from None
    if len(content) > MAX_MODEL_BYTES:
        raise ReproError("the checkpoint is over the size limit", expected=f"at most {MAX_MODEL_BYTES} bytes")
    return content


def joined(
    training: onnx.ModelProto, optimizer: onnx.ModelProto, evaluation: onnx.ModelProto, saved: SavedState
) -> onnx.ModelProto:
    """One model: eval_model's graph, and the other two as the algorithm of its training_info."""
    opsets = _opsets((training, evaluation), optimizer)
    graph = onnx.GraphProto()
    graph.CopyFrom(evaluation.graph)
    tensors = {tensor.name: tensor for tensor in (*saved.trained, *saved.frozen)}
    del graph.input[:]
    graph.input.extend(item for item in evaluation.graph.input if item.name not in tensors)
    graph.initializer.extend(tensor.initializer for tensor in tensors.values())
    made = onnx.ModelProto(ir_version=max(each.ir_version for each in (training, optimizer, evaluation)))
    made.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in sorted(opsets.items()))
    made.functions.extend(_functions((training, evaluation, optimizer)))
    made.graph.CopyFrom(graph)
    made.training_info.append(algorithm_of(training.graph, optimizer.graph, graph, saved))
    return made


def _opsets(passes: Iterable[onnx.ModelProto], optimizer: onnx.ModelProto) -> dict[str, int]:
    """Of each domain the version that all models mean; the optimizer's counts for domains that it uses."""
    used = {domain_of(node.domain) for node in optimizer.graph.node}
    found: dict[str, int] = {}
    for item in [item for model in passes for item in model.opset_import] + [
        item for item in optimizer.opset_import if domain_of(item.domain) in used
    ]:
        domain = domain_of(item.domain)
        if found.setdefault(domain, int(item.version)) != item.version:
            versions = f"'{domain or 'ai.onnx'}' at {found[domain]} and {item.version}"
            raise ReproError("the artifacts import one domain at two versions", found=versions, expected="one version")
    return found


def _functions(models: Iterable[onnx.ModelProto]) -> list[onnx.FunctionProto]:
    found: dict[tuple[str, str, str], onnx.FunctionProto] = {}
    for function in (function for model in models for function in model.functions):
        key = (function.domain, function.name, function.overload)
        if found.setdefault(key, function) != function:
            raise ReproError("the artifacts define one function in two ways", op=function.name)
    return list(found.values())
