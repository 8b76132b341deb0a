"""What can be said of the GPU's code where no GPU is: registers, spills, the share of fma in inner loops, and floors.

    python -m benchmarks.gpu_static [--chip sm_80] [--device A100] [--layers 12] [--markdown] [--steps-only]

Every kernel of the cases and of training steps is emitted and assembled by ptxas (of a CUDA toolkit, or `make ptxas`).
The share of fma is counted in the machine code of the loop with the most of them (repro.targets.gpu.sass); of a step
over blocks of rows in each loop of tiles. A floor is the least time by bytes and operations (repro.targets.gpu.floor):
no measurement, and no promise. Of the training steps of ResNet-18 and of a GPT all contractions are shown whose floors
are 2 % of the sum of all floors or more.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table

from benchmarks.gpu_cases import CASES, GPT, ODD, Case, convolution_step, gpt_step, resnet_step
from repro import ending
from repro.ir import index as ix
from repro.ir.contraction import find
from repro.ir.expressions import Expr, Rarely, apply, const, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import Call, Program, RowBlocks, walk
from repro.ir.types import F32
from repro.machines import SM_80
from repro.machines.devices import DEVICES, Device
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.value import Value
from repro.tables import console
from repro.targets.gpu import GpuKernel, blocks, emit, plain
from repro.targets.gpu.floor import work, work_of_blocks
from repro.targets.gpu.ptxas import Resources, assemble, installed
from repro.targets.gpu.roads import OTHERS
from repro.targets.gpu.sass import Counts, Loop, counts, inner_loops
from repro.targets.gpu.shape import shaped
from repro.targets.gpu.steps import Shape, calls_of, shapes

COLUMNS = ("what", "kernel", "road", "registers", "spilled", "fma", "cycles of fma", "floor", "bound")


TILE = 64
"""Of fma in a loop, from which on it is one of tiles."""
HOT = 0.02
"""Of the sum of a step's floors, from which on a kernel counts."""
SLOW = 1.35
"""Cycles for each fma, of which the inner loop of a hot contraction should not need more: other instructions, and
waiting for registers (repro.targets.gpu.sass)."""


@dataclass(frozen=True)
class Row:
    """One kernel, or a step over blocks of rows: how it is run, what its hottest entry takes, and its floor in
    microseconds."""

    what: str
    digest: str
    code: GpuKernel
    used: tuple[Resources, ...]
    loops: tuple[Loop, ...]
    floor: float
    bound: str

    @property
    def spilled(self) -> int:
        return sum(each.spill_stores + each.spill_loads for each in self.used)

    @property
    def cells(self) -> tuple[str, ...]:
        registers = "/".join(str(each.registers) for each in self.used)
        share = "/".join(f"{each.share:.1%}" for each in self.loops)
        cycles = "/".join(f"{each.cycles_of_fma:.2f}" for each in self.loops)
        floor = f"{self.floor:.0f} us"
        road = self.code.schedule + "".join(f" shared={e.shared_bytes}" for e in self.code.launches if e.shared_bytes)
        beside = (share, cycles, floor, self.bound)
        return (self.what, "k_" + self.digest[:8], road, registers, str(self.spilled), *beside)


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
        tuple(found),
        needed.seconds(device) * 1e6,
        needed.bound(device),
    )


def case_rows(cases: Sequence[Case], ptxas: str, chip: str, device: Device) -> Iterator[Row]:
    for case in cases:
        for _, kernel in launched(shaped(case.program(), SM_80)):
            yield measured(f"{case.name}: {case.what}", kernel, ptxas, chip, device)


def convolution_rows(ptxas: str, chip: str, device: Device) -> Iterator[Row]:
    """Forward, input gradient and weight gradients."""
    for kernel in convolution_step().kernels:
        found = find(kernel, floats=True)
        if found is not None and min(found.extents[1:]) >= 64:
            yield measured(products(kernel), kernel, ptxas, chip, device)


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


def products(kernel: Kernel | Shape) -> str:
    """The matrices of a kernel's contraction, or of those of each block of rows; empty where there is none."""
    if isinstance(kernel, Shape):
        inside = "; ".join(text for text in map(products, kernel.kernels) if text)
        return f"{kernel.blocks} blocks of {inside}" if inside else ""
    found = find(kernel, floats=True)
    if found is None:
        return ""
    batch, rows, columns, terms = found.extents
    return f"{batch} of {rows} x {columns}, K = {terms}"


def step_rows(program: Program, ptxas: str, chip: str, device: Device) -> list[tuple[int, Row]]:
    """What a program launches, and how often; that with the most time in its floors first."""
    rows = [(calls, measured(products(kernel), kernel, ptxas, chip, device)) for calls, kernel in launched(program)]
    return sorted(rows, key=lambda pair: -pair[0] * pair[1].floor)


def show_step(name: str, apart: Program, ptxas: str, chip: str, device: Device, markdown: bool) -> None:
    """The hot contractions of a training step, and what is to be said of all of it."""
    program = shaped(apart, SM_80)
    rows = step_rows(program, ptxas, chip, device)
    total = sum(calls * row.floor for calls, row in rows)
    hot = [(calls, row) for calls, row in rows if row.what and calls * row.floor >= HOT * total]
    shown = [(f"{calls} x {row.what}", *row.cells[1:]) for calls, row in hot]
    show(f"{name}: contractions with {HOT:.0%} of the floors or more", shown, markdown)
    most = [max((loop.cycles_of_fma for loop in row.loops), default=0) for _, row in hot]
    spilled = [row.cells[1] for _, row in rows if row.spilled]
    sys.stdout.write(
        f"\n{sum(cycles <= SLOW for cycles in most)} of {len(hot)} take {SLOW} cycles an fma at most; "
        f"{len(rows)} kernels, {sum(calls for calls, _ in rows)} calls; floors add up to {total / 1e3:.1f} ms on "
        f"{device.name}; kernels that spill: {', '.join(spilled) or 'none'}; temporaries "
        f"{program.arena_bytes / 1e6:.0f} MB, {apart.arena_bytes / 1e6:.0f} MB with every kernel apart\n"
    )


ELEMENTS = 1 << 26
ROADS = ("function", "road", "f64", "others", "A100", "RTX4090")


def road_rows(ptxas: str) -> Iterator[tuple[str, ...]]:
    """Each function that has several roads by each: instructions of an element where its rounding is decided at once,
    and the time that issuing them for 2^26 elements takes at least."""
    for name, others in OTHERS.items():
        sequences = {"f64": FUNCTIONS[name], **{road: partial(_common, other) for road, other in others.items()}}
        for road, sequence in sequences.items():
            axis = ix.axis(0, ELEMENTS)
            buffers = (BufferParameter(F32, ELEMENTS, False), BufferParameter(F32, ELEMENTS, True))
            kernel = Kernel(buffers, (), (axis,), 0, (Store(1, axis, sequence(load(F32, 0, axis))),))
            code = plain.emit(kernel, SM_80)
            used = counts(assemble(code.ptx, ptxas, "sm_86").cubin, code.launches[0].symbol)
            times = [f"{_issued(used, DEVICES[device]) * 1e6:.0f} us" for device in ("A100", "RTX4090")]
            yield (name, road, str(used.f64), str(used.others), *times)


def _common(sequence: Callable[[Value], Value], x: Expr) -> Expr:
    """A road without its seldom side."""
    road = sequence(Value(x)).expr
    assert isinstance(road, Rarely)
    return apply("select", road.condition, const(F32, 0), road.common)


def _issued(used: Counts, device: Device) -> float:
    """Seconds: an instruction is half of what data sheets count for an fma."""
    return 2 * ELEMENTS * max((used.f64 + used.others) / device.f32, used.f64 / device.f64)


def show(title: str, rows: list[tuple[str, ...]], markdown: bool, columns: tuple[str, ...] = COLUMNS) -> None:
    if markdown:  # a document has no kernels' digests: they change with what is around them
        kept = [[cell for cell, name in zip(row, columns, strict=True) if name != "kernel"] for row in (columns, *rows)]
        lines = ["| " + " | ".join(cells) + " |" for cells in kept]
        lines.insert(1, "|---" * len(kept[0]) + "|")
        sys.stdout.write(f"\n{title}\n\n" + "\n".join(lines) + "\n")
        return
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", help="whose machine code to look at: the device's own, if not named")
    parser.add_argument("--device", default="A100", choices=sorted(DEVICES), help="whose floors to work out")
    parser.add_argument("--layers", type=int, default=GPT["layers"])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--steps-only", action="store_true", help="the training steps of ResNet-18 and of a GPT alone")
    options = parser.parse_args(words)
    ptxas, device = installed(), DEVICES[options.device]
    if ptxas is None:
        sys.stderr.write("ptxas is not installed: there is nothing to report\n")
        return 3
    chip = options.chip or device.chip
    if not options.steps_only:
        for cases in (CASES, ODD):
            rows = [row.cells for row in case_rows(cases, ptxas, chip, device)]
            show(f"cases, {chip}, floors on {device.name}", rows, options.markdown)
        steps = [row.cells for row in convolution_rows(ptxas, chip, device)]
        show("a training step of two convolutions: its contractions", steps, options.markdown)
        show("elementary functions, 2^26 elements", list(road_rows(ptxas)), options.markdown, ROADS)
    show_step("ResNet-18's step, 32 images of 32 x 32", resnet_step().program, ptxas, chip, device, options.markdown)
    gpt = gpt_step({**GPT, "layers": options.layers}).program
    show_step(f"GPT step, {options.layers} layers", gpt, ptxas, chip, device, options.markdown)
    return 0


if __name__ == "__main__":
    ending.run(main)
