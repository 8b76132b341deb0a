"""What the host hands to a program: one block of memory, 64-byte aligned, little endian.

    offset    what
    0         i32 stop: not zero asks every thread to leave
    64        i32 arrived: threads that wait at the barrier
    128       i32 generation of the barrier, the word that threads park on
    132       i32 parked: threads that went to sleep
    192       ptr to the table of buffer pointers, one per `Program.buffers`, in order
    200       ptr to the table of scratch pointers, one per thread
    256       end

Everything but the two pointers is zero before a run. Each thread calls

    i64 program(ptr context, i64 thread, i64 threads)

once, with thread in 0..threads-1; it returns FINISHED or STOPPED. Every buffer and scratch pointer is
64-byte aligned. The object needs `syscall` of the C library, and `fmod`, `fmodf` and `memset` of it where a
kernel does; nothing else.
"""

from __future__ import annotations

STOP = 0
ARRIVED = 64
GENERATION = 128
PARKED = 132
BUFFERS = 192
SCRATCH = 200
CONTEXT_BYTES = 256
ALIGNMENT = 64

FINISHED = 0
STOPPED = 1

ENTRY = "program"
