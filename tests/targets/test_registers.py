"""The sums of a register tile stay in registers while it multiplies."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from passes.schedule import schedule
from repro.ir.expressions import Expr, apply, const, load
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.schedule import Schedule
from repro.ir.types import F32
from repro.machines import X86_64_V3, X86_64_V4, Machine
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import toolchain
from repro.targets.llvm.tiling import shape_of
from tests.targets.test_contraction_tiles import matmul
from tests.targets.test_window_tiles import forward

X86 = pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4], ids=lambda m: m.name)


def spilled(kernel: Kernel, machine: Machine, chosen: Schedule | None = None) -> list[str]:
    """Moves of vectors between the stack and a register in the blocks that multiply."""
    text, _ = toolchain.assembly(kernels.emit(kernel, chosen or schedule(kernel, machine), machine), machine)
    blocks = [block for block in re.split(r"^\.LBB\S*:", text, flags=re.MULTILINE) if block.count("vfmadd") >= 4]
    assert blocks, "the test looked at nothing"
    moves = re.compile(r"\(%rsp.*[yz]mm|[yz]mm.*\(%rsp")
    return [line for block in blocks for line in block.splitlines() if moves.search(line)]


@X86
@pytest.mark.parametrize(("size", "stride"), [(8, 1), (16, 1), (32, 1), (16, 2), (32, 2)])
def test_of_windows(machine: Machine, size: int, stride: int) -> None:
    assert spilled(forward(size, 64, stride), machine) == []


def update(m: int, n: int, k: int, *, left: bool = True) -> Kernel:
    """A weight and two moments, moved by the gradient that a dot gives, of an operand that lies transposed."""
    gradient = matmul(m, n, k, left=left)
    (store,) = gradient.stores
    weight, first, second = (load(F32, 2 + number, store.offset) for number in range(3))

    def mixed(old: Expr, new: Expr, share: int) -> Expr:
        return apply("add", apply("mul", const(F32, share), old), apply("mul", const(F32, share + 99), new))

    first, second = (
        mixed(first, store.value, 0x3F000000),
        mixed(second, apply("mul", store.value, store.value), 7 << 27),
    )
    step = apply("div", first, apply("add", apply("sqrt", second), const(F32, 0x322BCC77)))
    values = apply("sub", weight, apply("mul", const(F32, 0x3A83126F), step)), first, second
    buffers = (*gradient.buffers[:2], *[BufferParameter(F32, m * n, True)] * 3)
    stores = tuple(Store(2 + number, store.offset, value) for number, value in enumerate(values))
    return replace(gradient, buffers=buffers, stores=stores)


@X86
@pytest.mark.parametrize("n", [784, 480, 1024])
def test_where_tiles_copy_what_they_read(machine: Machine, n: int) -> None:
    """Rows, or both operands, are packed by the first tiles that read them: four loops, which meet nowhere."""
    kernel = update(1024, n, 256)
    found = shape_of(kernel, schedule(kernel, machine))
    assert found.rows_in_memory
    assert found.can_copy_columns(near=False) == (n == 480 and machine is X86_64_V4)
    assert spilled(kernel, machine) == []


@pytest.mark.parametrize(("m", "n", "k"), [(64, 768, 384), (64, 512, 512), (64, 640, 384)])
@pytest.mark.parametrize("packs", [False, True])
def test_of_turns(m: int, n: int, k: int, packs: bool) -> None:
    """Tiles of 9 rows by 3 vectors, of 6 by 4 and of 14 by 2, with columns that are packed and in place, in turns of as
    many terms as the schedule has."""
    kernel = matmul(m, n, k)
    chosen = schedule(kernel, X86_64_V4)
    assert chosen.tile is not None
    assert spilled(kernel, X86_64_V4, replace(chosen, tile=replace(chosen.tile, packs=packs))) == []


@X86
@pytest.mark.parametrize("n", [480, 1024])
def test_where_the_next_rows_are_asked_for(machine: Machine, n: int) -> None:
    kernel = update(1024, n, 512)
    assert shape_of(kernel, schedule(kernel, machine)).rows_before
    assert spilled(kernel, machine) == []
