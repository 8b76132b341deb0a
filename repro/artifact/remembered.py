"""What was made before, from the cache, by the content of all that it follows from: the program of a graph, the
program as a target shapes it, and its schedules. A cache that is empty, or absent, gives the same bytes."""

from __future__ import annotations

import copyreg
import dataclasses
import json
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from passes import pipeline
from passes.pipeline import Made, Maker, Step, Wanted
from repro.artifact.cache import Cache, key
from repro.artifact.canonical import Bytes, Json, encode
from repro.artifact.sources import RUNNING, toolchain
from repro.collector import paused
from repro.ir.graph import Graph
from repro.ir.loops import Kernel
from repro.ir.parse_kernel import parse_kernel
from repro.ir.parse_program import parse_program
from repro.ir.program import Program
from repro.targets.protocol import INSIDE, CodeTarget


def packed(head: dict[str, Json], parts: Sequence[Bytes] = ()) -> bytes:
    """A line of JSON with the sizes of parts, and the parts behind it."""
    line = encode({**head, "sizes": [len(part) for part in parts]})
    return b"".join([line, b"\n", *parts])


def unpacked(data: bytes) -> tuple[dict[str, Json], list[bytes]]:
    """The inverse of `packed`, of bytes that the cache has checked."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    ends = accumulate(head["sizes"], initial=0)
    return head, [rest[start:end] for start, end in pairwise(ends)]


def maker(cache: Cache | None) -> Maker:
    """`pipeline.make`, which looks into the cache first."""
    if cache is None:
        return pipeline.make

    def make(graph: Graph, wanted: Wanted) -> Made:
        asked = encode(dataclasses.asdict(wanted)).decode()
        each = key("lowered", graph=graph.digest.hex(), wanted=asked, **toolchain(RUNNING))
        data = cache.get(each)
        if data is None:
            made = pipeline.make(graph, wanted)
            cache.put(each, _packed_program(made.program, made.steps))
            return made
        return Made(*_program(data))

    return make


@paused()
def shaped(target: CodeTarget, program: Program, cache: Cache | None) -> Program:
    """The program as the target runs it."""
    if cache is None:
        return target.shape(program)
    machine = {"target": target.name, "machine": target.machine_digest}
    each = key("shaped", program=program.digest, **machine, **toolchain(RUNNING))
    data = cache.get(each)
    if data is None:
        made = target.shape(program)
        cache.put(each, _packed_program(made))
        return made
    found, _ = _program(data)
    return program if found.digest == program.digest else found


def schedules(target: CodeTarget, program: Program, cache: Cache | None) -> list[str]:
    """The cost model's schedule of each kernel, by `chosen`."""
    if cache is None:
        return chosen(target, program, target.schedule)
    machine = {"target": target.name, "machine": target.machine_digest}
    each = key("schedules", program=program.digest, **machine, **toolchain())
    data = cache.get(each)
    if data is not None:
        return json.loads(data)
    made = chosen(target, program, target.schedule)
    cache.put(each, encode(made))
    return made


def chosen(target: CodeTarget, program: Program, choose: Callable[[Kernel], str]) -> list[str]:
    """A schedule for each kernel; `INSIDE` for one whose code is the program's."""
    apart = frozenset(range(len(program.kernels))) if target.apart is None else target.apart(program)
    return [choose(kernel) if number in apart else INSIDE for number, kernel in enumerate(program.kernels)]


def _packed_program(program: Program, steps: Sequence[Step] = ()) -> bytes:
    head = {
        "program": program.text,
        "kernels": [kernel.text for kernel in program.kernels],
        "steps": [[step.name, step.before, step.after] for step in steps],
    }
    return packed(head, program.constants)


def _program(data: bytes) -> tuple[Program, tuple[Step, ...]]:
    head, constants = unpacked(data)
    kernels, values = iter(head["kernels"]), iter(constants)
    program = parse_program(head["program"], lambda _: parse_kernel(next(kernels)), lambda _: next(values))
    return program, tuple(Step(*step) for step in head["steps"])


def _of_pickle(data: bytes) -> Program:
    program, _ = _program(data)
    return program


# A program goes to another process as it goes into the cache: its parts are interned there, as they are here.
copyreg.pickle(Program, lambda program: (_of_pickle, (_packed_program(program),)))
