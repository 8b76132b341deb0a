"""Traces with every node's digest: two of them alone tell the first node that differs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import repro
from repro import cli
from repro.errors import EXIT_GOOD, EXIT_MISMATCH, ReproError
from repro.ops.record import OPS
from repro.targets import cpu
from repro.training import trace
from tests.training.conftest import BATCH, MODEL
from tests.training.planted import MIRRORED, Train

NODES: dict[str, Any] = {"steps": 6, "trace_nodes_every": 1}


def test_the_rows_and_the_steps_asked_for(train: Train):
    found = trace.read(train("left", steps=7, trace_nodes_every=3, trace_nodes_at=(4,)))
    rows = found.header["nodes"]
    assert [line["step"] for line in found.steps if "nodes" in line] == [3, 4, 6]
    assert {len(line["nodes"]) for line in found.steps if "nodes" in line} == {len(rows)}
    assert all(each.startswith("blake3:") for each in found.steps[2]["nodes"])
    assert {op for op, *_ in rows} > {"input", "state", "constant", "dot"}
    assert any("Gemm" in source or "MatMul" in source for op, source, *_ in rows if op == "dot")
    assert all(read < number for number, (*_, reads) in enumerate(rows) for read in reads)


def test_nothing_in_it_depends_on_the_target(train: Train):
    options: dict[str, Any] = {"steps": 2, "trace_nodes_at": (2,)}
    assert train("left", **options).read_bytes() == train("right", target="reference", **options).read_bytes()


def test_a_resumed_run_goes_on_with_them(train: Train, tmp_path: Path):
    whole = train("whole", **NODES)
    train("broken", **(NODES | {"steps": 3}))
    assert train("broken", resume=True, **NODES).read_bytes() == whole.read_bytes()
    train("plain", steps=3)
    with pytest.raises(ReproError, match="another run: its nodes differs"):
        train("plain", resume=True, **NODES)


def test_without_a_trace_they_have_no_place(artifact: Path, samples: Path, tmp_path: Path):
    with pytest.raises(ReproError, match="recorded in a trace"):
        repro.train(artifact, samples, checkpoint=tmp_path / "c", steps=1, trace_nodes_at=[1])
    unheard: tuple[dict[str, Any], ...] = ({"trace_tensors": True}, {"trace_state_every": 2})
    for more in unheard:
        with pytest.raises(ReproError, match="recorded in a trace"):
            repro.train(artifact, samples, checkpoint=tmp_path / "c", steps=1, **more)
    with pytest.raises(ReproError, match="nothing to evaluate on"):
        repro.train(artifact, samples, checkpoint=tmp_path / "c", steps=1, evaluate_every=1)
    assert not (tmp_path / "c").exists()
    with pytest.raises(ReproError, match="trace-nodes-at is out of range"):
        repro.train(artifact, samples, checkpoint=tmp_path / "c", steps=1, trace_nodes_at=[0, 1])


def test_a_trace_with_nodes_and_one_without_are_of_one_run(train: Train, flip: Callable[[int, str, int], None]):
    left = train("left", trace_nodes_at=(2,))
    found = repro.bisect(left, train("right"))
    assert (found.step, found.exit_code, len(found.verdict)) == (None, EXIT_GOOD, 1)
    flip(5, "fc1.weight", 3)
    found = repro.bisect(left, train("flipped"))
    assert (found.step, found.recorded) == (5, None)
    assert "record them with --trace-nodes-at 5" in found.verdict[-1]


@pytest.mark.parametrize("seed", range(2))
def test_a_flipped_bit_of_a_weight_is_no_fault_of_a_node(
    train: Train, flip: Callable[[int, str, int], None], seed: int
):
    chosen = random.Random(seed)
    step, name = chosen.randint(2, 5), chosen.choice(["fc1.weight", "fc2.weight", "fc3.weight"])
    left = train("left", trace_tensors=True, **NODES)
    flip(step, name, chosen.randrange(100))
    found = repro.bisect(left, train("right", trace_tensors=True, **NODES))
    assert (found.step, found.tensors, found.recorded) == (step, (name,), None)
    assert "the same in the two traces" in found.verdict[-1]
    assert "outside of the operations" in found.verdict[-1]


@pytest.mark.skipif(cpu.best_machine() is None, reason="compiled code runs on no target here")
def test_a_reordered_sum_is_found_to_the_node_by_two_traces_alone(
    artifact: Path, samples: Path, target: str, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    left = train("left", **NODES)
    monkeypatch.setitem(OPS, "dot", MIRRORED)
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    faulty = repro.build(
        MODEL, tmp_path / "faulty.repro", bind={"N": BATCH}, targets=[target], loss="softmax_cross_entropy",
        optimizer="adam", learning_rate=0.003, clip_norm=5.0,
    )  # fmt: skip
    right = tmp_path / "right.trace"
    repro.train(faulty.folder, samples, checkpoint=tmp_path / "right", trace=right, target=target, threads=1, **NODES)
    monkeypatch.undo()
    found = repro.bisect(left, right)
    assert found.step == 1
    check_product(found.recorded)
    assert "the operation is at fault" in found.verdict[-1]
    assert cli.main(["bisect", str(left), str(right), "--json"]) == EXIT_MISMATCH
    shown = json.loads(capsys.readouterr().out)["recorded"]
    assert (shown["op"], shown["type"]) == ("dot", "f32[16,64]")
    assert cli.main(["bisect", str(left), str(right)]) == EXIT_MISMATCH
    assert "recorded dot, from " in capsys.readouterr().out
    again = repro.bisect(right, artifact=artifact, data=samples, right_target=target, threads=1)
    assert again.step == 1
    check_product(again.recorded)
    assert again.node is None


def check_product(found: Any) -> None:
    """The second layer's product, of operands that are the same."""
    assert (found.op, found.type) == ("dot", "f32[16,64]")
    assert "fc2" in found.source or "Gemm" in found.source
    assert found.left != found.right
    assert len(found.operands) == 2
    assert all(operand.left == operand.right for operand in found.operands)
