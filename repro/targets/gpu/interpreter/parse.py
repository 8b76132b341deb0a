"""PTX text as data: the part of the language that our emitter writes, calls of a module's own functions inlined.

Anything else is an internal error that quotes it. PTX ISA 8.0 is the language's definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from repro.errors import InternalError


@dataclass(frozen=True)
class Register:
    name: str
    bits: int
    """1 for a predicate."""


@dataclass(frozen=True)
class Immediate:
    """A literal: an integer (any width, signed), or the bits of a float of `float_bits`."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, a parameter, or a special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Address:
    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class Vector:
    items: tuple[Operand, ...]


Operand = Register | Immediate | Symbol | Address | Vector


@dataclass(frozen=True)
class Instruction:
    """`words` are the parts of the opcode; `guard` is a predicate and the value under which the instruction runs."""

    words: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    text: str


@dataclass(frozen=True)
class Label:
    name: str


Statement = Instruction | Label


@dataclass(frozen=True)
class Variable:
    """`space` is global, const, shared or local; `nbytes` 0 stands for dynamic shared memory."""

    name: str
    space: str
    alignment: int
    nbytes: int
    data: bytes | None = None


@dataclass
class Function:
    """An entry or a function: parameters (name, bits, alignment), the value it returns, local variables, code."""

    name: str
    parameters: tuple[tuple[str, int], ...]
    result: str | None
    variables: list[Variable] = field(default_factory=list[Variable])
    body: list[Statement] = field(default_factory=list[Statement])


@dataclass
class Module:
    entries: dict[str, Function]
    variables: dict[str, Variable]


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD = re.compile(
    r"(?:\.visible\s+|\.weak\s+)?\.(?P<kind>entry|func)\s*(?:\(\s*(?P<result>[^)]*)\))?\s*(?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)"
    r"(?P<limits>[^{;]*)(?P<end>[{;])"
)
_VARIABLE = re.compile(
    r"(?:\.visible\s+|\.extern\s+|\.weak\s+)*\.(?P<space>global|const|shared|local)\s+(?:\.align\s+(?P<align>\d+)\s+)?"
    r"\.(?P<type>[bsuf]\d+)\s+(?P<name>[\w$]+)\s*(?P<array>\[\s*\d*\s*\])?\s*(?:=\s*(?P<data>[^;]+))?$"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[busf](\d+)\s+(?:\.ptr\s+)?(?:\.\w+\s+(?:\d+\s+)?)*([\w$]+)(\[\d+\])?"
)
_REGISTER = re.compile(r"\.reg\s+\.(pred|[bsuf]\d+)\s+(.+)$")


def parse(text: str) -> Module:
    """The module. Raises InternalError for what is no PTX of ours."""
    text = _COMMENT.sub(" ", text)
    functions: dict[str, Function] = {}
    entries: dict[str, Function] = {}
    outside: list[str] = []
    at = 0
    while (head := _HEAD.search(text, at)) is not None:
        outside.append(text[at : head.start()])
        at = head.end()
        if head["end"] == ";":
            continue
        end = _closing(text, head.end())
        function = _function(head, text[head.end() : end])
        (entries if head["kind"] == "entry" else functions)[function.name] = function
        at = end + 1
    outside.append(text[at:])
    variables = {found.name: found for part in outside for found in _variables(part)}
    for entry in entries.values():
        entry.body = list(_inlined(entry.body, functions, (entry.name,)))
        for variable in entry.variables:
            variables[variable.name] = variable
    return Module(entries, variables)


def _closing(text: str, at: int) -> int:
    depth = 1
    for found in re.finditer(r"[{}]", text[at:]):
        depth += 1 if found.group() == "{" else -1
        if depth == 0:
            return at + found.start()
    raise InternalError("PTX: a function's body has no end")


def _variables(text: str) -> Iterator[Variable]:
    for statement in text.split(";"):
        words = statement.strip()
        words = re.sub(r"^(\.(version|target|address_size)\s+[^\n]+\s*)+", "", words).strip()
        if words:
            yield _variable(words)


def _variable(words: str) -> Variable:
    found = _VARIABLE.match(words)
    if found is None:
        raise InternalError(f"PTX: a statement outside of functions is unknown: {words[:80]}")
    width = int(found["type"][1:]) // 8
    count = 1 if found["array"] is None else int(found["array"].strip("[] ") or 0)
    data = None
    if found["data"] is not None:
        items = [_literal(item) for item in found["data"].strip(" {}\n\t").split(",")]
        data = b"".join((item.value % (1 << 8 * width)).to_bytes(width, "little") for item in items)
        data = data.ljust(width * count, b"\0")
    elif found["space"] in ("global", "const"):
        data = bytes(width * count)
    return Variable(found["name"], found["space"], int(found["align"] or width), width * count, data)


def _function(head: re.Match[str], body: str) -> Function:
    parameters = tuple((name, int(bits)) for bits, name, _ in _PARAMETER.findall(head["parameters"]))
    results = _PARAMETER.findall(head["result"] or "")
    made = Function(head["name"], parameters, results[0][1] if results else None)
    scope = _Scope(made.name)
    for bits, name, array in _PARAMETER.findall(f"{head['parameters']},{head['result'] or ''}"):
        if array:
            raise InternalError(f"PTX: parameter {name} of {made.name} is an array")
        scope.registers[name] = Register(name, int(bits))
    for statement in _statements(body):
        if isinstance(statement, Label):
            made.body.append(statement)
        elif statement.startswith((".local", ".shared")):
            made.variables.append(_variable(statement))
        elif statement.startswith("."):
            scope.declare(statement)
        else:
            made.body.append(scope.instruction(statement))
    return made


def _statements(body: str) -> Iterator[Label | str]:
    """Labels, and statements without their semicolon; braces of scopes fall away."""
    at = 0
    pattern = re.compile(r"\s*(?:([\w$]+)\s*:(?!:)|([{}])|([^;{}\s][^;]*);)")
    while (found := pattern.match(body, at)) is not None:
        at = found.end()
        label, _, statement = found.groups()
        if label:
            yield Label(label)
        elif statement:
            yield statement.strip()
    if body[at:].strip():
        raise InternalError(f"PTX: cannot be read from here: {body[at:].strip()[:80]}")


class _Scope:
    """A function's registers, those of calls' parameters among them."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.registers: dict[str, Register] = {}
        self.families: dict[str, int] = {}

    def declare(self, statement: str) -> None:
        """`.reg .b32 %r<7>, %x`, `.param .b32 param0`; `.pragma` says nothing to us."""
        if statement.startswith(".pragma"):
            return
        parameter = _PARAMETER.match(statement)
        if parameter is not None:
            self.registers[parameter[2]] = Register(parameter[2], int(parameter[1]))
            return
        found = _REGISTER.match(statement)
        if found is None:
            raise InternalError(f"PTX: a directive in {self.function} is unknown: {statement[:80]}")
        bits = 1 if found[1] == "pred" else int(found[1][1:])
        for name in (each.strip() for each in found[2].split(",")):
            if name.endswith(">"):
                self.families[name[: name.index("<")]] = bits
            else:
                self.registers[name] = Register(name, bits)

    def instruction(self, text: str) -> Instruction:
        words, guard = text, None
        if words.startswith("@"):
            condition, words = words[1:].split(None, 1)
            register = self.register(condition.lstrip("!"))
            if register is None:
                raise InternalError(f"PTX: unknown predicate: {text}")
            guard = (register, not condition.startswith("!"))
        opcode, _, rest = words.partition(" ") if " " in words.split("\t", 1)[0] else words.partition("\t")
        operands = tuple(self.operand(each) for each in _split(rest))
        return Instruction(tuple(opcode.strip().split(".")), operands, guard, " ".join(text.split()))

    def operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(self.operand(each) for each in _split(text[1:-1])))
        if text.startswith("("):
            return Vector(tuple(self.operand(each) for each in _split(text[1:-1])))
        if text.startswith("["):
            return self._address(text[1:-1])
        if "|" in text:
            return Vector(tuple(self.operand(each.strip()) for each in text.split("|")))
        found = self.register(text)
        if found is not None:
            return found
        if re.fullmatch(r"-?(\d\w*|true|false)", text):
            return _literal(text)
        return Symbol(text)

    def _address(self, text: str) -> Address:
        base, sign, offset = re.fullmatch(r"\s*([%\w$.]+)\s*(?:([+-])\s*(-?\d+))?\s*", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
        found = self.operand(base)
        if isinstance(found, Address | Vector):
            raise InternalError(f"PTX: no address: {text}")
        shift = 0 if offset is None else int(offset)
        return Address(found, -shift if sign == "-" else shift)

    def register(self, name: str) -> Register | None:
        known = self.registers.get(name)
        if known is None:
            family = re.fullmatch(r"(%\w*?)\d+", name)
            if family is None or family[1] not in self.families:
                return None
            known = self.registers[name] = Register(name, self.families[family[1]])
        return known


def _literal(text: str) -> Immediate:
    text = text.strip()
    if text in ("true", "false"):
        return Immediate(int(text == "true"))
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if digits[:2] in ("0f", "0F"):
        return Immediate(int(digits[2:], 16), 32)
    if digits[:2] in ("0d", "0D"):
        return Immediate(int(digits[2:], 16), 64)
    return Immediate(sign * int(digits.rstrip("Uu"), 0))


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    return [
        part.strip() for part in re.findall(r"(?:[^,\[\]{}()]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+", text) if part.strip()
    ]


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────


def _inlined(body: Sequence[Statement], functions: dict[str, Function], path: tuple[str, ...]) -> Iterator[Statement]:
    """The body with each call replaced by what it calls: registers and labels take the call's number in their names."""
    calls = 0
    for statement in body:
        if isinstance(statement, Label) or statement.words[0] != "call":
            yield statement
            continue
        calls += 1
        parts = list(statement.operands)
        results: tuple[Operand, ...] = ()
        if isinstance(parts[0], Vector):
            results, parts = parts[0].items, parts[1:]
        name = parts[0].name if isinstance(parts[0], Symbol) else ""
        if name not in functions or name in path:
            raise InternalError(f"PTX: cannot follow {statement.text}")
        callee = functions[name]
        if callee.variables:
            raise InternalError(f"PTX: {name} has variables of its own")
        given = parts[1].items if len(parts) > 1 and isinstance(parts[1], Vector) else ()
        suffix = f"@{'/'.join(path[1:])}{name}{calls}"
        yield from _call(statement, callee, given, results, suffix, functions, path)


def _call(
    call: Instruction,
    callee: Function,
    given: Sequence[Operand],
    results: Sequence[Operand],
    suffix: str,
    functions: dict[str, Function],
    path: tuple[str, ...],
) -> Iterator[Statement]:
    for (name, bits), value in zip(callee.parameters, given, strict=True):
        yield _move(Register(name + suffix, bits), value, call)
    after = Label("return" + suffix)
    for statement in _inlined(callee.body, functions, (*path, callee.name)):
        if isinstance(statement, Label):
            yield Label(statement.name + suffix)
        elif statement.words[0] == "ret":
            yield replace(statement, words=("bra",), operands=(Symbol(after.name),))
        else:
            guard = statement.guard and (_register(statement.guard[0], suffix), statement.guard[1])
            yield replace(statement, operands=tuple(_renamed(o, suffix) for o in statement.operands), guard=guard)
    yield after
    for result in results:
        if isinstance(result, Register) and callee.result is not None:
            yield _move(result, Register(callee.result + suffix, result.bits), call)


def _move(target: Register, value: Operand, call: Instruction) -> Instruction:
    return Instruction(("mov", f"b{target.bits}"), (target, value), None, call.text)


def _register(register: Register, suffix: str) -> Register:
    return Register(register.name + suffix, register.bits)


def _renamed(operand: Operand, suffix: str) -> Operand:
    match operand:
        case Register():
            return _register(operand, suffix)
        case Vector():
            return Vector(tuple(_renamed(each, suffix) for each in operand.items))
        case Address():
            base = operand.base
            return Address(_register(base, suffix) if isinstance(base, Register) else base, operand.offset)
        case Symbol() if operand.name.startswith("$"):
            return Symbol(operand.name + suffix)
        case _:
            return operand
