"""The config blob: everything that an artifact says about itself, as dataclasses.

JSON names are the field names. `to_json` and `from_json` are generic over the dataclasses, so a field is
stated once here and once, for the world, in manifests/schema/config.schema.json.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from repro.artifact.canonical import Json

FORMAT_VERSION = 1
Made = TypeVar("Made")


@dataclass(frozen=True)
class Versions:
    """The toolchain, as version strings. libllvmlite's bytes differ between hosts, so no digest of it is here."""

    repro: str
    llvmlite: str
    llvm: str


@dataclass(frozen=True)
class Value:
    """An input or output of an entry; `type` as `f32[32,64]`."""

    name: str
    type: str


@dataclass(frozen=True)
class Tensor:
    """A tensor by content: row-major little-endian elements with this digest.

    The bytes are a blob of the artifact, unless the tensor is a large golden output, of which only the
    digest is kept.
    """

    name: str
    type: str
    digest: str


@dataclass(frozen=True)
class Source:
    """The model as stored: its weights are blobs of their own, named by digest as external data."""

    digest: str
    opset: dict[str, int]


@dataclass(frozen=True)
class Build:
    """The parameters of the build, so that it can be repeated from the artifact alone."""

    bind: dict[str, int]
    set: tuple[Tensor, ...]
    targets: tuple[str, ...]
    golden_inputs: str
    """`drawn` from `golden_seed`, or `given`: then they are blobs of the golden run."""
    golden_seed: str
    seed: str
    training: dict[str, str]
    """Every training option by name; empty: the artifact is not trained."""
    gradients: bool
    memory_budget: int | None
    """The most bytes of temporaries of each program; null: every value is kept."""
    qdq: str
    """How what lies between DequantizeLinear and QuantizeLinear computes: `float`, as ONNX defines it, or `integer`."""
    tuning: str | None
    """Digest of the tuning file, which is a blob; null: every schedule is the cost model's."""


@dataclass(frozen=True)
class Entry:
    """One way to call the artifact. Inputs and outputs are positional; their names are for people."""

    name: str
    graph: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: tuple[int, ...]
    """Position in `Config.weights` for each parameter slot of the graph."""
    index_checks: tuple[str, ...]
    """The source of each row of the program's last output, a report of indices out of range; empty: no report."""


@dataclass(frozen=True)
class Pass:
    """A pass and the digest of what it was given and what it made."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Passes:
    """The passes of an entry in order; `target` is empty for those that run once for all targets."""

    entry: str
    target: str
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class CompiledKernel:
    kernel: str
    """Digest of the loop IR, which is a blob."""
    schedule: str
    code: str


@dataclass(frozen=True)
class CompiledEntry:
    entry: str
    program: str
    """Digest of the program's text, which is a blob."""
    code: str
    kernels: tuple[CompiledKernel, ...]


@dataclass(frozen=True)
class Target:
    name: str
    machine: str
    """Digest of the target's description."""
    entries: tuple[CompiledEntry, ...]


@dataclass(frozen=True)
class GoldenRun:
    entry: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    """The parameters that the run changes, as they are after it: digests alone."""


@dataclass(frozen=True)
class Config:
    format: int
    contract: int
    versions: Versions
    build: Build
    source: Source
    entries: tuple[Entry, ...]
    weights: tuple[Tensor, ...]
    passes: tuple[Passes, ...]
    targets: tuple[Target, ...]
    golden: tuple[GoldenRun, ...]
    limits: dict[str, int]

    def golden_run(self, entry: str) -> GoldenRun | None:
        return next((run for run in self.golden if run.entry == entry), None)

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def target(self, name: str) -> Target | None:
        return next((target for target in self.targets if target.name == name), None)


def to_json(value: Any) -> Json:
    """A dataclass (or a tuple, dict or scalar of one) as JSON."""
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_json(item) for item in typing.cast("tuple[Any, ...]", value)]
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in typing.cast("dict[str, Any]", value).items()}
    return value


def from_json(kind: type[Made], value: Json) -> Made:
    """The inverse of `to_json`, for JSON that its schema has accepted."""
    return _made(kind, value)


def _made(kind: Any, value: Json) -> Any:
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _made(hints[name], item) for name, item in value.items()})  # pyright: ignore[reportCallIssue]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return tuple(_made(arguments[0], item) for item in value)
    if origin is dict:
        return {key: _made(arguments[1], item) for key, item in value.items()}
    if origin is UnionType:
        return None if value is None else _made(arguments[0], value)
    return value
