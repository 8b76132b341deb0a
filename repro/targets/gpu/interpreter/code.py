"""An entry decoded once: blocks of closures over numbered registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.errors import InternalError
from repro.ir.types import Array
from repro.numerics.numpy_fma import fma_f32
from repro.targets.gpu.interpreter import arithmetic, flow, unset
from repro.targets.gpu.interpreter.closures import (
    RAW,
    Closure,
    applied,
    copied,
    extension,
    global_address,
    packed,
    read,
    together,
    unpacked,
)
from repro.targets.gpu.interpreter.memory import LOCAL_BASE, SHARED_BASE, for_each
from repro.targets.gpu.interpreter.operands import Operands
from repro.targets.gpu.interpreter.parse import (
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
)
from repro.targets.gpu.interpreter.threads import Group

_IGNORED = ("relaxed", "weak", "volatile", "gpu", "cta", "sys")
_CACHING = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B")
UNSET = 0xA5A5A5A5_A5A5A5A5
"""What a register holds that nothing writes."""
_FEWEST = 4
"""Fused products that are computed together: gathering the operands of fewer takes as long."""
_SPACES = ("global", "shared", "local", "param", "const")


@dataclass(frozen=True)
class CodeBlock:
    closures: tuple[Closure, ...]
    texts: tuple[str, ...]
    condition: tuple[int, bool] | None
    taken: int | None
    after: int | None
    convergent: str
    """What threads of the block or warp do together here: bar, warp, or nothing (empty)."""
    live: tuple[int, ...]
    """Registers that are carried into the block."""


@dataclass(frozen=True)
class Code:
    """An entry, ready to run. `constants` are the registers with a value from the start, `parameters` those that take
    the entry's arguments; granules are the least sizes of accesses to each memory."""

    name: str
    blocks: tuple[CodeBlock, ...]
    rank: tuple[int, ...]
    registers: int
    constants: tuple[tuple[int, Array], ...]
    parameters: tuple[tuple[int, np.dtype[Any]], ...]
    shared_bytes: int
    """Static shared memory; dynamic shared memory lies behind it."""
    local_bytes: int
    granules: dict[str, int]
    globals: tuple[Variable, ...]


def decode(function: Function, variables: dict[str, Variable]) -> Code:
    """Raises InternalError for an unknown instruction, and for a register that may be read before it is written."""
    found = flow.analyse(function.body)
    parameters = [Register(name, bits) for name, bits in function.parameters]
    never = unset.never_written(found.blocks, found.doubtful - set(parameters))
    doubtful = found.doubtful - set(parameters) - never | unset.read(found.blocks, never)
    if doubtful:
        names = ", ".join(sorted(register.name for register in doubtful))
        raise InternalError(f"{function.name}: registers may be read before they are written: {names}")
    decoder = _Decoder(function.name, variables)
    slots = [decoder.slot(register) for register in parameters]
    decoder.slots |= {register: decoder.constant(UNSET, register.bits) for register in never}
    blocks = [decoder.block(block, live - never) for block, live in zip(found.blocks, found.live, strict=True)]
    return Code(
        function.name, tuple(blocks), found.rank, len(decoder.slots), tuple(decoder.constants.values()),
        tuple((slot, RAW[register.bits]) for slot, register in zip(slots, parameters, strict=True)),
        decoder.sizes["shared"], decoder.sizes["local"], decoder.granules, tuple(decoder.globals),
    )  # fmt: skip


def _products(instructions: Sequence[Instruction]) -> Iterator[tuple[int, Sequence[Instruction]]]:
    """Runs of fused products, by the position of the first, of which none reads or replaces another's result."""
    first, written = 0, set[Operand]()
    for position, instruction in enumerate(instructions):
        fused = instruction.words == ("fma", "rn", "f32") and instruction.guard is None
        if not fused or written & {*instruction.operands}:
            yield first, instructions[first:position]
            first, written = position, set[Operand]()
        if fused:
            written.add(instruction.operands[0])
        else:
            first = position + 1
    yield first, instructions[first:]


def _nothing(_: Group) -> None:
    """What is left of an instruction that was computed with others, or orders what is in order here."""


class _Decoder(Operands):
    # ── blocks ──

    def block(self, block: flow.Block, live: frozenset[Register]) -> CodeBlock:
        closures = [self.closure(instruction) for instruction in block.instructions]
        for first, run in _products(block.instructions):
            if len(run) >= _FEWEST:
                closures[first : first + len(run)] = [self._together(run), *[_nothing] * (len(run) - 1)]
        condition = None
        if block.condition is not None:
            condition = self.slot(block.condition[0]), block.condition[1]
        kind = ""
        if block.convergent:
            words = block.instructions[0].words
            kind = "bar" if words[0] in ("bar", "barrier") and words[1] != "warp" else "warp"
        texts = tuple(instruction.text for instruction in block.instructions)
        carried = tuple(sorted(self.slot(register) for register in live))
        return CodeBlock(tuple(closures), texts, condition, block.taken, block.after, kind, carried)

    def closure(self, instruction: Instruction) -> Closure:
        words = instruction.words
        special = {
            "mov": self._move, "cvta": self._generic, "ld": self._load, "st": self._store, "bar": self._barrier,
            "barrier": self._barrier, "shfl": self._shuffle, "cp": self._copy, "membar": self._orders,
            "fence": self._orders,
        }  # fmt: skip
        if words[0] in special:
            return special[words[0]](instruction)
        found = arithmetic.operation(words)
        target = instruction.operands[0] if instruction.operands else None
        if found is None or not isinstance(target, Register) or len(instruction.operands) != len(found.operands) + 1:
            raise self.unknown(instruction)
        pairs = zip(instruction.operands[1:], found.operands, strict=True)
        sources = [self.source(each, kind, instruction) for each, kind in pairs]
        if words[0] != "cvt" and (
            any(drop for _, _, drop in sources) or RAW[target.bits].itemsize != found.result.itemsize
        ):
            raise self.unknown(instruction)
        return applied(found, self.slot(target), RAW[target.bits], sources)

    def _orders(self, _: Instruction) -> Closure:
        return _nothing

    def _together(self, products: Sequence[Instruction]) -> Closure:
        kind = arithmetic.dtype_of("f32")
        slots = [[self.source(each, kind, product) for each in product.operands] for product in products]
        return together(fma_f32, [target for (target, _, _), *_ in slots], [sources for _, *sources in slots])

    # ── moves ──

    def _move(self, instruction: Instruction) -> Closure:
        target, value = instruction.operands
        match target, value:
            case Register(), Symbol():
                return self._special(self.slot(target), value.name, RAW[target.bits], instruction)
            case Register(), Vector():
                parts = [self.raw(each, target.bits // len(value.items), instruction) for each in value.items]
                return packed(self.slot(target), parts, target.bits)
            case Register(), _:
                return copied(self.slot(target), self.raw(value, target.bits, instruction))
            case Vector(), Register():
                bits = value.bits // len(target.items)
                parts = [self.slot(each) if isinstance(each, Register) else -1 for each in target.items]
                return unpacked(parts, self.slot(value), bits)
            case _:
                raise self.unknown(instruction)

    def _special(self, target: int, name: str, raw: np.dtype[Any], instruction: Instruction) -> Closure:
        if name in self.addresses:
            return copied(target, self.constant(self.addresses[name], 8 * raw.itemsize))
        for number, variable in enumerate(self.globals):
            if variable.name == name:
                return global_address(target, number)
        thread = {
            "%tid.x": lambda g: g.run.tids[g.lanes], "%ctaid.x": lambda g: g.run.blocks[g.slots],
            "%laneid": lambda g: g.run.tids[g.lanes] & 31, "%warpid": lambda g: g.run.tids[g.lanes] >> 5,
            "%ntid.x": lambda g: np.array([g.run.block_size]), "%nctaid.x": lambda g: np.array([g.run.grid]),
        }  # fmt: skip
        grid = ("tid", "ctaid", "ntid", "nctaid")
        flat = {f"%{kind}.{axis}": int(kind.startswith("n")) for kind in grid for axis in "yz"}
        if name in flat:
            return copied(target, self.constant(flat[name], 8 * raw.itemsize))
        if name not in thread:
            raise self.unknown(instruction)
        found: Callable[[Group], Array] = thread[name]

        def run(group: Group) -> None:
            group.r[target] = found(group).astype(raw)

        return run

    def _generic(self, instruction: Instruction) -> Closure:
        """cvta: generic addresses of local and shared memory stand far up; those of global memory are what they are."""
        words, (target, value) = instruction.words, instruction.operands
        space = words[2] if words[1] == "to" else words[1]
        base = {"local": LOCAL_BASE, "shared": SHARED_BASE, "global": 0, "const": 0, "param": None}.get(space)
        if base is None or not isinstance(target, Register):
            raise self.unknown(instruction)
        source = self.slot(value) if isinstance(value, Register) else None
        if source is None and isinstance(value, Symbol) and value.name in self.addresses:
            source = self.constant(self.addresses[value.name], 64)
        if source is None:
            raise self.unknown(instruction)
        place, by = self.slot(target), np.uint64(base)
        if words[1] == "to":
            return lambda group: group.set(place, group.r[source] - by)
        return lambda group: group.set(place, group.r[source] + by)

    # ── memory ──

    def _access(self, instruction: Instruction) -> tuple[str, int, str, bool]:
        """(space, elements, type, whether cached as constant) of a load or store."""
        words = [word for word in instruction.words[1:] if word not in (*_IGNORED, *_CACHING)]
        space = words.pop(0) if words[0] in _SPACES else "generic"
        cached = "nc" in words
        words = [word for word in words if word != "nc"]
        count = int(words.pop(0)[1:]) if words and words[0] in ("v2", "v4") else 1
        if len(words) != 1 or not words[0][1:].isdigit() or int(words[0][1:]) > 64:
            raise self.unknown(instruction)
        size = int(words[0][1:]) // 8
        for name in self.granules if space == "generic" else ("global",) if space == "const" else (space,):
            if name in self.granules:
                self.granules[name] = min(self.granules[name], size)
        return space, count, words[0], cached

    def _load_parameter(self, target: Register, place: Operand, kind: str, instruction: Instruction) -> Closure:
        """A parameter, or a part of it."""
        if not isinstance(place, Address) or not isinstance(place.base, Register):
            raise self.unknown(instruction)
        size = int(kind[1:])
        if place.offset < 0 or 8 * place.offset + size > place.base.bits or size > target.bits:
            raise self.unknown(instruction)
        source, slot, widen = self.slot(place.base), self.slot(target), extension(kind, target.bits)
        whole, raw, shift = RAW[place.base.bits], RAW[size], place.offset * 8

        def run(group: Group) -> None:
            value = (group.r[source].view(whole) >> whole.type(shift)).astype(raw)
            group.r[slot] = value if widen is None else widen(value)

        return run

    def _load(self, instruction: Instruction) -> Closure:
        space, count, kind, cached = self._access(instruction)
        target, place = instruction.operands
        targets = target.items if isinstance(target, Vector) else (target,)
        registers = [each for each in targets if isinstance(each, Register)]
        if len(registers) != count or len(targets) != count:
            raise self.unknown(instruction)
        slots = [self.slot(register) for register in registers]
        if space == "param":
            return self._load_parameter(registers[0], place, kind, instruction)
        base = self.address(place, instruction)
        extend = [extension(kind, register.bits) for register in registers]
        size = int(kind[1:]) // 8

        def run(group: Group) -> None:
            found = group.run.load(space, group.address(*base), size, count, group.threads, cached)
            for slot, value, widen in zip(slots, found, extend, strict=True):
                group.r[slot] = value if widen is None else widen(value)

        return run

    def _store(self, instruction: Instruction) -> Closure:
        if instruction.words[:2] == ("st", "param"):
            place, value = instruction.operands
            target = self.parameter(place, instruction)
            assert isinstance(place, Address) and isinstance(place.base, Register)
            return copied(target, self.raw(value, place.base.bits, instruction))
        space, count, kind, _ = self._access(instruction)
        place, given = instruction.operands
        items = given.items if isinstance(given, Vector) else (given,)
        raw = arithmetic.dtype_of(f"b{kind[1:]}")
        if len(items) != count:
            raise self.unknown(instruction)
        sources = [self.source(each, raw, instruction) for each in items]
        base = self.address(place, instruction)

        def run(group: Group) -> None:
            values = [read(group.r, source) for source in sources]
            group.run.store(space, group.address(*base), values, raw.itemsize, group.threads)

        return run

    def _copy(self, instruction: Instruction) -> Closure:
        """cp.async, its groups, and waiting for them."""
        words = tuple(word for word in instruction.words if word not in _CACHING)
        match words:
            case ("cp", "async", "commit_group"):
                return lambda group: group.run.shared.commit(group.threads)
            case ("cp", "async", "wait_all"):
                return lambda group: group.run.shared.wait(group.threads, 0, everything=True)
            case ("cp", "async", "wait_group"):
                newest = instruction.operands[0]
                if isinstance(newest, Immediate):
                    return lambda group: group.run.shared.wait(group.threads, newest.value)
            case ("cp", "async", "shared", "global"):
                return self._begin_copy(instruction)
            case _:
                pass
        raise self.unknown(instruction)

    def _begin_copy(self, instruction: Instruction) -> Closure:
        """Of 4, 8 or 16 bytes: of all, of so many, or of none where a predicate says that the source is ignored."""
        target, origin = (self.address(each, instruction) for each in instruction.operands[:2])
        size, *more = instruction.operands[2:]
        sizes = (16,) if "cg" in instruction.words else (4, 8, 16)
        if not isinstance(size, Immediate) or size.value not in sizes or len(more) > 1:
            raise self.unknown(instruction)
        count = size.value // 4
        self.granules["shared"] = min(self.granules["shared"], 4)
        ignores = bool(more) and isinstance(more[0], Register) and more[0].bits == 1
        given = self.raw(more[0], 1 if ignores else 32, instruction) if more else None

        def run(group: Group) -> None:
            to, threads = group.address(*target), group.threads
            source = for_each(group.address(*origin), threads.count)
            some = None if given is None else for_each(group.r[given], threads.count)
            if ignores and some is not None:
                some = np.where(some, np.uint32(0), np.uint32(4 * count))
            group.run.begin_copy(to, source, count, some, threads)

        return run

    # ── threads together ──

    def _barrier(self, instruction: Instruction) -> Closure:
        if instruction.words[1] == "red":
            return self._vote(instruction)
        match instruction.words, instruction.operands:
            case (("bar" | "barrier", "sync", *aligned), (Immediate(value=0),)) if aligned in ([], ["aligned"]):
                return lambda group: group.run.clock.blocks_meet(group.slots)
            case (("bar", "warp", "sync"), (Immediate() as mask,)) if mask.value % (1 << 32) == (1 << 32) - 1:
                return lambda group: group.warps_meet()
            case _:
                raise self.unknown(instruction)

    def _vote(self, instruction: Instruction) -> Closure:
        """bar.red over predicates: a barrier that gives every thread of the block their and, or, or count."""
        kind = ".".join(word for word in instruction.words[2:] if word != "aligned")
        target, number, value = instruction.operands
        fold = {"or.pred": np.maximum, "and.pred": np.minimum, "popc.u32": np.add}.get(kind)
        if fold is None or number != Immediate(0):
            raise self.unknown(instruction)
        if not isinstance(target, Register) or not isinstance(value, Register):
            raise self.unknown(instruction)
        place, source, raw = self.slot(target), self.slot(value), RAW[target.bits]

        def run(group: Group) -> None:
            group.run.clock.blocks_meet(group.slots)
            given = for_each(group.r[source], group.count).astype(np.uint32)
            found = np.full(group.run.blocks.size, int(fold is np.minimum), np.uint32)
            fold.at(found, group.slots, given)
            group.r[place] = found[group.slots].astype(raw)

        return run

    def _shuffle(self, instruction: Instruction) -> Closure:
        """shfl.sync over whole warps. A lane that would read outside of its segment keeps its own value."""
        mode = instruction.words[2]
        target, value, by, bounds, mask = instruction.operands
        targets = target.items if isinstance(target, Vector) else (target,)
        everyone = isinstance(mask, Immediate) and mask.value % (1 << 32) == (1 << 32) - 1
        if mode not in ("up", "down", "bfly", "idx") or instruction.words[3] != "b32" or not everyone:
            raise self.unknown(instruction)
        slots = [self.slot(each) if isinstance(each, Register) else -1 for each in targets]
        sources = [self.raw(each, 32, instruction) for each in (value, by, bounds)]

        def run(group: Group) -> None:
            group.warps_meet()
            found, inside = group.shuffle(mode, *(group.r[each] for each in sources))
            for slot, result in zip(slots, (found, inside), strict=False):
                if slot >= 0:
                    group.r[slot] = result

        return run
