"""The smallest model that still drifts, and the script that shows it with the runtime alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from repro.artifact.cache import Cache
from repro.audit.capture import value_of
from repro.audit.comparison import audit
from repro.audit.golden import golden
from repro.audit.model import Audited, prepare
from repro.audit.parts import Part, contexts, part
from repro.audit.peers import peer
from repro.audit.records import Capture, Executor, Kind, Origin, Outcome, Record
from repro.audit.reduce import Reduced, confirm, reduce
from repro.audit.reproducer import SCRIPT, scripts
from repro.audit.running import Limits, run_all
from repro.errors import ReproError
from repro.ir.types import F32
from tests.audit import planted_own, small_peers
from tests.audit.models import model

SMALL = """g (float[2, 12] x, float[12, 3] w) => (float[2, 3] y)
<float[3] b = {0.1, 0.2, 0.3}, float[1] half = {0.5}>
{
  twice = Add(x, x)
  product = MatMul(twice, w)
  biased = Add(product, b)
  y = Mul(biased, half)
}"""
DOT, LAST = "MatMul_product", "Mul_y"
PEERS = {**small_peers.PEERS, **planted_own.PEERS, "neighbours": "tests.audit.context_peer:Neighbours"}


def quiet(stage: str, done: int, total: int) -> None: ...


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def small(cache: Cache) -> tuple[Audited, Capture]:
    audited = prepare(model(SMALL))
    return audited, golden(audited, cache, quiet)


def at(node: str, value: str) -> Origin:
    return Origin(Kind.NODE, (node,), value, "", "", None)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries run in this process: a search makes many."""

    def run(audited: Audited, best: Capture, executors: Sequence[Executor], *rest: object) -> tuple[Capture, ...]:
        (executor,) = executors
        found = peer(executor.family, PEERS).run(audited.proto, audited.inputs, executor)
        served = {name: value_of(array) for name, array in found.items()}
        return (Capture(executor, Outcome.RAN, served=served, arrays=found),)

    monkeypatch.setattr("repro.audit.reduce.run_all", run)


def reduced(
    found: tuple[Audited, Capture], origin: Origin, executor: Executor, folder: Path, cache: Cache, tries: int = 40
) -> Reduced:
    return reduce(*found, origin, executor, folder, Limits(), cache, PEERS, quiet, tries)


@pytest.mark.usefixtures("in_process")
def test_an_order_comes_down_to_a_few_terms(small: tuple[Audited, Capture], tmp_path: Path, cache: Cache):
    made = reduced(small, at(DOT, "product"), planted_own.planted(order=DOT), tmp_path / "dot", cache)
    assert (made.nodes, made.value, made.before) == ((DOT,), "product", 60)
    assert made.confirmed
    assert made.elements <= 6, "two vectors of at most three terms"
    assert made.drift.different >= 1
    assert made.notes == ()
    assert sorted(path.name for path in (tmp_path / "dot").iterdir()) == sorted(
        ["model.onnx", "inputs.npz", "expected.npz", SCRIPT]
    )
    written = onnx.load(tmp_path / "dot" / "model.onnx")
    assert [node.op_type for node in written.graph.node] == ["MatMul"]
    assert not written.graph.initializer, "what varies is never a constant"
    with np.load(tmp_path / "dot" / "inputs.npz") as given:
        assert sorted(given) == ["twice", "w"]
    text = (tmp_path / "dot" / SCRIPT).read_text()
    assert "repro, by whose peer planted is run" in text


@pytest.mark.usefixtures("in_process")
def test_the_same_finding_gives_the_same_files(small: tuple[Audited, Capture], tmp_path: Path, cache: Cache):
    executor = planted_own.planted(order=DOT)
    for name in ("one", "two"):
        reduced(small, at(DOT, "product"), executor, tmp_path / name, cache)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two


@pytest.mark.usefixtures("in_process")
def test_a_weight_stays_a_constant(small: tuple[Audited, Capture], tmp_path: Path, cache: Cache):
    made = reduced(small, at("Add_biased", "biased"), planted_own.planted(weight="b"), tmp_path, cache)
    written = onnx.load(tmp_path / "model.onnx")
    assert (made.nodes, made.confirmed) == (("Add_biased",), True)
    assert [item.name for item in written.graph.initializer] == ["b"]
    assert made.elements == 2, "one element of each operand"


@pytest.mark.usefixtures("in_process")
def test_what_drifts_only_in_its_surroundings_keeps_them(small: tuple[Audited, Capture], tmp_path: Path, cache: Cache):
    made = reduced(small, at(DOT, "product"), Executor("neighbours"), tmp_path, cache)
    assert DOT in made.nodes
    assert len(made.nodes) > 1
    assert made.confirmed
    assert made.notes
    assert made.notes[0].startswith("drifts only together with Add")


@pytest.mark.usefixtures("in_process")
def test_what_does_not_drift_is_not_reduced(small: tuple[Audited, Capture], tmp_path: Path, cache: Cache):
    with pytest.raises(ReproError, match="does not come back"):
        reduced(small, at(LAST, "y"), planted_own.planted(), tmp_path / "none", cache)
    assert not (tmp_path / "none").exists()


def test_a_weight_has_nothing_to_run(small: tuple[Audited, Capture], tmp_path: Path, cache: Cache):
    with pytest.raises(ReproError, match="nothing to run"):
        reduce(*small, Origin(Kind.WEIGHT, (), "w", "", "", None), Executor("planted"), tmp_path, cache=cache)


@pytest.mark.parametrize(
    "executor",
    [
        Executor("onnxruntime", (("level", "all"), ("threads", "1"))),
        Executor("onnx-reference", (("threads", "1"),), (("OPENBLAS_NUM_THREADS", "1"),)),
    ],
    ids=lambda executor: executor.family,
)
def test_scripts_of_runtimes_stand_alone(executor: Executor, tmp_path: Path, cache: Cache):
    """The script imports that runtime and NumPy only, and its exit code tells drift from none."""
    audited = prepare(model("g (float[1, 24] x) => (float[1, 24] y) { y = Softmax(x) }"))
    best = golden(audited, cache, quiet)
    (origin,) = origins_of(audited, best, executor, cache)
    made = reduce(audited, best, origin, executor, tmp_path, Limits(), cache, progress=quiet, tries=1)
    assert made.confirmed
    run = [sys.executable, "-P", str(tmp_path / SCRIPT)]
    text = (tmp_path / SCRIPT).read_text()
    assert "import repro" not in text
    assert "from repro" not in text
    done = subprocess.run(run, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 1
    assert "elements differ, at most" in done.stdout
    assert f"{made.drift.different} of {made.drift.elements} elements differ" in done.stdout
    assert f"at most {made.drift.max_ulp} ULP" in done.stdout
    theirs = tmp_path / "theirs.py"
    theirs.write_text(text.replace('np.load("expected.npz")[name]', "np.asarray(found)"))
    assert subprocess.run([*run[:2], str(theirs)], capture_output=True, check=False).returncode == 0


def origins_of(audited: Audited, best: Capture, executor: Executor, cache: Cache) -> tuple[Origin, ...]:
    captures = run_all(audited, best, (executor,), Limits(), True, quiet, cache)
    (pair,) = audit([Record(audited.summary, {}, best, captures, {})]).pairs
    return pair.origins


def lone(text: str) -> Part:
    proto = model(text)
    inputs = {item.name: np.ones((1, 3), np.float32) for item in proto.graph.input}
    return Part(tuple(proto.graph.node), inputs, {}, {proto.graph.output[0].name: F32}, proto)


def test_names_out_of_a_model_cannot_break_the_script():
    hostile = 'x"""\nimport os; os.abort()\n"""\\'
    part = replace(lone("g (float[1, 3] x) => (float[1, 3] y) { y = Exp(x) }"), outputs={hostile: F32})
    (text,) = scripts(Executor("onnxruntime", (("level", "all"),)), part, f"{hostile} (Exp)", {})
    compile(text, SCRIPT, "exec")
    assert text.count("os.abort") == text.count("os; os.abort")
    assert [line for line in text.splitlines() if line.startswith("import os;")] == []


def test_one_call_of_pytorch_needs_no_more_than_pytorch():
    """By the peer of repro's comes second, for what is more than a call."""
    executor = Executor("torch", (("threads", "2"),), (("ATEN_CPU_CAPABILITY", "avx2"),))
    softmax = lone("g (float[1, 3] x) => (float[1, 3] y) { y = Softmax<axis = 0>(x) }")
    plain, by_repro = scripts(executor, softmax, "Softmax", {"torch": "some.module:Torch"})
    assert "found = torch.softmax(given['x'], 0).numpy()" in plain
    assert "torch.set_num_threads(2)" in plain
    assert "os.environ.update({'ATEN_CPU_CAPABILITY': 'avx2'})" in plain
    assert "repro.audit" not in plain
    assert "from some.module import Torch" in by_repro
    two = lone("g (float[1, 3] x) => (float[1, 3] y) { h = Exp(x) y = Tanh(h) }")
    (only,) = scripts(executor, two, "Tanh", {"torch": "some.module:Torch"})
    assert "from some.module import Torch" in only


def test_a_script_that_does_not_end_is_stopped(tmp_path: Path):
    (tmp_path / SCRIPT).write_text("import time; time.sleep(60)")
    assert confirm(tmp_path, Executor("planted"), Limits(seconds=0.5)) is None


def test_cuts_go_from_common_extents_to_single_axes(small: tuple[Audited, Capture]):
    found = part(*small, frozenset({DOT}), "product")
    assert {name: array.shape for name, array in found.inputs.items()} == {"twice": (2, 12), "w": (12, 3)}
    cuts = list(found.cuts())
    assert cuts[0].axes == (("twice", 1), ("w", 0))
    assert {cut.extent for cut in cuts} == {12, 3, 2}
    shorter = found.shortened(cuts[0], 3, 2)
    assert [array.shape for array in shorter.inputs.values()] == [(2, 2), (2, 3)]
    assert np.array_equal(shorter.inputs["twice"], found.inputs["twice"][:, 3:5])


def test_surroundings_widen(small: tuple[Audited, Capture]):
    wider = list(contexts(small[0].summary, [DOT]))
    assert wider[0] == {DOT}
    assert wider[1] == {DOT, "Add_biased"}
    assert {DOT, "Add_twice"} in wider
