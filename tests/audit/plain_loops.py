"""Sums, dots and convolutions as plain loops in Python's own order, and what tests of causes share."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from repro.audit.causes import causes

F32 = np.float32


def draw(*shape: int, seed: int = 0):
    return np.random.Generator(np.random.PCG64(seed)).uniform(-2, 2, shape).astype(F32)


def sought(operator: str, arrays, theirs, golden=None, after=(), **attributes):
    """The causes of a node whose golden result is `theirs` with every bit but the last flipped, unless given."""
    node = helper.make_node(operator, list(arrays), ["y"], name="node", **attributes)
    theirs = np.asarray(theirs, F32)
    golden = np.nextafter(theirs, F32(np.inf)) if golden is None else golden
    return causes(node, arrays, golden, theirs, after)


def only(found) -> str:
    """The name of a cause that all sampled elements show."""
    assert len(found) == 1, found
    counted, _, elements = found[0].evidence.partition(" of ")
    assert elements.split()[0] == counted, found
    return found[0].name


def fma(a, b, c) -> np.float32:
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if not exact:
        return F32(0)
    unit = Fraction(2) ** (math.floor(math.log2(abs(exact))) - 23)
    return F32(float(round(exact / unit) * unit))


def chain(a, b, fused: bool = False):
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = fma(x, y, total) if fused else total + x * y
    return total


def in_blocks(a, b, size: int, fused: bool = False):
    parts = [chain(a[at : at + size], b[at : at + size], fused) for at in range(0, len(a), size)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def in_lanes(a, b, width: int, fused: bool = False, neighbours: bool = False):
    lanes = [chain(a[lane::width], b[lane::width], fused) for lane in range(width)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        pairs = [(2 * k, 2 * k + 1) if neighbours else (k, k + half) for k in range(half)]
        lanes = [lanes[left] + lanes[right] for left, right in pairs]
    return lanes[0]


def in_f64(a, b):
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += float(x) * float(y)
    return F32(total)


def tail(a, b, width: int):
    body = len(a) // width * width
    result = in_lanes(a[:body], b[:body], width)
    for x, y in zip(a[body:], b[body:], strict=True):
        result = result + x * y
    return result


def convolution(x, w, bias, pads=None, strides=(1, 1), dilations=(1, 1), group=1, auto_pad="NOTSET"):
    """Taps that fall outside are left out, so that padding is no part of the loop."""
    shape = reference("Conv", {"x": x, "w": w}, **arguments(pads, strides, dilations, group, auto_pad)).shape
    if auto_pad == "NOTSET":
        begins = (pads or [0, 0, 0, 0])[:2]
    else:
        needed = [
            max(0, (size - 1) * s + (k - 1) * d + 1 - extent)
            for size, s, k, d, extent in zip(shape[2:], strides, w.shape[2:], dilations, x.shape[2:], strict=True)
        ]
        begins = [n // 2 if auto_pad == "SAME_UPPER" else n - n // 2 for n in needed]
    result = np.zeros(shape, F32)
    for n, o, i, j in np.ndindex(*shape):
        a, b = [], []
        for c, p, q in np.ndindex(*w.shape[1:]):
            row, column = i * strides[0] + p * dilations[0] - begins[0], j * strides[1] + q * dilations[1] - begins[1]
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                a.append(x[n, o // (w.shape[0] // group) * w.shape[1] + c, row, column])
                b.append(w[o, c, p, q])
        result[n, o, i, j] = chain(a, b) + bias[o]
    return result


def arguments(pads, strides, dilations, group, auto_pad):
    given = {"strides": list(strides), "dilations": list(dilations), "group": group, "auto_pad": auto_pad}
    return given | ({"pads": pads} if pads else {})


def reference(operator: str, arrays, **attributes):
    results = ReferenceEvaluator(model_of(operator, arrays, **attributes)).run(None, arrays)
    assert isinstance(results, list)
    return results[0]


def model_of(operator: str, arrays, **attributes):
    node = helper.make_node(operator, list(arrays), ["y"], name="node", **attributes)
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array.dtype != F32]
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
        for name, array in arrays.items()
        if array.dtype == F32
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "model", inputs, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)
