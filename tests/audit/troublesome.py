"""Peers for tests of workers: a plain one that runs repro's reference, and those with which something is wrong."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from repro.artifact.canonical import Json
from repro.audit.golden import execute
from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array

REFERENCE = Executor("repro", (("target", "reference"),))
GRANDCHILD = "GRANDCHILD_PID_FILE"


class Plain:
    """repro's reference under another name: agrees with golden in everything."""

    family = "plain"

    def variants(self) -> tuple[Executor, ...]:
        return (Executor(self.family), Executor(self.family, (("threads", "2"),)))

    def named(self) -> tuple[Executor, ...]:
        return (Executor(self.family, (("mode", "slow"),)),)

    def versions(self) -> Mapping[str, Json]:
        return {"plain": "1.0"}

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        return model

    def run(
        self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False
    ) -> dict[str, Any]:
        return dict(execute(model, Path(), inputs, REFERENCE, None))

    def implementations(self, model: ModelProto) -> Mapping[str, str]:
        return {}

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        return {}


class Off(Plain):
    """Each MatMul's result is the next float; what reads it goes on from there."""

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        return super().run(moved(model), inputs, executor, lowered)


def moved(model: ModelProto) -> ModelProto:
    """The model with a small number added to each result of MatMul."""
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.graph.initializer.append(helper.make_tensor("tiny", 1, [], [2.0**-20]))
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    for node in nodes:
        copy.graph.node.append(node)
        if node.op_type == "MatMul":
            name = node.output[0]
            copy.graph.node[-1].output[0] = f"{name} exact"
            copy.graph.node.append(helper.make_node("Add", [f"{name} exact", "tiny"], [name]))
    return copy


class Fusing(Plain):
    """MatMul and Add are one Gemm."""

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        copy = ModelProto()
        copy.CopyFrom(model)
        nodes = list(copy.graph.node)
        del copy.graph.node[:]
        first, second = nodes[:2]
        copy.graph.node.append(helper.make_node("Gemm", [*first.input, second.input[1]], second.output, "fused"))
        copy.graph.node.extend(nodes[2:])
        return copy


class Folding(Plain):
    """What depends on no input is computed when the model is lowered: an initializer, off by much."""

    def lowered(self, model: ModelProto, executor: Executor) -> ModelProto:
        copy = ModelProto()
        copy.CopyFrom(model)
        nodes = [node for node in copy.graph.node if node.op_type != "Exp"]
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
        copy.graph.initializer.append(helper.make_tensor("c", 1, [2], [3.0, 8.0]))
        return copy


class Unfaithful(Plain):
    """Gives other bits where more than the outputs are shown."""

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        found = super().run(model, inputs, executor, lowered)
        return {name: array + np.float32(1) if lowered else array for name, array in found.items()}


class Unstable(Plain):
    """Gives other bits each time."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        self.runs += 1
        found = super().run(model, inputs, executor, lowered)
        return {name: array + np.float32(self.runs) for name, array in found.items()}


class Strange(Plain):
    """Other types: one in double, one of strings, a sequence; and it prints."""

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        print("chatter" * 10_000)
        found: dict[str, Any] = super().run(model, inputs, executor, lowered)
        double = {name: found[name].astype(np.float64) for name in found if name == "h"}
        return {**found, **double, "text": ["a", "b"], "pair": [np.zeros(1), np.ones(2)]}


class Payload(Plain):
    """Its NaNs carry a sign and a payload of its own."""

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        found = super().run(model, inputs, executor, lowered)
        for array in found.values():
            array.view(np.uint32)[np.isnan(array)] = 0xFFC12345
        return found


class Closed(Plain):
    """Shows nothing beyond its outputs."""

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        if lowered:
            raise PeerError(Outcome.REFUSED, "no such outputs")
        return super().run(model, inputs, executor, lowered)


# ── what ends a run ─────────────────────────────────────────────────────────────────────────────────


class Missing(Plain):
    def versions(self) -> Mapping[str, Json]:
        raise PeerError(Outcome.MISSING, "nothing is installed")


class Refusing(Plain):
    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        raise PeerError(Outcome.REFUSED, "no kernel for MatMul")


class Raising(Plain):
    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        raise RuntimeError("went wrong\nand at length")


class Aborting(Plain):
    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        os.write(2, b"terminate called\n")
        os.abort()


class Leaving(Plain):
    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        os._exit(0)


class Hanging(Plain):
    """Sleeps, and has a process of its own that sleeps."""

    def versions(self) -> Mapping[str, Json]:
        child = subprocess.Popen(["sleep", "600"])
        Path(os.environ[GRANDCHILD]).write_text(str(child.pid))
        time.sleep(600)
        return {}


class Hungry(Plain):
    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        return {"y": np.ones(1 << 40, np.uint8)}


class Swelling(Plain):
    """Takes memory that no limit of the process counts: shared pages."""

    def run(self, model: ModelProto, inputs: Mapping[str, Array], executor: Executor, lowered: bool = False) -> Any:
        import mmap

        held: list[mmap.mmap] = []
        for _ in range(20):
            held.append(mmap.mmap(-1, 64 << 20))
            held[-1].write(b"\1" * (64 << 20))
        time.sleep(600)
        return {"y": np.zeros(len(held))}


PEERS = {
    each.__name__.lower(): f"{__name__}:{each.__name__}"
    for each in (
        Plain, Off, Fusing, Folding, Unfaithful, Unstable, Strange, Payload, Closed,
        Missing, Refusing, Raising, Aborting, Leaving, Hanging, Hungry, Swelling,
    )
}  # fmt: skip
