"""What an audit is made of. Every type is plain data; the arrays behind a value stand beside it, by name.

A model is a list of nodes in canonical order, each reading and making values by name. An executor runs the model and
says a digest of each value that it can show: a capture. A record is all captures of one machine. Everything that is
found is found from records alone, on any machine, at any time.

Digests are of row-major little-endian bytes, NaNs canonical (numerics contract, rule 4), so equal digests are equal
values and the payload of a NaN, which IEEE 754 leaves open, is no drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from repro.artifact.canonical import Json
from repro.ir.types import Array

# ── the model ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Node:
    """One ONNX node. `inputs` are the values that it reads, those that its subgraphs read from outside included;
    absent optional ones are left out. `digest` is of its operator, attributes and subgraphs, not of any name."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    digest: str

    def __str__(self) -> str:
        operator = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"{self.name} ({operator})"


@dataclass(frozen=True)
class ModelSummary:
    """A model without its tensors: nodes in canonical order (depth first from the outputs, operands in order, each
    node after what it reads), whatever order the file has. `initializers` are by name, with digests."""

    name: str
    digest: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, str]


# ── executors ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Executor:
    """One way to run a model: a runtime and its settings, in their stated order.

    Written `onnxruntime[level=all,threads=2]`; without options the family alone. `environment` are the variables
    that its process starts with; `emulator` is the command that its Python runs under, if any.
    """

    family: str
    options: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    emulator: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.family}[{settings}]" if settings else self.family

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


class Outcome(Enum):
    """How a run ended. All but RAN are rows with a reason, never a lost report."""

    RAN = "ran"
    MISSING = "missing"
    REFUSED = "refused"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "out of time"
    MEMORY = "out of memory"
    SKIPPED = "not run"


@dataclass(frozen=True)
class Value:
    """A tensor as an executor computed it: its type, as `f32[2,3]`, and its digest."""

    type: str
    digest: str


@dataclass(frozen=True, eq=False)
class Capture:
    """One executor's run.

    `served` are the outputs of the model as it is; `values` all values it could show, by name (initializers and
    inputs as it was given them are not repeated here); `fed` the outputs of each node, or group of fused nodes, that
    was fed the golden values instead of its predecessors' own: what drifts there drifts by itself. `faithful` says
    whether showing the values left the served outputs' bits as they were; where it did not, `values` are not those
    of the served run and only `served` may be compared with it. `implementations` names, for peers that run only
    some nodes by themselves, what ran the others.
    Arrays are by the same names, where they were kept.
    """

    executor: Executor
    outcome: Outcome
    reason: str = ""
    environment: Mapping[str, Json] = field(default_factory=dict[str, Json])
    served: Mapping[str, Value] = field(default_factory=dict[str, Value])
    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    fed: Mapping[str, Value] = field(default_factory=dict[str, Value])
    faithful: bool = True
    implementations: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])
    fed_arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @property
    def ran(self) -> bool:
        return self.outcome is Outcome.RAN


@dataclass(frozen=True, eq=False)
class Record:
    """What one machine has to say of one model on one set of inputs. `golden` is repro's own: the same bits on every
    machine, so records compare through it. `host` describes the machine; it is no part of any comparison."""

    model: ModelSummary
    inputs: Mapping[str, Value]
    golden: Capture
    captures: tuple[Capture, ...]
    host: Mapping[str, Json]
    label: str = ""


# ── findings ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Drift:
    """How two tensors of one type differ.

    `histogram` counts elements by their distance in units in the last place (floats that lie between, and one more),
    in the buckets of `drift.BUCKETS`; `median_ulp` is over all elements. `argmax_flips` counts rows (all axes but the
    last) whose greatest element is another one; None where that is not asked.
    """

    elements: int
    different: int
    max_ulp: int | None
    median_ulp: int | None
    histogram: tuple[int, ...]
    max_absolute: float
    max_relative: float
    sign_changes: int
    zero_signs: int
    nan_changes: int
    infinity_changes: int
    argmax_flips: int | None = None


@dataclass(frozen=True)
class Cause:
    """A known order or rounding that gives an executor's bits. `evidence` says on what it was seen: how many elements
    were compared, and how many of those it gives."""

    name: str
    evidence: str


class Kind(Enum):
    """What an origin is: nodes that make different bits from the same, or a difference in what was given."""

    NODE = "node"
    FUSED = "fused nodes"
    WEIGHT = "weight"
    INPUT = "input"
    ATTRIBUTE = "attribute"
    GRAPH = "graph"


@dataclass(frozen=True)
class Origin:
    """Where drift begins: the nodes (one, or a fused group) that got equal inputs and made `value` different. `left`
    and `right` are its digests on the two sides (of a changed node: the node's, of a changed graph: the models').

    `fed`: seen with golden values fed to it, further down than the first difference of the run; False: seen in
    the run itself. `sources` are the digests of what it read, equal on both sides. `notes` say what a reader has to
    know: that the types differ, that ONNX leaves the node's results open.
    """

    kind: Kind
    nodes: tuple[str, ...]
    value: str
    left: str
    right: str
    drift: Drift | None
    fed: bool = False
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Pair:
    """Two captures compared. `first` is the first differing value in canonical order; `growth` has every compared
    float value of the run, in that order, where both sides' arrays were kept. Each output of the model is in `outputs`
    or, with the reason, in `unmeasured`."""

    left: str
    right: str
    compared: int
    different: int
    first: str | None
    first_node: str | None
    origins: tuple[Origin, ...]
    growth: tuple[tuple[str, Drift], ...]
    outputs: Mapping[str, Drift]
    notes: tuple[str, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def identical(self) -> bool:
        return not self.different and not self.origins


@dataclass(frozen=True, eq=False)
class Probe:
    """An executor's own sum or dot of `length` terms: the tree in words, and the known order that it is, if any.

    `fused`: products enter their additions unrounded; None where there are none, or only some do. `precision` is the
    accumulator's significand in bits, where all are alike. `confirmed`: the tree gives the executor's bits of random
    terms; None where it could not be evaluated. `calls` is how many sums were asked for.
    """

    executor: str
    operation: str
    length: int
    order: str
    tree: str
    fused: bool | None
    precision: int | None = None
    confirmed: bool | None = None
    calls: int = 0


@dataclass(frozen=True, eq=False)
class Audit:
    """All findings. `pairs` holds each executor against golden, first, then executors against each other, one pair
    for each two groups of executors whose captures are the same."""

    records: tuple[Record, ...]
    pairs: tuple[Pair, ...]
    groups: tuple[tuple[str, ...], ...]
    probes: tuple[Probe, ...] = ()
    commands: tuple[str, ...] = ()
