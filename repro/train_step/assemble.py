"""The training step of a forward model: one graph over its inputs and its state.

The state is, in this order: the model's parameters, the base learning rate (f64), the number of finished steps (i64),
the optimizer's tensors of each parameter that a gradient reaches, in slot order. The results are the loss, then the
next value of every state tensor that changes, in the order of the state. So the rate can be changed between steps
without a new build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from repro.errors import ReproError
from repro.frontend.imported import EntryGraph, Imported, ParameterSlot, Port
from repro.ir.graph import Graph, Locations, Value, parameter
from repro.ir.types import F64, I64, TensorType, to_storage
from repro.ops import add, convert_to, fill, mul, scalar
from repro.train_step.backward import Backward, backward, trial
from repro.train_step.clipping import clipped
from repro.train_step.lint import check_paths, lint
from repro.train_step.problem import LOSS, Problem, TrainOptions, computing, parameters_of, problem_of

TRAIN_STEP, GRADIENTS = "train_step", "gradients"
LEARNING_RATE, STEP = "learning_rate", "step"
_SCALAR_F64, _SCALAR_I64 = TensorType(F64, ()), TensorType(I64, ())


@dataclass(frozen=True)
class TrainStep:
    """A training step. `state` are the graph's parameters by position; `updates` pairs a state tensor with the
    result that is its next value. `random_nodes` are those of the model. `warnings`: what a trainer may not mean."""

    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: tuple[ParameterSlot, ...]
    updates: tuple[tuple[int, int], ...]
    random_nodes: tuple[str, ...]
    locations: Locations
    warnings: tuple[str, ...]

    @property
    def entry(self) -> EntryGraph:
        """The step as one of a model's entries; its output is the loss."""
        return EntryGraph(TRAIN_STEP, self.graph, self.inputs, self.outputs, self.state, self.locations, self.updates)


def read_for_training(read: Callable[[frozenset[str]], Imported], options: TrainOptions) -> Imported:
    """A model in which nothing was decided by the initial value of what its training changes. `read` imports it with
    such values unknown for the parameters named. Raises ReproError where it needs to know one."""
    unknown = frozenset[str]()
    while True:
        imported = read(unknown)
        found = _changed(imported, options)
        if not found:
            return imported
        unknown |= found


def _changed(imported: Imported, options: TrainOptions) -> frozenset[str]:
    """Names of the parameters that the optimizer changes though their initial values decided about the graph."""
    if not imported.notes.decided:
        return frozenset()
    problem, decided = problem_of(imported, options, chosen=False), frozenset(imported.notes.decided)
    for slot in problem.statistics:
        if problem.slots[slot].name in decided:
            raise ReproError(
                "a running statistic decides about the model's graph",
                found=f"'{problem.slots[slot].name}', which training changes",
                expected="branches, shapes and counts that depend on what training leaves as it is",
                next="export the model without what depends on it",
            )
    slots = {slot: problem.slots[slot].name for slot in problem.trained}
    if decided.isdisjoint(slots.values()):
        return frozenset()
    return decided.intersection(slots[slot] for slot in trial(problem).gradients)


def train_step(imported: Imported, options: TrainOptions) -> TrainStep:
    """The training step of a model. Raises ReproError where model and options do not fit."""
    problem = problem_of(imported, options)
    locations = dict(imported.locations)
    found = backward(problem, parameter(_step_position(problem), _SCALAR_I64), locations)
    check_paths(problem, found.gradients)
    state = state_of(problem, found)
    new = {**found.statistics, **_updated(problem, found, parameters_of(state))}
    changed = sorted(new)
    graph = Graph(tuple(port.type for port in problem.inputs), (found.loss, *(new[slot] for slot in changed)))
    return TrainStep(
        graph=graph,
        inputs=problem.inputs,
        outputs=(Port(LOSS, found.loss.type),),
        state=state,
        updates=tuple((slot, 1 + place) for place, slot in enumerate(changed)),
        random_nodes=imported.random_nodes,
        locations=_located(graph, locations, TRAIN_STEP),
        warnings=lint(problem, found.gradients),
    )


def gradients(imported: Imported, options: TrainOptions) -> EntryGraph:
    """The loss and `<initializer>.grad` of each trained parameter, zeros where no path leads to it.

    As the step's optimizer would be given them, before clipping; random nodes draw for run 0.
    """
    problem = problem_of(imported, options)
    locations = dict(imported.locations)
    found = backward(problem, scalar(0, I64), locations)
    check_paths(problem, found.gradients)
    slots = [problem.slots[slot] for slot in problem.trained]
    values = [
        convert_to(found.gradients[slot], kept.type.dtype) if slot in found.gradients else fill(0, kept.type)
        for slot, kept in zip(problem.trained, slots, strict=True)
    ]
    graph = Graph(tuple(port.type for port in problem.inputs), (found.loss, *values))
    ports = (Port(LOSS, found.loss.type), *(Port(f"{slot.name}.grad", slot.type) for slot in slots))
    placed = _located(graph, locations, GRADIENTS)
    return EntryGraph(GRADIENTS, graph, problem.inputs, ports, imported.parameters, placed)


# ── state ───────────────────────────────────────────────────────────────────────────────────────────


def _rate_position(problem: Problem) -> int:
    return len(problem.slots)


def _step_position(problem: Problem) -> int:
    return len(problem.slots) + 1


def state_of(problem: Problem, found: Backward) -> tuple[ParameterSlot, ...]:
    """All state tensors, with names of their own: `fc.weight.exp_avg`, numbered where the model uses a name."""
    names = {slot.name for slot in problem.slots}
    state = [
        ParameterSlot(slot.name, slot.type, slot.initial, index in found.gradients)
        for index, slot in enumerate(problem.slots)
    ]
    for name, kind, start in ((LEARNING_RATE, _SCALAR_F64, problem.options.rate), (STEP, _SCALAR_I64, 0)):
        initial = to_storage(np.asarray(start, kind.dtype.face), kind.dtype)
        state.append(ParameterSlot(_own_name(name, names), kind, initial, False))
    for slot in found.gradients:
        state.extend(_optimizer_state(problem, problem.slots[slot], names))
    return tuple(state)


def _optimizer_state(problem: Problem, slot: ParameterSlot, names: set[str]) -> Iterable[ParameterSlot]:
    optimizer = problem.options.optimizer
    kind = TensorType(computing(slot.type.dtype), slot.type.shape)
    for made in optimizer.slots:
        initial = to_storage(np.full(kind.shape, made.initial, kind.dtype.face), kind.dtype)
        yield ParameterSlot(_own_name(f"{slot.name}.{made.suffix}", names), kind, initial, False)


def _own_name(name: str, used: set[str]) -> str:
    number, chosen = 1, name
    while chosen in used:
        number += 1
        chosen = f"{name}#{number}"
    used.add(chosen)
    return chosen


# ── update ──────────────────────────────────────────────────────────────────────────────────────────


def _updated(problem: Problem, found: Backward, values: tuple[Value, ...]) -> Mapping[int, Value]:
    """By position in the state: the next values of trained parameters, of their optimizer's state and of the step.

    A parameter that no gradient reaches stays as it is, with its state.
    """
    options = problem.options
    finished = values[_step_position(problem)]
    rate = mul(values[_rate_position(problem)], options.schedule.factor(finished))
    step = add(finished, scalar(1, I64))
    slopes = list(found.gradients.values())
    if options.clip_norm is not None:
        slopes = clipped(slopes, options.clip_norm)
    new = {_step_position(problem): step}
    first, width = _step_position(problem) + 1, len(options.optimizer.slots)
    for slot, slope in zip(found.gradients, slopes, strict=True):
        own = range(first, first + width)
        wide = convert_to(values[slot], slope.dtype)
        after, kept = options.optimizer.update(wide, slope, [values[place] for place in own], rate, step)
        new[slot] = convert_to(after, values[slot].dtype)
        new.update(zip(own, kept, strict=True))
        first += width
    return new


def _located(graph: Graph, locations: Locations, name: str) -> Locations:
    """A source for every node: that of the model's node, or the name of the entry for what training adds."""
    found: Locations = {}
    stack = [graph]
    while stack:
        for node in stack.pop().nodes:
            if node not in found:
                found[node] = locations.get(node, name)
                stack.extend(node.regions)
    return found
