"""Trees in words: `sequential`, `lanes(32), fold halves`, `blocks of 256, blocks in a row`; exact where it can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from repro.audit.probes.known import named
from repro.audit.probes.steps import Order, Step, read
from repro.audit.probes.tree import Tree

UNKNOWN = "not among the known"
DEPTH_SHOWN = 5
MOST_RUNS = 64
TAPS = (4, 9)
BLOCKS_OF_CHANNELS = (4, 8, 16, 32, 64, 128, 256, 512)


def describe(tree: Tree) -> tuple[str, str]:
    """(the order's name, the tree in words). Names and steps are exact: they build this very tree."""
    shown = in_words(tree)
    return (named(tree) or shown or UNKNOWN), (shown or nested(tree))


def in_words(tree: Tree) -> str | None:
    """The order in steps, or as runs of terms with an order each; None where neither gives this tree."""
    order = read(tree)
    if order:
        return text(order, tree.leaves)
    return _in_runs(tree) or _by_taps(tree)


def _in_runs(tree: Tree) -> str | None:
    runs = consecutive_runs(tree)
    if not 2 <= len(runs) <= MOST_RUNS:
        return None
    orders = [read(run) for run in runs]
    words = {text(order, run.leaves) for order, run in zip(orders, runs, strict=True) if order}
    sizes = _counted([run.leaves for run in runs])
    if None in orders:
        return None
    if len(words) == 1:
        return f"runs: {sizes} terms, each {words.pop()}; the runs in a row"
    each = "; ".join(
        f"{run.leaves}: {text(order, run.leaves)}" for order, run in zip(orders, runs, strict=True) if order
    )
    return f"runs in a row: {each}"


def _counted(sizes: Sequence[int]) -> str:
    """`11 of 320, 2 of 288`; sizes alone where none repeats."""
    repeated = [(size, len(list(same))) for size, same in groupby(sizes)]
    if len(repeated) == len(sizes):
        return ", ".join(map(str, sizes))
    return ", ".join(f"{count} of {size}" for size, count in repeated)


def _by_taps(tree: Tree) -> str | None:
    """The orders of convolutions: terms stand as [channels, taps], and are added tap by tap in blocks of channels."""
    for taps in TAPS:
        channels = tree.leaves // taps
        for block in BLOCKS_OF_CHANNELS:
            if channels * taps != tree.leaves or not 1 < block <= channels:
                continue
            order = read(tree.renumbered(tap_by_tap(channels, taps, block)))
            if order:
                return f"{taps} taps one by one in blocks of {block} channels: {text(order, tree.leaves)}"
    return None


def tap_by_tap(channels: int, taps: int, block: int) -> list[int]:
    """Terms [channels, taps] in the order block of channels, tap, channel."""
    return [
        channel * taps + tap
        for start in range(0, channels, block)
        for tap in range(taps)
        for channel in range(start, min(start + block, channels))
    ]


def consecutive_runs(tree: Tree) -> list[Tree]:
    """The subtrees of consecutive terms that are added one by one, in ascending order; [tree] where it is none."""
    spans = tree.fold(lambda leaf: (leaf, leaf, 1), _span)
    found: list[int] = []
    part = tree.root
    while len(children := tree.children(part)) == 2:
        left, right = children
        before, after = spans[left], spans[right]
        if not (_whole(before) and _whole(after)) or after[2] == 1:
            break
        found.append(right)
        part = left
        if before[2] <= after[2]:
            break
    return [tree.below(run) for run in [part, *reversed(found)]]


def _span(parts: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
    """(first leaf, last leaf, leaves)."""
    return min(p[0] for p in parts), max(p[1] for p in parts), sum(p[2] for p in parts)


def _whole(span: tuple[int, int, int]) -> bool:
    return span[1] - span[0] + 1 == span[2]


# ── steps in words ──────────────────────────────────────────────────────────────────────────────────


def text(order: Order, terms: int) -> str:
    body = terms - order.tail
    words = _steps_in_words(order.steps, body)
    if order.tail:
        words.append(f"then the last {order.tail} one by one")
    return ", ".join(words) + (", backwards" if order.backwards else "")


def _steps_in_words(steps: Sequence[Step], terms: int) -> list[str]:
    first, *rest = steps
    at_once = [f"{first.together} at once"] if first.together > 1 else []
    if first.stride == 1:
        if first.count >= terms:
            return ["sequential", *at_once]
        return [f"blocks of {first.count}", *at_once, *_outer(rest, -(-terms // first.count))]
    words = [f"lanes({first.stride})", *at_once]
    if first.span < terms < 2 * first.span and _crosses(first.stride, rest):
        whole = f"over the first {first.span}, the last {terms - first.span} as lanes of their own"
        return [" ".join([words[0], whole]), *at_once, _steps_as_parts(rest)]
    if first.span < terms and rest and rest[0].stride >= first.stride:
        words.append(f"every {first.count} steps folded")
        cascade = [step for step in rest if step.stride >= first.stride]
        words += [f"{step.count} of those in a row" for step in cascade]
        return words + _fold(first.stride, rest[len(cascade) :])
    inner, outer = _split(first.stride, rest)
    words += _fold(first.stride, inner)
    if first.span < terms:
        words += [f"in blocks of {first.span}", *_outer(outer, -(-terms // first.span))]
    return words


def _crosses(width: int, steps: Sequence[Step]) -> bool:
    """Whether a step that folds lanes joins one block's with the next one's."""
    return width > 1 and bool(steps) and steps[0].stride < width < steps[0].span


def _split(width: int, steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """The steps that make one part of `width` lanes, and those after."""
    left = width
    for position, step in enumerate(steps):
        if left == 1:
            return steps[:position], steps[position:]
        left = -(-left // step.count) if step.stride == 1 else max(1, left // step.count)
    return steps, ()


def _fold(width: int, steps: Sequence[Step]) -> list[str]:
    """How lanes come together, by their distances in lanes."""
    if [(step.count, step.stride) for step in steps] == [(width, 1)]:
        return ["lanes in a row"] if width > 2 else ["fold"]
    lanes = list(range(width))
    distances: list[tuple[int, int]] = []
    for step in steps:
        distances.append((lanes[step.stride] - lanes[0] if step.stride < len(lanes) else step.stride, step.count))
        lanes = [
            lanes[start + offset]
            for start in range(0, len(lanes), step.span)
            for offset in range(min(step.stride, len(lanes) - start))
        ]
    if all(count == 2 for _, count in distances):
        strides = [distance for distance, _ in distances]
        if strides[-1] == 1 and all(a == 2 * b for a, b in pairwise(strides)):
            return ["fold halves"]
        if strides[0] == 1 and all(2 * a == b for a, b in pairwise(strides)):
            return ["fold neighbours"]
        return [f"fold by {' '.join(map(str, strides))}"]
    shown = [f"{distance}" if count == 2 else f"{distance} ({count} in a row)" for distance, count in distances]
    return [f"fold by {' '.join(shown)}"]


def _outer(steps: Sequence[Step], blocks: int) -> list[str]:
    """How blocks come together."""
    if not steps:
        return []
    if len(steps) == 1 and steps[0].count >= blocks and steps[0].stride == 1:
        return ["blocks in a row"]
    if all(step.count == 2 and step.stride == 1 for step in steps):
        return ["blocks pairwise"]
    if all(step.count == 2 for step in steps):
        return ["blocks by halves"]
    return ["of those " + _steps_as_parts(steps)]


def _steps_as_parts(steps: Sequence[Step]) -> str:
    return ", ".join(f"{step.count} in a row" + (f" at distance {step.stride}" * (step.stride > 1)) for step in steps)


def nested(tree: Tree, depth: int = DEPTH_SHOWN) -> str:
    """Brackets around what is added first, from the root down; `…7` is a part of 7 terms that is not shown."""
    sizes = tree.fold(lambda _: 1, sum)

    def show(part: int, left: int) -> str:
        children = tree.children(part)
        if not children:
            return str(part)
        if not left:
            return f"…{sizes[part]}"
        return "(" + " + ".join(show(child, left - 1) for child in children) + ")"

    return show(tree.root, depth)
