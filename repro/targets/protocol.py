"""What a target is: code for programs, and what runs that code. Plain data, one value for each target.

A *code target* turns kernels and programs into bytes that an artifact carries. A *runner* opens such code in this
process. Several runners may run the code of one target (a device and an interpreter of its instructions, say), and a
*family* is what one package in `repro/targets` brings of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from repro.errors import EXIT_INCOMPLETE, ReproError
from repro.ir.graph import Graph
from repro.ir.loops import Kernel
from repro.ir.program import Program
from repro.ir.types import Array

REFERENCE = "reference"
"""The name under which the reference runs an entry's graph: it takes no program and no code, so it is no `Runner`."""


INSIDE = "inside the program"
"""The schedule of a kernel without code of its own."""


class Executable(Protocol):
    """A program that can be run again and again on flat storage arrays, by position, with state between runs."""

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """The outputs in arrays of their own, last the report of indices if the entry has one.

        The run changes the state (`Program.written`), unless the report says of an index that it was out of range: see
        `repro.ir.program.Commit`.
        """
        ...

    def set_parameter(self, position: int, value: Array) -> None:
        """Give a parameter a value (flat), which is copied."""
        ...

    def parameter(self, position: int) -> Array | None:
        """A parameter's value now (flat, not to be written), to be read before the next run; None: no code uses it."""
        ...

    def close(self) -> None:
        """Give back what is held; a closed executable cannot run."""
        ...


class Profile(Protocol):
    """What a run took."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        ...

    def page(self, title: str) -> str:
        """As one HTML page that needs no network. Raises ReproError where Jinja2 is not installed."""
        ...


@runtime_checkable
class Profiled(Protocol):
    """An executable that can say what its last run took."""

    def profile(self) -> Profile: ...


@dataclass(frozen=True)
class Choices:
    """The schedules that a target can run a kernel by, as text; all of them give the same bits."""

    dimensions: tuple[str, ...]
    """Ways in which schedules differ, in the order in which tuning tries them."""
    variants: Callable[[str, Kernel, str], tuple[str, ...]]
    """Those that differ from a kernel's schedule along one dimension."""
    refusal: Callable[[Kernel, str], str | None]
    """Why a kernel cannot have a schedule, or None."""


@dataclass(frozen=True)
class CodeTarget:
    """Code generation for one machine. All of it is pure: the same bytes on every build host, in any process."""

    name: str
    """As an artifact's config and the names of its layers have it."""
    machine_digest: str
    """sha256 (hex) of the description of the machine: part of the config, and of the keys of cached code."""
    media_type: str
    suffix: str
    """Of the files that code is unpacked to, with its dot."""
    shape: Callable[[Program], Program]
    """The program as the machine runs it: passes that need to know the machine."""
    schedule: Callable[[Kernel], str]
    """How the machine runs a kernel, as one line of text; it stands in the config beside the kernel's code."""
    compile_kernel: Callable[[str, str], bytes]
    """From a kernel's text and its schedule to code."""
    compile_program: Callable[[Program, Sequence[str]], bytes]
    """From a program and its kernels' schedules to the code that calls them."""
    choices: Choices | None = None
    """What may be tuned; None: each kernel has the one schedule."""
    apart: Callable[[Program], frozenset[int]] | None = None
    """The kernels of a program that have code of their own; None: all. That of the others is the program's, and their
    schedule is `INSIDE`."""


@dataclass(frozen=True, eq=False)
class CompiledProgram:
    """A program's code for one target; schedules and kernels' code stand beside `program.kernels`."""

    target: CodeTarget
    program: Program
    schedules: tuple[str, ...]
    kernel_objects: tuple[bytes, ...]
    program_object: bytes


@dataclass(frozen=True)
class SharedStep:
    """A training step whose virtual shards several devices share."""

    graph: Graph
    updates: tuple[tuple[int, int], ...]
    shards: int
    checks: int
    """Reports of indices that an executable of the step gives."""


@dataclass(frozen=True)
class Runner:
    """What runs a target's code here."""

    name: str
    """As users write it."""
    code: CodeTarget
    obstacle: Callable[[], str | None]
    """Why it does not run here, or None."""
    load: Callable[[CompiledProgram, Sequence[Array], int], Executable]
    """(program, flat parameters, threads): the parameters are arrays that nobody will change, such as mapped files."""
    threads: tuple[int, ...] = (1,)
    """The numbers of threads that bits are verified with; one alone where threads are not the user's to choose."""
    limit: int | None = None
    """Scalar operations of a program up to which `verify` runs it unasked; None: any."""
    share: Callable[[SharedStep, Sequence[Array], int], Executable] | None = None
    """(step, flat parameters, devices): the step on several devices, each with its part of the shards; None: it runs on
    one."""
    device: Callable[[], Mapping[str, str | int]] | None = None
    """What the hardware behind it says of itself; None: there is none, so no record of a device is written of it."""

    def open(self, compiled: CompiledProgram, parameters: Sequence[Array], threads: int) -> Executable:
        """A program ready to run. Raises ReproError where this host cannot run the target's code."""
        reason = self.obstacle()
        if reason is not None:
            raise ReproError(f"target {self.name} does not run here", found=reason, exit_code=EXIT_INCOMPLETE)
        return self.load(compiled, parameters, threads)

    def open_shared(self, step: SharedStep, parameters: Sequence[Array], devices: int) -> Executable:
        """A step ready to run on several devices. Raises ReproError where the target or the step is for one."""
        if self.share is None:
            raise ReproError(
                f"target {self.name} runs a step on one device", found=str(devices), next="--target tpu-sim"
            )
        reason = self.obstacle()
        if reason is not None:
            raise ReproError(f"target {self.name} does not run here", found=reason, exit_code=EXIT_INCOMPLETE)
        return self.share(step, parameters, devices)


@dataclass(frozen=True)
class Family:
    """The targets of one package. Its own name stands for all of `built` in a build, and elsewhere for the first
    runner that runs here."""

    name: str
    runners: tuple[Runner, ...]
    """The best first."""
    built: tuple[CodeTarget, ...]
