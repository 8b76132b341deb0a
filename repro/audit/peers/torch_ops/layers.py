"""Contractions, convolutions, normalizations, attention, losses."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from repro.audit.peers.torch_ops.call import Call, op, require
from repro.audit.peers.torch_ops.pooling import windows

CONVOLUTION = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


# ── contractions ────────────────────────────────────────────────────────────────────────────────────


@op("MatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@op("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """With both factors 1 it is torch.nn.Linear's own kernel."""
    a = a.t() if call.get("transA", 0) else a
    b = b.t() if call.get("transB", 0) else b
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if c is not None and c.dim() <= 2:
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    require(c is None, "a bias of more than two axes")
    product = torch.mm(a, b)
    return product if alpha == 1.0 else torch.mul(product, alpha)


@op("Einsum")
def einsum(call: Call, *operands: Tensor) -> Tensor:
    return torch.einsum(call.get("equation"), *operands)


@op("Det")
def determinant(call: Call, x: Tensor) -> Tensor:
    return torch.linalg.det(x)


# ── convolutions ────────────────────────────────────────────────────────────────────────────────────


@op("Conv")
def convolution(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    w = windows(call, x.shape[2:], weight.shape[2:])
    x, padding = (x, w.before) if w.symmetric else (w.padded(x, 0.0), (0,) * len(w.kernel))
    function = CONVOLUTION[x.dim() - 2]
    return function(x, weight, bias, w.strides, padding, w.dilations, call.get("group", 1))


@op("ConvTranspose")
def transposed_convolution(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = x.dim() - 2
    require(rank in TRANSPOSED, f"{rank} spatial axes")
    strides, dilations = (tuple(call.get(name, (1,) * rank)) for name in ("strides", "dilations"))
    extra = tuple(call.get("output_padding", (0,) * rank))
    pads = _transposed_pads(call, x, weight, strides, dilations, extra)
    before, after = pads[:rank], pads[rank:]
    function, group = TRANSPOSED[rank], call.get("group", 1)
    fits = all(more < max(pair) for more, pair in zip(extra, zip(strides, dilations, strict=True), strict=True))
    require(fits and min(pads) >= 0, "this output padding")
    if before == after:
        return function(x, weight, bias, strides, before, extra, group, dilations)
    whole = function(x, weight, bias, strides, 0, extra, group, dilations)
    for axis, (low, high) in enumerate(zip(before, after, strict=True), 2):
        whole = whole.narrow(axis, low, whole.shape[axis] - low - high)
    return whole


def _transposed_pads(
    call: Call,
    x: Tensor,
    weight: Tensor,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[int, ...]:
    """What is cut off: given, or what `output_shape` or `auto_pad` leave (ConvTranspose in ONNX's operators)."""
    rank = len(strides)
    automatic, wanted = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    if wanted is None and automatic in ("NOTSET", "VALID"):
        return tuple(call.get("pads", (0,) * 2 * rank)) if automatic == "NOTSET" else (0,) * 2 * rank
    inner, kernel = x.shape[2:], weight.shape[2:]
    goal = wanted[-rank:] if wanted is not None else [n * s for n, s in zip(inner, strides, strict=True)]
    totals = [
        strides[i] * (inner[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - goal[i] for i in range(rank)
    ]
    require(min(totals) >= 0, "an output larger than what the windows reach")
    small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (*small, *large) if automatic == "SAME_UPPER" else (*large, *small)


# ── normalizations ──────────────────────────────────────────────────────────────────────────────────


@op("BatchNormalization")
def batch_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor | tuple[Tensor, ...]:
    """In training ONNX moves the running variance by the batch's population variance, PyTorch's module by the
    unbiased one: the statistics are written here as ONNX has them."""
    require(call.opset >= 9, "BatchNormalization before opset 9")
    epsilon = call.get("epsilon", 1e-5)
    require(call.opset >= 14 or call.outputs == 1, "training before opset 14")
    if not call.get("training_mode", 0):
        return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)
    kept = call.get("momentum", 0.9)
    y = F.batch_norm(x, None, None, scale, bias, True, 0.0, epsilon)
    axes = tuple(axis for axis in range(x.dim()) if axis != 1)
    spread, center = torch.var_mean(x.detach(), axes, correction=0)
    return y, mean * kept + center * (1 - kept), variance * kept + spread * (1 - kept)


@op("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=call.get("epsilon", 1e-5))


@op("LayerNormalization")
def layer_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor | tuple[Tensor, ...]:
    axis = call.axis(x.dim(), -1)
    shape = list(x.shape[axis:])
    fits = list(scale.shape) == shape and (bias is None or list(bias.shape) == shape)
    require(fits and call.get("stash_type", 1) == 1, "a scale of another shape than what is normalized")
    if call.outputs == 1:
        return F.layer_norm(x, shape, scale, bias, call.get("epsilon", 1e-5))
    return torch.native_layer_norm(x, shape, scale, bias, call.get("epsilon", 1e-5))


@op("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    shape = list(x.shape[call.axis(x.dim(), -1) :])
    require(list(scale.shape) == shape, "a scale of another shape than what is normalized")
    return F.rms_norm(x, shape, scale, call.get("epsilon", 1e-5))


@op("GroupNormalization")
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Before opset 21 scale and bias are one number for each group."""
    groups = call.get("num_groups")
    if call.opset < 21:
        scale, bias = (each.repeat_interleave(x.shape[1] // groups) for each in (scale, bias))
    return F.group_norm(x, groups, scale, bias, call.get("epsilon", 1e-5))


@op("LRN")
def local_response_normalization(call: Call, x: Tensor) -> Tensor:
    size = call.get("size")
    require(size % 2 == 1, "an even window, which PyTorch centers otherwise")
    return F.local_response_norm(x, size, call.get("alpha", 1e-4), call.get("beta", 0.75), call.get("bias", 1.0))


@op("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, call.get("p", 2), call.axis(x.dim(), -1), True)
    return torch.where(norm == 0, torch.zeros_like(x), torch.div(x, norm))


# ── attention ───────────────────────────────────────────────────────────────────────────────────────


@op("Attention")
def attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor | tuple[Tensor, ...]:
    call.get("qk_matmul_output_mode")  # of a fourth output, which is refused
    plain = not call.get("softcap", 0.0) and call.outputs <= 3 and "softmax_precision" not in call.attributes
    require(plain and lengths is None, "this form of attention")
    flat = q.dim() == 3
    q, k, v = (_heads(x, call, name) for x, name in ((q, "q_num_heads"), (k, "kv_num_heads"), (v, "kv_num_heads")))
    if past_key is not None and past_value is not None:
        k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
    causal = bool(call.get("is_causal", 0))
    alone = mask is None and q.shape[2] == k.shape[2]
    require(not causal or alone, "a causal mask beside another, or of another shape")
    require(mask is None or mask.shape[-1] == k.shape[2], "a mask shorter than the keys")
    y = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=call.get("scale"), enable_gqa=q.shape[1] != k.shape[1]
    )
    y = y.transpose(1, 2).flatten(2) if flat else y
    return (y, k, v)[: call.outputs]


def _heads(x: Tensor, call: Call, name: str) -> Tensor:
    """[batch, heads, length, size] of [batch, length, heads * size]."""
    return x if x.dim() == 4 else x.unflatten(-1, (call.get(name), -1)).transpose(1, 2)


# ── losses ──────────────────────────────────────────────────────────────────────────────────────────


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    call: Call, scores: Tensor, labels: Tensor, weight: Tensor | None = None
) -> Tensor | tuple[Tensor, ...]:
    ignored = call.get("ignore_index", -100)
    kind = call.get("reduction", "mean")
    loss = F.cross_entropy(scores, labels.long(), weight, ignore_index=ignored, reduction=kind)
    return loss if call.outputs == 1 else (loss, torch.log_softmax(scores, 1))


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: Call, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    ignored = call.get("ignore_index", -100)
    return F.nll_loss(x, labels.long(), weight, ignore_index=ignored, reduction=call.get("reduction", "mean"))
