"""Forward and backward over a batch: its loss, the gradients, the next running statistics.

With several microbatches a counted loop runs them one after another; loss totals and gradients are added in ascending
order, each sum starting from the first microbatch. Running statistics move from one microbatch to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repro.autodiff import cotangents
from repro.ir.graph import Graph, Locations, Value, argument
from repro.ir.types import I64, TensorType
from repro.ops import add, convert_to, div, fill, loop, reshape, scalar
from repro.train_step.copies import Moment, copy_of
from repro.train_step.problem import LOSS, Problem, computing, parameters_of
from repro.train_step.statistics import next_statistics


@dataclass(frozen=True)
class Backward:
    """The loss of a batch; by slot the gradients (in computing types) of the parameters that a path leads to, and
    the next values of running statistics."""

    loss: Value
    gradients: dict[int, Value]
    statistics: dict[int, Value]


@dataclass(frozen=True)
class _Operands:
    """What one pass reads: the model's inputs, the loss's, a value for each parameter, the seed of the gradients."""

    inputs: tuple[Value, ...]
    labels: Value
    weight: Value | None
    parameters: tuple[Value, ...]
    seed: Value
    moment: Moment


@dataclass(frozen=True)
class _Pass:
    total: Value
    gradients: dict[int, Value]
    statistics: dict[int, Value]


def backward(problem: Problem, step: Value, locations: Locations) -> Backward:
    """Forward and backward over the step's inputs (its arguments); `step` is the run number of random nodes."""
    given = tuple(argument(index, port.type) for index, port in enumerate(problem.inputs))
    model = len(problem.imported.inputs)
    labels, weight = given[model], given[model + 1] if problem.weight is not None else None
    count = problem.loss.count(labels, weight, problem.output.dtype)
    _locate(count, locations)
    operands = _Operands(
        inputs=given[:model],
        labels=labels,
        weight=weight,
        parameters=parameters_of(problem.slots),
        seed=div(scalar(1, count.dtype), count),
        moment=Moment(step),
    )
    if problem.options.accumulation == 1:
        made = _one_pass(problem, operands, locations)
    else:
        made = _accumulated(problem, operands, locations)
    return Backward(div(made.total, count), made.gradients, made.statistics)


def _one_pass(problem: Problem, operands: _Operands, locations: Locations) -> _Pass:
    copied = copy_of(problem.forward, operands.inputs, operands.parameters, operands.moment, locations)
    x = convert_to(copied[0], problem.output.dtype)
    total = problem.loss.total(x, operands.labels, operands.weight)
    _locate(total.value, locations)
    wanted = [operands.parameters[slot] for slot in problem.trained]
    found = cotangents([(total.value, operands.seed)], wanted, total.steps)
    gradients = {
        slot: convert_to(value, computing(value.dtype))
        for slot, value in zip(problem.trained, found, strict=True)
        if value is not None
    }
    names = {operands.parameters[slot]: problem.slots[slot].name for slot in problem.statistics}
    moved = next_statistics(Graph((), copied), names, locations)
    return _Pass(total.value, gradients, {slot: moved[operands.parameters[slot]] for slot in problem.statistics})


def _locate(value: Value, locations: Locations) -> None:
    """Says of new nodes that they are the loss's: a label out of range is reported there."""
    stack = [value.node]
    while stack:
        node = stack.pop()
        if node not in locations and node.operands:
            locations[node] = LOSS
            stack.extend(operand.node for operand in node.operands)


# ── microbatches ────────────────────────────────────────────────────────────────────────────────────


def _split(value: Value, count: int) -> Value:
    """[count * n, ...] as [count, n, ...]."""
    return reshape(value, (count, value.shape[0] // count, *value.shape[1:]))


class _Accumulation:
    """One pass as the body of a loop: which operands are carried, scanned and fixed, in order.

    carried: total, gradients, running statistics; scanned: what is split; fixed: the rest.
    """

    def __init__(self, problem: Problem, operands: _Operands, single: _Pass) -> None:
        self.problem, self.operands = problem, operands
        self.reached = tuple(single.gradients)
        self.sums = (single.total.type, *(value.type for value in single.gradients.values()))
        whole = [*operands.inputs, operands.labels]
        split = [value for value in whole if value.rank]
        if operands.weight is not None and problem.loss.weight_is_split:
            split.append(operands.weight)
        self.split = tuple(split)
        others = [value for value in (*whole, operands.weight) if value is not None and value not in split]
        read = {node["identity"] for node in problem.forward.nodes if node.op == "parameter"}
        kept = [operands.parameters[slot] for slot in sorted(read.difference(problem.statistics))]
        self.fixed = (*others, *kept, operands.seed, operands.moment.step)

    @property
    def carried(self) -> tuple[Value, ...]:
        """-0.0 is the identity of addition: a sum that starts from it starts from its first term."""
        statistics = (self.operands.parameters[slot] for slot in self.problem.statistics)
        return (*(fill(-0.0, kind) for kind in self.sums), *statistics)

    def inside(self, counter: Value, arguments: Sequence[Value]) -> _Operands:
        """The operands of one pass, as the loop's body sees them."""
        statistics = [self.operands.parameters[slot] for slot in self.problem.statistics]
        outer = (*statistics, *self.split, *self.fixed)
        seen: Mapping[Value, Value] = dict(zip(outer, arguments[len(self.sums) :], strict=True))
        own = self.operands
        return _Operands(
            inputs=tuple(seen[value] for value in own.inputs),
            labels=seen[own.labels],
            weight=None if own.weight is None else seen[own.weight],
            parameters=tuple(seen.get(value, value) for value in own.parameters),
            seed=seen[own.seed],
            moment=Moment(seen[own.moment.step], counter),
        )


def _accumulated(problem: Problem, operands: _Operands, locations: Locations) -> _Pass:
    """All microbatches in a loop."""
    count = problem.options.accumulation
    work = _Accumulation(problem, operands, _trial(problem))

    def body(counter: Value, *arguments: Value) -> tuple[Value, ...]:
        made = _one_pass(problem, work.inside(counter, arguments), locations)
        terms = (made.total, *(made.gradients[slot] for slot in work.reached))
        sums = (add(known, term) for known, term in zip(arguments, terms, strict=False))
        return (*sums, *(made.statistics[slot] for slot in problem.statistics))

    rows = [_split(value, count) for value in work.split]
    total, *rest = loop(count, work.carried, rows, work.fixed, body)
    gradients, statistics = rest[: len(work.reached)], rest[len(work.reached) :]
    return _Pass(
        total,
        dict(zip(work.reached, gradients, strict=True)),
        dict(zip(problem.statistics, statistics, strict=True)),
    )


def _trial(problem: Problem) -> _Pass:
    """One microbatch by itself: says to which parameters a path leads, and of which types the sums are."""
    kinds = [port.type for port in problem.imported.inputs]
    kinds += [problem.labels, *(() if problem.weight is None else (problem.weight,))]
    given = tuple(argument(index, kind) for index, kind in enumerate(kinds))
    model = len(problem.imported.inputs)
    return _one_pass(
        problem,
        _Operands(
            inputs=given[:model],
            labels=given[model],
            weight=given[model + 1] if problem.weight is not None else None,
            parameters=parameters_of(problem.slots),
            seed=fill(1, TensorType(problem.output.dtype, ())),
            moment=Moment(scalar(0, I64)),
        ),
        {},
    )
