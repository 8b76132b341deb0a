"""An artifact on disk, ready to be run: `repro.load` gives one."""

from __future__ import annotations

from pathlib import Path

from passes import pipeline
from repro.artifact import sessions, tensors, tuning
from repro.artifact.build import Request, Role, imported_entries
from repro.artifact.canonical import Bytes
from repro.artifact.config import Config, Entry, GoldenRun
from repro.artifact.entries import reference
from repro.artifact.layout import blob_path
from repro.artifact.reading import Stored
from repro.artifact.workers import cores
from repro.errors import EXIT_INCOMPLETE, EXIT_MISMATCH, ReproError
from repro.frontend import EntryGraph, LoadedModel, load_model
from repro.ir.parse_kernel import parse_kernel
from repro.ir.parse_program import parse_program
from repro.ir.program import Program
from repro.ir.types import Array, parse_type, to_storage
from repro.signatures import checked
from repro.targets import registry
from repro.targets.protocol import REFERENCE, CompiledProgram, Runner, SharedStep
from repro.train_step import TrainOptions, label_notes, training_of

MOST_THREADS = 1024


def thread_count(wanted: int | None) -> int:
    """As many threads as are wanted; one for each core where nothing is said. Raises ReproError if out of range."""
    if wanted is not None and not 1 <= wanted <= MOST_THREADS:
        raise ReproError("not a number of threads", found=str(wanted), expected=f"1 to {MOST_THREADS}")
    return wanted or cores()


class LoadedArtifact:
    """A built artifact: its identity, its entries, and sessions that run its code."""

    def __init__(
        self, stored: Stored, written: bool = False, warnings: tuple[str, ...] = (), roles: tuple[Role, ...] = ()
    ) -> None:
        self._stored = stored
        self.written = written
        """Whether the build that returned this wrote the folder; False where the identical artifact stood."""
        self.warnings = warnings
        """What the build that returned this would have its user know about the model."""
        self.roles = roles
        """What the training step does with each of the model's parameters, known to the build that returned this."""

    @property
    def id(self) -> str:
        return self._stored.id

    @property
    def config(self) -> Config:
        return self._stored.config

    @property
    def folder(self) -> Path:
        return self._stored.folder

    @property
    def graph_digest(self) -> str:
        """Digest of the first entry's canonical graph."""
        return self.config.entries[0].graph

    @property
    def entries(self) -> dict[str, Entry]:
        """Entries by name, with their signatures."""
        return {entry.name: entry for entry in self.config.entries}

    @property
    def layers(self) -> tuple[tuple[str, int], ...]:
        """(title, bytes) of every blob."""
        return tuple((blob.title, blob.size) for blob in self._stored.blobs)

    def initial_state(self, entry: str) -> dict[str, Array]:
        """The parameters of an entry by name, in slot order, as its sessions start with them."""
        weights = [self.config.weights[position] for position in self._entry(entry).weights]
        return {each.name: tensors.from_bytes(self._stored.by_digest(each.digest), each.type) for each in weights}

    def golden_inputs(self, run: GoldenRun) -> dict[str, Array]:
        """The inputs of a golden run by name."""
        return {each.name: tensors.from_bytes(self._stored.by_digest(each.digest), each.type) for each in run.inputs}

    def entry_graph(self, entry: str) -> EntryGraph:
        """The canonical graph of an entry with its names and source locations, imported again from the source."""
        self._entry(entry)
        _, graphs = imported_entries(request_of(self._stored))
        return next(graph for graph in graphs if graph.name == entry)

    @property
    def source(self) -> LoadedModel:
        """The source model; its weights are external data among the blobs."""
        return request_of(self._stored).model

    @property
    def training(self) -> TrainOptions | None:
        """The options of training that it was built with."""
        return training_of(self.config.build.training) if self.config.build.training else None

    @property
    def label_notes(self) -> dict[str, str]:
        """What helps where labels of a step have the wrong shape, by the name of the input."""
        outputs = [(value.name, parse_type(value.type)) for value in self.config.entries[0].outputs]
        return label_notes(self.training, outputs) if self.training else {}

    def _entry(self, name: str) -> Entry:
        found = self.config.entry(name)
        if found is None:
            raise ReproError(f"the artifact has no entry '{name}'", expected=", ".join(self.entries))
        return found

    @checked
    def session(
        self, entry: str = "infer", target: str = "cpu", threads: int | None = None, chips: int = 1
    ) -> sessions.Session:
        """A session of an entry on a target; `threads` is one for each core unless given. A training step built with
        virtual shards may run on several simulated `chips`.

        Raises ReproError for an entry or a target that the artifact does not have, or that does not run here, and for
        a number of threads out of 1 to MOST_THREADS.
        """
        found, count = self._entry(entry), thread_count(threads)
        weights = [self.config.weights[position] for position in found.weights]
        parameters = [sessions.Parameter(weight.name, parse_type(weight.type)) for weight in weights]
        if target == REFERENCE and chips == 1:
            return sessions.Session(found, self._reference(entry), parameters, self.label_notes)
        values = [tensors.from_bytes(self._stored.by_digest(weight.digest), weight.type) for weight in weights]
        stored = [
            to_storage(array, kind.type.dtype).reshape(-1) for array, kind in zip(values, parameters, strict=True)
        ]
        runner = self.runner(target)
        if chips == 1:
            executable = runner.open(self.compiled(entry, target), stored, count)
        else:
            executable = runner.open_shared(self._shared(found), stored, chips)
        return sessions.Session(found, executable, parameters, self.label_notes)

    def _shared(self, entry: Entry) -> SharedStep:
        source, training = self.entry_graph(entry.name), self.training
        shards = training.shards if training is not None and source.updates else 1
        return SharedStep(source.graph, source.updates, shards, len(entry.index_checks))

    def compiled(self, entry: str, target: str = "cpu") -> CompiledProgram:
        """The code that came with the artifact for an entry and a runner. Raises ReproError as `session` does."""
        return compiled_program(self._stored, self._entry(entry), self.runner(target).code.name)

    def programs(self) -> dict[str, Program]:
        """The program of each entry, as all targets have it before one shapes it for itself."""
        shared = {each.entry: each.passes[-1].after for each in self.config.passes if not each.target}
        return {name: stored_program(self._stored, shared[name]) for name in self.entries}

    def target_name(self, target: str) -> str:
        """The full name of a target; `cpu` is the widest that the artifact has code for and this host runs."""
        return target if target == REFERENCE else self.runner(target).name

    def runner(self, target: str) -> Runner:
        """What runs a target's code; a family's name is the best of it that it has code for and that runs here.

        Raises ReproError for a target that the artifact has no code for.
        """
        mine = [runner for each in self.config.targets for runner in registry.runners_of(each.name)]
        family = registry.family_of(target)
        wanted = [each for each in mine if each.name == target] if family is None else family.runners
        own = [each for each in wanted if each in mine]
        if not own:
            known = ", ".join(sorted({REFERENCE, *(each.name for each in mine), *registry.families_of(mine)}))
            next_step = f"build it with --targets {target}" if target in registry.names() else None
            raise ReproError(f"the artifact has no target '{target}'", found=target, expected=known, next=next_step)
        if family is None:
            return own[0]
        for runner in own:
            if runner.obstacle() is None:
                return runner
        reasons = "; ".join(f"{runner.name}: {runner.obstacle()}" for runner in own)
        raise ReproError(
            f"the artifact has no code of target '{family.name}' for this host",
            found=reasons,
            exit_code=EXIT_INCOMPLETE,
        )

    def _reference(self, entry: str) -> sessions.ReferenceExecutable:
        source = self.entry_graph(entry)
        return reference(source, pipeline.run(source.graph, source.locations, source.updates))


def request_of(stored: Stored) -> Request:
    """The build of an artifact, from what the artifact says of itself."""
    config = stored.config
    for weight in config.weights:
        stored.by_digest(weight.digest)  # hashed before the model, which refers to it, is read
    stored.by_digest(config.source.digest)
    build = config.build
    given: dict[str, Array] = {}
    for run in config.golden if build.golden_inputs == "given" else ():
        given |= {each.name: tensors.from_bytes(stored.by_digest(each.digest), each.type) for each in run.inputs}
    return Request(
        model=load_model(blob_path(stored.folder, config.source.digest)),
        bind=build.bind,
        set={value.name: tensors.from_bytes(stored.by_digest(value.digest), value.type) for value in build.set},
        targets=build.targets,
        inputs=given if build.golden_inputs == "given" else None,
        golden_seed=int(build.golden_seed, 16),
        seed=int(build.seed, 16),
        training=training_of(build.training) if build.training else None,
        gradients=build.gradients,
        memory_budget=build.memory_budget,
        qdq=build.qdq,
        tuning=None if build.tuning is None else tuning.parse(stored.by_digest(build.tuning), "the artifact's tuning"),
    )


def stored_program(stored: Stored, digest: str) -> Program:
    """The program with that digest. Raises ReproError if it does not parse."""

    def text(digest: str) -> str:
        return bytes(stored.by_digest(digest)).decode()

    def constant(digest: str) -> bytes:
        return bytes(stored.by_digest(digest))

    try:
        return parse_program(text(digest), lambda kernel: parse_kernel(text(kernel)), constant)
    except ValueError as error:
        raise ReproError("the artifact's program is damaged", found=str(error), exit_code=EXIT_MISMATCH) from error


def compiled_program(stored: Stored, entry: Entry, target: str) -> CompiledProgram:
    """The code that came with an artifact. Raises ReproError if its parts do not fit together."""
    described = stored.config.target(target)
    compiled = next((each for each in described.entries if each.entry == entry.name), None) if described else None
    if compiled is None:
        raise ReproError(f"the artifact has no code of entry '{entry.name}' for '{target}'")

    program = stored_program(stored, compiled.program)
    if [f"sha256:{kernel.digest}" for kernel in program.kernels] != [each.kernel for each in compiled.kernels]:
        found = "its kernels are not those that the config lists"
        raise ReproError("the artifact's program is damaged", found=found, exit_code=EXIT_MISMATCH)
    objects: list[Bytes] = [stored.by_digest(each.code) for each in compiled.kernels]
    return CompiledProgram(
        registry.code_target(target),
        program,
        tuple(each.schedule for each in compiled.kernels),
        tuple(bytes(each) for each in objects),
        bytes(stored.by_digest(compiled.code)),
    )
