"""The steps of a program as LLVM IR, as every thread runs them: shares of calls, and meetings between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repro.ir.program import LOCAL, Branch, Call, Commit, CountedLoop, Program, RowBlocks, Step, While
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, I64
from repro.ir.work import operations
from repro.machines import Machine
from repro.targets.llvm import kernel as kernels
from repro.targets.llvm import pieces
from repro.targets.llvm.context import FEATURES, GENERATION, PARAMETERS, PROFILE, STOP, addresses, field
from repro.targets.llvm.meetings import Meetings, Place
from repro.targets.llvm.text import Function, Val, integer

OPERATIONS_BETWEEN_STOPS = 1 << 28
"""Scalar operations that a thread may do without a look at the stop flag: a fraction of a second."""

STEPS_OF_A_FUNCTION = 32
"""A longer sequence is cut: LLVM takes longer for each step the longer a function is."""

_THREAD_TIME = 3
"""CLOCK_THREAD_CPUTIME_ID of clock_gettime(2)."""


def finish(f: Function, ends: Sequence[str], kind: str, leave: str = "") -> None:
    """The end of a function, which all blocks that end the steps and all that stop them come to."""
    f.line("br label %finish")
    f.label("finish")
    results = [f"[ 0, %{block} ]" for block in ends] + [f"[ 1, %{block} ]" for block in f.stops]
    f.line(f"%result = phi {kind} {', '.join(results)}")
    if leave:
        f.line(leave)
    f.line(f"ret {kind} %result")


@dataclass(frozen=True)
class Part:
    """A function of some steps inside others; says whether it was stopped."""

    name: str
    f: Function
    counters: Sequence[Val]

    def definition(self, machine: Machine) -> list[str]:
        parameters = ", ".join([PARAMETERS, *(counter.typed for counter in self.counters)])
        head = f"define internal i1 @{self.name}({parameters}) noinline {machine.attributes} {{"
        return [head, "entry:", *self.f.entry, *self.f.lines, "}"]


class Steps:
    def __init__(self, f: Function, program: Program, schedules: Sequence[Schedule], machine: Machine) -> None:
        self.f, self.program, self.schedules = f, program, schedules
        self.committing = False
        """Whether the steps being written are those of a commit, which nobody can stop."""
        self.parts: list[Part] = []
        """The functions of long sequences, those inside others first."""
        self.meetings = Meetings(program, schedules)
        self.calls = 0
        """How many calls have been written, as `repro.ir.program.walk` meets them."""
        scheduled = list(zip(program.kernels, schedules, strict=True))
        self.items = [kernels.work_items(*each) for each in scheduled]
        self.asks = [kernels.asks(*each, machine) for each in scheduled]

    def run(self, steps: Sequence[Step], counters: list[Val]) -> None:
        write = self.here if len(steps) <= STEPS_OF_A_FUNCTION else self.apart
        for at in range(0, len(steps), STEPS_OF_A_FUNCTION):
            write(steps[at : at + STEPS_OF_A_FUNCTION], counters)

    def apart(self, steps: Sequence[Step], counters: list[Val]) -> None:
        """The steps as a function of their own, and its call."""
        outer, passed = self.f, [Val(f"%counter{depth}", I64) for depth in range(len(counters))]
        self.f = Function()
        addresses(self.f, self.program)
        self.here(steps, passed)
        finish(self.f, [self.f.block], "i1")
        part = Part(f"steps{len(self.parts)}", self.f, passed)
        self.parts.append(part)
        self.f = outer
        arguments = ", ".join([PARAMETERS, *(counter.typed for counter in counters)])
        self.unless_stopped(f"call i1 @{part.name}({arguments})")

    def here(self, steps: Sequence[Step], counters: list[Val]) -> None:
        stretch: list[tuple[Call, Place]] = []
        for step, place in zip(steps, self.meetings.places(steps), strict=True):
            match step:
                case Call():
                    stretch.append((step, place))
                    if place.meets:
                        self.stretch(stretch, counters)
                        stretch.clear()
                        self.barrier()
                case CountedLoop():
                    self.counted_loop(step, counters)
                case While():
                    self.repeat(step, counters)
                case Branch():
                    self.branch(step, counters)
                case RowBlocks():
                    self.row_blocks(step, counters)
                    self.barrier()
                case Commit():
                    self.commit(step, counters)

    def whole(self) -> None:
        self.run(self.program.steps, [])

    def stretch(self, calls: Sequence[tuple[Call, Place]], counters: list[Val]) -> None:
        """Calls between which threads do not meet: first those in which each thread has a share of its own, then those
        of which a thread that is done takes pieces of others' shares."""
        shared: list[pieces.Shared] = []
        for call, place in calls:
            size = self.piece(call)
            if place.rows is not None or size == self.items[call.kernel]:
                self.call(call, counters, place)
                continue
            items, run = self.items[call.kernel], self.unless_asked(call, counters, self.calls)
            shared.append(pieces.Shared(items, size, min(items, self.between_stops(call)), run))
            self.calls += 1
        self.shared(shared)

    def shared(self, calls: Sequence[pieces.Shared]) -> None:
        if calls:
            pieces.emit(self.f, field(self.f, GENERATION), calls)

    def piece(self, call: Call) -> int:
        """Items of a piece of a call; all of them where it is better not shared out by pieces."""
        items = self.items[call.kernel]
        if kernels.run_together(self.program.kernels[call.kernel], self.schedules[call.kernel]):
            return items
        return pieces.piece(items, self.work(call))

    def work(self, call: Call) -> int:
        """Vector operations of a call."""
        return operations(self.program.kernels[call.kernel]) // self.schedules[call.kernel].vector_width

    def between_stops(self, call: Call) -> int:
        """Items of a call that are run without a look at the stop flag."""
        work = operations(self.program.kernels[call.kernel])
        return max(1, self.items[call.kernel] * OPERATIONS_BETWEEN_STOPS // max(1, work))

    def unless_asked(self, call: Call, counters: list[Val], number: int) -> Callable[[Val, Val], None]:
        """The code of some items of a call, unless somebody has asked the run to stop."""

        def invoke(begin: Val, end: Val) -> None:
            self.f.when(self._going(), lambda: self.invoke(call, counters, begin, end, number))

        def always(begin: Val, end: Val) -> None:
            self.invoke(call, counters, begin, end, number)

        return always if self.committing else invoke

    def body(self, step: CountedLoop | While, counters: list[Val], counter: Val) -> tuple[()]:
        self.run(step.body, [*counters, counter])
        return ()

    def counted_loop(self, step: CountedLoop, counters: list[Val]) -> None:
        places = self.meetings.alone(step)
        if not places or self.committing:
            self.f.loop(integer(0), integer(step.count), 1, (), lambda at, _: self.body(step, counters, at))
            return

        def iteration(at: Val) -> None:
            for call, place in zip(step.body, places, strict=True):
                assert isinstance(call, Call)
                self.call(call, [*counters, at], place)

        self._as_long_as(step.count, self._going, iteration)
        self.barrier()

    def buffer(self, number: int) -> str:
        held = self.program.buffers[number]
        if held.role == LOCAL:
            return self.f.let(f"getelementptr i8, ptr %local, i64 {held.position}", I64).text
        slot = self.f.let(f"getelementptr inbounds ptr, ptr %table, i64 {number}", I64)
        return self.f.let(f"load ptr, ptr {slot.text}, !invariant.load !0", I64).text

    def condition(self, buffer: int) -> Val:
        """Element 0, read by every thread before any goes on to what may change it."""
        raw = self.f.let(f"load volatile i8, ptr {self.buffer(buffer)}", I64)
        self.barrier()
        return self.f.let(f"icmp ne i8 {raw.text}, 0", BOOL)

    def call(self, step: Call, counters: list[Val], place: Place) -> None:
        """This thread's share of a call; with a look at the stop flag if it has not met the others before, and where
        the call may take long, between parts of it."""
        f, items, number = self.f, self.items[step.kernel], self.calls
        self.calls += 1
        begin, end = self._shares(items if place.rows is None else place.rows)
        if place.rows is not None:
            begin, end = f.scaled(begin, items // place.rows), f.scaled(end, items // place.rows)
        part = self.between_stops(step)
        if part >= items or self.committing:
            some = f.let(f"icmp slt i64 {begin.text}, {end.text}", BOOL)
            if place.goes_on and not self.committing:
                some = f.let(f"and i1 {some.text}, {self._going().text}", BOOL)
            f.when(some, lambda: self.invoke(step, counters, begin, end, number))
            return
        run = self.unless_asked(step, counters, number)
        f.loop(begin, end, part, (), lambda at, _: self.part(run, at, part, end))

    def part(self, run: Callable[[Val, Val], None], begin: Val, size: int, end: Val) -> tuple[()]:
        f = self.f
        after = f.let(f"add i64 {begin.text}, {size}", I64)
        beyond = f.let(f"icmp sgt i64 {after.text}, {end.text}", BOOL)
        stop = f.let(f"select i1 {beyond.text}, i64 {end.text}, i64 {after.text}", I64)
        run(begin, stop)
        return ()

    def row_blocks(self, step: RowBlocks, counters: list[Val]) -> None:
        """Blocks by pieces, each block from its first call to its last."""

        def blocks(begin: Val, end: Val) -> None:
            self.f.loop(begin, end, 1, (), lambda at, _: self.row_block(step, counters, at))

        size = pieces.piece(step.count, step.count * sum(map(self.work, step.body)))
        self.shared([pieces.Shared(step.count, size, step.count, blocks)])
        self.calls += len(step.body)

    def row_block(self, step: RowBlocks, counters: list[Val], at: Val) -> tuple[()]:
        self.f.when(self._going(), lambda: self.block_calls(step, [*counters, *self._digits(at, step.extents)]))
        return ()

    def block_calls(self, step: RowBlocks, counters: list[Val]) -> None:
        for number, call in enumerate(step.body, self.calls):
            self.invoke(call, counters, integer(0), integer(self.items[call.kernel]), number)

    def _digits(self, index: Val, extents: Sequence[int]) -> list[Val]:
        """An index as digits, row-major."""
        digits: list[Val] = []
        for extent in reversed(extents[1:]):
            digits.append(self.f.let(f"urem i64 {index.text}, {extent}", I64))
            index = self.f.let(f"udiv i64 {index.text}, {extent}", I64)
        return [index, *reversed(digits)]

    def _going(self) -> Val:
        """Whether nobody has asked the run to stop."""
        flag = self.f.let(f"load atomic i32, ptr {field(self.f, STOP)} monotonic, align 4", I64)
        return self.f.let(f"icmp eq i32 {flag.text}, 0", BOOL)

    def invoke(self, step: Call, counters: list[Val], begin: Val, end: Val, number: int) -> None:
        """Some items of a call, of this number in the program."""
        f, kernel = self.f, self.program.kernels[step.kernel]
        buffers = [f"ptr {self.buffer(number)}" for number in step.buffers]
        scalars = [counters[depth].typed for depth in step.scalars]
        arguments = [*buffers, *scalars, begin.typed, end.typed, "ptr %scratch"]
        types = ["ptr"] * len(buffers) + ["i64"] * (len(scalars) + 2) + ["ptr"]
        if self.asks[step.kernel]:
            arguments.append(f.let(f"load i64, ptr {field(f, FEATURES)}", I64).typed)
            types.append("i64")
        name = kernels.symbol(kernel)
        f.declared[f"declare void @{name}({', '.join(types)})"] = None
        f.line(f"call void @{name}({', '.join(arguments)})")

    def _shares(self, items: int) -> tuple[Val, Val]:
        """Where this thread's share of the items begins and ends."""
        following = self.f.let("add i64 %thread, 1", I64)
        return pieces.share(self.f, items, Val("%thread", I64)), pieces.share(self.f, items, following)

    def barrier(self) -> None:
        self.unless_stopped("call i1 @barrier(ptr %context, i64 %threads, ptr %own)")

    def unless_stopped(self, call: str) -> None:
        """A call that says whether to stop, and what follows if not; a commit goes on whatever it says."""
        f = self.f
        stop = f.let(call, BOOL)
        if self.committing:
            return
        f.stops.append(f.block)
        following = f.fresh_label("next")
        f.line(f"br i1 {stop.text}, label %finish, label %{following}")
        f.label(following)

    def repeat(self, step: While, counters: list[Val]) -> None:
        self._as_long_as(step.limit, lambda: self.condition(step.condition), lambda at: self.body(step, counters, at))

    def _as_long_as(self, limit: int, condition: Callable[[], Val], body: Callable[[Val], object]) -> None:
        """Iterations up to a limit, each if the condition holds before it."""
        f = self.f
        before, head, inside, done = f.block, f.fresh_label("while"), f.fresh_label("body"), f.fresh_label("done")
        f.line(f"br label %{head}")
        f.label(head)
        counter, place = Val(f.name(), I64), len(f.lines)
        go = condition()
        below = f.let(f"icmp ult i64 {counter.text}, {limit}", BOOL)
        both = f.let(f"and i1 {go.text}, {below.text}", BOOL)
        f.line(f"br i1 {both.text}, label %{inside}, label %{done}")
        f.label(inside)
        body(counter)
        following = f.let(f"add i64 {counter.text}, 1", I64)
        phi = f"  {counter.text} = phi i64 [ 0, %{before} ], [ {following.text}, %{f.block} ]"
        f.line(f"br label %{head}")
        f.lines.insert(place, phi)
        f.label(done)

    def branch(self, step: Branch, counters: list[Val]) -> None:
        then, otherwise = (lambda side=side: self._all(side, counters) for side in (step.then, step.otherwise))
        self.f.either(self.condition(step.condition), then, otherwise)

    def commit(self, step: Commit, counters: list[Val]) -> None:
        refused = None if step.refused is None else self.condition(step.refused)
        self.committing = True
        if refused is None:
            self.run(step.body, counters)
        else:
            self.f.either(refused, lambda: (), lambda: self._all(step.body, counters))
        self.committing = False

    def _all(self, steps: Sequence[Step], counters: list[Val]) -> tuple[()]:
        self.run(steps, counters)
        return ()


class Profiled(Steps):
    """The same steps with the time that each takes of its thread: what else the machine runs does not count."""

    def __init__(self, f: Function, program: Program, schedules: Sequence[Schedule], machine: Machine) -> None:
        super().__init__(f, program, schedules, machine)
        self.times: dict[Function, str] = {}
        """Where each function has the clock's answer."""

    def whole(self) -> None:
        begin = self.now()
        super().whole()
        self.add(self.calls, begin)

    def invoke(self, step: Call, counters: list[Val], begin: Val, end: Val, number: int) -> None:
        start = self.now()
        super().invoke(step, counters, begin, end, number)
        self.add(number, start)

    def now(self) -> Val:
        """Nanoseconds of the thread's own time."""
        f = self.f
        if f not in self.times:
            self.times[f] = f.alloca("[2 x i64]")
            f.declared["declare i32 @clock_gettime(i32, ptr)"] = None
        time = self.times[f]
        f.line(f"call i32 @clock_gettime(i32 {_THREAD_TIME}, ptr {time})")
        seconds = f.let(f"load i64, ptr {time}", I64)
        place = f.let(f"getelementptr i64, ptr {time}, i64 1", I64)
        return f.add(f.scaled(seconds, 10**9), f.let(f"load i64, ptr {place.text}", I64))

    def add(self, row: int, begin: Val) -> None:
        f = self.f
        spent = f.let(f"sub i64 {self.now().text}, {begin.text}", I64)
        table = f.let(f"load ptr, ptr {field(f, PROFILE)}", I64)
        at = f.let(f"mul i64 %threads, {row}", I64)
        at = f.let(f"add i64 {at.text}, %thread", I64)
        slot = f.let(f"getelementptr i64, ptr {table.text}, i64 {at.text}", I64)
        total = f.let(f"add i64 {f.let(f'load i64, ptr {slot.text}', I64).text}, {spent.text}", I64)
        f.line(f"store i64 {total.text}, ptr {slot.text}")
