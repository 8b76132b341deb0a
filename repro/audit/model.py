"""The audited model: prepared once, then opened (every value a result) and severed (every node alone).

Prepared: dimensions and set inputs fixed, local functions inlined, Ifs that the build decides replaced by the branch
taken, nodes named and in canonical order, every tensor declared with its static type. What runs on every executor is
this model; its values are compared by their names.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from repro.artifact import golden, reading, sessions
from repro.artifact.canonical import sha256
from repro.artifact.config import Value as Signature
from repro.artifact.files import as_text
from repro.artifact.loaded import request_of
from repro.artifact.tensors import type_of
from repro.audit.flat import Flat, flatten, tensor, tensor_type
from repro.audit.identity import summary_of
from repro.audit.records import ModelSummary
from repro.audit.rewiring import reads, rename_reads
from repro.errors import InternalError, ReproError
from repro.frontend import LoadedModel, load_source
from repro.frontend.integer_qdq import FLOAT, INTEGER
from repro.frontend.tensors import read_array
from repro.ir.types import Array, TensorType, to_face, to_storage

INLINE_BYTES = 1 << 30
"""External data up to this much is read into the model; more of it stays in its files."""

_QDQ = "repro.qdq"
"""The key of a prepared model's note of how repro computes it."""

Source = str | Path | ModelProto | LoadedModel


@dataclass(frozen=True, eq=False)
class Audited:
    """A prepared model and the inputs that it is run on. External data that stayed in files lies in `folder`.

    `hidden` are values that cannot be compared: sequences, optionals, results that nothing asks for.
    """

    proto: ModelProto
    summary: ModelSummary
    inputs: dict[str, Array]
    bind: dict[str, int] = field(default_factory=dict[str, int])
    set: dict[str, Any] = field(default_factory=dict[str, Any])
    folder: Path | None = None
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    hidden: tuple[str, ...] = ()


def prepare(
    model: Source,
    bind: Mapping[str, int] | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002
    inputs: Mapping[str, Array] | None = None,
    golden_seed: int | None = None,
    qdq: str | None = None,
    changing: Collection[str] = (),
) -> Audited:
    """Prepare a model, or the source of an artifact with its own bindings, inputs and `qdq`.

    Inputs are those given, else drawn from the golden seed (0 unless given) as a build draws them. Initial values of
    the parameters named in `changing` decide nothing. Raises ReproError.
    """
    stored = _artifact(model)
    if stored is not None:
        request = request_of(stored)
        if bind or set:
            raise ReproError("an artifact has its own bindings", found=", ".join((*(bind or {}), *(set or {}))))
        if qdq not in (None, request.qdq):
            raise ReproError(
                "an artifact computes as it was built",
                found=f"--qdq {qdq}, and an artifact of --qdq {request.qdq}",
                next=f"build it with --qdq {qdq}, or leave the option out",
            )
        qdq = request.qdq
        source, bind, set = request.model, request.bind, request.set  # noqa: A001
        if inputs is None and golden_seed is None and request.inputs is not None:
            own = {item.name for item in source.proto.graph.input}  # an artifact has the inputs of all its entries
            inputs = {name: array for name, array in request.inputs.items() if name in own}
        golden_seed = request.golden_seed if golden_seed is None else golden_seed
    else:
        source = model if isinstance(model, LoadedModel) else load_source(model)
    bind, set = dict(bind or {}), dict(set or {})  # noqa: A001
    declared = {item.name for item in source.proto.graph.input}
    shapes = {name: array.shape for name, array in (inputs or {}).items() if name in declared and name not in set}
    flat = flatten(source, bind, set, shapes, changing)
    folder = None if _read_external(flat.loaded) else source.folder
    chosen = _inputs(flat, inputs, golden_seed or 0)
    summary = summarize(flat.loaded.proto, source.name, folder)
    note_qdq(flat.loaded.proto, qdq or FLOAT)
    inner = _inside(flat.loaded.proto) if qdq == INTEGER else ()
    types = {name: kind for name, kind in flat.types.items() if name not in inner}
    return Audited(flat.loaded.proto, summary, chosen, bind, set, folder, types, flat.hidden)


def qdq_of_prepared(model: ModelProto) -> str:
    """How repro computes a prepared model, as a build's `qdq`."""
    return next((entry.value for entry in model.metadata_props if entry.key == _QDQ), FLOAT)


def note_qdq(model: ModelProto, qdq: str) -> None:
    """Says in a prepared model how repro computes it, whatever the file that it came from said."""
    for place in reversed(range(len(model.metadata_props))):
        if model.metadata_props[place].key == _QDQ:
            del model.metadata_props[place]
    if qdq != FLOAT:
        model.metadata_props.add(key=_QDQ, value=qdq)


def _inside(model: ModelProto) -> Set[str]:
    """The values of a prepared model that repro on integers, like runtimes with operators for quantized integers, does
    not have: what DequantizeLinear makes, and what leads to QuantizeLinear alone."""
    shown = {item.name for item in model.graph.output}
    readers: dict[str, list[NodeProto]] = {}
    inner = builtins.set[str]()
    for node in reversed(model.graph.node):  # in canonical order: readers come behind
        for name in node.output:
            behind = [each for each in readers.get(name, ()) if each.op_type != "QuantizeLinear"]
            leads = all(each.op_type != "DequantizeLinear" and inner.issuperset(each.output) for each in behind)
            if node.op_type == "DequantizeLinear" or (leads and name not in shown):
                inner.add(name)
        for name in reads(node):
            readers.setdefault(name, []).append(node)
    return inner - shown


def _artifact(model: Source) -> reading.Stored | None:
    """The artifact that a path names, by its folder or its artifact.json."""
    if not isinstance(model, str | Path):
        return None
    path = Path(model)
    named = path.name == "artifact.json" or (path.is_dir() and (path / "artifact.json").is_file())
    return reading.open_artifact(path) if named else None


def _inputs(flat: Flat, given: Mapping[str, Array] | None, seed: int) -> dict[str, Array]:
    types = list(flat.inputs.values())
    if given is None:
        drawn = golden.draw(types, golden.index_limits(flat.graph), seed)
        return dict(zip(flat.inputs, drawn, strict=True))
    stored = sessions.match(given, [Signature(name, str(kind)) for name, kind in flat.inputs.items()])
    return {name: to_face(array, flat.inputs[name].dtype) for name, array in zip(flat.inputs, stored, strict=True)}


def _read_external(loaded: LoadedModel) -> bool:
    """Read external data into the model if it is not too much; whether none is left in files."""
    external = [item for item in loaded.proto.graph.initializer if item.data_location == TensorProto.EXTERNAL]
    arrays = [read_array(item, loaded.folder) for item in external]
    if sum(array.nbytes for array, _ in arrays) > INLINE_BYTES:
        return False
    for item, (array, dtype) in zip(external, arrays, strict=True):
        item.CopyFrom(tensor(item.name, array, dtype))
    return True


def summarize(model: ModelProto, name: str, folder: Path | None = None) -> ModelSummary:
    """A prepared model without its tensors."""
    return summary_of(model, as_text(name), lambda item: _digest(item, folder))


def _digest(item: TensorProto, folder: Path | None) -> str:
    array, _ = read_array(item, folder)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1)
    return sha256(little.view(np.uint8).data if little.size else b"")  # in place: it may be a large file, mapped


# ── opened and severed ──────────────────────────────────────────────────────────────────────────────


def opened(model: ModelProto, values: Sequence[str]) -> ModelProto:
    """The model with these values as outputs too, after its own."""
    made = {name for node in model.graph.node for name in node.output}
    strange = [name for name in values if name not in made]
    if strange:
        raise InternalError(f"no node makes {', '.join(strange)}")
    copy = ModelProto()
    copy.CopyFrom(model)
    _show(copy, values)
    return copy


def _show(model: ModelProto, values: Sequence[str]) -> None:
    declared = {item.name: item for item in model.graph.value_info}
    shown = {item.name for item in model.graph.output}
    for name in values:
        if name not in shown:
            model.graph.output.append(declared.get(name, ValueInfoProto(name=name)))


def fed_name(value: str) -> str:
    """The input of a severed model that stands for a value."""
    return f"{value}::fed"


def severed(
    model: ModelProto, values: Mapping[str, TensorType], constants: Mapping[str, Array] | None = None
) -> ModelProto:
    """The model with every use of a value reading a fresh input, `fed_name(value)`, and these values as outputs.

    `constants` are values that depend on no input: what reads them reads an initializer with the array given, so that
    a runtime that treats constants in its own way still does. A value that nothing reads has no input.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    known = constants or {}
    read = {name for node in graph.node for name in reads(node)}
    names = {name: fed_name(name) for name in (*values, *known) if name in read}
    for node in graph.node:
        rename_reads(node, names)
    graph.input.extend(tensor_type(fed_name(name), kind) for name, kind in values.items() if name in names)
    for name in (each for each in known if each in names):
        kind = type_of(known[name])
        graph.initializer.append(tensor(fed_name(name), to_storage(known[name], kind.dtype), kind.dtype))
    made = {name for node in graph.node for name in node.output}
    _show(copy, [name for name in (*values, *known) if name in made])
    return copy


def fed_inputs(model: ModelProto, arrays: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What a severed model is run on: the model's inputs, and under their fed names the arrays of values."""
    known = {**{fed_name(name): array for name, array in arrays.items()}, **inputs}
    return {item.name: known[item.name] for item in model.graph.input if item.name in known}
