"""Several iterations of a loop written side by side, so that the machine has something to do while it waits.

Registers that an iteration does not take over from the one before get a name for each copy. Iterations of a parallel
loop may run in any order, so loops inside them are joined: each iteration of the inner loop does that of every copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count as counting

from repro.targets.tpu_sim.codegen.rewriting import NoFormError, Shift, renamed
from repro.targets.tpu_sim.isa import Constant, Dma, Instruction, Matmul, Push, Wait
from repro.targets.tpu_sim.operands import REGISTERS, Index, Reg, Term
from repro.targets.tpu_sim.program import Bundle, Loop, Routine, Statement, WhenAny, instructions, single
from repro.targets.tpu_sim.registers import exposed, read, result_types, written

COPIES = (8, 4, 3, 2)
ROOM = REGISTERS - 12
"""Registers that copies may fill."""
LONGEST = 192
"""Instructions of a loop's body after unrolling."""

SHORTEST = 4
"""Groups of copies, and whole ones, for which iterations beside them pay."""


@dataclass
class _Names:
    """Numbers for new registers, and the registers that hold one constant all the time."""

    numbers: Iterator[int]
    constants: Mapping[int, Constant]

    def __call__(self) -> int:
        return next(self.numbers)


def unroll(routine: Routine) -> Routine:
    """The routine with short loops unrolled as far as registers reach; the same bits."""
    known = (reg.number for each in instructions(routine.body) for reg in (*each.reads, each.writes) if reg is not None)
    names = _Names(counting(max(known, default=-1) + 1), _constants(routine.body))
    return replace(routine, body=_body(routine.body, names))


def _constants(body: Sequence[Statement]) -> dict[int, Constant]:
    writers = dict[int, list[Instruction]]()
    for each in instructions(tuple(body)):
        if each.writes is not None:
            writers.setdefault(each.writes.number, []).append(each)
    alone = (each for each, *others in writers.values() if not others)
    return {each.target.number: each for each in alone if isinstance(each, Constant) and each.predicate is None}


def _body(body: Sequence[Statement], fresh: _Names) -> tuple[Statement, ...]:
    made = list[Statement]()
    for statement in body:
        match statement:
            case Loop(parallel=True):
                made += [_inside(each, fresh) for each in _side_by_side(statement, fresh)]
            case Loop():
                made += _loop(replace(statement, body=_body(statement.body, fresh)), fresh)
            case WhenAny():
                made.append(replace(statement, body=_body(statement.body, fresh)))
            case Bundle():
                made.append(statement)
    return tuple(made)


def _inside(statement: Statement, fresh: _Names) -> Statement:
    """The loop with those inside it unrolled."""
    return replace(statement, body=_body(statement.body, fresh)) if isinstance(statement, Loop) else statement


def _loop(loop: Loop, fresh: _Names) -> tuple[Statement, ...]:
    straight = [each for each in instructions(loop.body) if not isinstance(each, Dma | Wait | Push | Matmul)]
    if len(straight) != sum(1 for _ in instructions(loop.body)):
        return (loop,)
    if not all(isinstance(statement, Bundle) for statement in loop.body):
        return (loop,)
    for copies in (loop.count, *COPIES):
        if not 0 < copies <= COPIES[0] or loop.count % copies or len(straight) * copies > LONGEST:
            continue
        if _fits(loop.body, copies, fresh.constants):
            made = _copies(loop, straight, copies, fresh)
            if made is not None:
                return made
    return (loop,)


def _side_by_side(loop: Loop, fresh: _Names) -> tuple[Statement, ...]:
    """A parallel loop, several iterations in one, whose copies come before those of loops inside."""
    if any(isinstance(each, Dma | Wait | Push | Matmul) for each in instructions(loop.body)):
        return (loop,)
    for copies in (loop.count, *COPIES) if _joinable(loop.body) else ():
        if not 0 < copies <= COPIES[0] or loop.count % copies or _longest(loop.body) * copies > LONGEST:
            continue
        anew = not _fits(loop.body, copies, fresh.constants)
        if anew and not _fits(loop.body, copies, fresh.constants, anew=True):
            continue
        names = [{number: fresh() for number in sorted(written(loop.body))} for _ in range(copies)]
        try:
            made = _joined(loop.body, loop, names)
        except NoFormError:
            continue
        made = _with_constants(made, fresh) if anew else made
        return made if copies == loop.count else (replace(loop, count=loop.count // copies, body=made),)
    return _with_rest(loop, fresh) or (loop,)


def _with_constants(body: Sequence[Statement], fresh: _Names) -> tuple[Statement, ...]:
    """The body with its constants made where they are first needed, so that none fills a register all the time."""
    made, here = list[Statement](), dict[int, int]()
    for statement in body:
        if isinstance(statement, WhenAny):
            made.append(replace(statement, body=_with_constants(statement.body, fresh)))
        elif isinstance(statement, Bundle):
            (each,) = statement.instructions
            for number in (reg.number for reg in each.reads if reg.number in fresh.constants):
                if number not in here:
                    here[number] = fresh()
                    made += single(replace(fresh.constants[number], target=Reg(here[number])))
            made += single(renamed(each, here, lambda index: index))
    return tuple(made)


def _with_rest(loop: Loop, fresh: _Names) -> tuple[Statement, ...]:
    """As many iterations as make whole groups, then the others, all of them side by side; empty if that is no form."""
    if not loop.parallel or any(isinstance(statement, Loop) for statement in loop.body) or not _joinable(loop.body):
        return ()
    for copies in COPIES:
        whole, rest = divmod(loop.count, copies)
        if whole < SHORTEST or _longest(loop.body) * copies > LONGEST or not _fits(loop.body, copies, fresh.constants):
            continue
        names = [{number: fresh() for number in sorted(written(loop.body))} for _ in range(copies + rest)]
        try:
            made = _joined(loop.body, loop, names[:copies])
        except NoFormError:
            continue
        last = [lambda index, at=at: _at(index, loop.counter, at) for at in range(loop.count - rest, loop.count)]
        return (replace(loop, count=whole, body=made), *_copied(loop.body, last, names[copies:]))
    return ()


def _at(index: Index, counter: str, value: int) -> Index:
    """The index at one value of a counter."""
    total = Index(index.constant)
    for term in index.terms:
        total = total + (term.value({counter: value}) if term.counter == counter else Index(0, (term,)))
    return total


def _joinable(body: Sequence[Statement]) -> bool:
    """Whether no branch has loops inside, whose counters each copy would have to name anew."""
    return all(
        all(isinstance(inside, Bundle) for inside in statement.body)
        if isinstance(statement, WhenAny)
        else isinstance(statement, Bundle) or _joinable(statement.body)
        for statement in body
    )


def _longest(body: Sequence[Statement]) -> int:
    """Instructions of the longest block."""
    own = sum(len(statement.instructions) for statement in body if isinstance(statement, Bundle))
    return max(own, *(_longest(each.body) for each in body if not isinstance(each, Bundle)), 0)


def _joined(body: Sequence[Statement], loop: Loop, names: Sequence[dict[int, int]]) -> tuple[Statement, ...]:
    """Every copy of each statement before any of the next one. Raises NoFormError."""
    shifts = [partial(_shifted, loop=loop, copies=len(names), copy=copy) for copy in range(len(names))]
    return _copied(body, shifts, names)


def _copied(
    body: Sequence[Statement], shifts: Sequence[Shift], names: Sequence[dict[int, int]]
) -> tuple[Statement, ...]:
    made = list[Statement]()
    for statement in body:
        if isinstance(statement, Loop):
            made.append(replace(statement, body=_copied(statement.body, shifts, names)))
            continue
        for shift, own in zip(shifts, names, strict=True):
            if isinstance(statement, Bundle):
                made += single(*(renamed(each, own, shift) for each in statement.instructions))
            else:
                inside = single(*(renamed(each, own, shift) for each in instructions(statement.body)))
                made.append(WhenAny(Reg(own.get(statement.mask.number, statement.mask.number)), inside))
    return tuple(made)


def _fits(body: Sequence[Statement], copies: int, constants: Mapping[int, Constant], anew: bool = False) -> bool:
    """Whether registers suffice for so many copies. `anew`: with constants made where they are needed, which takes a
    body without loops."""
    if copies == 1:
        return not anew
    if anew and any(isinstance(statement, Loop) for statement in body):
        return False
    sizes = {number: max(1, dtype.bits // 32) for number, dtype in result_types(body).items()}
    steady = read(body) - written(body)
    wide = sum(each in constants and constants[each].dtype.bits == 64 for each in steady)
    known = sum(each in constants for each in steady)
    filled = len(steady) - known + 2 * COPIES[-1] if anew else len(steady) + wide
    return filled + copies * _most_alive(body, sizes) <= ROOM


def _most_alive(body: Sequence[Statement], sizes: dict[int, int]) -> int:
    """Registers that the body's own values fill at once."""
    last = {reg.number: at for at, each in enumerate(instructions(tuple(body))) for reg in each.reads}
    alive, most = set[int](), 0
    for at, each in enumerate(instructions(tuple(body))):
        if each.writes is not None:
            alive.add(each.writes.number)
        most = max(most, sum(sizes.get(number, 1) for number in alive))
        alive -= {number for number in alive if last.get(number, -1) <= at}
    return most


def _copies(loop: Loop, body: Sequence[Instruction], copies: int, fresh: _Names) -> tuple[Statement, ...] | None:
    carried = exposed(loop.body)
    made = list[Instruction]()
    for copy in range(copies):
        final = copy == copies - 1
        names = {} if final else {number: fresh() for number in sorted(written(loop.body) - carried)}
        try:
            shift = partial(_shifted, loop=loop, copies=copies, copy=copy)
            made += [renamed(each, names, shift) for each in body]
        except NoFormError:
            return None
    if copies == loop.count:
        return single(*made)
    return (replace(loop, count=loop.count // copies, body=single(*made)),)


def _shifted(index: Index, loop: Loop, copies: int, copy: int) -> Index | None:
    """The index where the counter is `copies` times the new one, plus `copy`; None where it has no such form."""
    if copies == loop.count:
        return _at(index, loop.counter, copy)
    total = Index(index.constant)
    for term in index.terms:
        if term.counter != loop.counter:
            total = total + Index(0, (term,))
        else:
            part = _digit(term, loop.count, copies, copy)
            if part is None:
                return None
            total = total + part
    return total


def _digit(term: Term, count: int, copies: int, copy: int) -> Index | None:
    if term.divisor * term.modulus >= count:  # it never comes round
        term = replace(term, modulus=0)
    if term.divisor % copies == 0:
        return Index(0, (replace(term, divisor=term.divisor // copies),))
    if copies % term.divisor:
        return None
    steps, own = copies // term.divisor, copy // term.divisor  # the quotient is steps * counter + own
    if term.modulus and steps % term.modulus == 0:
        return Index(term.coefficient * (own % term.modulus))
    if term.modulus % steps:
        return None
    return Index(term.coefficient * own, (Term(term.counter, term.coefficient * steps, 1, term.modulus // steps),))
