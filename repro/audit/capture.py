"""Records on disk: `run.json`, canonical JSON by schema, and beside it `run.safetensors` where values are kept.

Arrays are stored once each, under type and digest (`f32[2,3] sha256:…`), however many executors computed the same.
What is read is checked against these digests, so a record that was damaged on its way is not compared.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors import numpy as safetensors

from repro.artifact import files, schema, tensors
from repro.artifact.canonical import Bytes, Json, decode, encode, sha256
from repro.audit.records import Capture, Executor, ModelSummary, Node, Outcome, Record, Value
from repro.errors import ReproError
from repro.ir.types import Array, parse_type, to_face, to_storage
from repro.numerics.numpy_scalars import canonicalize

FORMAT = "repro-capture/1"


# ── values ──────────────────────────────────────────────────────────────────────────────────────────


def canonical(array: Array) -> Array:
    """The array as it is compared: dense, native, NaNs canonical. Raises KeyError for an unknown element type."""
    dtype = tensors.type_of(array).dtype
    return to_face(canonicalize(to_storage(array, dtype), dtype), dtype)


def value_of(array: Array) -> Value:
    """Type and digest of an array. Raises KeyError for an unknown element type."""
    same = canonical(array)
    return Value(str(tensors.type_of(same)), sha256(_bytes(same)))


def _bytes(array: Array) -> Bytes:
    """Row-major little-endian bytes; without a copy where the array lies so."""
    stored = to_storage(array, tensors.type_of(array).dtype)
    little = stored.astype(stored.dtype.newbyteorder("<"), copy=False).reshape(-1)
    return little.view(np.uint8).data if little.size else b""


# ── arrays by type and digest ───────────────────────────────────────────────────────────────────────


def key(value: Value) -> str:
    """The name under which an array is stored."""
    return f"{value.type} {value.digest}"


def value_at(name: str) -> Value:
    """The inverse of `key`. Raises ValueError."""
    kind, _, digest = name.partition(" ")
    if parse_type(kind) and digest:
        return Value(kind, digest)
    raise ValueError(name)


def store_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by `key`; under another name first, so that the file is whole or not there. Raises ReproError."""
    try:
        with files.replaced_file(path) as temporary:
            mode = stat.S_IMODE(temporary.stat().st_mode)
            safetensors.save_file({name: _packable(array) for name, array in arrays.items()}, temporary)
            temporary.chmod(mode)  # which the library makes its own
    except (OSError, SafetensorError) as error:
        raise ReproError("the values cannot be written", found=f"{path}: {error}") from error


def _packable(array: Array) -> Array:
    """safetensors' NumPy side knows no f8 on the way back: its bytes go."""
    dense = canonical(array)
    dtype = tensors.type_of(dense).dtype
    return dense.view(np.uint8) if dtype.is_float and dtype.bits == 8 else dense


@contextmanager
def _unreadable(path: Path) -> Any:
    try:
        yield
    except FileNotFoundError:
        raise ReproError("the capture's values are missing", found=f"no file {path}") from None
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ReproError("the capture's values cannot be read", found=f"{path}: {error}") from error


def load_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, Array]:
    """The arrays of a file by `key`, or those named, each checked against its digest. Raises ReproError."""
    found: dict[str, Array] = {}
    with _unreadable(path), safe_open(path, "np") as file:
        there = set(file.keys())
        for name in sorted(there) if names is None else names:
            if name not in there:
                raise ValueError(f"no array {name}")
            found[name] = _unpacked(file.get_tensor(name), name)
    return found


def _unpacked(array: Array, name: str) -> Array:
    kind = parse_type(value_at(name).type)
    face = array.view(kind.dtype.face) if array.dtype == np.uint8 and kind.dtype.bits == 8 else array
    if face.dtype != kind.dtype.face or face.shape != kind.shape or key(value_of(face)) != name:
        raise ValueError(f"array {name} is another one")
    return face


# ── documents ───────────────────────────────────────────────────────────────────────────────────────


def capture_json(capture: Capture) -> Json:
    """A capture without its arrays."""
    return {
        "executor": executor_json(capture.executor),
        "outcome": capture.outcome.name.lower(),
        "reason": capture.reason,
        "environment": dict(capture.environment),
        "served": _values_json(capture.served),
        "values": _values_json(capture.values),
        "fed": _values_json(capture.fed),
        "faithful": capture.faithful,
        "implementations": dict(capture.implementations),
        "notes": list(capture.notes),
    }


def capture_of(value: Json) -> Capture:
    """The inverse of `capture_json`."""
    return Capture(
        executor=executor_of(value["executor"]),
        outcome=Outcome[value["outcome"].upper()],
        reason=value["reason"],
        environment=value["environment"],
        served=_values_of(value["served"]),
        values=_values_of(value["values"]),
        fed=_values_of(value["fed"]),
        faithful=value["faithful"],
        implementations=value["implementations"],
        notes=tuple(value["notes"]),
    )


def executor_json(executor: Executor) -> Json:
    """An executor as a document; `executor_of` is the inverse."""
    return {
        "family": executor.family,
        "options": [list(pair) for pair in executor.options],
        "environment": [list(pair) for pair in executor.environment],
        "emulator": list(executor.emulator),
    }


def executor_of(value: Json) -> Executor:
    options, environment = (tuple((name, text) for name, text in value[part]) for part in ("options", "environment"))
    return Executor(value["family"], options, environment, tuple(value["emulator"]))


def _values_json(values: Mapping[str, Value]) -> Json:
    return {name: key(value) for name, value in values.items()}


def _values_of(value: Json) -> dict[str, Value]:
    return {name: value_at(text) for name, text in value.items()}


def _model_json(model: ModelSummary) -> Json:
    return {
        "name": model.name,
        "digest": model.digest,
        "nodes": [
            {
                "name": node.name, "op_type": node.op_type, "domain": node.domain,
                "inputs": list(node.inputs), "outputs": list(node.outputs), "digest": node.digest,
            }
            for node in model.nodes
        ],
        "inputs": list(model.inputs),
        "outputs": list(model.outputs),
        "initializers": dict(model.initializers),
    }  # fmt: skip


def _node_of(value: Json) -> Node:
    inputs, outputs = tuple(value["inputs"]), tuple(value["outputs"])
    return Node(value["name"], value["op_type"], value["domain"], inputs, outputs, value["digest"])


def _model_of(value: Json) -> ModelSummary:
    nodes = tuple(_node_of(each) for each in value["nodes"])
    inputs, outputs = tuple(value["inputs"]), tuple(value["outputs"])
    return ModelSummary(value["name"], value["digest"], nodes, inputs, outputs, value["initializers"])


# ── records ─────────────────────────────────────────────────────────────────────────────────────────


def write(record: Record, path: Path, values: bool = False) -> None:
    """Write a record, with the arrays of its captures if `values`. Raises ReproError."""
    captures = (record.golden, *record.captures)
    fields: dict[str, Json] = {
        "format": FORMAT,
        "label": record.label,
        "model": _model_json(record.model),
        "inputs": _values_json(record.inputs),
        "golden": capture_json(record.golden),
        "captures": [capture_json(capture) for capture in record.captures],
        "host": dict(record.host),
        "values": values,
    }
    document = {**fields, "digest": sha256(encode(fields))}
    schema.check(document, "capture", "the capture")
    if values:
        store_arrays(_arrays_path(path), {name: array for each in captures for name, array in _kept(each).items()})
    tensors.write_output(path, encode(document))


def check_place(path: Path, values: bool) -> None:
    """That a record, and the file of values beside it, replace nothing of another kind. Raises ReproError."""
    beside = _arrays_path(path)
    if values and (beside == path or (beside.exists() and not path.exists())):
        raise ReproError(
            "the values of a capture would replace another file",
            found=str(beside),
            expected=f"no file '{beside.name}' beside the capture, or that of an earlier one",
            next="name the capture otherwise",
        )


def _kept(capture: Capture) -> dict[str, Array]:
    """The arrays of a capture by `key`."""
    found: dict[str, Array] = {}
    for arrays, values in ((capture.arrays, {**capture.values, **capture.served}), (capture.fed_arrays, capture.fed)):
        found.update({key(values[name]): array for name, array in arrays.items() if name in values})
    return found


def _arrays_path(path: Path) -> Path:
    return path.with_suffix(".safetensors")


def read(path: Path) -> Record:
    """A record that was written, on whatever machine. Raises ReproError for anything else, and for damage."""
    document = decode(files.read_file(path, "the capture"), f"the capture {path}")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReproError("not a capture", found=str(path), expected=f"a document of {FORMAT}, as --capture writes it")
    schema.check(document, "capture", f"the capture {path}")
    fields: dict[str, Json] = {name: item for name, item in document.items() if name != "digest"}
    if sha256(encode(fields)) != document["digest"]:
        raise ReproError("the capture is damaged", found=f"{path}: another digest than it states")
    stored = load_arrays(_arrays_path(path)) if document["values"] else {}
    return Record(
        model=_model_of(document["model"]),
        inputs=_values_of(document["inputs"]),
        golden=with_arrays(capture_of(document["golden"]), stored),
        captures=tuple(with_arrays(capture_of(each), stored) for each in document["captures"]),
        host=document["host"],
        label=document["label"],
    )


def with_arrays(capture: Capture, stored: Mapping[str, Array]) -> Capture:
    """A capture with those of its arrays that are among the stored ones."""
    shown = {**capture.values, **capture.served}
    arrays = {name: stored[key(value)] for name, value in shown.items() if key(value) in stored}
    fed = {name: stored[key(value)] for name, value in capture.fed.items() if key(value) in stored}
    return replace(capture, arrays=arrays, fed_arrays=fed)
