"""Calling the function of an operator: arity, rule 3 for the narrow floats, results checked."""

from __future__ import annotations

from functools import lru_cache

import onnx

from repro.errors import ReproError
from repro.frontend.context import NodeContext
from repro.frontend.limits import check_tensor_size
from repro.frontend.registry import OnnxOp
from repro.frontend.scope import Item, Items
from repro.ir.graph import Value
from repro.ir.types import BF16, F16, F32, DType
from repro.ops import convert_to

_COMPUTED_IN_F32 = (F16, BF16)


def call(ctx: NodeContext, op: OnnxOp, inputs: tuple[Item, ...]) -> tuple[Item, ...]:
    """The outputs of a node by its operator's function."""
    inputs = _check_arity(ctx, op, inputs)
    given = inputs if op.moves else tuple(_widen(ctx, item) for item in inputs)
    ctx.inputs = inputs
    try:
        returned = op.function(ctx, *given)
        results = _as_items(returned)
        if not op.moves:
            results = _narrow(ctx, inputs, results)
    except ReproError as error:
        raise _placed(error, ctx) from None
    except (TypeError, ValueError, OverflowError, IndexError, ZeroDivisionError) as error:
        kinds = ", ".join(_describe(item) for item in inputs)
        raise ctx.error(
            "shape or dtype conflicts",
            found=f"{error} (operands: {kinds or 'none'})",
            expected=f"operands and attributes that fit {ctx.op_type} of opset {ctx.opset}",
            next="check this node's operands, and the dimensions bound with --bind",
        ) from error
    _check_results(ctx, results)
    return results


def _describe(item: Item) -> str:
    if isinstance(item, Value):
        return str(item.type)
    return "none" if item is None else f"a sequence of {len(item.values)}"


def _placed(error: ReproError, ctx: NodeContext) -> ReproError:
    """The error, with this node as its place where it has none of its own."""
    if error.op is None:
        error.op = ctx.op_type
        error.node = error.node or ctx.name
    return error


def _check_arity(ctx: NodeContext, op: OnnxOp, inputs: tuple[Item, ...]) -> tuple[Item, ...]:
    if op.most is not None:
        while len(inputs) > op.most and inputs[-1] is None:
            inputs = inputs[:-1]
    if len(inputs) < op.required or (op.most is not None and len(inputs) > op.most):
        most = "" if op.most is None else f" to {op.most}"
        expected = f"{op.required}{most} inputs"
        raise ctx.error("the number of inputs is wrong", f"{len(inputs)} inputs", expected)
    for index, item in enumerate(inputs):
        if item is None and not op.takes_nothing(index):
            raise ctx.error(f"input {index} is left out", "no value", f"{ctx.op_type} needs its input {index}")
        if isinstance(item, Items) and not op.takes_sequence(index):
            raise ctx.error(f"input {index} is no tensor", _describe(item), "a tensor")
    return inputs


def _widen(ctx: NodeContext, item: Item) -> Item:
    if not isinstance(item, Value) or item.dtype.computes:
        return item
    if item.dtype not in _COMPUTED_IN_F32:
        raise ctx.error(
            "f8 is only stored and converted",
            found=f"{ctx.op_type} of {item.type}",
            expected="Cast, QuantizeLinear, DequantizeLinear and operators that move elements",
            next="cast to float32 first",
        )
    return convert_to(item, F32)


def _as_items(returned: object) -> tuple[Item, ...]:
    if isinstance(returned, Value | Items) or returned is None:
        return (returned,)
    if not isinstance(returned, tuple):
        raise TypeError(f"an operator's function returned {type(returned).__name__}")
    return tuple(item for item in returned if item is None or isinstance(item, Value | Items))


@lru_cache(maxsize=4096)
def _type_names(op: str, opset: int, domain: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Type variables of an operator's inputs and outputs by ONNX's own schema; the last repeats if variadic."""
    if not onnx.defs.has(op, domain):
        return None
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return tuple(item.type_str for item in schema.inputs), tuple(item.type_str for item in schema.outputs)


def _narrow(ctx: NodeContext, inputs: tuple[Item, ...], results: tuple[Item, ...]) -> tuple[Item, ...]:
    """Each f32 result rounded once to the narrow type that ONNX gives the output (rule 3)."""
    narrow = [item.dtype for item in inputs if isinstance(item, Value) and item.dtype in _COMPUTED_IN_F32]
    if not narrow:
        return results
    domain = "" if ctx.node.domain == "ai.onnx" else ctx.node.domain
    names = _type_names(ctx.op_type, ctx.opset, domain)
    rounded: list[Item] = []
    for index, item in enumerate(results):
        target = narrow[0] if names is None else _output_dtype(names, index, inputs)
        if isinstance(item, Value) and item.dtype is F32 and target in _COMPUTED_IN_F32:
            item = convert_to(item, target)
        rounded.append(item)
    return tuple(rounded)


def _output_dtype(names: tuple[tuple[str, ...], tuple[str, ...]], index: int, inputs: tuple[Item, ...]) -> DType | None:
    takes, gives = names
    variable = gives[min(index, len(gives) - 1)]
    for position, item in enumerate(inputs):
        if isinstance(item, Value) and takes and takes[min(position, len(takes) - 1)] == variable:
            return item.dtype
    return None


def _check_results(ctx: NodeContext, results: tuple[Item, ...]) -> None:
    for index, name in enumerate(ctx.node.output):
        if name and index >= len(results):
            raise ctx.error(f"output {index} ('{name}') is not supported", expected=f"at most {len(results)} outputs")
    for item in results:
        for value in (item,) if isinstance(item, Value) else item.values if item is not None else ():
            check_tensor_size(value.shape, value.dtype.bytes, op=ctx.op_type, node=ctx.name)
