"""Attention.

With s = sqrt(scale) in the computing type (scale is 1 / sqrt(head size) unless given), each step rounded:

    score = (Q * s) . (K * s)           softcap: score = tanh(score / cap) * cap
    bias = mask, or 0 and -inf for a bool mask; + (0 where causality, window and padding allow the key, else -inf)
    p = softmax(score + bias)           +0 in rows whose bias is -inf throughout: Y is 0 there
    Y = p . V
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from repro.frontend.context import NodeContext
from repro.frontend.families.activation import softmax_of
from repro.frontend.registry import onnx_op
from repro.ir.graph import Value
from repro.ir.types import BOOL, F32, I64, DType, TensorType
from repro.ops import (
    add,
    broadcast,
    broadcast_shape,
    broadcast_to,
    compare,
    concatenate,
    convert_to,
    div,
    dot,
    elementwise,
    fill,
    iota,
    mul,
    pad,
    reduce_keep,
    reshape,
    scalar,
    select,
    sub,
    transpose,
)

Inputs = Mapping[str, Value]
"""q [batch, heads, queries, size], k and v [batch, kv heads, keys, size]; mask and lengths where given."""

RAW, CAPPED, BIASED, PROBABILITIES = range(4)
"""qk_matmul_output_mode: what the fourth output shows."""


@dataclass(frozen=True)
class Plan:
    """The attributes, resolved."""

    root: float
    """sqrt(scale), exactly a value of the computing type."""
    softcap: float
    causal: bool
    past: int
    """Keys before the first query."""
    left: int
    right: int
    """Window: keys visible on either side; -1 for all."""
    precision: DType | None
    """The type the softmax runs in where it is not the computing type."""
    mode: int
    pads_mask: bool


# ── the bias ────────────────────────────────────────────────────────────────────────────────────────


def _allowed(plan: Plan, given: Inputs, queries: int, keys: int) -> Value | None:
    """bool[batch or 1, 1, queries, keys]: keys that causality, window and padding leave; None: all of them."""
    lengths = given.get("lengths")
    batch = 1 if lengths is None else lengths.shape[0]
    shape = (batch, 1, queries, keys)
    key, conditions = iota(shape, 3), list[Value]()
    at = add(iota(shape, 2), fill(plan.past, TensorType(I64, shape)))
    if lengths is not None:
        lengths = broadcast(lengths, shape, (0,))
        at = add(at, sub(lengths, fill(queries, lengths.type)))
        conditions.append(compare("lt", key, lengths))
    if plan.causal:
        conditions.append(compare("le", key, at))
    if plan.left >= 0:
        conditions.append(compare("ge", key, sub(at, fill(plan.left, at.type))))
    if plan.right >= 0:
        conditions.append(compare("le", key, add(at, fill(plan.right, at.type))))
    return _all_of(conditions)


def _all_of(conditions: list[Value]) -> Value | None:
    result: Value | None = None
    for condition in conditions:
        result = condition if result is None else elementwise("and", result, condition)
    return result


def _fitted_mask(plan: Plan, mask: Value, keys: int) -> Value:
    """The mask at rank 4; missing keys at its end are not attended (opset 24 and up)."""
    mask = reshape(mask, (*(1,) * (4 - mask.rank), *mask.shape))
    missing = keys - mask.shape[3] if plan.pads_mask else 0
    if missing <= 0:
        return mask
    return pad(mask, (0, 0, 0, 0), (0, 0, 0, missing), scalar(False if mask.dtype is BOOL else -np.inf, mask.dtype))


def _bias(plan: Plan, given: Inputs) -> Value | None:
    """What is added to the scores: [batch or 1, heads or 1, queries or 1, keys or 1]."""
    q, k = given["q"], given["k"]
    allowed = _allowed(plan, given, q.shape[2], k.shape[2])
    mask = _fitted_mask(plan, given["mask"], k.shape[2]) if "mask" in given else None
    if mask is not None and mask.dtype is BOOL:
        together = [mask] if allowed is None else _together(mask, allowed)
        allowed, mask = _all_of(list(together)), None
    if allowed is None:
        return mask
    kind = TensorType(q.dtype, allowed.shape)
    masked = select(allowed, fill(0, kind), fill(-np.inf, kind))
    return masked if mask is None else add(*_together(mask, masked))


def _together(a: Value, b: Value) -> tuple[Value, Value]:
    shape = broadcast_shape(a.shape, b.shape)
    return broadcast_to(a, shape), broadcast_to(b, shape)


# ── the core ────────────────────────────────────────────────────────────────────────────────────────


def _grouped_dot(rows: Value, other: Value, contract: int) -> Value:
    """[batch, heads, rows, n] with [batch, kv heads, ...]: each group of heads meets its own kv head."""
    batch, heads, count, size = rows.shape
    grouped = reshape(rows, (batch, other.shape[1], heads // other.shape[1] * count, size))
    made = dot(grouped, other, ((3,), (contract,)), ((0, 1), (0, 1)))
    return reshape(made, (batch, heads, count, made.shape[3]))


def _probabilities(plan: Plan, biased: Value, bias: Value | None) -> Value:
    dtype = biased.dtype
    inner = biased if plan.precision is None else convert_to(biased, plan.precision)
    wide = inner if inner.dtype.computes else convert_to(inner, F32)
    p = convert_to(softmax_of(wide, (3,)), inner.dtype)
    p = convert_to(p, dtype)
    if bias is None:
        return p
    highest = reduce_keep("max", bias, (3,))
    dead = compare("eq", highest, fill(-np.inf, highest.type))
    return select(broadcast_to(dead, p.shape), fill(0, p.type), p)


def attention_formula(plan: Plan, given: Inputs, shows: bool) -> tuple[Value, ...]:
    """Y [batch, heads, queries, v size] and, if asked for, the scores at the stage that the mode names."""
    q, k, v = given["q"], given["k"], given["v"]
    score = _grouped_dot(mul(q, fill(plan.root, q.type)), mul(k, fill(plan.root, k.type)), 3)
    stages = [score]
    if plan.softcap:
        cap = fill(plan.softcap, score.type)
        score = mul(elementwise("tanh", div(score, cap)), cap)
    stages.append(score)
    bias = _bias(plan, given)
    if bias is not None:
        score = add(score, broadcast_to(bias, score.shape))
    stages.append(score)
    guarded = bias if plan.left >= 0 or plan.right >= 0 or "mask" in given or "lengths" in given else None
    stages.append(_probabilities(plan, score, guarded))
    y = _grouped_dot(stages[PROBABILITIES], v, 2)
    return (y, stages[plan.mode]) if shows else (y,)


# ── Attention ───────────────────────────────────────────────────────────────────────────────────────


def split_heads(ctx: NodeContext, value: Value, heads: int, what: str) -> Value:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    batch, length, hidden = value.shape
    if heads <= 0 or hidden % heads:
        raise ctx.error(f"{what} does not split into heads", f"{value.type} and {heads} heads")
    return transpose(reshape(value, (batch, length, heads, hidden // heads)), (0, 2, 1, 3))


def _as_heads(ctx: NodeContext, q: Value, k: Value, v: Value) -> tuple[Value, Value, Value]:
    if not q.rank == k.rank == v.rank or q.rank not in (3, 4):
        raise ctx.error("Q, K and V are of different ranks", f"{q.type}, {k.type}, {v.type}", "all of rank 3 or 4")
    if q.rank == 3:
        heads, kv_heads = ctx.attr_int("q_num_heads"), ctx.attr_int("kv_num_heads")
        q = split_heads(ctx, q, heads, "Q")
        return q, split_heads(ctx, k, kv_heads, "K"), split_heads(ctx, v, kv_heads, "V")
    named = (ctx.attr_int("q_num_heads", q.shape[1]), ctx.attr_int("kv_num_heads", k.shape[1]))
    if named != (q.shape[1], k.shape[1]):
        raise ctx.error("the head counts do not fit Q and K", f"{named}", f"{(q.shape[1], k.shape[1])}")
    return q, k, v


def _with_past(ctx: NodeContext, past: Value | None, fresh: Value, what: str) -> Value:
    if past is None:
        return fresh
    expected = (*fresh.shape[:2], past.shape[2] if past.rank == 4 else 0, fresh.shape[3])
    if past.shape != expected:
        found, wanted = f"past {what} {past.type}", f"[{fresh.shape[0]}, {fresh.shape[1]}, length, {fresh.shape[3]}]"
        raise ctx.error("the cache does not fit", found, wanted)
    return concatenate((convert_to(past, fresh.dtype), fresh), 2)


def _check(ctx: NodeContext, q: Value, k: Value, v: Value, mask: Value | None, lengths: Value | None) -> None:
    fits = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3] and q.shape[3] == k.shape[3]
    if not fits or not k.shape[1] or q.shape[1] % k.shape[1]:
        expected = "equal batches and head sizes of Q and K; K and V of equal lengths; heads a multiple of kv heads"
        raise ctx.error("Q, K and V do not fit", f"{q.type}, {k.type}, {v.type}", expected)
    if mask is not None and not (mask.dtype is BOOL or mask.dtype.is_float):
        raise ctx.error("the mask is neither bool nor float", str(mask.type), "a bool mask, or a float one to add")
    if mask is not None and mask.rank > 4:
        raise ctx.error("the mask does not fit", str(mask.type), "a mask of at most 4 axes")
    if lengths is not None and lengths.shape != q.shape[:1]:
        raise ctx.error("nonpad_kv_seqlen does not fit", str(lengths.type), f"i64[{q.shape[0]}]")


def _root_of_scale(ctx: NodeContext, dtype: DType, size: int) -> float:
    """sqrt(scale), every step rounded to the computing type, as ONNX's function body has it for f32."""
    of = dtype.face.type
    scale = of(ctx.attr_float("scale")) if ctx.has("scale") else of(1) / np.sqrt(of(size))
    if not (math.isfinite(scale) and scale >= 0):
        raise ctx.error("the scale has no square root", str(float(scale)), "a finite number, not negative")
    return float(np.sqrt(scale))


def _precision(ctx: NodeContext, dtype: DType) -> DType | None:
    """softmax_precision where it says something: not the type of Q, and not the type we compute in."""
    if not ctx.has("softmax_precision"):
        return None
    named = ctx.attr_dtype("softmax_precision")
    original = ctx.inputs[0]
    if not named.is_float or named.bits < 16:
        raise ctx.error("softmax_precision is not a float type", str(named), "float, float16, double or bfloat16")
    same = named is dtype or (isinstance(original, Value) and named is original.dtype)
    return None if same else named


def _plan(ctx: NodeContext, q: Value, past: int) -> Plan:
    window = ctx.attr_int("left_window_size", -1), ctx.attr_int("right_window_size", -1)
    mode = ctx.attr_int("qk_matmul_output_mode", RAW)
    softcap = ctx.attr_float("softcap", 0.0)
    if min(window) < -1:
        raise ctx.error("a window size is negative", str(window), "-1 or more")
    if mode not in (RAW, CAPPED, BIASED, PROBABILITIES):
        raise ctx.error("qk_matmul_output_mode is unknown", str(mode), "0 to 3")
    return Plan(
        root=_root_of_scale(ctx, q.dtype, q.shape[3]),
        softcap=softcap if softcap > 0 else 0.0,
        causal=ctx.attr_bool("is_causal"),
        past=past,
        left=window[0],
        right=window[1],
        precision=_precision(ctx, q.dtype),
        mode=mode,
        pads_mask=ctx.opset >= 24,
    )


@onnx_op("Attention", since=23)
def attention(
    ctx: NodeContext,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
) -> tuple[Value | None, ...]:
    """See the module's formula; present key and value are the past ones with the new ones behind."""
    if (past_key is None) != (past_value is None):
        raise ctx.error("past_key and past_value belong together", "one of them", "both or none")
    if past_key is not None and lengths is not None:
        raise ctx.error("nonpad_kv_seqlen says that the cache is outside", "past_key too", "one of them")
    flat = q.rank == 3
    q, k, v = _as_heads(ctx, q, k, v)
    past = 0 if past_key is None or past_key.rank != 4 else past_key.shape[2]
    k, v = _with_past(ctx, past_key, k, "key"), _with_past(ctx, past_value, v, "value")
    _check(ctx, q, k, v, mask, lengths)
    plan = _plan(ctx, q, past)
    given = {"q": q, "k": convert_to(k, q.dtype), "v": convert_to(v, q.dtype)}
    if mask is not None:
        given["mask"] = mask if mask.dtype is BOOL else convert_to(mask, q.dtype)
    if lengths is not None:
        given["lengths"] = lengths
    names, shows = tuple(given), ctx.wants(3)
    made = ctx.composite(
        "Attention",
        tuple(given.values()),
        lambda *values: attention_formula(plan, dict(zip(names, values, strict=True)), shows),
        takes=names,
        root=float.hex(plan.root),
        softcap=plan.softcap,
        causal=plan.causal,
        past=plan.past,
        window=(plan.left, plan.right),
        precision=plan.precision or q.dtype,
        shows=plan.mode if shows else -1,
    ).results
    y = made[0]
    if flat:
        y = reshape(transpose(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], y.shape[1] * y.shape[3]))
    return (y, k, v, made[1] if shows else None)
