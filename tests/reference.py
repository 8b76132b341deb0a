"""What the interpreter of the loop IR makes of a kernel, which its code of any target is compared with.

Made once for the schedules, machines and thread counts that tests compare in turn: a test that changes the interpreter
or the arithmetic has to ask these themselves.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from repro.ir.loops import Kernel
from repro.ir.types import Array
from repro.numerics.host_mode import exact_arithmetic
from repro.targets import interpreter

KEPT = 16
"""Results that are remembered, the last ones."""

_Made = tuple[Array, ...]
_made: OrderedDict[bytes, _Made] = OrderedDict()


def reference(kernel: Kernel, arrays: Sequence[Array], scalars: Sequence[int] = ()) -> list[Array]:
    """The buffers after the kernel ran once on copies of those given (flat storage arrays)."""
    which = hashlib.sha256(f"{kernel.text} {[*scalars]}".encode())
    for array in arrays:
        which.update(f"{array.dtype.str} {array.shape}".encode())
        which.update(array.tobytes())
    found = _made.pop(which.digest(), None) or _run(kernel, arrays, scalars)
    _made[which.digest()] = found
    while len(_made) > KEPT:
        _made.popitem(last=False)
    return [array.copy() for array in found]


def _run(kernel: Kernel, arrays: Sequence[Array], scalars: Sequence[int]) -> _Made:
    after = tuple(array.copy() for array in arrays)
    with exact_arithmetic():
        interpreter.run_kernel(kernel, after, scalars)
    return after
