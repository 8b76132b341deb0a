"""A program as one LLVM function that every thread enters once (SPMD).

Each thread walks the same steps, does its contiguous share of each call's work items, and meets the others
at a barrier. See `context` for what the host provides.
"""

from __future__ import annotations

from collections.abc import Sequence

from repro.ir.loops import Kernel
from repro.ir.program import Branch, Call, CountedLoop, Program, Step, While
from repro.ir.schedule import Schedule
from repro.ir.types import BOOL, I32, I64
from repro.machines import Machine
from repro.targets.llvm import context
from repro.targets.llvm.barrier import barrier_function
from repro.targets.llvm.floating_point_mode import enter_mode, leave_mode
from repro.targets.llvm.kernel import symbol, work_items
from repro.targets.llvm.text import Function, Val, integer
from repro.targets.llvm.work import items_between_stops


def emit_program(program: Program, schedules: Sequence[Schedule], machine: Machine) -> str:
    """The LLVM module (text) of a program; `schedules` stand beside `program.kernels`."""
    emitter = _Emitter(program, schedules, machine)
    emitter.run()
    f = emitter.f
    head = [f'target triple = "{machine.triple}"', *f.declared, *emitter.kernels()]
    block = f"ptr noalias align {context.ALIGNMENT} %context"
    signature = f"define i64 @{context.ENTRY}({block}, i64 %thread, i64 %threads)"
    body = [f"{signature} {machine.attributes} {{", "entry:", *f.entry, *f.lines, "}"]
    return "\n".join([*head, *barrier_function(machine), *body]) + "\n"


class _Emitter:
    def __init__(self, program: Program, schedules: Sequence[Schedule], machine: Machine) -> None:
        self.program, self.machine, self.f = program, machine, Function()
        self.items = [work_items(*pair) for pair in zip(program.kernels, schedules, strict=True)]
        self.counters: list[Val] = []
        self.scratch = Val("", I64)

    def kernels(self) -> list[str]:
        """Declarations of the kernels, which stand in objects of their own."""
        return [f"declare void @{symbol(kernel)}({_parameter_types(kernel)})" for kernel in self.program.kernels]

    def run(self) -> None:
        f = self.f
        mode = enter_mode(f, self.machine)
        scratches = f.let(f"load ptr, ptr {self._field(context.SCRATCH)}, align 8", I64)
        slot = f.let(f"getelementptr ptr, ptr {scratches.text}, i64 %thread", I64)
        self.scratch = f.let(f"load ptr, ptr {slot.text}, align 8", I64)
        self.steps(self.program.steps)
        for label, status in (("", context.FINISHED), ("stopped", context.STOPPED)):
            if label:
                f.label(label)
            leave_mode(f, self.machine, mode)
            f.line(f"ret i64 {status}")

    def _field(self, offset: int) -> str:
        return self.f.let(f"getelementptr i8, ptr %context, i64 {offset}", I64).text

    def steps(self, steps: Sequence[Step]) -> None:
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            match step:
                case Call():
                    self.call(step)
                    # thread 0 alone runs both: nothing to wait for
                    if not (self._single(step) and following is not None and self._single(following)):
                        self.barrier()
                case CountedLoop():
                    self.loop(step)
                case While():
                    self.repeat(step)
                case Branch():
                    self.branch(step)

    def _single(self, step: Step) -> bool:
        return isinstance(step, Call) and self.items[step.kernel] == 1

    def barrier(self) -> None:
        """Wait for all threads; leave if the host asked to."""
        f, going = self.f, self.f.fresh_label("going")
        stop = f.let("call i1 @barrier(ptr %context, i64 %threads)", BOOL)
        f.line(f"br i1 {stop.text}, label %stopped, label %{going}")
        f.label(going)

    # calls ──────────────────────────────────────────────────────────────────────────────────────────

    def call(self, call: Call) -> None:
        items = self.items[call.kernel]
        if items == 0:
            return
        f = self.f
        if items == 1:
            first = f.let("icmp eq i64 %thread, 0", BOOL)
            f.when(first, lambda: self.invoke(call, integer(0), integer(1)))
            return
        begin = self._share(items, Val("%thread", I64))
        end = self._share(items, f.let("add i64 %thread, 1", I64))
        run = items_between_stops(self.program.kernels[call.kernel], items)
        if run >= items:
            some = f.let(f"icmp slt i64 {begin.text}, {end.text}", BOOL)
            f.when(some, lambda: self.invoke(call, begin, end))
            return

        def part(at: Val, _: list[Val]) -> Sequence[Val]:
            after = f.let(f"add i64 {at.text}, {run}", I64)
            beyond = f.let(f"icmp sgt i64 {after.text}, {end.text}", BOOL)
            self.invoke(call, at, f.let(f"select i1 {beyond.text}, i64 {end.text}, i64 {after.text}", I64))
            self.leave_if_stopped()
            return ()

        f.loop(begin, end, run, (), part)

    def leave_if_stopped(self) -> None:
        f, going = self.f, self.f.fresh_label("going")
        word = f.let(f"load atomic i32, ptr {self._field(context.STOP)} monotonic, align 4", I32)
        stop = f.let(f"icmp ne i32 {word.text}, 0", BOOL)
        f.line(f"br i1 {stop.text}, label %stopped, label %{going}")
        f.label(going)

    def _share(self, items: int, thread: Val) -> Val:
        """The first item of a thread: floor(items * thread / threads)."""
        scaled = self.f.let(f"mul i64 {thread.text}, {items}", I64)
        return self.f.let(f"udiv i64 {scaled.text}, %threads", I64)

    def invoke(self, call: Call, begin: Val, end: Val) -> None:
        pointers = [f"ptr {self.pointer(buffer).text}" for buffer in call.buffers]
        counters = [self.counters[depth].typed for depth in call.scalars]
        arguments = ", ".join([*pointers, *counters, begin.typed, end.typed, f"ptr {self.scratch.text}"])
        self.f.line(f"call void @{symbol(self.program.kernels[call.kernel])}({arguments})")

    def pointer(self, buffer: int) -> Val:
        table = self.f.let(f"load ptr, ptr {self._field(context.BUFFERS)}, align 8", I64)
        slot = self.f.let(f"getelementptr ptr, ptr {table.text}, i64 {buffer}", I64)
        return self.f.let(f"load ptr, ptr {slot.text}, align 8", I64)

    # control flow ───────────────────────────────────────────────────────────────────────────────────

    def loop(self, step: CountedLoop) -> None:
        def body(counter: Val, _: list[Val]) -> Sequence[Val]:
            self.counters.append(counter)
            self.steps(step.body)
            self.counters.pop()
            return ()

        self.f.loop(integer(0), integer(step.count), 1, (), body)

    def condition(self, buffer: int) -> Val:
        """Element 0 of a bool buffer, read by all threads before any goes on to change it."""
        byte = self.f.let(f"load i8, ptr {self.pointer(buffer).text}, align 1", BOOL)
        self.barrier()
        return self.f.let(f"icmp ne i8 {byte.text}, 0", BOOL)

    def repeat(self, step: While) -> None:
        f = self.f
        done, inside = f.fresh_label("done"), f.fresh_label("again")

        def body(counter: Val, _: list[Val]) -> Sequence[Val]:
            again = self.condition(step.condition)
            f.line(f"br i1 {again.text}, label %{inside}, label %{done}")
            f.label(inside)
            self.counters.append(counter)
            self.steps(step.body)
            self.counters.pop()
            return ()

        f.loop(integer(0), integer(step.limit), 1, (), body)
        f.line(f"br label %{done}")
        f.label(done)

    def branch(self, step: Branch) -> None:
        def side(steps: Sequence[Step]) -> Sequence[Val]:
            self.steps(steps)
            return ()

        self.f.either(self.condition(step.condition), lambda: side(step.then), lambda: side(step.otherwise))


def _parameter_types(kernel: Kernel) -> str:
    return ", ".join(["ptr"] * len(kernel.buffers) + ["i64"] * (len(kernel.scalars) + 2) + ["ptr"])
