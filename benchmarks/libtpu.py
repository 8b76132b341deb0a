"""The simulated TPU's cycles beside those that libtpu's ahead-of-time compiler estimates for the real chip.

    python -m venv aot && aot/bin/pip install jax libtpu
    python -m benchmarks.libtpu --python aot/bin/python

No TPU is needed. jax and libtpu live in an environment of their own: nothing here depends on them. The compiler's
estimates stand in its scheduled HLO (`estimated_cycles` of each fusion); they are for the real machine, which
multiplies bf16: `default` is one pass with operands rounded to bf16, `highest` the six passes that stand in for f32.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from passes import pipeline
from repro import ending
from repro.errors import ReproError
from repro.ir.graph import Graph, argument
from repro.ir.types import F32, TensorType
from repro.ops import add, dot
from repro.targets.tpu_sim.chips import Chip, chip
from repro.targets.tpu_sim.estimate import estimate

DOTS = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048))
ADDITIONS = (1 << 20, 1 << 24)
TOPOLOGIES = {"v5e": "v5e:2x2", "v6e": "v6e:2x2"}

NO_TPU = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
"""So that libtpu looks for no TPU, nor for a server that would describe one."""

COMPILE = """
import json, re, sys
import jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

def cycles(function, shapes, device):
    place = SingleDeviceSharding(device)
    given = [jax.ShapeDtypeStruct(tuple(shape), jnp.float32, sharding=place) for shape in shapes]
    text = jax.jit(function, out_shardings=place).lower(*given).compile().as_text()
    return [int(n) for n in re.findall(r'"estimated_cycles":"(\\d+)"', text)]

for line in sys.stdin:
    topology, precision, shapes = json.loads(line)
    device = topologies.get_topology_desc(topology_name=topology, platform="tpu").devices[0]
    function = jnp.add if precision is None else lambda a, b: jnp.dot(a, b, precision=precision)
    print(json.dumps(cycles(function, shapes, device)), flush=True)
"""


def estimated(python: Path, requests: list[tuple[str, str | None, list[list[int]]]]) -> list[int]:
    """Cycles that the compiler states, summed over the program's fusions, for (topology, precision, shapes)."""
    given = "".join(json.dumps(request) + "\n" for request in requests)
    environment = {**os.environ, **NO_TPU}
    done = subprocess.run(
        [python, "-c", COMPILE], input=given, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise ReproError(
            "libtpu's compiler did not run",
            found=done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}",
            expected="a Python with jax and libtpu",
            next="python -m venv aot && aot/bin/pip install jax libtpu, then --python aot/bin/python",
        )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if any(not each for each in found):
        raise ReproError(
            "libtpu's compiler states no cycles",
            found=str(found),
            expected="`estimated_cycles` in the scheduled HLO",
            next="try another release of libtpu (0.0.52 is known to work)",
        )
    return [sum(each) for each in found]


def simulated(graph: Graph, at: Chip) -> int:
    return estimate(pipeline.run(graph).program, at).cycles


def product(m: int, k: int, n: int) -> Graph:
    kinds = (TensorType(F32, (m, k)), TensorType(F32, (k, n)))
    return Graph(kinds, (dot(argument(0, kinds[0]), argument(1, kinds[1]), ((1,), (0,))),))


def addition(elements: int) -> Graph:
    kind = TensorType(F32, (elements,))
    return Graph((kind, kind), (add(argument(0, kind), argument(1, kind)),))


def rows(name: str, python: Path) -> list[str]:
    """Lines of the table for one chip."""
    at, topology = chip(name), TOPOLOGIES[name]
    requests: list[tuple[str, str | None, list[list[int]]]] = []
    for m, k, n in DOTS:
        requests += [(topology, precision, [[m, k], [k, n]]) for precision in ("default", "highest")]
    requests += [(topology, None, [[elements // 128, 128]] * 2) for elements in ADDITIONS]
    found = estimated(python, requests)
    lines = list[str]()
    for position, shape in enumerate(DOTS):
        once, often = found[2 * position : 2 * position + 2]
        ours = simulated(product(*shape), at)
        lines.append(
            f"| {name} | dot {'x'.join(map(str, shape))} | {ours:,} | {once:,} | {often:,} | {ours / often:.2f} |"
        )
    for elements, theirs in zip(ADDITIONS, found[2 * len(DOTS) :], strict=True):
        ours = simulated(addition(elements), at)
        lines.append(f"| {name} | add {elements:,} | {ours:,} | {theirs:,} | | {ours / theirs:.2f} |")
    return lines


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="the simulated TPU beside libtpu's compiler")
    parser.add_argument("--python", type=Path, required=True, help="a Python with jax and libtpu")
    parser.add_argument("--chips", nargs="+", default=list(TOPOLOGIES), choices=list(TOPOLOGIES))
    options = parser.parse_args(words)
    if shutil.which(options.python) is None:
        parser.error(f"argument --python: there is no such program: {str(options.python)!r}")
    sys.stdout.write("| chip | program | simulated | libtpu, bf16 | libtpu, f32 | ratio |\n|---|---|---|---|---|---|\n")
    try:
        for name in options.chips:
            sys.stdout.write("\n".join(rows(name, options.python)) + "\n")
            sys.stdout.flush()
    except ReproError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    ending.run(main)
