"""Programs run on terms instead of numbers: whether two of them compute the same from the same, whatever that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from passes.plan import round_up
from repro.ir.expressions import Load, Scalar, topological
from repro.ir.loops import Kernel
from repro.ir.program import (
    CONSTANT,
    INPUT,
    OUTPUT,
    PARAMETER,
    TEMPORARY,
    Branch,
    Call,
    Commit,
    CountedLoop,
    Program,
    RowBlocks,
    Step,
    While,
)

_NUMBERS: dict[object, int] = {}


def terms(program: Program, taken: int = 0) -> dict[int, int]:
    """The value numbers of the outputs, loops unrolled; equal calls on equal values have equal numbers.

    `taken`: which side of branches runs.

    A temporary is read only where nothing that shares its bytes was written since.
    """
    numbers: dict[object, int] = _NUMBERS
    values: dict[int, int] = {}
    owners: dict[int, int] = {}
    calls = 0
    for call, counters in unrolled(program.steps, (), taken):
        calls += 1
        kernel = program.kernels[call.kernel]
        pairs = list(zip(call.buffers, kernel.buffers, strict=True))
        read: list[object] = [tuple(counters[depth] for depth in call.scalars)]
        for buffer, parameter in pairs:
            held = program.buffers[buffer]
            if held.role in (INPUT, CONSTANT) or (held.role == PARAMETER and buffer not in values):
                read.append((held.role, held.position))
            elif parameter.writable and (fills(kernel) or first_row(call, counters)):
                read.append("new")
            else:
                lines = range(held.position, held.position + round_up(held.nbytes), 64)
                whole = held.role != TEMPORARY or {owners.get(line) for line in lines} == {buffer}
                assert whole or parameter.writable, "read after its bytes were given to another"
                read.append(values.get(buffer, -1) if whole else "torn")
        for place, (buffer, parameter) in enumerate(pairs):
            if parameter.writable:
                values[buffer] = numbers.setdefault((kernel.digest, place, tuple(read)), len(numbers))
                held = program.buffers[buffer]
                if held.role == TEMPORARY:
                    owners.update(
                        dict.fromkeys(range(held.position, held.position + round_up(held.nbytes), 64), buffer)
                    )
    assert calls >= len(program.steps) > 0
    results = {b.position: values[n] for n, b in enumerate(program.buffers) if b.role == OUTPUT}
    assert results
    state = {-1 - b.position: values[n] for n, b in enumerate(program.buffers) if b.role == PARAMETER and n in values}
    return results | state


def unrolled(steps: Sequence[Step], counters: tuple[int, ...], taken: int) -> Iterator[tuple[Call, tuple[int, ...]]]:
    """Each call as often as it runs, with the counters of the loops around it."""
    for step in steps:
        match step:
            case Call():
                yield step, counters
            case CountedLoop():
                for counter in range(step.count):
                    yield from unrolled(step.body, (*counters, counter), taken)
            case Branch():
                yield from unrolled((step.then, step.otherwise)[taken], counters, taken)
            case Commit():
                yield from unrolled(step.body, counters, taken)
            case While() | RowBlocks():
                raise AssertionError("how often it runs depends on values, or what it computes on the block")


def first_row(call: Call, counters: tuple[int, ...]) -> bool:
    """Whether a call begins to fill a buffer row by row: what it held before is written over by the rows to come."""
    return bool(call.scalars) and not any(counters[depth] for depth in call.scalars)


def fills(kernel: Kernel) -> bool:
    """Whether a kernel writes all of its buffers and reads nothing of them."""
    if kernel.serial or any(store.when is not None for store in kernel.stores):
        return False
    written = {store.buffer for store in kernel.stores}
    by_row = any(isinstance(e, Scalar) for store in kernel.stores for e in topological((store.offset,)))
    return not by_row and not any(isinstance(e, Load) and e.buffer in written for e in kernel.expressions)
