"""Changes to a model that keep its meaning: each takes a model and a source of choices, and gives a new model."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Disguise = Callable[[onnx.ModelProto, Random], None]
_FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def rename_everything(model: onnx.ModelProto, random: Random) -> None:
    graph = model.graph
    names = {item.name for item in (*graph.input, *graph.output, *graph.initializer)}
    names |= {name for node in graph.node for name in (*node.input, *node.output)} - {""}
    fresh = [f"v{number}" for number in range(len(names))]
    random.shuffle(fresh)
    new = dict(zip(sorted(names), fresh, strict=True))
    new[""] = ""
    for item in (*graph.input, *graph.output, *graph.initializer):
        item.name = new[item.name]
    for node in graph.node:
        node.input[:] = [new[name] for name in node.input]
        node.output[:] = [new[name] for name in node.output]
    graph.value_info.clear()
    for number, node in enumerate(graph.node):
        node.name = f"n{number}" if random.random() < 0.5 else ""
    graph.name = f"g{random.random()}"


def permute_nodes(model: onnx.ModelProto, random: Random) -> None:
    """Any order at all, topological or not: the graph is what counts."""
    nodes = list(model.graph.node)
    random.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def permute_initializers(model: onnx.ModelProto, random: Random) -> None:
    tensors = list(model.graph.initializer)
    random.shuffle(tensors)
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)


def change_notes(model: onnx.ModelProto, random: Random) -> None:
    model.producer_name, model.producer_version = f"producer {random.random()}", "9"
    model.domain, model.model_version, model.doc_string = "some.where", 7, "words"
    model.graph.doc_string = "more words"
    for item in (model, model.graph, *model.graph.node):
        item.metadata_props.add(key="key", value=str(random.random()))
    for node in model.graph.node:
        node.doc_string = "said of a node"
    del model.graph.value_info[:]


def constants_from_initializers(model: onnx.ModelProto, random: Random) -> None:
    """Constant nodes for initializers that are no parameters."""
    graph = model.graph
    moved = [item for item in graph.initializer if item.data_type not in _FLOATS]
    kept = [item for item in graph.initializer if item.data_type in _FLOATS]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for tensor in moved:
        graph.node.append(helper.make_node("Constant", [], [tensor.name], value=tensor))


def initializers_from_constants(model: onnx.ModelProto, random: Random) -> None:
    """Initializers for Constant nodes of integers and booleans."""
    graph = model.graph
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        held = {item.name: item.t for item in node.attribute}.get("value") if node.op_type == "Constant" else None
        if held is None or held.data_type in _FLOATS:
            graph.node.append(node)
            continue
        graph.initializer.add().CopyFrom(held)
        graph.initializer[-1].name = node.output[0]


def other_encoding(model: onnx.ModelProto, random: Random) -> None:
    """Typed fields for raw bytes."""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.name not in ("float32", "float64", "int32", "int64") or random.random() < 0.3:
            continue
        made = helper.make_tensor(tensor.name, tensor.data_type, array.shape, array.reshape(-1).tolist())
        tensor.CopyFrom(made)


def unused_parts(model: onnx.ModelProto, random: Random) -> None:
    model.opset_import.add(domain="com.microsoft", version=1)
    model.opset_import.add(domain=f"nobody.{random.randint(0, 9)}", version=3)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "nobody reads this"))
    model.graph.node.append(helper.make_node("NoSuchOperator", ["nobody reads this"], ["nobody reads that"]))


ALL: tuple[Disguise, ...] = (
    rename_everything,
    permute_nodes,
    permute_initializers,
    change_notes,
    constants_from_initializers,
    initializers_from_constants,
    other_encoding,
    unused_parts,
)
