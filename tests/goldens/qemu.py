"""An artifact's own AArch64 objects, linked to a small host program and run under qemu-user."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from repro.artifact import tensors
from repro.artifact.config import Entry, GoldenRun
from repro.artifact.loaded import compiled_program
from repro.artifact.reading import Stored
from repro.artifact.sessions import match
from repro.ir.program import CONSTANT, INPUT, OUTPUT, PARAMETER, TEMPORARY
from repro.ir.types import Array, parse_type, to_face
from repro.targets.llvm.context import BUFFERS, CONTEXT_BYTES, ONCE, SCRATCH, SCRATCH_STRIDE, SCRATCH_SYMBOL, SYMBOL
from repro.targets.protocol import CompiledProgram

NATIVE = platform.machine() == "aarch64"
COMPILER = "gcc" if NATIVE else "aarch64-linux-gnu-gcc"
EMULATOR = () if NATIVE else ("qemu-aarch64-static",)

SOURCE = """
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int32_t %(symbol)s(void *context, int64_t thread, int64_t threads);
extern const int64_t %(scratch_symbol)s;

static const uint64_t offsets[] = {%(offsets)s};
static void *context;
static int64_t threads;

static void *enter(void *thread) { return (void *)(intptr_t)%(symbol)s(context, (intptr_t)thread, threads); }

static int run(void) {
    pthread_t *started = malloc(threads * sizeof *started);
    for (int64_t i = 0; i < threads; i++)
        if (pthread_create(&started[i], 0, enter, (void *)(intptr_t)i)) return 4;
    for (int64_t i = 0; i < threads; i++) {
        void *status;
        pthread_join(started[i], &status);
        if (status) return 5;
    }
    free(started);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    threads = atoi(argv[3]);
    int64_t stride = (%(scratch_symbol)s + 63) / 64 * 64;
    char *image = aligned_alloc(64, %(image)lu), *scratch = aligned_alloc(64, stride * threads);
    memset(scratch, 0, stride * threads);
    void *table[%(count)d];
    FILE *in = fopen(argv[1], "rb");
    if (!in || fread(image, 1, %(image)lu, in) != %(image)lu) return 3;
    for (int i = 0; i < %(count)d; i++) table[i] = image + offsets[i];
    context = aligned_alloc(64, %(context)d);
    memset(context, 0, %(context)d);
    *(void ***)((char *)context + %(buffers)d) = table;
    *(char **)((char *)context + %(scratch)d) = scratch;
    *(int64_t *)((char *)context + %(scratch_stride)d) = stride;
    for (int64_t call = %(calls)d; call >= 0; call--) {
        *(int64_t *)((char *)context + %(once)d) = call ? %(calls)d - call + 1 : 0;
        int failed = run();
        if (failed) return failed;
    }
    FILE *out = fopen(argv[2], "wb");
    return !out || fwrite(image, 1, %(image)lu, out) != %(image)lu || fclose(out) ? 6 : 0;
}
"""


def missing_tools() -> list[str]:
    return [tool for tool in (COMPILER, *EMULATOR) if shutil.which(tool) is None]


def _round_up(size: int) -> int:
    return -(-size // 64) * 64


class Runner:
    """An entry of an artifact as an AArch64 program of this test's own making around its objects."""

    def __init__(self, stored: Stored, folder: Path, entry: Entry) -> None:
        self.entry = entry
        self.stored, self.folder = stored, folder
        self.compiled = compiled_program(stored, self.entry, "cpu/aarch64")
        self.offsets, self.size = _layout(self.compiled)
        self.program = folder / "runner"
        self._link()

    def _link(self) -> None:
        values = {
            "symbol": SYMBOL, "scratch_symbol": SCRATCH_SYMBOL, "offsets": ",".join(map(str, self.offsets)),
            "count": len(self.offsets), "image": self.size, "context": CONTEXT_BYTES, "buffers": BUFFERS,
            "scratch": SCRATCH, "scratch_stride": SCRATCH_STRIDE, "once": ONCE,
            "calls": len(self.compiled.program.once),
        }  # fmt: skip
        (self.folder / "main.c").write_text(SOURCE % values)
        objects: list[Path] = []
        for number, data in enumerate((*self.compiled.kernel_objects, self.compiled.program_object)):
            objects.append(self.folder / f"{number}.o")
            objects[-1].write_bytes(data)
        command = [COMPILER, "-O1", "-static", "-o", self.program, self.folder / "main.c", *objects, "-lpthread", "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def run(
        self, inputs: Mapping[str, Array], threads: int, state: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """The outputs and the state after the run, by name. Tensors that `state` lacks are as the artifact has them."""
        given, now = match(inputs, self.entry.inputs), state or {}
        weights = [self.stored.config.weights[position] for position in self.entry.weights]
        image = bytearray(self.size)
        program = self.compiled.program
        for buffer, offset in zip(program.buffers, self.offsets, strict=True):
            data = b""
            if buffer.role == INPUT:
                data = given[buffer.position].tobytes()
            elif buffer.role == PARAMETER:
                weight = weights[buffer.position]
                known = now.get(weight.name)
                data = bytes(self.stored.by_digest(weight.digest)) if known is None else tensors.to_bytes(known)
            elif buffer.role == CONSTANT:
                data = program.constants[buffer.position]
            image[offset : offset + len(data)] = data
        before, after = self.folder / "before", self.folder / "after"
        before.write_bytes(image)
        subprocess.run([*EMULATOR, self.program, before, after, str(threads)], check=True, timeout=300)
        return self._outputs(after.read_bytes())

    def _outputs(self, image: bytes) -> dict[str, Array]:
        places = {
            buffer.position: (buffer, offset)
            for buffer, offset in zip(self.compiled.program.buffers, self.offsets, strict=True)
            if buffer.role == OUTPUT
        }
        state = {
            buffer.position: (buffer, offset)
            for buffer, offset in zip(self.compiled.program.buffers, self.offsets, strict=True)
            if buffer.role == PARAMETER and buffer.position in self.compiled.program.written
        }
        weights = [self.stored.config.weights[position] for position in self.entry.weights]
        named = [(*places[position], value.name, value.type) for position, value in enumerate(self.entry.outputs)]
        named += [(*place, weights[slot].name, weights[slot].type) for slot, place in state.items()]
        found: dict[str, Array] = {}
        for buffer, offset, name, text in named:
            kind = parse_type(text)
            stored = np.frombuffer(image[offset : offset + buffer.nbytes], kind.dtype.storage)
            found[name] = to_face(stored.reshape(kind.shape), kind.dtype)
        return found


def _layout(compiled: CompiledProgram) -> tuple[list[int], int]:
    """The offset of each buffer in one image (the arena first), and the image's size."""
    end = _round_up(max(compiled.program.arena_bytes, 1))
    offsets: list[int] = []
    for buffer in compiled.program.buffers:
        if buffer.role == TEMPORARY:
            offsets.append(buffer.position)
        else:
            offsets.append(end)
            end += _round_up(max(buffer.nbytes, 1))
    return offsets, end


def golden_inputs(stored: Stored, run: GoldenRun) -> dict[str, Array]:
    return {each.name: tensors.from_bytes(stored.by_digest(each.digest), each.type) for each in run.inputs}
