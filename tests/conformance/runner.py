"""Runs the node cases of onnx.backend.test through import, reference and CPU code."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from repro.errors import ReproError
from repro.frontend import Imported, import_model, load_model
from repro.ir.graph import Graph
from repro.ir.types import Array, to_face, to_storage
from repro.ops import canonical_nan
from repro.ops.record import evaluate
from repro.targets import cpu
from tests.conformance.exceptions import EXCEPTIONS, UNSUPPORTED
from tests.running import run_on_cpu


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `failure` says why it does not pass; empty if it does."""

    name: str
    ops: tuple[str, ...]
    failure: str
    at_run_time: bool
    """Whether something was left to run after folding what the case fixes at build."""


@cache
def cases() -> Mapping[str, Any]:
    """Every node case of the installed onnx package, by name, and its cases of whole models made by scripts."""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import model, node

        made = (case for case in model.collect_testcases() if case.model is not None)  # the others are downloads
        return {case.name: case for case in (*node.collect_testcases(None), *made)}


def operators(case: Any) -> tuple[str, ...]:
    """The operators of a case's graph, each once, by first use."""
    return tuple(dict.fromkeys(node.op_type for node in case.model.graph.node))


def cases_of(*names: str) -> list[str]:
    """The cases whose name or operator is among these."""
    wanted = set(names)
    return [name for name, case in cases().items() if name in wanted or wanted & set(operators(case))]


def _array(value: Any) -> Array:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | tuple):
        raise ReproError("a sequence as input or output")
    return np.asarray(value)


def _import(model: Any, inputs: Mapping[str, Array]) -> tuple[Imported, list[str]]:
    """Import with shapes from the data; inputs that must be known at build are set, as the error advises."""
    fixed: dict[str, Array] = {}
    shapes = {name: array.shape for name, array in inputs.items()}
    while True:
        try:
            return import_model(load_model(model), set_values=fixed, input_shapes=shapes), list(fixed)
        except ReproError as error:
            advised = re.findall(r"--set (\S+)=", error.next or "")
            fresh = [name for name in advised if name in inputs and name not in fixed]
            if not fresh:
                raise
            fixed.update({name: inputs[name] for name in fresh})


def _compare(found: Array, expected: Array, case: Any) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if found.dtype != expected.dtype:
        return f"type {found.dtype}, expected {expected.dtype}"
    if found.dtype.kind in "iub":
        return "" if np.array_equal(found, expected) else "integers differ"
    wide, wanted = found.astype(np.float64), expected.astype(np.float64)
    if np.allclose(wide, wanted, rtol=case.rtol, atol=case.atol, equal_nan=True):
        return ""
    return f"values differ by up to {np.nanmax(np.abs(wide - wanted)):.3g}"


def run_case(name: str) -> Outcome:
    """Import, evaluate by the reference, run on this host's CPU; all bits equal, values as the case says."""
    case = cases()[name]
    failure, at_run_time = "", False
    try:
        failure, at_run_time = _run(case)
    except ReproError as error:
        failure = f"refused: {error.what}" + (f" (found {error.found})" if error.found else "")
    except Exception as error:  # a runner reports every failure, ours too
        failure = f"crashed: {type(error).__name__}: {error}"
    return Outcome(name, operators(case), failure.splitlines()[0] if failure else "", at_run_time)


def _run(case: Any) -> tuple[str, bool]:
    ran = False
    for given, wanted in case.data_sets:
        names = [port.name for port in case.model.graph.input]
        arrays = {n: _array(value) for n, value in zip(names, given, strict=False)}
        imported, fixed = _import(case.model, arrays)
        ran = ran or len(fixed) < len(names)
        flat = [part for value in wanted for part in (value if isinstance(value, list) else [value])]
        failure = _run_data(imported, arrays, [_array(value) for value in flat], case)
        if failure:
            return failure, ran
    return "", ran


def _run_data(imported: Imported, arrays: Mapping[str, Array], wanted: list[Array], case: Any) -> str:
    inputs = [to_storage(arrays[port.name], port.type.dtype) for port in imported.inputs]
    parameters = [slot.initial for slot in imported.parameters]
    graph = imported.graph
    reference = evaluate(
        Graph(graph.arguments, tuple(canonical_nan(value) for value in graph.results)), inputs, parameters
    )
    if not _is_random(case):
        for found, expected, port in zip(reference, wanted, imported.outputs, strict=True):
            failure = _compare(to_face(found, port.type.dtype), expected, case)
            if failure:
                return f"reference, output '{port.name}': {failure}"
    machine = cpu.best_machine()
    if machine is None:
        return "no CPU target runs on this host"
    for found, expected, port in zip(
        run_on_cpu(graph, inputs, parameters, machine), reference, imported.outputs, strict=True
    ):
        if found.tobytes() != expected.tobytes():
            return f"{machine.name}, output '{port.name}': other bits than the reference"
    return ""


def _is_random(case: Any) -> bool:
    """Cases whose values no runtime's stream gives; shapes and types are still compared."""
    return any(op in ("Bernoulli", "RandomNormalLike", "RandomUniformLike") for op in operators(case))


def expected_failure(name: str) -> str:
    """Why a case is known not to pass: by its name, or by an operator in its graph. Empty: it must pass."""
    unsupported = [UNSUPPORTED[op] for op in operators(cases()[name]) if op in UNSUPPORTED]
    return EXCEPTIONS.get(name) or (unsupported[0] if unsupported else "")
