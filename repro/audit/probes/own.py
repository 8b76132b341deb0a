"""repro's own sum and dot as adders: a compiled ReduceSum and a compiled MatMul for each length that is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from passes import pipeline
from repro.artifact.cache import Cache
from repro.artifact.compiling import compile_programs
from repro.audit.peers.peer import Adder
from repro.frontend import import_model, load_model
from repro.ir.types import Array
from repro.targets import registry
from repro.targets.protocol import Executable

OPSET = 17
IR_VERSION = 8


def own_adders(target: str, threads: int, cache: Cache | None = None) -> Mapping[str, Adder]:
    """`sum` and `dot` of a compiled target. Raises ReproError, when first called, where this host does not run it."""

    runner = registry.runner(target)

    @lru_cache(maxsize=2)
    def opened(model: Callable[[int], ModelProto], length: int) -> Executable:
        source = import_model(load_model(model(length))).infer
        lowered = pipeline.run(source.graph, source.locations)
        compiled = compile_programs([(runner.code, lowered.program)], cache, lambda *_: None)[0]
        return runner.open(compiled, [slot.initial.reshape(-1) for slot in source.parameters], threads)

    def add(a: Array, b: Array) -> float:
        return _only(opened(sum_model, a.size).run([a]))

    def dot(a: Array, b: Array) -> float:
        return _only(opened(dot_model, a.size).run([a, b]))

    return {"sum": add, "dot": dot}


def _only(results: object) -> float:
    return float(np.asarray(results).reshape(-1)[0])


def sum_model(length: int) -> ModelProto:
    """ReduceSum over [length]."""
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [0])
    node = helper.make_node("ReduceSum", ["a", "axes"], ["y"], keepdims=0)
    return _model(node, {"a": [length]}, [], [axes])


def dot_model(length: int) -> ModelProto:
    """MatMul of [1, length] and [length, 1]."""
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    return _model(node, {"a": [1, length], "b": [length, 1]}, [1, 1], [])


def _model(
    node: NodeProto, inputs: Mapping[str, list[int]], output: list[int], constants: list[TensorProto]
) -> ModelProto:
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph([node], "adder", given, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
