"""Forward and backward over a batch: its loss, the gradients, the next running statistics.

With several microbatches a counted loop runs them one after another; loss totals and gradients are added in ascending
order, each sum starting from the first microbatch. Running statistics move from one microbatch to the next.

With several virtual shards (rule 17) a counted loop around that runs them; each adds up its own microbatches, all of
them starting from the same running statistics, and what the shards give is added by a tree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from repro.autodiff import cotangents
from repro.ir.graph import Graph, Locations, Value, argument
from repro.ir.types import I64, TensorType
from repro.ops import add, convert_to, div, fill, loop, mul, reshape, scalar
from repro.train_step.copies import Moment, copy_of
from repro.train_step.problem import LOSS, Problem, computing, parameters_of
from repro.train_step.shards import cut, tree_sum
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
class Pass:
    """What one pass gives; gradients and statistics by slot."""

    total: Value
    gradients: dict[int, Value]
    statistics: dict[int, Value]

    @property
    def sums(self) -> tuple[Value, ...]:
        """What is added up over the passes."""
        return (self.total, *self.gradients.values())

    def with_values(self, values: Sequence[Value]) -> Pass:
        """The same with other values: sums, then statistics."""
        slopes = values[1 : len(self.sums)]
        gradients = dict(zip(self.gradients, slopes, strict=True))
        return Pass(values[0], gradients, dict(zip(self.statistics, values[len(self.sums) :], strict=True)))


def backward(problem: Problem, step: Value, locations: Locations) -> Backward:
    """Forward and backward over the step's inputs (its arguments); `step` is the run number of random nodes."""
    given = tuple(argument(index, port.type) for index, port in enumerate(problem.inputs))
    model = len(problem.imported.inputs)
    labels, weight = given[model], given[model + 1] if problem.weight is not None else None
    count = _count(problem, labels, weight, locations)
    operands = _Operands(
        inputs=given[:model],
        labels=labels,
        weight=weight,
        parameters=parameters_of(problem.slots),
        seed=div(scalar(1, count.dtype), count),
        moment=Moment(step),
    )
    run = _in_order if problem.options.shards == 1 else _sharded
    made = run(problem, operands, locations)
    return Backward(div(made.total, count), made.gradients, made.statistics)


def _in_order(problem: Problem, operands: _Operands, locations: Locations) -> Pass:
    """The microbatches of one shard, or of a batch without shards."""
    run = _one_pass if problem.options.accumulation == 1 else _accumulated
    return run(problem, operands, locations)


def _one_pass(problem: Problem, operands: _Operands, locations: Locations) -> Pass:
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
    return Pass(total.value, gradients, {slot: moved[operands.parameters[slot]] for slot in problem.statistics})


def _locate(value: Value, locations: Locations) -> None:
    """Says of new nodes that they are the loss's: a label out of range is reported there."""
    stack = [value.node]
    while stack:
        node = stack.pop()
        if node not in locations and node.operands:
            locations[node] = LOSS
            stack.extend(operand.node for operand in node.operands)


# ── parts of a batch ────────────────────────────────────────────────────────────────────────────────


def _split_values(problem: Problem, operands: _Operands) -> tuple[Value, ...]:
    """The operands that have the batch as their leading axis."""
    split = [value for value in (*operands.inputs, operands.labels) if value.rank]
    if operands.weight is not None and problem.loss.weight_is_split:
        split.append(operands.weight)
    return tuple(split)


def _shared_values(problem: Problem, operands: _Operands, moving: Collection[int]) -> tuple[Value, ...]:
    """All other operands that a pass reads, but for the parameters that move from pass to pass."""
    split = _split_values(problem, operands)
    whole = (*operands.inputs, operands.labels, operands.weight)
    others = [value for value in whole if value is not None and value not in split]
    read = {node["identity"] for node in problem.forward.nodes if node.op == "parameter"}
    kept = [operands.parameters[slot] for slot in sorted(read.difference(moving))]
    return (*others, *kept, operands.seed, *operands.moment.values)


def _inside(operands: _Operands, seen: Mapping[Value, Value], part: Value) -> _Operands:
    """The operands of one pass as the body of a loop sees them; it is that over the given part of the batch."""
    return _Operands(
        inputs=tuple(seen[value] for value in operands.inputs),
        labels=seen[operands.labels],
        weight=None if operands.weight is None else seen[operands.weight],
        parameters=tuple(seen.get(value, value) for value in operands.parameters),
        seed=seen[operands.seed],
        moment=Moment(seen[operands.moment.step], part),
    )


def _accumulated(problem: Problem, operands: _Operands, locations: Locations) -> Pass:
    """All microbatches in a loop: totals and gradients are carried, and so are running statistics."""
    count, shard = problem.options.accumulation, operands.moment.part
    tried = trial(problem)
    kinds = (tried.total.type, *(value.type for value in tried.gradients.values()))
    moving = tuple(operands.parameters[slot] for slot in problem.statistics)
    split, shared = _split_values(problem, operands), _shared_values(problem, operands, problem.statistics)

    def body(counter: Value, *arguments: Value) -> tuple[Value, ...]:
        seen = dict(zip((*moving, *split, *shared), arguments[len(kinds) :], strict=True))
        part = counter
        if shard is not None:
            part = add(mul(counter, scalar(problem.options.shards, I64)), seen[shard])
        made = _one_pass(problem, _inside(operands, seen, part), locations)
        sums = (add(known, term) for known, term in zip(arguments, made.sums, strict=False))
        return (*sums, *made.statistics.values())

    # -0.0 is the identity of addition: a sum that starts from it starts from its first term.
    carried = (*(fill(-0.0, kind) for kind in kinds), *moving)
    rows = [reshape(value, (count, value.shape[0] // count, *value.shape[1:])) for value in split]
    found = loop(count, carried, rows, shared, body)
    return tried.with_values(found)


# ── shards ──────────────────────────────────────────────────────────────────────────────────────────


def _sharded(problem: Problem, operands: _Operands, locations: Locations) -> Pass:
    """All shards in a loop, and the tree over what they give; running statistics are the mean of the shards'."""
    shards = problem.options.shards
    split, shared = _split_values(problem, operands), _shared_values(problem, operands, ())

    def body(shard: Value, *arguments: Value) -> tuple[Value, ...]:
        seen = dict(zip((*split, *shared), arguments, strict=True))
        made = _in_order(problem, _inside(operands, seen, shard), locations)
        moved = (convert_to(value, computing(value.dtype)) for value in made.statistics.values())
        return (*made.sums, *moved)

    rows = [cut(value, problem.options.accumulation, shards) for value in split]
    tried = trial(problem)
    found = [tree_sum(stacked) for stacked in loop(shards, (), rows, shared, body)]
    for place, slot in enumerate(problem.statistics, len(tried.sums)):
        mean = div(found[place], fill(shards, found[place].type))
        found[place] = convert_to(mean, problem.slots[slot].type.dtype)
    return tried.with_values(found)


def _count(problem: Problem, labels: Value, weight: Value | None, locations: Locations) -> Value:
    """What the total of the whole batch is divided by: the counts of the shards, added by their tree."""
    options, dtype = problem.options, problem.output.dtype

    def of(labels: Value, weight: Value | None) -> Value:
        count = problem.loss.count(labels, weight, dtype)
        _locate(count, locations)
        return count

    if options.shards == 1:
        return of(labels, weight)
    scanned, fixed = ([labels], []) if labels.rank else ([], [labels])
    if weight is not None:
        (scanned if problem.loss.weight_is_split and weight.rank else fixed).append(weight)
    rows = [cut(value, options.accumulation, options.shards) for value in scanned]

    def body(_: Value, *arguments: Value) -> tuple[Value, ...]:
        seen = dict(zip((*scanned, *fixed), arguments, strict=True))
        return (of(seen[labels], None if weight is None else seen[weight]),)

    (counts,) = loop(options.shards, (), rows, fixed, body)
    count = tree_sum(counts)
    _locate(count, locations)
    return count


def trial(problem: Problem) -> Pass:
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
