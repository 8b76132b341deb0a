"""What a program's function knows of its host: the layout of the context, and of each thread's scratch memory."""

from __future__ import annotations

from repro.ir.program import Program
from repro.ir.types import I64
from repro.targets.llvm import pieces
from repro.targets.llvm.text import Function

SYMBOL, SCRATCH_SYMBOL = "repro_program", "repro_scratch"
"""The function, and an i64: bytes of scratch memory for each thread that it and its kernels need. How much that is
depends on how they were emitted, so it is the object that says it, and not the version of repro that loads it."""

STOP, ARRIVED, GENERATION, DECISION, PARKED, BUFFERS, SCRATCH, SCRATCH_STRIDE = 0, 64, 128, 132, 136, 192, 200, 208
PROFILE, ONCE, FEATURES = 216, 224, 232
CONTEXT_BYTES = 256
"""The context: i32 stop flag (set from outside), i32 threads arrived, i32 barrier generation, i32 whether
this barrier decided to stop, i32 threads asleep, ptr to the table of buffer pointers, ptr to scratch memory,
i64 bytes of it per thread; ptr to the times of a profiled program (see `program.emit`); i64 number of the call of
`Program.once` to make, from 1 on, or 0 for a run; i64 whose lowest bit says that the host has what its machine may lack
(`Machine.beyond`). Zero everywhere before a run but for the last six. Of the scratch
memory of each thread, the head is zero before the first run (`pieces.TAKEN_BYTES`)."""

PARAMETERS = "ptr %context, i64 %thread, i64 %threads"


def addresses(f: Function, program: Program) -> None:
    """The table of buffers, what is local to this thread, and its scratch memory."""
    f.line(f"%table = load ptr, ptr {field(f, BUFFERS)}")
    f.line(f"%scratchbase = load ptr, ptr {field(f, SCRATCH)}")
    f.line(f"%stride = load i64, ptr {field(f, SCRATCH_STRIDE)}")
    f.line("%mine = mul i64 %stride, %thread")
    f.line("%own = getelementptr i8, ptr %scratchbase, i64 %mine")
    f.line(f"%local = getelementptr i8, ptr %own, i64 {pieces.TAKEN_BYTES}")
    f.line(f"%scratch = getelementptr i8, ptr %local, i64 {program.local_bytes}")


def field(f: Function, offset: int) -> str:
    return f.let(f"getelementptr inbounds i8, ptr %context, i64 {offset}", I64).text
