"""How many cycles a routine takes, and what they go into. Nothing here depends on data.

In-order issue of bundles with interlocks: a bundle waits until its slots are free and its operands are ready, and the
wait is booked on its cause. Matrix units, transposes and transfers run beside; what they write is ready when they say.
A loop whose state repeats (all times relative to the clock) is not walked further: the rest is a multiple.
Bodies of `when_any` are counted apart, because data decide how often they run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from repro.errors import InternalError
from repro.targets.tpu_sim.bundles import slots
from repro.targets.tpu_sim.chips import Chip
from repro.targets.tpu_sim.decisions import Control, Zeros, controls_of
from repro.targets.tpu_sim.isa import (
    Dma,
    Gather,
    Instruction,
    Load,
    Matmul,
    Push,
    Scatter,
    Send,
    Store,
    Transpose,
    Wait,
)
from repro.targets.tpu_sim.links import Topology
from repro.targets.tpu_sim.operands import LANES, Dim, Ref
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny
from repro.targets.tpu_sim.scoreboard import Scoreboard, Stretch, Use, lines

BURST = 64
"""Bytes that HBM moves at least for each contiguous run."""
VMEM_BYTES_PER_CYCLE = 512
"""What a copy inside VMEM moves."""
TEST_MASK = 14
"""Cycles from a mask to the decision whether any lane holds."""


@dataclass(frozen=True)
class Timing:
    """One call of a routine: cycles, and counts of what happened.

    Keys of `counts`: `busy <unit>` (slot-cycles), `stall <cause>` (cycles), `hbm read`, `hbm written` (bytes as moved,
    in bursts), `hbm useful` (bytes asked for), `vmem accesses` (of 4 KiB), `passes` (vector slot-cycles), `products`
    (fma of matrix units), `bundles`, `instructions`. `branches` holds the cycles of each `when_any` body.
    """

    cycles: int
    counts: Counter[str]
    branches: tuple[int, ...]


def time_routine(routine: Routine, chip: Chip, topology: Topology | None = None, walk: bool = False) -> Timing:
    """The timing of one call, its launch left out; of a routine with sends, on the chips of a topology.

    `walk`: every iteration of every loop is gone through, to hold the multiples against.
    """
    clock = _Clock(chip, {f"s{number}": 0 for number in range(len(routine.counters))}, topology, walk)
    clock.body(routine.body)
    clock.drain()
    return Timing(clock.now, clock.counts, tuple(clock.branches))


class _Clock:
    def __init__(
        self, chip: Chip, counters: dict[str, int], topology: Topology | None = None, walk: bool = False
    ) -> None:
        self.chip, self.counters, self.topology, self.walk = chip, counters, topology, walk
        self.now = 0
        self.free: dict[str, list[int]] = {
            **{unit: [0] * count for unit, count in slots(chip).items()},
            "weights": [0] * chip.matrix_units,
            "matrix": [0] * chip.matrix_units,
            "hbm": [0],
        }
        self.ready: dict[int, tuple[int, str]] = {}
        self.loaded: dict[tuple[int, int], int] = {}
        self.held: dict[tuple[int, int], int] = {}
        self.depths: dict[tuple[int, int], tuple[int, int]] = {}
        self.landing: dict[int, deque[int]] = {}
        self.uses = Scoreboard()
        self.counts: Counter[str] = Counter()
        self.branches: list[int] = []

    # statements ─────────────────────────────────────────────────────────────────────────────────────

    def body(self, body: Sequence[Statement]) -> None:
        for statement in body:
            match statement:
                case Bundle():
                    self.bundle(statement)
                case Loop():
                    self.loop(statement)
                case WhenAny():
                    self.when_any(statement)

    def when_any(self, branch: WhenAny) -> None:
        self._wait(self.ready.get(branch.mask.number, (0, "alu"))[0] + TEST_MASK, "branch")
        apart = _Clock(self.chip, dict(self.counters))
        position = len(self.branches)
        self.branches.append(0)
        apart.body(branch.body)
        self.branches[position] = max(apart.now, *(time for time, _ in apart.ready.values()), 0)
        self.branches += apart.branches

    def loop(self, loop: Loop) -> None:
        controls = [each for each in controls_of(loop.body) if any(t.counter == loop.counter for t in each.index.terms)]
        branches = len(self.branches)
        seen = dict[tuple[object, ...], tuple[int, int, Counter[str]]]()
        units = set[tuple[object, ...]]()
        at = 0
        while at < loop.count:
            self.counters[loop.counter] = at
            del self.branches[branches:]
            self.body(loop.body)
            at += 1
            if self.walk:
                continue
            shape = (*self._signature(controls, loop.counter, at - 1), *self._units())
            if shape not in units:  # the rest of the state takes longer to look at
                units.add(shape)
                continue
            key = (shape, self._state())
            if key not in seen:
                seen[key] = (at, self.now, self.counts.copy())
                continue
            before, clock, counts = seen[key]
            periods = self._alike(controls, loop, at, at - before) // (at - before)
            if periods:
                self._skip(periods, clock, counts)
                at += periods * (at - before)
            seen.clear()
        self.counters.pop(loop.counter, None)

    def _signature(self, controls: Sequence[Control], counter: str, at: int) -> tuple[int, ...]:
        values = Zeros({**self.counters, counter: at})
        return tuple(control.decision(values) for control in controls)

    def _alike(self, controls: Sequence[Control], loop: Loop, at: int, period: int) -> int:
        """How many iterations from `at` on are controlled as those one period before."""
        if not controls:
            return loop.count - at
        for position in range(at, loop.count):
            earlier = self._signature(controls, loop.counter, position - period)
            if self._signature(controls, loop.counter, position) != earlier:
                return position - at
        return loop.count - at

    def _units(self) -> tuple[object, ...]:
        """How long units are taken, relative to now."""
        return tuple(tuple(sorted(max(0, time - self.now) for time in times)) for times in self.free.values())

    def _state(self) -> tuple[object, ...]:
        """Everything that lies ahead, relative to now."""
        now = self.now
        return (
            tuple(sorted((number, time - now) for number, (time, _) in self.ready.items() if time > now)),
            tuple(sorted((key, time - now) for key, time in self.loaded.items() if time > now)),
            tuple(sorted((key, time - now) for key, time in self.held.items() if time > now)),
            tuple(sorted((key, *(max(0, time - now) for time in times)) for key, times in self.landing.items())),
            self.uses.state(now),
        )

    def _skip(self, periods: int, clock: int, counts: Counter[str]) -> None:
        """The same stretch again, so many times."""
        passed = (self.now - clock) * periods
        for name in self.counts:
            self.counts[name] += (self.counts[name] - counts[name]) * periods
        self.now += passed
        self.free = {unit: [time + passed for time in times] for unit, times in self.free.items()}
        self.ready = {number: (time + passed, unit) for number, (time, unit) in self.ready.items()}
        self.loaded = {key: time + passed for key, time in self.loaded.items()}
        self.held = {key: time + passed for key, time in self.held.items()}
        self.landing = {key: deque(time + passed for time in times) for key, times in self.landing.items()}
        self.uses.delay(passed)

    def drain(self) -> None:
        """Until everything that was started has ended."""
        self._wait(max([self.uses.end, *(time for time, _ in self.ready.values())]), "drain")

    # issue ──────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self, time: int, cause: str) -> None:
        if time > self.now:
            self.counts[f"stall {cause}"] += time - self.now
            self.now = time

    def bundle(self, bundle: Bundle) -> None:
        running = [
            each for each in bundle.instructions if each.predicate is None or each.predicate.value(self.counters) >= 0
        ]
        time, cause = self.now, ""
        for instruction in running:
            for needed, why in self._needs(instruction):
                if needed > time:
                    time, cause = needed, why
        self._wait(time, cause)
        for instruction in running:
            self._issue(instruction)
        self.counts["bundles"] += 1
        self.counts["instructions"] += len(running)
        self.now += 1

    def _needs(self, instruction: Instruction) -> list[tuple[int, str]]:
        """(cycle, cause) for all that it has to wait for before it issues."""
        found = [self.ready[reg.number] for reg in instruction.reads if reg.number in self.ready]
        unit = instruction.cost().unit
        match instruction:
            case Push() | Matmul() | Transpose() | Dma() | Send():
                return found
            case Wait():
                queue = self.landing.get(instruction.semaphore.value(self.counters), deque())
                return [*found, *((time, "transfer") for time in list(queue)[: instruction.count])]
            case Load() | Gather():
                found += self.uses.after(self._stretch(instruction), False)
            case Store() | Scatter():
                found += self.uses.after(self._stretch(instruction), True)
            case _:
                pass
        return [*found, (min(self.free[unit]), f"{unit} slots")]

    def _stretch(self, instruction: Load | Gather | Store | Scatter) -> Stretch:
        """The elements that it may touch, as bounds."""
        ref = instruction.source if isinstance(instruction, Load | Gather) else instruction.target
        if not self.uses or isinstance(instruction, Gather | Scatter):
            return Stretch(ref.name, 0, 1 << 62)
        start = ref.offset.value(self.counters)
        spans = [(count - 1) * stride for count, stride in instruction.pattern.digits]
        return Stretch(
            ref.name, start + sum(min(0, span) for span in spans), start + sum(max(0, span) for span in spans)
        )

    def _issue(self, instruction: Instruction) -> None:
        match instruction:
            case Dma():
                self._transfer(instruction)
            case Wait():
                queue = self.landing.get(instruction.semaphore.value(self.counters), deque())
                for _ in range(min(instruction.count, len(queue))):
                    queue.popleft()
            case Send():
                self._send(instruction)
            case Push():
                self._push(instruction)
            case Matmul():
                self._matmul(instruction)
            case Transpose():
                self._transpose(instruction)
            case _:
                self._plain(instruction)

    def _plain(self, instruction: Instruction) -> None:
        cost = instruction.cost()
        own = {"alu": self.chip.alu_latency, "load": self.chip.load_latency}.get(cost.unit, 1)
        self._occupy(cost.unit, self.now, cost.busy)
        if instruction.writes is not None:
            result = self.now + cost.busy - 1 + (own if cost.latency is None else cost.latency)
            self.ready[instruction.writes.number] = (result, f"{cost.unit} result")
        if cost.unit == "alu":
            self.counts["passes"] += cost.busy
        if cost.unit in ("load", "store"):
            self.counts["vmem accesses"] += cost.busy

    def _occupy(self, unit: str, start: int, busy: int, which: int | None = None) -> None:
        times = self.free[unit]
        slot = times.index(min(times)) if which is None else which
        times[slot] = max(times[slot], start) + busy
        self.counts[f"busy {unit}"] += busy

    # units that run beside ──────────────────────────────────────────────────────────────────────────

    def _start(self, needs: Sequence[tuple[int, str]], free: int) -> int:
        return max([self.now, free, *(time for time, _ in needs)])

    def _lines(self, ref: Ref, pitch: int, count: int, width: int) -> Stretch:
        return lines(ref, ref.offset.value(self.counters), pitch, count, width)

    def _transpose(self, instruction: Transpose) -> None:
        rows, columns, cost = instruction.rows, instruction.columns, instruction.cost()
        source = self._lines(instruction.source, instruction.source_pitch, rows, columns)
        target = self._lines(instruction.target, instruction.target_pitch, columns, rows)
        needs = self.uses.after(source, False) + self.uses.after(target, True)
        start = self._start(needs, min(self.free["cross"]))
        self._occupy("cross", start, cost.busy)
        end = start + cost.busy + (cost.latency or 0)
        self.uses.add(Use(source, start, start + cost.busy, False, "cross"))
        self.uses.add(Use(target, end, end, True, "cross"))
        self.counts["vmem accesses"] += 2 * -(-rows * columns // LANES)

    def _push(self, instruction: Push) -> None:
        chip, unit = self.chip, instruction.matrix.value(self.counters)
        key = (unit, instruction.slot.value(self.counters) % 2)
        slow, fast = instruction.depth, instruction.width
        slow, fast = (fast, slow) if instruction.turned else (slow, fast)
        source = self._lines(instruction.source, instruction.pitch, slow, fast)
        needs = self.uses.after(source, False)
        start = self._start(needs, max(self.free["weights"][unit], self.held.get(key, 0)))
        self._occupy("weights", start, chip.array, unit)
        self.loaded[key] = start + chip.array
        self.depths[key] = (instruction.depth, instruction.width)
        self.uses.add(Use(source, start, start + chip.array, False, "weights"))
        self.counts["vmem accesses"] += -(-instruction.depth * instruction.width // LANES)

    def _matmul(self, instruction: Matmul) -> None:
        """Rows enter one a cycle; the sums of each leave so many cycles later, in order, as partial sums enter."""
        chip, unit, rows = self.chip, instruction.matrix.value(self.counters), instruction.rows
        key, through = (unit, instruction.slot.value(self.counters) % 2), 2 * chip.array - 1
        depth, width = self.depths.get(key, (chip.array, chip.array))
        data = self._lines(instruction.data, instruction.data_pitch, rows, depth)
        entering = self._lines(instruction.sums, instruction.sums_pitch, rows, width)
        leaving = self._lines(instruction.written, instruction.sums_pitch, rows, width)
        needs = self.uses.after(data, False) + self.uses.behind(leaving, True, through)
        if not instruction.fresh:
            needs += self.uses.behind(entering, False, 0)
        start = self._start(needs, max(self.free["matrix"][unit], self.loaded.get(key, 0)))
        self._occupy("matrix", start, rows, unit)
        self.held[key] = start + rows  # new weights may follow the last row through the array
        first = start + through
        self.uses.add(Use(data, start, start + rows, False, "matrix"))
        self.uses.add(Use(leaving, first, first + rows - 1, True, "matrix"))
        if instruction.onto is not None and not instruction.fresh:
            self.uses.add(Use(entering, start, start + rows - 1, False, "matrix"))
        self.counts["products"] += rows * depth * width
        self.counts["vmem accesses"] += -(-rows * (depth + 2 * width) // LANES)

    def _transfer(self, dma: Dma) -> None:
        steps = [dim.steps(self.counters) for dim in dma.dims]
        elements = 1
        for step in steps:
            elements *= step
        size, outside = dma.dtype.bytes, "b" in (dma.source.space, dma.target.space)
        read, write = (_moved(dma.dims, steps, size, side) for side in ("source", "target"))
        needs = list[tuple[int, str]]()
        for ref, side in ((dma.source, "source"), (dma.target, "target")):
            low = ref.offset.value(self.counters)
            high = low + sum((s - 1) * getattr(d, side) for s, d in zip(steps, dma.dims, strict=True))
            needs += self.uses.after(Stretch(ref.name, low, high), side == "target")
        if outside:
            moved = read if dma.source.space == "b" else write
            cycles = -(-moved * self.chip.clock_mhz // (self.chip.hbm_gbps * 1000))
            start = self._start(needs, self.free["hbm"][0])
            self._occupy("hbm", start, cycles)
            end = start + cycles + self.chip.dma_latency
            self.counts["hbm read" if dma.source.space == "b" else "hbm written"] += moved
            self.counts["hbm useful"] += elements * size
        else:
            start = self._start(needs, min(self.free["dma"]))
            cycles = -(-max(read, write) // VMEM_BYTES_PER_CYCLE)
            self._occupy("dma", start, cycles)
            end = start + cycles + self.chip.load_latency
        self.counts["transfers"] += 1
        self.landing.setdefault(dma.semaphore.value(self.counters), deque()).append(end)

    def _send(self, send: Send) -> None:
        """All chips send at once: what leaves here and what arrives here takes as long."""
        if self.topology is None:
            raise InternalError("a routine with sends is timed on a topology")
        chips = range(self.topology.chips)
        targets = [send.chip.value({**self.counters, "s0": number}) for number in chips]
        nbytes = send.count * send.dtype.bytes
        end = self.now + self.topology.cycles(targets, nbytes, self.chip)
        self.counts["link bytes"] += nbytes * len(self.topology.route(0, targets[0]))
        self.counts["busy links"] += end - self.now
        self.landing.setdefault(send.semaphore.value(self.counters), deque()).extend((end, end))


def _moved(dims: Sequence[Dim], steps: Sequence[int], size: int, side: str) -> int:
    """Bytes in bursts on one side of a transfer: contiguous runs, each of whole bursts."""
    run, outer = 1, 1
    for dim, step in zip(reversed(dims), reversed(steps), strict=True):
        stride: int = getattr(dim, side)
        if outer == 1 and (stride == run or step == 1):
            run *= step
        else:
            outer *= step
    return outer * -(-run * size // BURST) * BURST
