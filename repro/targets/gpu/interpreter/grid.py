"""Launches: a grid's blocks are run some at a time, all threads of those at once.

Threads at the same place are a group. Where a branch parts them, each part goes on with the registers that it will
still read; the group that is first in the entry's order runs, and groups that meet become one. At a barrier threads
wait until nobody else can run: then each block's threads must all be there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from repro.errors import InternalError
from repro.ir.types import Array
from repro.targets.gpu.interpreter.arithmetic import UndefinedError
from repro.targets.gpu.interpreter.code import Code, CodeBlock, decode
from repro.targets.gpu.interpreter.memory import FaultError, GlobalMemory, Window
from repro.targets.gpu.interpreter.parse import parse
from repro.targets.gpu.interpreter.races import LARGEST_GRID
from repro.targets.gpu.interpreter.threads import Group, Run, merged
from repro.targets.gpu.launch import Launch

LANES = 16384
"""Threads that are run at once, at most, as long as they hold a block: registers of so many fit the caches."""
SHARED_BUDGET = 64 << 20
"""Bytes of shared memory, or of local memory, of the blocks that are run at once."""


@lru_cache(maxsize=4096)
def _decoded(digest: bytes, ptx: str) -> dict[str, Code]:
    module = parse(ptx)
    return {name: decode(function, module.variables) for name, function in module.entries.items()}


def decoded(ptx: str) -> dict[str, Code]:
    """The entries of a module; each text is decoded once."""
    return _decoded(hashlib.sha256(ptx.encode()).digest(), ptx)


def launch(ptx: str, chosen: Launch, windows: Sequence[Window | int], lanes: int = LANES) -> None:
    """Run one launch. Arguments are windows of global memory and integers. Raises FaultError."""
    codes = decoded(ptx)
    if chosen.symbol not in codes:
        raise InternalError(f"the module has no entry {chosen.symbol}")
    code = codes[chosen.symbol]
    if len(windows) != len(code.parameters):
        raise InternalError(f"{code.name} takes {len(code.parameters)} arguments, not {len(windows)}")
    if not 0 < chosen.grid <= LARGEST_GRID or not 0 < chosen.block <= 1024:
        raise InternalError(f"{code.name}: a launch of {chosen.grid} blocks of {chosen.block} threads")
    _Launch(code, chosen, windows).run(lanes)


class _Launch:
    def __init__(self, code: Code, chosen: Launch, arguments: Sequence[Window | int]) -> None:
        self.code, self.chosen = code, chosen
        unique: dict[int, Window] = {id(each): each for each in arguments if isinstance(each, Window)}
        numbers = {each: number for number, each in enumerate(unique)}
        own = [Window(v.name, np.frombuffer(v.data or b"", np.uint8), writable=False) for v in code.globals]
        self.memory = GlobalMemory([*unique.values(), *own], code.granules["global"])
        self.globals_at = len(unique)
        self.constants = [slot for slot, _ in code.constants]
        self.start: list[Any] = [None] * code.registers
        for slot, value in code.constants:
            self.start[slot] = value
        for (slot, kind), given in zip(code.parameters, arguments, strict=True):
            value = self.memory.address(numbers[id(given)]) if isinstance(given, Window) else given
            self.start[slot] = np.array([value], np.int64 if value < 0 else np.uint64).astype(kind)

    def run(self, lanes: int) -> None:
        block = self.chosen.block
        shared = self.code.shared_bytes + self.chosen.shared_bytes
        at_once = max(1, min(lanes // block, SHARED_BUDGET // max(shared, self.code.local_bytes * block, 1)))
        for first in range(0, self.chosen.grid, at_once):
            count = min(at_once, self.chosen.grid - first)
            run = Run(
                first, count, block, self.chosen.grid, self.memory, self.globals_at, shared,
                self.code.granules["shared"], self.code.local_bytes, self.code.granules["local"],
            )  # fmt: skip
            _Scheduler(self.code, self.constants).run(Group(run, np.arange(run.lanes), list(self.start)))


class _Scheduler:
    """Groups by the block that they are about to run, and those that wait there for others."""

    def __init__(self, code: Code, constants: Sequence[int]) -> None:
        self.code, self.constants = code, constants
        self.ready: dict[int, list[Group]] = {}
        self.parked: dict[int, list[Group]] = {}

    def run(self, everyone: Group) -> None:
        self.ready[0] = [everyone]
        while self.ready or self.parked:
            if not self.ready:
                self._release()
                continue
            number = min(self.ready, key=self.code.rank.__getitem__)
            block = self.code.blocks[number]
            group = merged(self.ready.pop(number), block.live, self.constants)
            if block.convergent and not group.whole:
                self.parked.setdefault(number, []).append(group)
            else:
                self._go(block, group)

    def _go(self, block: CodeBlock, group: Group) -> None:
        """Run a block, and those behind it as long as nobody else is about."""
        while True:
            self._compute(block, group)
            following = self._following(block, group)
            if following is None:
                return
            number, group = following
            block = self.code.blocks[number]
            if self.ready or (block.convergent and not group.whole):
                self.ready.setdefault(number, []).append(group)
                return

    def _compute(self, block: CodeBlock, group: Group) -> None:
        position = 0
        try:
            for closure in block.closures:
                closure(group)
                position += 1
        except (FaultError, UndefinedError) as error:
            raise FaultError(f"{self.code.name}: {error}; at {block.texts[position]}") from error
        except ValueError as error:
            raise InternalError(
                f"{self.code.name}: the interpreter fails at {block.texts[position]}: {error}"
            ) from error

    def _following(self, block: CodeBlock, group: Group) -> tuple[int, Group] | None:
        """Where the group goes as a whole; None where it parted, or its threads ended."""
        if block.condition is None:
            return None if block.after is None else (block.after, group)
        register, wanted = block.condition
        taken: Array = group.r[register] if wanted else ~group.r[register]
        count = int(np.count_nonzero(taken)) if taken.size > 1 else group.count * int(taken[0])
        if count in (0, group.count):
            number = block.taken if count else block.after
            return None if number is None else (number, group)
        for number, chosen in ((block.taken, taken), (block.after, ~taken)):
            if number is not None:
                carried = self.code.blocks[number].live
                self.ready.setdefault(number, []).append(group.part(chosen, carried, self.constants))
        return None

    def _release(self) -> None:
        """Nobody can run: those blocks, or warps, whose threads have all come go on."""
        waiting = {n: merged(groups, self.code.blocks[n].live, self.constants) for n, groups in self.parked.items()}
        self.parked = {}
        released: list[tuple[int, Group]] = []
        for number, group in waiting.items():
            block = self.code.blocks[number]
            complete = _complete(group, block.convergent)
            if complete.all():
                released.append((number, group))
            elif complete.any():
                released.append((number, group.part(complete, block.live, self.constants)))
                self.parked[number] = [group.part(~complete, block.live, self.constants)]
            else:
                self.parked[number] = [group]
        if not released:
            raise self._stuck()
        for number, group in released:
            self._go(self.code.blocks[number], group)

    def _stuck(self) -> FaultError:
        number, (group,) = next(iter(self.parked.items()))
        block = self.code.blocks[number]
        here = int(np.count_nonzero(group.slots == group.slots[0]))
        others = ", ".join(self.code.blocks[n].texts[0] for n in self.parked if n != number)
        return FaultError(
            f"{self.code.name}: {here} of {group.run.block_size} threads of block "
            f"{int(group.run.blocks[group.slots[0]])} are at {block.texts[0]}, which not all come to"
            + (f"; others are at {others}" if others else "")
        )


def _complete(group: Group, kind: str) -> Array:
    """Threads whose block, or whose warp, is here as a whole."""
    if kind == "bar":
        units, size = group.slots, group.run.block_size
    else:
        units, size = group.slots * 32 + (group.run.tids[group.lanes] >> 5), 32
    return np.bincount(units)[units] == size
