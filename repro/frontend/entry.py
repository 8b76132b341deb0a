"""The way in: inputs bound, outputs resolved, identities numbered in canonical order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import onnx

from repro.errors import ReproError
from repro.frontend.bindings import Bindings, input_tensor, input_type, set_value
from repro.frontend.imported import Imported, ParameterSlot, Port, TrainingNotes
from repro.frontend.importer import Importer
from repro.frontend.integer_qdq import FLOAT
from repro.frontend.load import LoadedModel
from repro.frontend.scope import Body, Items, Scope
from repro.frontend.tensors import dtype_of
from repro.ir.graph import Graph, Locations, Value, argument, canonicalise
from repro.ir.types import TensorType
from repro.numerics.host_mode import exact_arithmetic

_LONGEST_NAME = 65_536
"""Characters of the name of an input, an output or an initializer: what manifests/schema allows."""


def import_model(
    loaded: LoadedModel,
    bind: Mapping[str, int] | None = None,
    set_values: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    qdq: str = FLOAT,
    changing: Collection[str] = (),
) -> Imported:
    """The canonical graph of a model's outputs.

    `bind` fixes dimensions as `INPUT[AXIS]`, or else by symbol, `set_values` fixes whole inputs, `input_shapes` gives
    the rest. `seed` is the 64-bit key of random nodes without a seed of their own. Initial values of the parameters
    named in `changing` decide nothing. Raises ReproError.
    """
    with exact_arithmetic():
        return _import(Importer(loaded, seed, qdq, changing), bind or {}, set_values or {}, input_shapes or {})


def _import(
    importer: Importer, bind: Mapping[str, int], set_values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
) -> Imported:
    loaded = importer.loaded
    _check_names(loaded.proto.graph)
    body = Body.of_graph(loaded.proto.graph)
    scope = Scope(body, loaded.opsets, {})
    inputs, bound = bind_inputs(importer, scope, bind, set_values, shapes)
    importer.resolve(scope, body.outputs)
    named = [pair for item in loaded.proto.graph.output for pair in outputs_of(importer, scope, item)]
    graph = Graph(tuple(port.type for port in inputs), tuple(value for _, value in named))
    canonical = canonicalise(graph, importer.locations)
    outputs = zip((name for name, _ in named), canonical.graph.types, strict=True)
    return Imported(
        graph=canonical.graph,
        inputs=tuple(inputs),
        outputs=tuple(Port(name, kind) for name, kind in outputs),
        parameters=tuple(slot_of(importer, str(name)) for name in canonical.parameters),
        random_nodes=tuple(importer.random_names[str(name)] for name in canonical.random),
        locations=kept_locations(importer.locations, canonical.graph),
        bound=bound,
        opsets=dict(loaded.opsets),
        warnings=tuple(importer.warnings),
        notes=TrainingNotes(
            lost_dropouts=tuple(importer.lost_dropouts),
            unseeded=tuple(importer.unseeded),
            integer_tensors=tuple(Port(name, kind) for name, kind in importer.integer_tensors.items()),
            decided=tuple(importer.folder.decided),
            changing=tuple(sorted(importer.folder.changing)),
        ),
    )


def _check_names(graph: onnx.GraphProto) -> None:
    """What callers tell by name has a name that tells it. (Two inputs of one name are refused where they are bound.)"""
    outputs = [item.name for item in graph.output]
    if not outputs:
        raise ReproError("the model has no outputs", found="0 outputs", expected="at least 1: what is to be computed")
    known = set[str]()
    for name in outputs:
        if name in known:
            raise ReproError("two outputs have one name", node=name, found=name, expected="distinct names")
        known.add(name)
    tensors: dict[str, onnx.TensorProto] = {}
    for tensor in graph.initializer:
        other = tensors.setdefault(tensor.name, tensor)
        if other is not tensor:
            raise ReproError(
                "two initializers have one name",
                node=tensor.name,
                found=f"'{tensor.name}' twice, as {_shown(other)} and {_shown(tensor)}",
                expected="distinct names: which one a node means is not said",
                next="remove one of them from the model, or rename it",
            )
    for what, items in (("input", graph.input), ("output", graph.output), ("initializer", graph.initializer)):
        longest = max((item.name for item in items), key=len, default="")
        if len(longest) > _LONGEST_NAME:
            found = f"{len(longest)} characters, {longest[:40]}..."
            raise ReproError(f"the name of an {what} is too long", found=found, expected=f"at most {_LONGEST_NAME}")


def _shown(tensor: onnx.TensorProto) -> str:
    return f"{onnx.TensorProto.DataType.Name(tensor.data_type).lower()}{list(tensor.dims)}"


def bind_inputs(
    importer: Importer,
    scope: Scope,
    bind: Mapping[str, int],
    set_values: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
) -> tuple[list[Port], dict[str, int]]:
    """Inputs become arguments or, where `--set` fixes them, constants."""
    declared = {item.name: item for item in importer.loaded.proto.graph.input}
    if len(declared) != len(importer.loaded.proto.graph.input):
        raise ReproError("two inputs have one name", found=", ".join(declared), expected="distinct names")
    real = [item for item in declared.values() if item.name not in scope.body.initializers]
    _refuse_unknown("--set", set_values, list(declared))
    _refuse_unknown("a given input shape", shapes, list(declared))
    free = [item for item in real if item.name not in set_values]
    bindings = Bindings(bind, {item.name: len(item.type.tensor_type.shape.dim) for item in free})
    for name, value in set_values.items():
        dtype, array = set_value(declared[name], value)
        scope.items[name] = importer.constant(array, dtype)
        _learn(bindings, declared[name], array.shape)
    for item in free:
        if item.name in shapes:
            _learn(bindings, item, shapes[item.name])
    ports = [Port(item.name, input_type(item, bindings, shapes)) for item in free]
    bindings.check([item.name for item in real])
    scope.items.update({port.name: argument(index, port.type) for index, port in enumerate(ports)})
    importer.input_names = [port.name for port in ports]
    return ports, {name: bindings.given.get(name, bindings.known.get(name, 0)) for name in sorted(bindings.used)}


def _learn(bindings: Bindings, item: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    declared = input_tensor(item)[1]
    if declared is not None:
        bindings.learn(item.name, declared, shape)


def slot_of(importer: Importer, name: str) -> ParameterSlot:
    kind, array = importer.initial[name]
    return ParameterSlot(name, kind, array, kind.dtype.is_float and kind.rank > 0)


def outputs_of(importer: Importer, scope: Scope, declared: onnx.ValueInfoProto) -> list[tuple[str, Value]]:
    """An output of the model by name; a sequence is one output for each of its values: `name[0]`, `name[1]`…"""
    _, item = scope.find(declared.name)
    if isinstance(item, Items):
        return [(f"{declared.name}[{index}]", value) for index, value in enumerate(item.values)]
    if item is None:
        raise ReproError(f"output '{declared.name}' is left empty", node=declared.name, expected="a tensor")
    if declared.type.HasField("tensor_type"):
        _check_declared(importer, declared, item.type)
    return [(declared.name, item)]


def _check_declared(importer: Importer, declared: onnx.ValueInfoProto, kind: TensorType) -> None:
    tensor = declared.type.tensor_type
    if tensor.elem_type and dtype_of(tensor.elem_type, f"output '{declared.name}'") is not kind.dtype:
        raise ReproError(
            "shape or dtype conflicts",
            node=declared.name,
            found=f"output '{declared.name}' is {kind}",
            expected=f"{dtype_of(tensor.elem_type, 'it')} as the model declares it",
        )
    dims = tensor.shape.dim
    fixed = [dim.dim_value for dim in dims]
    agrees = len(fixed) == kind.rank and all(a in (0, -1, b) for a, b in zip(fixed, kind.shape, strict=True))
    if tensor.HasField("shape") and not agrees:
        said = [dim.dim_param or dim.dim_value for dim in dims]
        importer.warn(f"output '{declared.name}' is declared {said}; with these bindings it is {list(kind.shape)}")


def _refuse_unknown(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ReproError(
            f"{what} names no input of the model",
            found=", ".join(unknown),
            expected=f"one of {', '.join(known) or '(no inputs)'}",
        )


def kept_locations(locations: Locations, graph: Graph) -> Locations:
    """The locations of the nodes of a graph, regions included, in the graph's order."""
    found: Locations = {}
    stack = [graph]
    while stack:
        for node in stack.pop().nodes:
            if node in locations and node not in found:
                found[node] = locations[node]
            stack.extend(node.regions)
    return found
