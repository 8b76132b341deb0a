"""Random programs with loops, branches, carried values and stacked rows. All that their calls do is add."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from passes.plan import plan
from repro.ir import index as ix
from repro.ir.expressions import Axis, Expr, Scalar, apply, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.program import INPUT, OUTPUT, TEMPORARY, Branch, Buffer, Call, CountedLoop, Program, Step
from repro.ir.types import BOOL, F32, I64

SIZES = (16, 64, 256, 1024)
DEEPEST = 2


class Maker:
    """Writes a program from the first step to the last; `visible` are buffers that hold a value by then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.buffers: list[Buffer] = [
            Buffer(BOOL, 1, INPUT, 0),
            *(Buffer(F32, n, INPUT, 1 + i) for i, n in enumerate(SIZES)),
        ]
        self.kernels: dict[str, tuple[int, Kernel]] = {}
        self.outputs = 0

    def program(self) -> Program:
        steps = self.sequence([1, 2, 3, 4], [], [], self.random.randint(6, 12))
        buffers, arena = plan(tuple(self.buffers), tuple(steps))
        return Program(tuple(kernel for _, kernel in self.kernels.values()), buffers, (), tuple(steps), arena)

    def sequence(self, visible: list[int], carried: list[int], loops: list[int], count: int) -> list[Step]:
        """Steps, `visible` growing with them; those in `carried` may be written anew."""
        steps: list[Step] = []
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.14 and len(loops) < DEEPEST:
                steps += self.loop(visible, loops)
            elif kind < 0.2:
                steps.append(self.branch(visible, loops))
            elif kind < 0.35 and carried:
                steps.append(self.call(visible, self.random.choice(carried), loops))
            elif kind < 0.45 and not loops:
                steps.append(self.call(visible, self.buffer(OUTPUT, self.random.choice(SIZES)), loops))
            else:
                target = self.buffer(TEMPORARY, self.random.choice(SIZES))
                steps.append(self.call(visible, target, loops))
                visible.append(target)
        if not loops:
            steps.append(self.call(visible, self.buffer(OUTPUT, 16), loops))
        return steps

    def loop(self, visible: list[int], loops: list[int]) -> list[Step]:
        count = self.random.choice((2, 3))
        carried = [self.buffer(TEMPORARY, self.random.choice(SIZES)) for _ in range(self.random.randint(1, 3))]
        before: list[Step] = [self.call(visible, each, loops) for each in carried]
        stacked = self.buffer(TEMPORARY, count * 64)
        inner, around = [*visible, *carried], [*loops, count]
        body = self.sequence(inner, carried, around, self.random.randint(3, 7))
        body.insert(self.random.randint(0, len(body)), self.call([*visible, *carried], stacked, around, row=True))
        body += [self.call(inner, each, around) for each in carried]
        visible += [*carried, stacked]
        return [*before, CountedLoop(count, tuple(body))]

    def branch(self, visible: list[int], loops: list[int]) -> Step:
        target = self.buffer(TEMPORARY, self.random.choice(SIZES))
        sides: list[tuple[Step, ...]] = []
        for _ in range(2):
            inner = list(visible)
            made = [self.buffer(TEMPORARY, self.random.choice(SIZES)) for _ in range(self.random.randint(0, 4))]
            side: list[Step] = []
            for each in made:
                side.append(self.call(inner, each, loops))
                inner.append(each)
            sides.append((*side, self.call(inner, target, loops)))
        visible.append(target)
        return Branch(0, *sides)

    def buffer(self, role: str, elements: int) -> int:
        self.outputs += role == OUTPUT
        self.buffers.append(Buffer(F32, elements, role, self.outputs - 1 if role == OUTPUT else 0))
        return len(self.buffers) - 1

    def call(self, visible: list[int], target: int, loops: list[int], row: bool = False) -> Call:
        """A sum of up to three visible values into a target, or into the row of it that the innermost counter picks."""
        reads = sorted(set(self.random.choices(visible, k=self.random.randint(1, 3))) - {target})
        reads = reads or [1]
        count = loops[-1] if row else 1
        elements = self.buffers[target].elements // count
        axis = Axis(I64, (0, elements), ())
        terms = [load(F32, n, self.offset(axis, self.buffers[b].elements)) for n, b in enumerate(reads)]
        value: Expr = terms[0]
        for term in terms[1:]:
            value = apply("add", value, term)
        offset: Expr = axis
        if row:
            offset = ix.add(ix.scale(Scalar(I64, (0, count), ()), elements), axis)
        parameters = [BufferParameter(F32, self.buffers[b].elements, False) for b in reads]
        parameters.append(replace(parameters[0], elements=self.buffers[target].elements, writable=True))
        scalars = (count,) if row else ()
        kernel = Kernel(tuple(parameters), scalars, (axis,), 0, (Store(len(reads), offset, value),))
        number, _ = self.kernels.setdefault(kernel.digest, (len(self.kernels), kernel))
        return Call(number, (*reads, target), (len(loops) - 1,) if row else ())

    def offset(self, axis: Axis, elements: int) -> Expr:
        return axis if elements >= axis.extent else ix.number(0)
