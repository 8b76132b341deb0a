"""An audit made by hand: what reports are tested with. Names try to be markup and control characters."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from repro.artifact.canonical import sha256
from repro.audit.comparison import GOLDEN
from repro.audit.drift import drift, no_drift
from repro.audit.records import (
    Audit,
    Capture,
    Cause,
    Drift,
    Executor,
    Kind,
    ModelSummary,
    Node,
    Origin,
    Outcome,
    Pair,
    Probe,
    Record,
    Value,
)

NODES = 120
CAUSE = "lanes(8), fold halves, squares by fma (mean in f64), times 1 / deviation, fma with the bias"
HOSTILE = "<script>alert(1)</script>&\x1b[2J"
OPERATORS = ("MatMul", "Add", "LayerNormalization", "Softmax", "Gelu", "Mul")
ORT = tuple(Executor("onnxruntime", (("level", level), ("threads", "2"))) for level in ("disable", "basic", "all"))
OWN = tuple(Executor("repro", (("target", "cpu/x86-64-v3"), ("threads", threads))) for threads in ("1", "2"))
REFERENCE = Executor("onnx-reference", (("blas", "Haswell"),), (("OPENBLAS_CORETYPE", "Haswell"),))
BEST = Executor("repro", (("target", "cpu"),))


def model() -> ModelSummary:
    nodes = tuple(
        Node(
            HOSTILE if number == 7 else f"/block.{number // 6}/{OPERATORS[number % 6]}_{number}",
            OPERATORS[number % 6], "", (f"v{number - 1}" if number else "x",), (f"v{number}",), sha256(b"%d" % number),
        )
        for number in range(NODES)
    )  # fmt: skip
    return ModelSummary("nano <gpt>", sha256(b"model"), nodes, ("x",), (f"v{NODES - 1}",), {"w": sha256(b"w")})


def noisy(ulps: float, seed: int, elements: int = 2048) -> Drift:
    """The drift of normal numbers whose bits were moved by about `ulps`."""
    random = np.random.default_rng(seed)
    left = random.standard_normal((16, elements // 16)).astype(np.float32)
    moved = left.view(np.int32) + np.rint(random.standard_normal(left.shape) * ulps).astype(np.int32)
    return drift(left, moved.view(np.float32), argmax=True) or no_drift(elements)


def growing(start: int, scale: float) -> tuple[tuple[str, Drift], ...]:
    return tuple(
        (f"v{number}", no_drift(2048) if number < start else noisy(scale * 1.05 ** (number - start), number))
        for number in range(NODES)
    )


def origin(number: int, drifted: Drift | None, causes: Iterable[Cause] = (), fed: bool = False) -> Origin:
    node = model().nodes[number]
    sources = {name: sha256(name.encode()) for name in node.inputs}
    left, right = sha256(b"left%d" % number), sha256(b"right%d" % number)
    return Origin(Kind.NODE, (node.name,), node.outputs[0], left, right, drifted, fed, sources, tuple(causes))


def pair(left: str, right: str, start: int, scale: float, origins: tuple[Origin, ...]) -> Pair:
    growth = growing(start, scale)
    node = model().nodes[start]
    return Pair(
        left, right, NODES, NODES - start, node.outputs[0], node.name, origins, growth, {growth[-1][0]: growth[-1][1]}
    )


def equal(left: str, right: str) -> Pair:
    return Pair(left, right, NODES, 0, None, None, (), (), {f"v{NODES - 1}": no_drift(2048, argmax=True)})


def capture(
    executor: Executor, outcome: Outcome = Outcome.RAN, reason: str = "", notes: tuple[str, ...] = ()
) -> Capture:
    environment = {"version": "1.31.1", "flags": ["avx512f", "fma"], "python": "3.11.2"}
    values = {f"v{NODES - 1}": Value("f32[16,128]", sha256(b"v"))} if outcome is Outcome.RAN else {}
    return Capture(executor, outcome, reason, environment, values, values, notes=notes)


@cache
def sample() -> Audit:
    """Nine executors: two of repro's own, four that drift in three ways, one each missing, crashed and out of time."""
    sequential = Cause(CAUSE, "2,048 of 2,048 elements")
    early = origin(3, noisy(1, 3), (sequential,))
    hostile = origin(7, noisy(3, 7), fed=True)
    late = origin(60, None)
    ort = [executor.name for executor in ORT]
    pairs = (
        *(equal(GOLDEN, executor.name) for executor in OWN),
        pair(GOLDEN, ort[0], 3, 2.0, (early, hostile)),
        pair(GOLDEN, ort[1], 3, 2.0, (early, hostile)),
        pair(GOLDEN, ort[2], 3, 6.0, (early, hostile, late)),
        pair(GOLDEN, REFERENCE.name, 60, 1.0, (origin(60, noisy(1, 5)),)),
        pair(ort[0], ort[2], 9, 4.0, ()),
        pair(ort[0], REFERENCE.name, 3, 2.5, ()),
        pair(ort[2], REFERENCE.name, 3, 6.5, ()),
    )
    captures = (
        *(capture(executor) for executor in OWN),
        *(capture(executor) for executor in ORT),
        capture(REFERENCE, notes=("its matrix products come from OpenBLAS 0.3.31",)),
        capture(Executor("torch", (("threads", "1"),)), Outcome.MISSING, "torch is not installed"),
        capture(Executor("crasher"), Outcome.CRASHED, f"SIGSEGV: {HOSTILE}"),
        capture(Executor("sleeper"), Outcome.TIMEOUT, "did not end within 60 s"),
    )
    host = {"cpu": "AMD EPYC 9R14", "cores": 2, "kernel": "6.1", "libc": "glibc 2.36"}
    inputs = {"x": Value("f32[16,128]", sha256(b"x"))}
    record = Record(model(), inputs, capture(BEST), captures, host)
    groups = ((GOLDEN, *(each.name for each in OWN)), (ort[0], ort[1]), (ort[2],), (REFERENCE.name,))
    tree = "((((0 1) 2) 3) ... 255) + 256"
    probes = (
        Probe(ort[0], "dot", 1024, "lanes of 16, folded in halves, with fma", tree, True),
        Probe(REFERENCE.name, "sum", 1024, "pairwise, 8 accumulators up to 128", tree, None),
    )
    return Audit((record,), pairs, groups, probes, ("repro audit model.onnx --golden-seed 0 --html report.html",))
