"""The whole model fused by torch.compile: a graph of ATen calls, its shapes fixed, through Inductor's own kernels."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
# PyTorch is an extra, and may not be installed.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from repro.audit.peers.peer import PeerError
from repro.audit.peers.torch_ops.interpreter import Interpreter
from repro.audit.records import Outcome


def fused(
    interpreter: Interpreter, given: Mapping[str, Tensor], outputs: Sequence[str], backend: str
) -> dict[str, Any]:
    """The outputs by name. Raises PeerError where the model cannot be traced or compiled."""
    names = list(given)

    def run(*inputs: Tensor) -> list[Any]:
        values = interpreter.run(dict(zip(names, inputs, strict=True)))
        return [values[name] for name in outputs]

    try:
        traced = make_fx(run, tracing_mode="real")(*given.values())
        compiled = torch.compile(traced, backend=backend, dynamic=False)
        found = compiled(*given.values())
    except PeerError:
        raise
    except Exception as error:  # a compiler that raises what it likes
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise PeerError(Outcome.REFUSED, f"torch.compile: {first}") from error
    if interpreter.fallbacks:
        name = next(iter(interpreter.fallbacks))
        raise PeerError(Outcome.REFUSED, f"torch.compile: node '{name}' runs in the reference evaluator")
    return dict(zip(outputs, found, strict=True))
