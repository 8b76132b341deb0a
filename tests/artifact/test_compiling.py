"""Kernels are compiled once for their content: a change in one op compiles one kernel anew, for each target."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from onnx import ModelProto, helper

from repro.artifact.build import Request, build, expand_targets
from repro.artifact.cache import Cache
from repro.frontend import load_model
from tests.train_step.running import model

LAYERS = 4
TARGETS = expand_targets(("cpu", "gpu"))
COPIES = LAYERS * (len(TARGETS) - 1) - 1
"""Kernels that lay weights out at load, for each CPU's tiles: those of 12 columns lie so already on AArch64."""


def network(activations: tuple[str, ...]) -> ModelProto:
    """Layers of different widths, so that no two share a kernel."""
    generator, nodes, x = np.random.default_rng(5), [], "x"
    weights = {f"w{n}": generator.standard_normal((8 + n, 9 + n)).astype(np.float32) for n in range(len(activations))}
    for number, op in enumerate(activations):
        nodes.append(helper.make_node("MatMul", [x, f"w{number}"], [f"d{number}"]))
        nodes.append(helper.make_node(op, [f"d{number}"], [f"a{number}"]))
        x = f"a{number}"
    return model(nodes, {"x": (7, 8)}, [x], weights)


def added(cache: Cache, *activations: str) -> Counter[str]:
    """What a build puts into the cache, by kind."""
    before = len(cache.added)
    request = Request(load_model(network(activations)), {}, {}, TARGETS, None, 0, 0)
    build(request, cache, lambda stage, done, total: None)
    return Counter(key.kind for key in cache.added[before:])


WHOLE = {"lowered": 1, "shaped": len(TARGETS), "schedules": len(TARGETS), "program": len(TARGETS), "golden-run": 1}
"""What is made of a graph as a whole, and so again for any change of it."""


def test_a_change_in_one_op_compiles_one_kernel(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = added(cache, "Relu", "Relu", "Relu", "Relu")
    assert first == {"kernel": LAYERS * len(TARGETS) + COPIES, **WHOLE}
    assert not added(cache, "Relu", "Relu", "Relu", "Relu"), "all of it is known"
    assert added(cache, "Relu", "Abs", "Relu", "Relu") == {"kernel": len(TARGETS), **WHOLE}
    assert not added(Cache(tmp_path), "Relu", "Relu", "Relu", "Relu"), "another process finds it too"
