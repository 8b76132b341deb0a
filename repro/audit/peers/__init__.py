"""Other runtimes, one file each. `PEERS` is the one table of them; a new one is a class with the methods of `Peer`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from repro.audit.peers.peer import Peer

PEERS: Mapping[str, str] = {
    "repro": "repro.audit.peers.own:Own",
    "onnxruntime": "repro.audit.peers.onnxruntime:OnnxRuntime",
    "onnx-reference": "repro.audit.peers.onnx_reference:OnnxReference",
    "torch": "repro.audit.peers.pytorch:TorchPeer",
}
"""By family, `module:class`: a class that takes no arguments, in a module that does not import its runtime."""


def peer(family: str, table: Mapping[str, str] = PEERS) -> Peer:
    """The peer of a family. Raises KeyError for one that the table does not have."""
    module, _, name = table[family].partition(":")
    return getattr(import_module(module), name)()
