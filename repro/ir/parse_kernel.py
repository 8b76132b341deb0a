"""The inverse of `Kernel.text`: a kernel from its text."""

from __future__ import annotations

from repro.ir.expressions import (
    Affine,
    Apply,
    Axis,
    Chain,
    Exact,
    Expr,
    IndexOp,
    Lanes,
    Order,
    Scalar,
    Sequential,
    apply,
    const,
    load,
    lookup,
    rarely,
    reduce,
)
from repro.ir.loops import BufferParameter, Kernel, Store
from repro.ir.types import BY_NAME, I64, DType


def parse_kernel(text: str) -> Kernel:
    """The kernel of a text. Raises ValueError naming the line that does not parse."""
    parser = _KernelParser()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            parser.line(line.split())
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ValueError(f"line {number}: {line.strip()!r}: {error}") from error
    return parser.kernel()


class _KernelParser:
    def __init__(self) -> None:
        self.buffers: list[BufferParameter] = []
        self.scalars: list[int] = []
        self.axes: list[Axis] = []
        self.serial = 0
        self.stores: list[Store] = []
        self.named: dict[str, Expr] = {}

    def kernel(self) -> Kernel:
        return Kernel(tuple(self.buffers), tuple(self.scalars), tuple(self.axes), self.serial, tuple(self.stores))

    def line(self, words: list[str]) -> None:
        match words:
            case [] | ["kernel", "{"] | ["}"]:
                return
            case ["buffer", _, kind, mode]:
                name, _, extent = kind.partition("[")
                self.buffers.append(BufferParameter(BY_NAME[name], int(extent.rstrip("]")), mode == "out"))
            case ["scalar", _, extent]:
                self.scalars.append(int(extent))
            case [("serial" | "parallel") as order, name, extent]:
                self.axes.append(self.axis(name.rstrip(":"), int(extent)))
                self.serial += order == "serial"
            case ["bound", name, extent]:
                self.axis(name.rstrip(":"), int(extent))
            case [target, "<-", value, *when]:
                buffer, _, offset = target.partition("[")
                condition = self.named[when[1]] if when else None
                store = Store(int(buffer[1:]), self.named[offset.rstrip("]")], self.named[value], condition)
                self.stores.append(store)
            case [name, "=", what, *rest]:
                self.named[name] = self.expr(what, rest[:-2], BY_NAME[rest[-1]])
            case _:
                raise ValueError("unknown form")

    def axis(self, name: str, extent: int) -> Axis:
        made = Axis(I64, (int(name[1:]), extent), ())
        self.named[name] = made
        return made

    def expr(self, what: str, words: list[str], dtype: DType) -> Expr:
        match what:
            case "const":
                return const(dtype, int(words[0], 16))
            case "scalar":
                position = int(words[0][1:])
                return Scalar(I64, (position, self.scalars[position]), ())
            case "affine":
                pairs = [word.split("*") for word in words[1:]]
                coefficients = tuple(int(k) for k, _ in pairs)
                return Affine(I64, (int(words[0]), coefficients), tuple(self.named[name] for _, name in pairs))
            case "floordiv" | "mod":
                return IndexOp(I64, (what, int(words[1])), (self.named[words[0]],))
            case "load":
                buffer, _, offset = words[0].partition("[")
                when = self.named[words[2]] if len(words) > 1 else None
                return load(dtype, int(buffer[1:]), self.named[offset.rstrip("]")], when)
            case "reduce":
                return self.reduce(words)
            case "rarely":
                return rarely(*(self.named[word] for word in words))
            case "lookup":
                return lookup(dtype, [int(word, 16) for word in words[1:]], self.named[words[0]])
            case "convert" | "bitcast":
                return Apply(dtype, (what,), (self.named[words[0]],))
            case _:
                return apply(what, *(self.named[word] for word in words))

    def reduce(self, words: list[str]) -> Expr:
        combiner, order, axes, *rest = words
        bounds = [part.split("<") for part in axes.strip("[]").split(",") if part]
        made = [self.axis(name, int(extent)) for name, extent in bounds]
        present = self.named[rest[-1]] if "present" in rest else None
        terms = [self.named[word] for word in (rest[:-2] if present is not None else rest)]
        return reduce(combiner, _parse_order(order), made, terms, present)


def _parse_order(text: str) -> Order:
    name, _, arguments = text.partition("(")
    numbers = [int(part) for part in arguments.rstrip(")").split(",") if part]
    match name:
        case "chain":
            return Chain(*numbers)
        case "lanes":
            return Lanes(*numbers)
        case "sequential":
            return Sequential()
        case "exact":
            return Exact()
        case _:
            raise ValueError(f"unknown order {text}")
