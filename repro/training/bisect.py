"""Where two training runs part: the first differing step of their traces, then the tensor and the node."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from repro.artifact.cache import Cache
from repro.artifact.canonical import Json
from repro.artifact.loaded import LoadedArtifact
from repro.errors import EXIT_GOOD, EXIT_MISMATCH, ReproError
from repro.ir.types import Array
from repro.training import checkpoint as checkpoints
from repro.training import digests, nodes
from repro.training.compare import TensorDifference, differences
from repro.training.data import Arrays
from repro.training.nodes import NodeDifference
from repro.training.recorded import RecordedDifference, recorded_difference, said
from repro.training.replay import Replayed, Side, replay
from repro.training.trace import HEADER_FIELDS, Trace

FIELDS = ("inputs", "state", "loss", "nodes")


@dataclass(frozen=True)
class Field:
    """What stands in the two traces at the first differing step, digests in full."""

    name: str
    left: str
    right: str


@dataclass(frozen=True)
class Bisection:
    """What was found. `step` is the first differing one, None if the traces agree as far as both go."""

    steps: int
    """Steps that both traces have."""
    step: int | None
    fields: tuple[Field, ...]
    state_before: str | None
    """The digest, the same in both traces, of the newest digested state before the step."""
    state_before_step: int | None
    tensors: tuple[str, ...]
    """Names of the state tensors that differ after the step, where that is known."""
    values: tuple[TensorDifference, ...]
    """Their values, where both sides' tensors could be had."""
    node: NodeDifference | None
    verdict: tuple[str, ...]
    recorded: RecordedDifference | None = None
    """The first value of the step whose digests in the two traces differ, where both have them."""

    @property
    def exit_code(self) -> int:
        return EXIT_GOOD if self.step is None else EXIT_MISMATCH

    def json(self) -> Json:
        return dataclasses.asdict(self)


# ── the step ────────────────────────────────────────────────────────────────────────────────────────


def compare(left: Trace, right: Trace) -> Bisection:
    """The first differing step of two verified traces, and its first differing node where both have its nodes."""
    first, steps = _common(left, right)
    position = _first_differing(left, right, first, steps)
    headers = _headers(left, right)
    verdict = [headers] if headers else []
    if position == steps:
        verdict.append(_agreement(left, right, steps))
        return Bisection(steps, None, (), None, None, (), (), None, tuple(verdict))
    step = first + 1 + position
    found = _differing(left, right, step)
    fields = tuple(Field(n, *(_shown(_line(trace, step), n) for trace in (left, right))) for n in found)
    before = _state_before(left, right, step)
    verdict.append(_reason(found, step, before))
    known = _tensors_by_digest(left, right, step)
    node: RecordedDifference | None = None
    if _have_nodes(left, right, step):
        one, other = (_line(trace, step)["nodes"] for trace in (left, right))
        node = recorded_difference(left.header["nodes"], one, other)
        verdict.append(said(node, len(one), "the two traces"))
    elif "inputs" not in found and before[1] is not None:
        verdict.append(f"the traces have no digests of step {step}'s nodes: record them with --trace-nodes-at {step}")
    return Bisection(steps, step, fields, before[1], before[0], known, (), None, tuple(verdict), node)


def _first_differing(left: Trace, right: Trace, first: int, steps: int) -> int:
    """Of the steps that both have, the position of the first that differs; `steps` if none does.

    Where the headers are the same bytes, a line's `previous` holds all lines before it, so a binary search finds the
    first line that differs. If it differs in what it records alone, and where the headers differ, values are compared.
    """
    position = 0
    if left.lines[0] == right.lines[0]:
        position = _first_true(steps, lambda i: left.lines[1 + i] != right.lines[1 + i])
    return next((i for i in range(position, steps) if _differing(left, right, first + 1 + i)), steps)


def _common(left: Trace, right: Trace) -> tuple[int, int]:
    """How many steps were finished before the first that both have, and how many both have."""
    first = max(left.first, right.first)
    last = min(left.first + len(left.steps), right.first + len(right.steps))
    if last <= first:
        raise ReproError(
            "the traces have no step in common",
            found=f"{left.path}: {_span(left)}",
            expected=f"{right.path}: {_span(right)}",
        )
    return first, last - first


def _span(trace: Trace) -> str:
    """The steps that a trace has, in words."""
    return f"{trace.first + 1} to {trace.first + len(trace.steps)}" if trace.steps else "none yet"


def _first_true(count: int, test: Callable[[int], bool]) -> int:
    """The first position at which a test that stays true becomes so; `count` if it never does."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


def _line(trace: Trace, step: int) -> Json:
    return trace.documents[step - trace.first]


def _differing(left: Trace, right: Trace, step: int) -> list[str]:
    """Fields of a step that differ; what one side did not digest is not compared."""
    one, other = _line(left, step), _line(right, step)
    both = (name for name in FIELDS if None not in (one.get(name), other.get(name)))
    return [n for n in both if one[n] != other[n] and (n != "nodes" or _have_nodes(left, right, step))]


def _have_nodes(left: Trace, right: Trace, step: int) -> bool:
    """Whether both traces have the digests of a step's nodes, of the same graph."""
    lines = (_line(left, step), _line(right, step))
    return all("nodes" in line for line in lines) and left.header["nodes"] == right.header["nodes"]


def _shown(line: Json, name: str) -> str:
    """A field of a line; of all nodes' digests, their digest."""
    return str(digests.of_digests(line[name]) if name == "nodes" else line[name])


def _state_before(left: Trace, right: Trace, step: int) -> tuple[int | None, str | None]:
    """The newest step before this one whose state both traces digested, and the digest if it is the same."""
    for earlier in range(step - 1, max(left.first, right.first) - 1, -1):
        one, other = _line(left, earlier)["state"], _line(right, earlier)["state"]
        if one is not None and other is not None:
            return earlier, one if one == other else None
    return None, None


def _tensors_by_digest(left: Trace, right: Trace, step: int) -> tuple[str, ...]:
    one, other = _line(left, step).get("tensors"), _line(right, step).get("tensors")
    if one is None or other is None or left.header["tensors"] != right.header["tensors"]:
        return ()
    rows = zip(left.header["tensors"], one, other, strict=True)
    return tuple(name for (name, _), mine, theirs in rows if mine != theirs)


def _headers(left: Trace, right: Trace) -> str:
    """What makes them traces of different runs, if they are."""
    names = [name for name in sorted(HEADER_FIELDS) if left.header[name] != right.header[name]]
    if not names:
        return ""
    said = "; ".join(f"{name}: {left.header[name]} and {right.header[name]}" for name in names if name != "tensors")
    return f"the traces are of different runs ({said or 'tensors'})"


def _agreement(left: Trace, right: Trace, steps: int) -> str:
    more = len(left.steps) - len(right.steps)
    rest = "" if not more else f"; the {'left' if more > 0 else 'right'} one goes on for {abs(more)}"
    return f"the traces agree in all {steps} steps that both have{rest}"


def _reason(found: list[str], step: int, before: tuple[int | None, str | None]) -> str:
    if before[0] is not None and before[1] is None:
        return f"step {step}: the runs began from different states"
    if "inputs" in found:
        return f"step {step}: the data differs: the two runs were given different inputs"
    if found == ["nodes"]:
        return f"step {step}: loss and state are the same, and so are the inputs: a value on the way to them differs"
    where = "the step before it" if before[0] == step - 1 else f"step {before[0]}, the last one digested"
    return f"step {step}: inputs are the same, and so was the state after {where}: what was computed or kept differs"


# ── the tensor and the node ─────────────────────────────────────────────────────────────────────────


def locate(
    found: Bisection,
    artifact: LoadedArtifact,
    arrays: Arrays,
    traces: tuple[Trace, Trace],
    sides: tuple[Side, Side],
    cache: Cache | None,
) -> Bisection:
    """Run the differing step again on both sides: tensors that differ, and the first node that does."""
    if found.step is None:
        return found
    if traces[0].header["data"] != traces[1].header["data"]:
        verdict = "the step is not run again: the two runs had data of their own"
        return dataclasses.replace(found, verdict=(*found.verdict, verdict))
    step = found.step
    runs = [replay(artifact, arrays, trace, side, step) for trace, side in zip(traces, sides, strict=True)]
    notes = [_note(name, run, side) for name, run, side in zip(("left", "right"), runs, sides, strict=True)]
    states = [_state_of(run, side) for run, side in zip(runs, sides, strict=True)]
    values: tuple[TensorDifference, ...] = ()
    if states[0] is not None and states[1] is not None:
        values = differences(states[0], states[1])
    names = tuple(each.name for each in values) or found.tensors
    node = _node(artifact, traces[0], runs[0], sides, cache)
    notes.append(_said(node, sides))
    return dataclasses.replace(found, tensors=names, values=values, node=node, verdict=(*found.verdict, *notes))


def rerun(
    trace: Trace, artifact: LoadedArtifact, arrays: Arrays, sides: tuple[Side, Side], cache: Cache | None
) -> Bisection:
    """One trace against a re-run on the right side's target, from its first checkpoint or the initial state."""
    run = replay(artifact, arrays, trace, sides[1], None)
    if run.parted is None:
        verdict = (f"the re-run on {sides[1].target} gives the trace, steps {run.started + 1} to {run.step}",)
        return Bisection(run.step - run.started, None, (), None, None, (), (), None, verdict)
    line, step = _line(trace, run.step), run.step
    inputs, (rows, root) = checkpoints.describe(run.inputs)[1], checkpoints.describe(run.after)
    theirs = {"inputs": inputs, "state": root, "loss": run.loss}
    fields = tuple(Field(n, str(line[n]), theirs[n]) for n in theirs if line[n] not in (None, theirs[n]))
    stated = line.get("tensors")
    names = tuple(row[0] for row, mine in zip(rows, stated, strict=True) if row[2] != mine) if stated else ()
    recorded, notes = None, []
    if line.get("nodes") is not None:
        made = nodes.recorder(artifact, trace.header["entry"], sides[1].target, sides[1].threads, cache)
        recorded = recorded_difference(trace.header["nodes"], line["nodes"], made.digests(run.inputs, run.before))
        notes.append(said(recorded, len(line["nodes"]), f"the trace and {sides[1].target}"))
    before = (step - 1, checkpoints.describe(run.before)[1])
    mine = _state_of(dataclasses.replace(run, parted=step), sides[0])
    values = differences(mine, run.after) if mine is not None else ()
    node = _node(artifact, trace, run, sides, cache)
    verdict = (_reason([each.name for each in fields], step, before), *notes, _said(node, sides))
    tensors = tuple(each.name for each in values) or names
    steps = step - run.started
    return Bisection(steps, step, fields, before[1], before[0], tensors, values, node, verdict, recorded)


def _note(name: str, run: Replayed, side: Side) -> str:
    origin = f"{name}: run again on {side.target} from step {run.started}"
    if run.parted is None:
        return f"{origin}, it gives its own trace"
    return f"{origin}, it leaves its own trace at step {run.parted}: what happened there does not happen again here"


def _state_of(run: Replayed, side: Side) -> dict[str, Array] | None:
    """A side's own tensors after the step: its checkpoint of just then, or a re-run that gives its trace."""
    kept = checkpoints.documents(side.checkpoints) if side.checkpoints else []
    exact = [path for path in kept if checkpoints.step_of(path) == run.step]
    if exact:
        return checkpoints.read(exact[0]).state
    return run.after if run.parted is None else None


def _node(
    artifact: LoadedArtifact, trace: Trace, run: Replayed, sides: tuple[Side, Side], cache: Cache | None
) -> NodeDifference | None:
    entry = artifact.entry_graph(trace.header["entry"])
    left, right = (nodes.runner(artifact.target_name(side.target), side.threads, cache) for side in sides)
    return nodes.first_difference(entry, run.inputs, run.before, left, right)


def _said(node: NodeDifference | None, sides: tuple[Side, Side]) -> str:
    where = f"{sides[0].target} and {sides[1].target}"
    if node is None:
        return (
            f"from one state and one set of inputs, {where} agree at every node of the step: no operation is at fault"
        )
    same = all(each.left == each.right for each in node.operands)
    fault = "its operands are the same, so the operation is at fault" if same else "its operands differ"
    loops = "".join(f" in iteration {number} of a loop" for number in reversed(node.iterations))
    return f"node {node.position + 1} of {node.nodes}{loops} is the first that differs between {where}: {fault}"
