"""Writes LLVM IR as text: typed values, straight-line code, counted loops, conditions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from repro.ir.types import BOOL, F32, F64, I64, DType

SELDOM = '!2 = !{!"branch_weights", i32 1, i32 4095}'
"""Of a condition that seldom holds."""


def element(dtype: DType) -> str:
    """The LLVM type of a value in a register: i1 for bool, integers for the narrow floats."""
    if dtype is F32:
        return "float"
    if dtype is F64:
        return "double"
    return "i1" if dtype is BOOL else f"i{dtype.bits}"


def memory(dtype: DType) -> str:
    """The LLVM type of an element in memory."""
    return "i8" if dtype is BOOL else element(dtype)


def vector(name: str, width: int) -> str:
    return name if width == 1 else f"<{width} x {name}>"


@dataclass(frozen=True)
class Val:
    """An LLVM value: its text, element type, and number of lanes (1: a scalar)."""

    text: str
    dtype: DType
    width: int = 1

    @property
    def type(self) -> str:
        return vector(element(self.dtype), self.width)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def number(self) -> int | None:
        """The integer that it is, where the code knows it."""
        return int(self.text) if self.text.lstrip("-").isdigit() else None


def integer(value: int, dtype: DType = I64) -> Val:
    return Val(str(value), dtype)


def literal(dtype: DType, bits: int) -> Val:
    """A scalar constant from its raw bits."""
    if dtype is BOOL:
        return Val("true" if bits else "false", BOOL)
    if dtype is F64:
        return Val(f"0x{bits:016X}", dtype)
    if dtype is F32:
        return Val(f"bitcast (i32 {bits} to float)", dtype)
    signed = bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits
    return Val(str(signed), dtype)


class Function:
    """The body of one function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.entry: list[str] = []
        """Stack allocations, hoisted to the entry block."""
        self.declared: dict[str, None] = {}
        self.metadata: dict[str, None] = {}
        """Lines behind the function."""
        self.constants: dict[str, str] = {}
        """Names of constants in memory."""
        self.stops: list[str] = []
        """Blocks that leave the function early."""
        self.count = 0
        self.block = "entry"
        self.kept_rolled = False

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str, dtype: DType, width: int = 1) -> Val:
        made = Val(self.name(), dtype, width)
        self.line(f"{made.text} = {text}")
        return made

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def fresh_label(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def alloca(self, kind: str) -> str:
        made = self.name()
        self.entry.append(f"  {made} = alloca {kind}, align 64")
        return made

    def constant(self, content: str) -> str:
        """The address of constants in memory, given as their type and values."""
        name = self.constants.setdefault(content, f"@constant{len(self.constants)}")
        self.declared[f"{name} = private unnamed_addr constant {content}, align 64"] = None
        return name

    def call(self, name: str, result: Val | tuple[DType, int], operands: Sequence[Val]) -> Val:
        """A call of an intrinsic by its full name; declares it."""
        dtype, width = (result.dtype, result.width) if isinstance(result, Val) else result
        kind = vector(element(dtype), width)
        self.declared[f"declare {kind} @{name}({', '.join(operand.type for operand in operands)})"] = None
        arguments = ", ".join(operand.typed for operand in operands)
        return self.let(f"call {kind} @{name}({arguments})", dtype, width)

    def effect(self, name: str, types: Sequence[str], arguments: Sequence[str]) -> None:
        """A call of an intrinsic without a result."""
        self.declared[f"declare void @{name}({', '.join(types)})"] = None
        self.line(f"call void @{name}({', '.join(arguments)})")

    def anew(self, address: str, behind: Sequence[Val], constraint: str) -> str:
        """The same address, of which nothing is known: what was read there is read again, and only when vectors of
        that register constraint are computed."""
        made = self.name()
        constraints = f"=r,0{f',{constraint}' * len(behind)},~{{memory}}"
        operands = ", ".join([f"ptr {address}", *(value.typed for value in behind)])
        self.line(f'{made} = call ptr asm sideeffect "", "{constraints}"({operands})')
        return made

    def splat(self, value: Val, width: int) -> Val:
        if value.width == width:
            return value
        kind = vector(element(value.dtype), width)
        first = self.let(f"insertelement {kind} poison, {value.typed}, i64 0", value.dtype, width)
        mask = f"<{width} x i32> zeroinitializer"
        return self.let(f"shufflevector {first.typed}, {kind} poison, {mask}", value.dtype, width)

    def lanes(self, width: int) -> Val:
        """<0, 1, 2, ...> as i64."""
        text = ", ".join(f"i64 {lane}" for lane in range(width))
        return Val(f"<{text}>", I64, width) if width > 1 else integer(0)

    def add(self, a: Val, b: Val) -> Val:
        if a.text == "0":
            return b
        if b.text == "0":
            return a
        return self.let(f"add {a.type} {a.text}, {b.text}", a.dtype, a.width)

    def scaled(self, a: Val, factor: int) -> Val:
        if factor == 1:
            return a
        if a.width == 1:
            return self.let(f"mul {a.typed}, {factor}", a.dtype)
        return self.let(f"mul {a.typed}, {self.splat(integer(factor, a.dtype), a.width).text}", a.dtype, a.width)

    def loop(
        self,
        begin: Val,
        end: Val,
        step: int,
        carried: Sequence[Val],
        body: Callable[[Val, list[Val]], Sequence[Val]],
    ) -> list[Val]:
        """for (i = begin; i < end; i += step) with values carried from one iteration to the next.

        The counter has the type of `begin`."""
        hint = ", !llvm.loop !0" if self.kept_rolled else ""
        before, head = self.block, self.fresh_label("head")
        inside, done = self.fresh_label("body"), self.fresh_label("done")
        self.line(f"br label %{head}")
        self.label(head)
        counter = Val(self.name(), begin.dtype)
        state = [Val(self.name(), value.dtype, value.width) for value in carried]
        place = len(self.lines)
        test = self.let(f"icmp slt {counter.typed}, {end.text}", BOOL)
        self.line(f"br i1 {test.text}, label %{inside}, label %{done}")
        self.label(inside)
        results = list(body(counter, state))
        following = self.let(f"add nsw {counter.typed}, {step}", counter.dtype)
        latch = self.block
        self.line(f"br label %{head}{hint}")
        phis = [f"  {counter.text} = phi {counter.type} [ {begin.text}, %{before} ], [ {following.text}, %{latch} ]"]
        for now, first, after in zip(state, carried, results, strict=True):
            phis.append(f"  {now.text} = phi {now.type} [ {first.text}, %{before} ], [ {after.text}, %{latch} ]")
        self.lines[place:place] = phis
        self.label(done)
        return state

    @contextmanager
    def rolled(self) -> Generator[None]:
        """While loops are not to be unrolled: for code that is seldom run, beside code whose registers matter."""
        for line in ("!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}'):
            self.declared[line] = None
        before, self.kept_rolled = self.kept_rolled, True
        yield
        self.kept_rolled = before

    def either(
        self,
        condition: Val,
        then: Callable[[], Sequence[Val]],
        otherwise: Callable[[], Sequence[Val]],
        seldom: bool = False,
    ) -> list[Val]:
        """One of two sides; both give values of the same types. `seldom`: the condition is, so its side stands apart
        from the common code, and what it needs saved is saved there."""
        yes, no, join = self.fresh_label("then"), self.fresh_label("else"), self.fresh_label("join")
        weights = ""
        if seldom:
            self.declared[SELDOM] = None
            weights = f", !prof {SELDOM.partition(' ')[0]}"
        self.line(f"br i1 {condition.text}, label %{yes}, label %{no}{weights}")
        self.label(yes)
        left = then()
        left_end = self.block
        self.line(f"br label %{join}")
        self.label(no)
        right = otherwise()
        right_end = self.block
        self.line(f"br label %{join}")
        self.label(join)
        return [
            self.let(f"phi {a.type} [ {a.text}, %{left_end} ], [ {b.text}, %{right_end} ]", a.dtype, a.width)
            for a, b in zip(left, right, strict=True)
        ]

    def when(self, condition: Val, then: Callable[[], None]) -> None:
        def run() -> Sequence[Val]:
            then()
            return ()

        self.either(condition, run, lambda: ())
