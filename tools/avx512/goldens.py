"""The golden models' entries as jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import repro
from golden import bless
from repro.artifact import tensors
from repro.artifact.config import Entry, GoldenRun
from repro.artifact.loaded import compiled_program
from repro.artifact.reading import Stored, open_artifact
from repro.artifact.sessions import match
from repro.ir.program import CONSTANT, INPUT, OUTPUT, PARAMETER
from repro.ir.types import Array, parse_type, to_storage
from repro.machines import Machine
from repro.targets import cpu
from tools.avx512.recording import Job


def golden_jobs(machine: Machine, instead: Machine) -> Iterator[Job]:
    """Each entry on its golden inputs, once; bytes after it are the other machine's."""
    for name, case in bless.cases().items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "artifact"
            bless.build(case, folder)
            stored = open_artifact(folder)
            for entry, run in zip(stored.config.entries, stored.config.golden, strict=True):
                yield _job(f"golden {name} {entry.name}", stored, entry, run, machine, instead)


def _job(test: str, stored: Stored, entry: Entry, run: GoldenRun, machine: Machine, instead: Machine) -> Job:
    inputs = {each.name: tensors.from_bytes(stored.by_digest(each.digest), each.type) for each in run.inputs}
    with repro.load(stored.folder).session(entry.name, instead.name, 1) as session:
        outputs, state = session.run(inputs), session.state
    compiled = compiled_program(stored, entry, machine.name)
    given, weights = match(inputs, entry.inputs), [stored.config.weights[slot] for slot in entry.weights]
    before: dict[int, bytes] = {}
    after: dict[int, bytes] = {}
    for number, buffer in enumerate(compiled.program.buffers):
        if buffer.role == CONSTANT:
            before[number] = bytes(compiled.program.constants[buffer.position])
        elif buffer.role == INPUT:
            before[number] = given[buffer.position].tobytes()
        elif buffer.role == OUTPUT and buffer.position < len(entry.outputs):
            value = entry.outputs[buffer.position]
            after[number] = _stored(outputs[value.name], value.type)
        elif buffer.role == PARAMETER:
            weight = weights[buffer.position]
            before[number] = bytes(stored.by_digest(weight.digest))
            if buffer.position in compiled.program.written:
                after[number] = _stored(state[weight.name], weight.type)
    objects = (*compiled.kernel_objects, compiled.program_object)
    return Job(test, objects, compiled.program, cpu.Code(objects).scratch, before, after)


def _stored(array: Array, kind: str) -> bytes:
    return to_storage(array, parse_type(kind).dtype).tobytes()
