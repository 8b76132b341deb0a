"""The core ops. Importing this package fills the table `OPS`; the constructors build typed nodes."""

from repro.ops.contraction import dot, matmul
from repro.ops.control import branch, composite
from repro.ops.convolutions import convolution
from repro.ops.elementwise import (
    add,
    bitcast_to,
    canonical_nan,
    compare,
    convert_to,
    div,
    elementwise,
    maximum,
    minimum,
    mul,
    neg,
    select,
    sub,
)
from repro.ops.indexing import gather, scatter
from repro.ops.loops import loop, while_
from repro.ops.movement import broadcast, broadcast_shape, broadcast_to, fill, reshape, reverse, transpose
from repro.ops.points import take_along_axis
from repro.ops.record import OPS, Op, evaluate, make, record
from repro.ops.reduction import reduce_axes, reduce_keep
from repro.ops.regions import region
from repro.ops.running import cumulative
from repro.ops.slicing import concatenate, pad, slice_
from repro.ops.sorting import sort
from repro.ops.structure import integers, iota, is_constant, random_bits, scalar, static
from repro.ops.windows import window_extent, window_reduce

__all__ = [
    "OPS", "Op", "add", "bitcast_to", "branch", "broadcast", "broadcast_shape", "broadcast_to", "canonical_nan",
    "compare", "composite", "concatenate", "convert_to", "convolution", "cumulative", "div", "dot", "elementwise",
    "evaluate", "fill", "gather", "integers", "iota", "is_constant", "loop", "make", "matmul", "maximum", "minimum",
    "mul", "neg", "pad", "random_bits", "record", "reduce_axes", "reduce_keep", "region", "reshape", "reverse",
    "scalar", "scatter", "select", "slice_", "sort", "static", "sub", "take_along_axis", "transpose", "while_",
    "window_extent", "window_reduce",
]  # fmt: skip
