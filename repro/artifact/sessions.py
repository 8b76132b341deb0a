"""Running an entry by the names of its inputs and outputs, on whatever runs it underneath."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from passes.prepare import canonical_outputs
from repro.artifact.config import Entry, Value
from repro.errors import ReproError
from repro.ir.graph import Graph
from repro.ir.types import BOOL, Array, TensorType, parse_type, to_face, to_storage
from repro.numerics.host_mode import exact_arithmetic
from repro.ops.record import evaluate
from repro.targets.protocol import Executable, Profile, Profiled


class ReferenceExecutable:
    """The reference on the imported graph: no pass but the canonical NaN of outputs, no kernel, no code.

    The report of indices is not the model's own; it is evaluated on the graph that has it.
    """

    def __init__(
        self,
        graph: Graph,
        reporting: Graph | None,
        parameters: Sequence[Array],
        updates: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._graph = canonical_outputs(graph)
        self._report = None if reporting is None else Graph(reporting.arguments, reporting.results[-1:])
        self._parameters = list(parameters)
        self._updates = tuple(updates)

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        with exact_arithmetic():
            outputs = evaluate(self._graph, inputs, self._parameters)
            report = () if self._report is None else evaluate(self._report, inputs, self._parameters)
        if not any(rows.reshape(-1, 3)[:, 0].any() for rows in report):
            for slot, result in self._updates:
                self._parameters[slot] = outputs[result]
        return (*outputs, *report)

    def set_parameter(self, position: int, value: Array) -> None:
        self._parameters[position] = value

    def parameter(self, position: int) -> Array | None:
        return self._parameters[position]

    def close(self) -> None:
        """Nothing is held."""


_ARRAYS = "a NumPy array, or what NumPy makes one of by itself"


def as_array(given: object, what: str) -> Array:
    """What a user gave as an array, without a copy where it is one. `what` names it: "input 'x'".

    Raises ReproError for what is none: rows of several lengths, other objects, tensors that NumPy cannot read.
    """
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        advice = f"convert it first (of a PyTorch tensor: {_OF_TORCH})"
        raise ReproError(
            f"{what} is not an array", found=f"{_kind(given)}: {reason}", expected=_ARRAYS, next=advice
        ) from None
    if array.dtype.kind in "OUSMm":
        advice = "give one array under each name"
        raise ReproError(f"{what} is not an array of numbers", found=_kind(given), expected=_ARRAYS, next=advice)
    return array


_OF_TORCH = "x.detach().cpu().numpy(), and of bfloat16 x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)"


def _kind(given: object) -> str:
    kind = type(given)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def accept(array: object, value: Value, what: str = "input", note: str = "") -> Array:
    """The storage array of a user's array that has exactly the stated type. Raises ReproError for another.

    `note` is what helps where the shape is wrong, if more is known of it than that shapes are fixed."""
    kind = parse_type(value.type)
    given = as_array(array, f"{what} '{value.name}'")
    if given.dtype.kind == "V" and given.dtype.itemsize == kind.dtype.bytes and given.dtype.names is None:
        given = given.view(kind.dtype.face)  # .npz knows no bf16 and no f8: it hands them back as raw bytes
    typed = given.dtype.newbyteorder("=") == kind.dtype.face
    if not typed or given.shape != kind.shape:
        found = f"{given.dtype.name}{list(given.shape)}"
        own = isinstance(array, np.ndarray | np.generic)
        raise ReproError(
            f"{what} '{value.name}' has another type",
            found=found if own else f"{found}, which NumPy makes of a {_kind(array)}",
            expected=f"{kind.dtype.face.name}{list(kind.shape)}",
            next=note or SHAPES_ARE_FIXED if typed else f"{NEVER_CONVERTED}: np.asarray(x, {kind.dtype.face.name!r})",
        )
    return to_storage(given, kind.dtype)


NEVER_CONVERTED = "types are never converted: give the array in the type stated"
SHAPES_ARE_FIXED = "shapes are fixed at build: give this one, or build again for another (bind=..., --bind)"


def check_mapping(arrays: object, what: str, names: Sequence[str]) -> Mapping[object, object]:
    """Raises ReproError for what is no mapping from names to arrays."""
    if not isinstance(arrays, Mapping):
        shown = ", ".join(f"{name!r}: ..." for name in names[:3] or ["x"])
        expected = f"a mapping from names to arrays, such as {{{shown}}}"
        raise ReproError(f"{what}s are given by name", found=_kind(arrays), expected=expected)
    return cast(Mapping[object, object], arrays)


def as_arrays(given: object, what: str = "input") -> dict[str, Array]:
    """Arrays by name, whatever names and types they have. Raises ReproError for what is none."""
    named = check_mapping(given, what, ())
    return {str(name): as_array(each, f"{what} '{name}'") for name, each in named.items()}


def check_names(arrays: object, names: Sequence[str], what: str = "input") -> None:
    """Raises ReproError for what is no mapping from names to arrays, and for a missing or an unknown name."""
    given = check_mapping(arrays, what, names)
    missing = [name for name in names if name not in given]
    unknown = [str(name) for name in given if name not in names]
    if missing or unknown:
        parts = {"missing": missing, "unknown": unknown}
        wrong = "; ".join(f"{state}: {', '.join(which)}" for state, which in parts.items() if which)
        raise ReproError(
            f"{what}s are {wrong}",
            found=", ".join(sorted(map(str, given))) or "none",
            expected=", ".join(names) or "none",
            next="give an array for each name expected, and none besides",
        )


def match(
    arrays: Mapping[str, object], values: Sequence[Value], what: str = "input", notes: Mapping[str, str] | None = None
) -> list[Array]:
    """Storage arrays in the order of `values`. Raises ReproError for a missing or an unknown name, and for an array of
    another type; `notes` helps with the shapes of some."""
    check_names(arrays, [value.name for value in values], what)
    return [accept(arrays[value.name], value, what, (notes or {}).get(value.name, "")) for value in values]


class _Port:
    """An input or output as runs see it, found once: to read it off its text takes as long as a small run's code."""

    __slots__ = ("dtype", "face", "name", "same", "shape")

    def __init__(self, value: Value) -> None:
        kind = parse_type(value.type)
        self.name, self.shape, self.dtype, self.face = value.name, kind.shape, kind.dtype, kind.dtype.face
        self.same = self.face == kind.dtype.storage and kind.dtype is not BOOL
        """Whether what users see is stored as it is."""

    def taken(self, array: object) -> Array | None:
        """The storage array of an array of exactly this type; None for anything else."""
        if type(array) is not np.ndarray or array.dtype != self.face or array.shape != self.shape:
            return None
        return array if self.same and array.flags.c_contiguous else to_storage(array, self.dtype)

    def given(self, stored: Array) -> Array:
        """What users see of a flat storage array."""
        shaped = stored.reshape(self.shape)
        return shaped if self.same else to_face(shaped, self.dtype)


@dataclass(frozen=True)
class Parameter:
    """A parameter slot as users see it."""

    name: str
    type: TensorType


class Session:
    """An entry, ready to run. `run` and `state` speak in names and in arrays of the users' types.

    Threads may share a session: it does one thing at a time.
    """

    def __init__(
        self,
        entry: Entry,
        executable: Executable,
        parameters: Sequence[Parameter],
        notes: Mapping[str, str] | None = None,
    ) -> None:
        """`notes`: what helps where an input has the wrong shape, by its name."""
        self.entry = entry
        self._notes = notes or {}
        self._executable = executable
        self._parameters = tuple(parameters)
        self._inputs, self._outputs = ([_Port(value) for value in each] for each in (entry.inputs, entry.outputs))
        self._turn = threading.Lock()
        self._closed = False

    def _open(self) -> Executable:
        """What runs underneath, for whoever has the turn, since its buffers are those of one run. Raises ReproError if
        the session is closed."""
        if self._closed:
            raise ReproError("the session is closed", next="open another: artifact.session(...)")
        return self._executable

    def run(self, inputs: Mapping[str, object]) -> dict[str, Array]:
        """Outputs by name. Raises ReproError for inputs that do not fit, and for an index out of range.

        Where it raises, the state is as it was; where a run is interrupted, as it was or that of the whole run.
        """
        given = self._given(inputs)
        with self._turn:
            results = self._open().run(given)
        if self.entry.index_checks:
            _raise_for(self.entry.index_checks, results[-1].reshape(-1, 3))
        return {port.name: port.given(array) for port, array in zip(self._outputs, results, strict=False)}

    def _given(self, inputs: Mapping[str, object]) -> list[Array]:
        """The storage arrays of the inputs, by position. What is not exactly as stated is looked at once more: it may
        fit all the same, or there is something to say about it."""
        if not isinstance(inputs, dict) or len(inputs) != len(self._inputs):
            return match(inputs, self.entry.inputs, notes=self._notes)
        found: list[Array] = []
        for port in self._inputs:
            array = port.taken(inputs.get(port.name))
            if array is None:
                return match(inputs, self.entry.inputs, notes=self._notes)
            found.append(array)
        return found

    def profile(self) -> Profile:
        """What the last run took. Raises ReproError for a target that does not know."""
        with self._turn:
            executable = self._open()
            if not isinstance(executable, Profiled):
                advice = "--target tpu-sim, or another simulator"
                raise ReproError("this target has no profile of a run", next=advice)
            return executable.profile()

    def close(self) -> None:
        """End the session's threads, when a run has ended. A closed session cannot run, and may be closed again."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self._executable.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> dict[str, Array]:
        """The parameters by name, as they are now (copies); set, all of the tensors named or, where one does not fit,
        none."""
        with self._turn:
            return {name: array.copy() for name, array in self._views().items()}

    def state_views(self) -> dict[str, Array]:
        """The parameters by name without copies, to be read, not written; the next run may change them."""
        with self._turn:
            return self._views()

    def _views(self) -> dict[str, Array]:
        executable = self._open()
        found: dict[str, Array] = {}
        for position, parameter in enumerate(self._parameters):
            array = executable.parameter(position)
            if array is not None:
                found[parameter.name] = to_face(array.reshape(parameter.type.shape), parameter.type.dtype)
        return found

    @state.setter
    def state(self, values: Mapping[str, object]) -> None:
        positions = {parameter.name: position for position, parameter in enumerate(self._parameters)}
        check_mapping(values, "parameter", list(positions))
        fitting: dict[int, Array] = {}
        for name, array in values.items():
            if name not in positions:
                raise ReproError("no such parameter", found=str(name), expected=", ".join(positions))
            parameter = self._parameters[positions[name]]
            fitting[positions[name]] = accept(array, Value(name, str(parameter.type)), "parameter")
        with self._turn:
            executable = self._open()
            for position, stored in fitting.items():
                executable.set_parameter(position, stored)


def _raise_for(sources: Sequence[str], report: Array) -> None:
    """Each row: whether an index was out of range, its position in the node's indices, its value."""
    for source, (found, position, value) in zip(sources, report.tolist(), strict=True):
        if found:
            op, _, node = source.partition(" ")
            raise ReproError(
                "an index is out of range",
                op=op,
                node=node or None,
                found=f"index {value} at position {position} of the indices",
                expected="an index within the extent of the axis that it indexes",
                next="check the input that holds the indices: labels, token ids",
            )
