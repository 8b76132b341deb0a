"""What can be said of the GPU's code where no GPU is: registers, spills, the share of fma in inner loops, and floors.

    python -m benchmarks.gpu_static [--chip sm_80] [--device A100] [--layers 12] [--markdown]

Every kernel of the cases and of training steps is emitted and assembled by ptxas (of a CUDA toolkit, or `make ptxas`).
The share of fma is counted in the machine code of the loop with the most of them (repro.targets.gpu.sass); of a step
over blocks of rows in each loop of tiles. A floor is the least time by bytes and operations (repro.targets.gpu.floor):
no measurement, and no promise.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.gpu_cases import CASES, GPT, convolution_step, gpt_step
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Expr, Rarely, apply, const, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import Call, Program, RowBlocks, walk
from repro.ir.types import F32
from repro.machines import SM_80
from repro.machines.devices import DEVICES, Device
from repro.numerics.elementary import FUNCTIONS, single
from repro.numerics.elementary.value import Value
from repro.targets.gpu import GpuKernel, blocks, emit, plain
from repro.targets.gpu.floor import work, work_of_blocks
from repro.targets.gpu.ptxas import Resources, assemble, installed
from repro.targets.gpu.sass import Counts, counts, inner_loops
from repro.targets.gpu.shape import shaped
from repro.targets.gpu.steps import Shape, calls_of, shapes

COLUMNS = ("what", "kernel", "road", "registers", "spilled", "fma", "floor", "bound")


TILE = 64
"""Of fma in a loop, from which on it is one of tiles."""


@dataclass(frozen=True)
class Row:
    """One kernel, or a step over blocks of rows: how it is run, what its hottest entry takes, and its floor in
    microseconds."""

    what: str
    digest: str
    code: GpuKernel
    used: tuple[Resources, ...]
    shares: tuple[float, ...]
    floor: float
    bound: str

    @property
    def spilled(self) -> int:
        return sum(each.spill_stores + each.spill_loads for each in self.used)

    @property
    def cells(self) -> tuple[str, ...]:
        registers = "/".join(str(each.registers) for each in self.used)
        share = "/".join(f"{each:.1%}" for each in self.shares)
        floor = f"{self.floor:.0f} us"
        road = self.code.schedule + "".join(f" shared={e.shared_bytes}" for e in self.code.launches if e.shared_bytes)
        return (self.what, "k_" + self.digest[:8], road, registers, str(self.spilled), share, floor, self.bound)


def measured(what: str, kernel: Kernel | Shape, ptxas: str, chip: str, device: Device) -> Row:
    if isinstance(kernel, Kernel):
        code, needed = emit(kernel, SM_80), work(kernel)
    else:
        code, needed = blocks.emit(kernel, SM_80), work_of_blocks(kernel)
    made = assemble(code.ptx, ptxas, chip)
    loops = [loop for name in made.entries for loop in inner_loops(made.cubin, name)]
    tiles = [loop for loop in loops if loop.fma >= TILE] if isinstance(kernel, Shape) else []
    found = tiles or sorted(loops, key=lambda loop: -loop.fma)[:1]
    used = tuple(made.entries[launch.symbol] for launch in code.launches if launch.symbol in made.entries)
    return Row(
        what,
        kernel.digest,
        code,
        used,
        tuple(loop.share for loop in found),
        needed.seconds(device) * 1e6,
        needed.bound(device),
    )


def case_rows(ptxas: str, chip: str, device: Device) -> Iterator[Row]:
    for case in CASES:
        for _, kernel in launched(shaped(case.program(), SM_80)):
            yield measured(f"{case.name}: {case.what}", kernel, ptxas, chip, device)


def convolution_rows(ptxas: str, chip: str, device: Device) -> Iterator[Row]:
    """Forward, input gradient and weight gradients."""
    for kernel in convolution_step().kernels:
        found = find(kernel)
        if found is not None and min(found.extents[1:]) >= 64:
            batch, rows, columns, terms = found.extents
            yield measured(f"{batch} of {rows} x {columns}, K = {terms}", kernel, ptxas, chip, device)


def launched(program: Program) -> list[tuple[int, Kernel | Shape]]:
    """What the host of a program launches, and how often: kernels by themselves, then steps over blocks of rows."""
    of, calls, inside = calls_of(program), Counter[int](), Counter[int]()
    for step in walk(program.steps):
        if isinstance(step, RowBlocks):
            calls[of[step].kernel] += 1
            inside.update(call.kernel for call in step.body)
        elif isinstance(step, Call):
            calls[step.kernel] += 1
    known: list[Kernel | Shape] = [*program.kernels, *shapes(program)]
    return [(calls[n] - inside[n], each) for n, each in enumerate(known) if calls[n] > inside[n]]


def step_rows(program: Program, ptxas: str, chip: str, device: Device) -> list[tuple[int, Row]]:
    """What a program launches, and how often; that with the most time in its floors first."""
    rows = [(calls, measured("", kernel, ptxas, chip, device)) for calls, kernel in launched(program)]
    return sorted(rows, key=lambda pair: -pair[0] * pair[1].floor)


ELEMENTS = 1 << 26
ROADS = ("function", "road", "f64", "others", "A100", "RTX4090")


def road_rows(ptxas: str) -> Iterator[tuple[str, ...]]:
    """Each function that has two roads by both: instructions of an element where its rounding is decided at once, and
    the time that issuing them for 2^26 elements takes at least."""
    for name, function in FUNCTIONS.items():
        if name not in single.SEQUENCES:
            continue
        for road, sequence in (("f64", function), ("f32", lambda x, name=name: _common(name, x))):
            axis = ix.axis(0, ELEMENTS)
            buffers = (BufferParameter(F32, ELEMENTS, False), BufferParameter(F32, ELEMENTS, True))
            kernel = Kernel(buffers, (), (axis,), 0, (Store(1, axis, sequence(load(F32, 0, axis))),))
            code = plain.emit(kernel, SM_80)
            used = counts(assemble(code.ptx, ptxas, "sm_86").cubin, code.launches[0].symbol)
            times = [f"{_issued(used, DEVICES[device]) * 1e6:.0f} us" for device in ("A100", "RTX4090")]
            yield (name, road, str(used.f64), str(used.others), *times)


def _common(name: str, x: Expr) -> Expr:
    """The second road without its seldom side."""
    road = single.SEQUENCES[name](Value(x)).expr
    assert isinstance(road, Rarely)
    return apply("select", road.condition, const(F32, 0), road.common)


def _issued(used: Counts, device: Device) -> float:
    """Seconds: an instruction is half of what data sheets count for an fma."""
    return 2 * ELEMENTS * max((used.f64 + used.others) / device.f32, used.f64 / device.f64)


def show(title: str, rows: list[tuple[str, ...]], markdown: bool, columns: tuple[str, ...] = COLUMNS) -> None:
    if markdown:
        lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        sys.stdout.write(f"\n{title}\n\n" + "\n".join(lines) + "\n")
        return
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", help="whose machine code to look at: the device's own, if not named")
    parser.add_argument("--device", default="A100", choices=sorted(DEVICES), help="whose floors to work out")
    parser.add_argument("--layers", type=int, default=GPT["layers"])
    parser.add_argument("--most", type=int, default=16, help="kernels of the step to show")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(words)
    ptxas, device = installed(), DEVICES[options.device]
    if ptxas is None:
        sys.stderr.write("ptxas is not installed: there is nothing to report\n")
        return 3
    chip = options.chip or device.chip
    rows = [row.cells for row in case_rows(ptxas, chip, device)]
    show(f"cases, {chip}, floors on {device.name}", rows, options.markdown)
    steps = [row.cells for row in convolution_rows(ptxas, chip, device)]
    show("a training step of two convolutions: its contractions", steps, options.markdown)
    show("elementary functions, 2^26 elements", list(road_rows(ptxas)), options.markdown, ROADS)
    apart = gpt_step({**GPT, "layers": options.layers}).program
    program = shaped(apart, SM_80)
    step = step_rows(program, ptxas, chip, device)
    shown = [(f"{calls} calls", *row.cells[1:]) for calls, row in step[: options.most]]
    title = f"GPT step, {options.layers} layers: the {len(shown)} kernels with most in their floors"
    show(title, shown, options.markdown)
    total = sum(calls * row.floor for calls, row in step) / 1e3
    spilled = [row.cells[1] for _, row in step if row.spilled]
    count = sum(calls for calls, _ in step)
    sys.stdout.write(f"\n{len(step)} kernels, {count} calls; floors add up to {total:.1f} ms on {device.name}; ")
    sys.stdout.write(f"kernels that spill: {', '.join(spilled) or 'none'}; ")
    sys.stdout.write(f"temporaries {program.arena_bytes / 1e6:.0f} MB, {apart.arena_bytes / 1e6:.0f} MB apart\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
