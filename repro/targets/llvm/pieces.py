"""How threads share out the calls between two meetings: each has a share of every call's items, and who is done takes
pieces of the others'.

A piece is a run of items long enough for what it costs to take it. A thread's share is cut into pieces, those of all
calls of a stretch numbered on; whoever takes one, its owner or a thread that is done with its own, adds one to the
number of those taken. So every piece is run once, each thread has the same rows from call to call as long as none is
late, and one that lost its processor is waited for by a piece. Which thread runs an item changes no bit: items are
independent, and what a thread needs for one is its own.

The numbers stand at the head of each thread's scratch memory, two of them: one for stretches of even generations of the
barrier and one for those of odd ones, so that each thread sets its own back while nobody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.ir.types import BOOL, I64
from repro.targets.llvm.text import Function, Val, integer

TAKEN_BYTES = 128
"""At the head of a thread's scratch memory: a line for each number of pieces taken; zero before a run."""
LINE = 64

PIECE = 1 << 18
"""Vector operations of a piece: some tens of microseconds. With pieces of a sixteenth, a layer norm and GELU, whose
code begins anew with each, took 3 and 4 % longer."""


@dataclass(frozen=True)
class Shared:
    """Work that is shared out by pieces: so many `items`, of which a piece has `size`, or `alone` where there is one
    thread only; `run` is the code of those from one on and before another."""

    items: int
    size: int
    alone: int
    run: Callable[[Val, Val], None]


def piece(items: int, work: int) -> int:
    """Items of a piece, where all come to so much work; as many as there are where sharing out is not worth it."""
    return min(items, max(1, items * PIECE // max(1, work)))


def share(f: Function, items: int, thread: Val) -> Val:
    """Where a thread's share of the items begins: items * thread / threads, without overflow for any count of items
    below 2^48."""
    product = f.let(f"mul i64 {thread.text}, {items}", I64)
    return f.let(f"udiv i64 {product.text}, %threads", I64)


def emit(f: Function, generation: str, calls: Sequence[Shared]) -> None:
    """This thread's shares of the calls, piece by piece, then what is left of the next thread's, and so on.

    `generation`: where the barrier counts the meetings."""
    taken = f.alloca("i64")
    now = f.let(f"load atomic i32, ptr {generation} monotonic, align 4", I64)
    odd = f.let(f"and i32 {now.text}, 1", I64)
    line = f.let(f"zext i32 {odd.text} to i64", I64)
    line = f.scaled(line, LINE)
    alone = f.let("icmp eq i64 %threads, 1", BOOL)

    def of_owner(at: Val, _: list[Val]) -> Sequence[Val]:
        after = f.let(f"add i64 %thread, {at.text}", I64)
        around = f.let(f"sub i64 {after.text}, %threads", I64)
        beyond = f.let(f"icmp sge i64 {after.text}, %threads", BOOL)
        owner = f.let(f"select i1 {beyond.text}, i64 {around.text}, i64 {after.text}", I64)
        head = f.let(f"mul i64 {owner.text}, %stride", I64)
        place = f.let(f"getelementptr i8, ptr %scratchbase, i64 {f.add(head, line).text}", I64)

        def take() -> None:
            number = f.let(f"atomicrmw add ptr {place.text}, i64 1 monotonic", I64)
            f.line(f"store i64 {number.text}, ptr {taken}")

        take()
        before = integer(0)
        for call in calls:
            begin, end = share(f, call.items, owner), share(f, call.items, f.add(owner, integer(1)))
            size = f.let(f"select i1 {alone.text}, i64 {call.alone}, i64 {call.size}", I64)
            before = _of_call(f, call, (begin, end), size, before, taken, take)
        return ()

    f.loop(integer(0), Val("%threads", I64), 1, (), of_owner)


def _of_call(
    f: Function, call: Shared, share: tuple[Val, Val], size: Val, before: Val, taken: str, take: Callable[[], None]
) -> Val:
    """The pieces of one call in a share, as long as the number taken is one of theirs; numbers go on behind them."""
    begin, end = share
    head, inside, done = f.fresh_label("pieces"), f.fresh_label("piece"), f.fresh_label("taken")
    whole = f.let(f"sub i64 {end.text}, {begin.text}", I64)
    most = f.add(whole, f.let(f"sub i64 {size.text}, 1", I64))
    count = f.let(f"udiv i64 {most.text}, {size.text}", I64)
    behind = f.add(before, count)
    f.line(f"br label %{head}")
    f.label(head)
    number = f.let(f"load i64, ptr {taken}", I64)
    mine = f.let(f"icmp slt i64 {number.text}, {behind.text}", BOOL)
    f.line(f"br i1 {mine.text}, label %{inside}, label %{done}")
    f.label(inside)
    at = f.let(f"sub i64 {number.text}, {before.text}", I64)
    first = f.add(begin, f.let(f"mul i64 {at.text}, {size.text}", I64))
    full = f.add(first, size)
    cut = f.let(f"icmp sgt i64 {full.text}, {end.text}", BOOL)
    last = f.let(f"select i1 {cut.text}, i64 {end.text}, i64 {full.text}", I64)
    call.run(first, last)
    take()
    f.line(f"br label %{head}")
    f.label(done)
    return behind
