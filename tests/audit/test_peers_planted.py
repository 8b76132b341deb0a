"""Of two real runtimes of which one adds in another order at one node, that node is found and no other."""

from __future__ import annotations

import pytest

from repro.audit.comparison import compare
from repro.audit.golden import golden
from repro.audit.model import prepare
from repro.audit.peers.onnxruntime import OnnxRuntime
from repro.audit.records import Outcome
from repro.audit.running import Limits, run_all
from tests.audit.models import golden_models
from tests.audit.planted_runtime import PEERS, backwards


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("digits_mlp/forward", "extended"),
        ("digits_cnn/forward", "all"),
        pytest.param("nano_gpt/forward", "all", marks=pytest.mark.full),
    ],
)
def test_a_changed_order_in_a_lowered_model_is_found_at_its_node_alone(name: str, level: str) -> None:
    case = golden_models()[name]
    audited = prepare(case["model"], bind=case["bind"])
    own = golden(audited, None, lambda *_: None)
    (plain,) = (each for each in OnnxRuntime().variants() if each.name == f"onnxruntime[level={level},threads=1]")
    lowered = OnnxRuntime().lowered(audited.proto, plain)
    products = [node for node in lowered.graph.node if node.op_type in ("Gemm", "FusedGemm", "MatMul")]
    values = [node.output[0] for node in products if node.output[0] in audited.types]
    value = values[len(values) // 2]
    captures = run_all(audited, own, [plain, backwards(value, level)], Limits(120), True, lambda *_: None, peers=PEERS)
    assert [(each.outcome, each.reason) for each in captures] == [(Outcome.RAN, "")] * 2
    assert all(each.faithful for each in captures)
    pair = compare(captures[0], captures[1], audited.summary, own)
    assert [origin.value for origin in pair.origins] == [value]
    assert len(pair.origins[0].nodes) == (2 if level == "extended" else 1), "with the activation that is fused"
    assert pair.first == value and not pair.origins[0].fed
    assert pair.origins[0].drift is not None and pair.origins[0].drift.different > 0
