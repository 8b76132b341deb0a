"""ModelProto.training_info: the training step that a model brings with it, and what it says of the state's start.

By the comments at TrainingInfoProto in onnx.proto: a step runs the algorithms one after another, each joined with the
model's graph and seeing the tensors as the one before left them. State are the initializers that a binding names. They
start as the file has them; the initialization graphs are run only where `initialised` is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from repro.errors import ReproError
from repro.frontend.entry import bind_inputs, kept_locations, outputs_of
from repro.frontend.imported import ParameterSlot, Port
from repro.frontend.importer import Importer
from repro.frontend.limits import MAX_NODES, check_nesting
from repro.frontend.load import LoadedModel
from repro.frontend.scope import Body, Scope
from repro.frontend.tensors import onnx_tensor
from repro.ir.graph import Graph, Node, Value, argument, canonicalise, parameter, rewrite
from repro.ir.types import I64, Array, DType, TensorType
from repro.numerics.host_mode import exact_arithmetic
from repro.ops import add, canonical_nan, scalar
from repro.ops.record import evaluate
from repro.train_step.assemble import STEP, TrainStep
from repro.train_step.copies import Moment, copy_of
from repro.train_step.problem import parameters_of

_COUNTER = TensorType(I64, ())


@dataclass(frozen=True)
class _Stage:
    """One TrainingInfoProto: its algorithm joined with the model's graph. `model` has no initializers."""

    name: str
    info: onnx.TrainingInfoProto
    model: onnx.ModelProto
    body: Body
    own: frozenset[str]
    """The initializers of the algorithm itself."""
    updates: dict[str, str]

    @property
    def state(self) -> tuple[str, ...]:
        """The initializers that this entry's bindings name, each once."""
        return tuple({**self.updates, **{pair.key: "" for pair in self.info.initialization_binding}})


def training_step(
    loaded: LoadedModel,
    bind: Mapping[str, int] | None = None,
    set_values: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> TrainStep:
    """The training step of a model with training_info; the other arguments are those of `import_model`.

    Inputs are the model's, then the algorithms'; outputs are those of the algorithms that no binding takes or, if there
    are none, the model's. A step that draws random numbers counts itself in one more state tensor. Raises ReproError.
    """
    with exact_arithmetic():
        return _Step(loaded, seed).made(bind or {}, set_values or {}, input_shapes or {})


def bindings_of_infer(proto: onnx.ModelProto, bind: Mapping[str, int]) -> dict[str, int]:
    """The bindings without those that fix dimensions of the algorithms' inputs alone."""
    own = _dimensions(proto.graph.input)
    others = {word for info in proto.training_info for word in _dimensions(info.algorithm.input)}
    return {word: extent for word, extent in bind.items() if word in own or word not in others}


def _dimensions(inputs: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """The words that `--bind` knows for the dimensions of inputs."""
    found: set[str] = set()
    for item in inputs:
        dims = item.type.tensor_type.shape.dim
        found.update(dimension.dim_param for dimension in dims)
        found.update(f"{item.name}[{axis}]" for axis in range(-len(dims), len(dims)))
    return found


class _Step:
    """A training step in the making."""

    def __init__(self, loaded: LoadedModel, seed: int) -> None:
        self.model, self.stages = loaded.proto, _stages(loaded.proto)
        nodes = sum(check_nesting(stage.model) for stage in self.stages)
        self.importer = Importer(replace(loaded, proto=_joined_inputs(loaded.proto), expanded_nodes=nodes), seed)
        self.model_state: dict[str, Value] = {}
        """The model's own state, as the stages so far left it."""
        self.placeholders: dict[Value, str] = {}
        self.updates: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}

    def made(
        self, bind: Mapping[str, int], set_values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
    ) -> TrainStep:
        graph = self.importer.loaded.proto.graph
        tensors = [tensor for stage in self.stages for tensor in stage.body.initializers.values()]
        everything = Body((), [item.name for item in graph.input], (), tensors)
        given = Scope(everything, self.importer.loaded.opsets, {})
        ports, _ = bind_inputs(self.importer, given, bind, set_values, shapes)
        own = [self._begin(stage) for stage in self.stages]
        for stage, state in zip(self.stages, own, strict=True):
            known = {name: item for name, item in given.items.items() if name in stage.body.inputs}
            scope = self._run(stage, {**known, **self.model_state, **state})
            if stage is self.stages[-1] and not self.outputs:
                self.importer.resolve(scope, [item.name for item in self.model.graph.output])
                for item in self.model.graph.output:
                    self.outputs.update(outputs_of(self.importer, scope, item))
        return self._finished(ports)

    def _begin(self, stage: _Stage) -> dict[str, Value]:
        """Placeholders for the state that this stage names; those of the algorithm's own tensors are returned."""
        own: dict[str, Value] = {}
        for name in stage.state:
            if name in self.model_state and name not in stage.own:
                continue
            identity, value = self.importer.state(name, stage.body.initializers[name])
            if name not in stage.own and not value.dtype.is_float:
                self.importer.warn(f"training changes '{name}', which is a constant of infer")
            if identity in self.placeholders.values() or identity != name:
                raise _error(stage, "two state tensors have one name", f"'{name}'", "a name of its own for each")
            self.placeholders[value] = identity
            (own if name in stage.own else self.model_state)[name] = value
        return own

    def _run(self, stage: _Stage, known: Mapping[str, Any]) -> Scope:
        """Imports an algorithm; what it makes of the state is what the next one sees."""
        importer = self.importer
        importer.loaded = replace(importer.loaded, proto=stage.model)
        number = self.stages.index(stage)
        scope = Scope(stage.body, importer.loaded.opsets, {}, path=f"{stage.name}/" if number else "")
        scope.items.update(known)
        importer.resolve(scope, stage.body.outputs)
        taken = set(stage.updates.values())
        for declared in stage.model.graph.output:
            for name, value in outputs_of(importer, scope, declared):
                if name not in taken:
                    self.outputs[_own_name(name, self.outputs)] = value
        for key, name in stage.updates.items():
            value, kind = scope.find(name)[1], importer.initial[key][0]
            if not isinstance(value, Value) or value.type != kind:
                found = f"'{name}' is {value.type if isinstance(value, Value) else 'no tensor'}"
                raise _error(stage, "an update has another type than its tensor", found, f"{kind}, as '{key}' is")
            self.updates[key] = value
        self.model_state.update({key: self.updates[key] for key in stage.updates if key not in stage.own})
        return scope

    def _finished(self, ports: Sequence[Port]) -> TrainStep:
        importer = self.importer
        values = (*self.outputs.values(), *self.updates.values())
        joined = Graph(tuple(port.type for port in ports), values)
        canonical = canonicalise(self._with_parameters(joined), importer.locations)
        read = tuple(str(name) for name in canonical.parameters)
        slots = [self._slot(name) for name in (*read, *(name for name in self.updates if name not in read))]
        graph, changed = canonical.graph, list(self.updates)
        if canonical.random:
            counter = _own_name(STEP, [slot.name for slot in slots])
            slots.append(ParameterSlot(counter, _COUNTER, np.zeros((), np.int64), False))
            graph = self._counting(graph, slots)
            changed.append(counter)
        places = {slot.name: place for place, slot in enumerate(slots)}
        return TrainStep(
            graph=graph,
            inputs=tuple(ports),
            outputs=tuple(Port(name, value.type) for name, value in self.outputs.items()),
            state=tuple(slots),
            updates=tuple((places[name], len(self.outputs) + place) for place, name in enumerate(changed)),
            random_nodes=tuple(importer.random_names[str(name)] for name in canonical.random),
            locations=kept_locations(importer.locations, graph),
            warnings=tuple(importer.warnings),
        )

    def _with_parameters(self, graph: Graph) -> Graph:
        def rule(node: Node, _: tuple[Value, ...]) -> tuple[Value, ...] | None:
            name = self.placeholders.get(node.value) if node.op == "argument" else None
            return None if name is None else (parameter(name, node.types[0]),)

        return rewrite(graph, rule, self.importer.locations, regions=False)

    def _slot(self, name: str) -> ParameterSlot:
        kind, array = self.importer.initial[name]
        return ParameterSlot(name, kind, array, name in self.model_state and name in self.updates)

    def _counting(self, graph: Graph, slots: Sequence[ParameterSlot]) -> Graph:
        """The graph with the last slot as its number of finished steps, for which its random nodes draw (rule 16)."""
        parameters = parameters_of(slots)
        given = [argument(index, kind) for index, kind in enumerate(graph.arguments)]
        results = copy_of(graph, given, parameters, Moment(parameters[-1]), self.importer.locations)
        return Graph(graph.arguments, (*results, add(parameters[-1], scalar(1, I64))))


# ── the start of the state ──────────────────────────────────────────────────────────────────────────


def initialised(loaded: LoadedModel, seed: int = 0) -> LoadedModel:
    """The model with the initializers that its initialization graphs make, in place of those of the file.

    Computed by the reference, with the contract's random numbers: `seed` is the key of nodes without one of their own.
    Raises ReproError for a model without such graphs.
    """
    made = onnx.ModelProto()
    made.CopyFrom(loaded.proto)
    bound = [pair.key for info in made.training_info for pair in info.initialization_binding]
    if not bound:
        raise ReproError(
            "the model has no initialization",
            found=f"{len(made.training_info)} training_info, no initialization_binding",
            expected="a TrainingInfoProto with an initialization graph",
            next="build without --initialize: the state starts from the initializers of the file",
        )
    with exact_arithmetic():
        for stage, info in zip(_stages(loaded.proto), made.training_info, strict=True):
            own = {tensor.name: tensor for tensor in info.algorithm.initializer}
            shared = {tensor.name: tensor for tensor in made.graph.initializer}
            for name, (dtype, array) in _initialised(loaded, stage, seed).items():
                (own if name in own else shared)[name].CopyFrom(onnx_tensor(name, dtype, array))
    return replace(loaded, proto=made)


def _initialised(loaded: LoadedModel, stage: _Stage, seed: int) -> dict[str, tuple[DType, Array]]:
    """By name the types and storage arrays of the tensors that a stage's initialization_binding names."""
    graph = stage.info.initialization
    if graph.input:
        names = ", ".join(item.name for item in graph.input)
        raise _error(stage, "the initialization has inputs", names, "a graph without inputs")
    model = _model_of(loaded.proto, (graph,))
    importer = Importer(replace(loaded, proto=model, expanded_nodes=check_nesting(model)), seed)
    body, pairs = Body.of_graph(graph), {pair.key: pair.value for pair in stage.info.initialization_binding}
    scope = Scope(body, loaded.opsets, {}, path=f"{stage.name}.initialization/")
    importer.resolve(scope, pairs.values())
    made: list[Value] = []
    for key, name in pairs.items():
        dtype, array = loaded.tensor(stage.body.initializers[key])
        value, kind = scope.find(name)[1], TensorType(dtype, array.shape)
        if not isinstance(value, Value) or value.type != kind:
            found = f"'{name}' is {value.type if isinstance(value, Value) else 'no tensor'}"
            raise _error(stage, "an initial value has another type than its tensor", found, f"{kind}, as '{key}' is")
        made.append(canonical_nan(value))
    canonical = canonicalise(Graph((), tuple(made)))
    parameters = [importer.initial[str(name)][1] for name in canonical.parameters]
    arrays = evaluate(canonical.graph, (), parameters)
    return {key: (value.dtype, array) for key, value, array in zip(pairs, made, arrays, strict=True)}


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────


def _stages(proto: onnx.ModelProto) -> tuple[_Stage, ...]:
    """Every TrainingInfoProto, its names checked. Raises ReproError."""
    shared, nodes = tuple(proto.graph.initializer), len(proto.training_info) * len(proto.graph.node)
    if nodes > MAX_NODES:
        raise ReproError(
            "the model is too large for its number of algorithms", None, None, f"{nodes} nodes", f"at most {MAX_NODES}"
        )
    made = tuple(_stage(proto, number, shared) for number in range(len(proto.training_info)))
    if not made:
        raise ReproError("the model has no training_info", found="none", expected="a TrainingInfoProto")
    updated: set[str] = set()
    for stage in made:
        for name in stage.updates:
            if name in updated:
                raise _error(stage, "a tensor is updated twice", f"'{name}'", "one binding for each tensor")
            updated.add(name)
    return made


def _stage(proto: onnx.ModelProto, number: int, shared: Sequence[onnx.TensorProto]) -> _Stage:
    info, model = proto.training_info[number], proto.graph
    algorithm = info.algorithm
    if algorithm.sparse_initializer or model.sparse_initializer:
        raise ReproError("sparse initializers are not supported", expected="dense tensors")
    name = f"training_info[{number}]"
    _check_names(name, model, algorithm)
    own = tuple(algorithm.initializer)
    outputs = [item.name for item in algorithm.output]
    bound = {pair.value for pair in info.update_binding}
    outputs += [item.name for item in model.output if item.name in bound and item.name not in outputs]
    joined = _model_of(proto, (model, algorithm))
    kept = [item for item in joined.graph.output if item.name in outputs]
    del joined.graph.output[:]
    joined.graph.output.extend(kept)
    inputs = [item.name for item in joined.graph.input]
    stage = _Stage(
        name=name,
        info=info,
        model=joined,
        body=Body((*model.node, *algorithm.node), inputs, outputs, (*shared, *own)),
        own=frozenset(tensor.name for tensor in own),
        updates={pair.key: pair.value for pair in info.update_binding},
    )
    _check_bindings(stage, model)
    return stage


def _model_of(proto: onnx.ModelProto, graphs: Iterable[onnx.GraphProto]) -> onnx.ModelProto:
    """The nodes, inputs and outputs of graphs in one; no initializers, which may be large."""
    made = onnx.ModelProto(opset_import=proto.opset_import, functions=proto.functions)
    for graph in graphs:
        made.graph.node.extend(graph.node)
        made.graph.input.extend(graph.input)
        made.graph.output.extend(graph.output)
    return made


def _joined_inputs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the inputs of the graph and of all algorithms; one that two algorithms name is one input."""
    made = onnx.ModelProto(opset_import=proto.opset_import)
    made.graph.input.extend(proto.graph.input)
    known: dict[str, onnx.ValueInfoProto] = {}
    for number, info in enumerate(proto.training_info):
        for item in info.algorithm.input:
            other = known.setdefault(item.name, item)
            if other is item:
                made.graph.input.append(item)
            elif other.type != item.type:
                raise ReproError(
                    "two algorithms declare one input with different types",
                    node=f"training_info[{number}]",
                    found=f"input '{item.name}'",
                    expected="one type, or two names",
                )
    return made


def _check_names(name: str, model: onnx.GraphProto, algorithm: onnx.GraphProto) -> None:
    """Nothing in the algorithm may take a name of the model's graph; the body refuses two nodes that do."""
    ours = [item.name for item in (*algorithm.input, *algorithm.initializer)]
    made = {name for node in (*model.node, *algorithm.node) for name in node.output}
    theirs = {item.name for item in (*model.input, *model.initializer)}
    written = {name for node in algorithm.node for name in node.output if name}
    taken = sorted((made | theirs).intersection(ours) | theirs.intersection(written))
    if taken:
        expected = "names of its own for the algorithm's inputs, initializers and results"
        what = "the algorithm takes a name that is in use"
        raise ReproError(what, node=name, found=f"'{taken[0]}'", expected=expected)


def _check_bindings(stage: _Stage, model: onnx.GraphProto) -> None:
    results = [item.name for item in (*model.output, *stage.info.algorithm.output)]
    starts = [item.name for item in stage.info.initialization.output]
    for what, pairs, values in (
        ("update_binding", stage.info.update_binding, results),
        ("initialization_binding", stage.info.initialization_binding, starts),
    ):
        keys = [pair.key for pair in pairs]
        for pair in pairs:
            if pair.key not in stage.body.initializers:
                expected = "an initializer of the model or of the algorithm"
                raise _error(stage, f"{what} names no initializer", f"'{pair.key}'", expected)
            if pair.value not in values:
                expected = f"one of {', '.join(map(str, values)) or '(no outputs)'}"
                raise _error(stage, f"{what} takes a value that is no output", f"'{pair.value}'", expected)
            if keys.count(pair.key) > 1:
                raise _error(stage, f"{what} names a tensor twice", f"'{pair.key}'", "one binding for each tensor")


def _own_name(name: str, used: Iterable[str]) -> str:
    """The name, numbered where it is in use."""
    number, chosen, known = 1, name, set(used)
    while chosen in known:
        number += 1
        chosen = f"{name}#{number}"
    return chosen


def _error(stage: _Stage, what: str, found: str, expected: str) -> ReproError:
    return ReproError(what, node=stage.name, found=found, expected=expected)
