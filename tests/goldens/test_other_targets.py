"""Each golden model, forward, gradients and training step, gives its golden bits on the targets that are no CPU.

Their code stands in the artifact; it is built twice, the second time by `verify`, and run in this process.
"""

from __future__ import annotations

import re

import pytest

import repro
from golden import bless
from repro.artifact.checks import Check, Status
from repro.artifact.reading import open_artifact
from repro.targets import registry
from repro.targets.gpu.interpreter import arithmetic
from tests.goldens import simulated
from tests.targets.test_gpu_instructions import WORKED_OUT

CASES = bless.cases()
RUNNERS = ("gpu/interpreter",)
OPCODE = re.compile(r"^\t(?:@!?%p\d+ )?([a-z][\w.]*) ", re.MULTILINE)


@pytest.fixture(scope="module", params=simulated.CASES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> repro.LoadedArtifact:
    """A golden case with code for each of the targets; it may come from the session's cache, which `verify` has not."""
    folder = tmp_path_factory.mktemp(request.param)
    return bless.build(CASES[request.param], folder / "out", [registry.runner(name).code.name for name in RUNNERS])


def test_it_gives_its_golden_bits(built: repro.LoadedArtifact) -> None:
    report = repro.verify(built.folder, targets=RUNNERS)
    assert not [check for check in report.checks if check.status is Status.MISMATCH]
    assert report.exit_code == 0
    for name in RUNNERS:
        ran = [check for check in report.checks if _is_of(check, name)]
        assert [check.status for check in ran] == [Status.GOOD] * len(built.entries), name


def _is_of(check: Check, name: str) -> bool:
    return check.name.startswith("run ") and check.name.removeprefix("run ").split(" on ")[-1] == name


@pytest.mark.parametrize("name", RUNNERS)
def test_its_code_stands_in_the_artifact(built: repro.LoadedArtifact, name: str) -> None:
    code = registry.runner(name).code
    stored = open_artifact(built.folder)
    kernels = {kernel.code for target in stored.config.targets for each in target.entries for kernel in each.kernels}
    found = [blob for blob in stored.blobs if blob.title.startswith(f"code/{code.name}/")]
    assert kernels <= {blob.digest for blob in found}
    assert all(blob.title.endswith(code.suffix) for blob in found)
    opcodes = {word for blob in found for word in OPCODE.findall(bytes(stored.read(blob)).decode())}
    computing = {opcode for opcode in opcodes if arithmetic.operation(tuple(opcode.split("."))) is not None}
    assert len(computing) > 20
    assert computing <= WORKED_OUT
