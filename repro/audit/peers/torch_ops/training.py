"""Training steps in PyTorch: the table's kernels with autograd, its losses, its optimizers.

The nodes of a training run (`repro.audit.unrolled`) are run one by one, so that each step, and each parameter's update,
can be given golden values. An update is one `step()` of the torch.optim class on one parameter, with the state that the
node reads; on a CPU these classes go through the parameters one after another anyway.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from onnx import ModelProto, NodeProto
from torch import Tensor

from repro.audit import unrolled
from repro.audit.peers.peer import PeerError
from repro.audit.peers.torch_ops.interpreter import Interpreter
from repro.audit.peers.torch_ops.losses import Batch, loss_of
from repro.audit.peers.torch_ops.tensors import to_numpy, to_torch
from repro.audit.records import Outcome
from repro.frontend.tensors import read_array
from repro.ir.types import Array, to_face
from repro.train_step import TrainOptions
from repro.train_step.optimizers import Adagrad, Adam, AdamW, Momentum, Nesterov, Optimizer, RMSprop, Sgd

_RUNNING = {3: 1, 4: 2}
"""Of a BatchNormalization: input -> the output that is its next value."""


class Steps:
    """A training run, node by node."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._options = unrolled.options_of(model) if model.graph.node[0].op_type != unrolled.STEP else None
        self._forward: Interpreter | None = None
        self.fallbacks: dict[str, str] = {}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name. Raises PeerError."""
        values = {item.name: to_torch(to_face(*read_array(item, None))) for item in self._model.graph.initializer}
        values |= {name: to_torch(array) for name, array in inputs.items()}
        for node in self._model.graph.node:
            given = [values[name] for name in node.input]
            values |= zip(node.output, self._outputs(node, given), strict=True)
        return {item.name: to_numpy(values[item.name]) for item in self._model.graph.output}

    def _outputs(self, node: NodeProto, given: Sequence[Tensor]) -> Sequence[Tensor]:
        if self._options is None:
            raise PeerError(Outcome.REFUSED, "the model brings its own training step, which has no counterpart here")
        match node.op_type:
            case unrolled.GRADIENTS:
                return self._gradients(node, given, self._options)
            case unrolled.CLIP:
                return clipped(given, self._options)
            case _:
                return self._updated(node, given)

    # ── loss and gradients ──────────────────────────────────────────────────────────────────────────

    def _gradients(self, node: NodeProto, given: Sequence[Tensor], options: TrainOptions) -> list[Tensor]:
        """Loss, gradients, running statistics. Microbatches and shards are passes one after another."""
        if unrolled.names_in(node, "random"):
            raise PeerError(Outcome.REFUSED, "the model draws random numbers: ONNX specifies no stream")
        forward = self._forward_of(node)
        ports = unrolled.names_in(node, "ports")
        batch = Batch.of(dict(zip(ports, given, strict=False)), options)
        names = [item.name for item in forward.graph.input if item.name not in ports]
        parameters = dict(zip(names, given[len(ports) :], strict=True))
        leaves = {name: parameters[name].detach().requires_grad_() for name in unrolled.names_in(node, "trained")}
        _check_types(leaves)
        moving = unrolled.names_in(node, "statistics")
        statistics = {name: parameters[name] for name in moving}
        if moving and options.shards > 1:
            raise PeerError(Outcome.REFUSED, "running statistics of virtual shards have no counterpart in PyTorch")
        loss = torch.zeros(())
        for number, part in enumerate(batch.parts):
            values = forward.run({**parameters, **leaves, **statistics, **part.inputs})
            output = values[options.loss_output or forward.graph.output[0].name]
            mine = loss_of(output, part, batch, options)
            mine.backward()
            loss = loss + mine.detach() if number else mine.detach()
            statistics = {name: values[source].detach() for name, source in self._moved(forward, moving).items()}
        self.fallbacks |= forward.fallbacks
        slopes = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves.values()]
        return [loss, *slopes, *statistics.values()]

    def _forward_of(self, node: NodeProto) -> Interpreter:
        """All steps have one forward model."""
        if self._forward is None:
            self._forward = Interpreter(unrolled.forward_model(self._model, node, with_parameters=False))
        return self._forward

    def _moved(self, forward: Interpreter, names: Sequence[str]) -> dict[str, str]:
        """Running statistic -> the value that is its next one."""
        found = {
            node.input[place]: node.output[result]
            for node in forward.graph.node
            if node.op_type == "BatchNormalization" and len(node.output) > max(_RUNNING.values())
            for place, result in _RUNNING.items()
        }
        missing = [name for name in names if name not in found]
        if missing:
            raise PeerError(Outcome.REFUSED, f"running statistics that no BatchNormalization reads: {missing[0]}")
        return {name: found[name] for name in names}

    # ── updates ─────────────────────────────────────────────────────────────────────────────────────

    def _updated(self, node: NodeProto, given: Sequence[Tensor]) -> list[Tensor]:
        step = unrolled.step_in(node)
        options = unrolled.update_options(node)
        tensors = unrolled.names_in(node, "tensors")
        parameter, slope = given[0].clone().requires_grad_(), given[1]
        parameter.grad = slope.clone()
        optimizer = optimizer_of(options.optimizer, parameter, unrolled.scheduled_rate(options, step))
        if step > 1:
            kept = {name: tensor.clone() for name, tensor in zip(tensors, given[2:], strict=True)}
            optimizer.state[parameter].update(kept, step=torch.tensor(float(step - 1)))
        optimizer.step()
        return [parameter.detach(), *(optimizer.state[parameter][name] for name in tensors)]


def _check_types(leaves: Mapping[str, Tensor]) -> None:
    narrow = [name for name, leaf in leaves.items() if leaf.dtype not in (torch.float32, torch.float64)]
    if narrow:
        reason = f"{narrow[0]} is {leaves[narrow[0]].dtype}: PyTorch keeps such a parameter's state in its own type"
        raise PeerError(Outcome.REFUSED, f"{reason}, repro in f32")


def clipped(slopes: Sequence[Tensor], options: TrainOptions) -> list[Tensor]:
    """Gradients scaled so that their global norm is at most `clip_norm`."""
    holders = [torch.nn.Parameter(torch.zeros_like(slope)) for slope in slopes]
    for holder, slope in zip(holders, slopes, strict=True):
        holder.grad = slope.clone()
    torch.nn.utils.clip_grad_norm_(holders, float(options.clip_norm or 0.0))
    return [slope if holder.grad is None else holder.grad for holder, slope in zip(holders, slopes, strict=True)]


def optimizer_of(chosen: Optimizer, parameter: Tensor, rate: float) -> torch.optim.Optimizer:
    """PyTorch's optimizer with the same options. Raises PeerError for one that it lacks."""
    common: dict[str, Any] = {"params": [parameter], "lr": rate, "weight_decay": chosen.weight_decay}
    match chosen:
        case Nesterov():
            return torch.optim.SGD(**common, momentum=chosen.momentum, nesterov=True)
        case Momentum():
            return torch.optim.SGD(**common, momentum=chosen.momentum, dampening=chosen.dampening)
        case Sgd():
            return torch.optim.SGD(**common)
        case Adagrad():
            start = chosen.initial_accumulator_value
            decay = chosen.lr_decay
            return torch.optim.Adagrad(**common, lr_decay=decay, initial_accumulator_value=start, eps=chosen.epsilon)
        case RMSprop():
            common |= {"alpha": chosen.alpha, "eps": chosen.epsilon}
            return torch.optim.RMSprop(**common, momentum=chosen.momentum, centered=chosen.centered)
        case Adam():
            kind = torch.optim.AdamW if isinstance(chosen, AdamW) else torch.optim.Adam
            betas = (chosen.beta1, chosen.beta2)
            return kind(**common, betas=betas, eps=chosen.epsilon, amsgrad=chosen.amsgrad)
        case _:
            raise PeerError(Outcome.REFUSED, f"PyTorch has no optimizer {type(chosen).__name__}")
