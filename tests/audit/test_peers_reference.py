"""onnx's reference evaluator as a peer: NumPy's settings are taken or missed out loud, slow models are not begun."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from repro.audit.golden import golden
from repro.audit.model import prepare
from repro.audit.peers import cost, instruction_sets, onnx_reference
from repro.audit.peers.onnx_reference import OnnxReference
from repro.audit.peers.onnxruntime import OnnxRuntime
from repro.audit.peers.peer import PeerError
from repro.audit.records import Capture, Executor, Outcome
from repro.audit.running import Limits, choose, run_all
from repro.ir.types import Array
from tests.audit.models import golden_models, model

PEER = OnnxReference()
PLAIN = PEER.variants()[0]

PRODUCTS = """g (float[1, 64] x, float[64, 8] w) => (float[1, 8] y) { p = MatMul(x, w) y = Exp(p) }"""


def close(left: Array, right: Array) -> bool:
    return bool(np.all(np.abs(left - right) <= 1e-4 * (1 + np.abs(right))))


@pytest.mark.parametrize("name", golden_models())
def test_its_results_are_those_of_another_runtime_but_for_rounding(name: str) -> None:
    case = golden_models()[name]
    audited = prepare(case["model"], bind=case["bind"])
    found = PEER.run(audited.proto, audited.inputs, PLAIN)
    runtime = OnnxRuntime()
    expected = runtime.run(audited.proto, audited.inputs, runtime.variants()[0])
    assert found and found.keys() == expected.keys()
    assert all(close(found[each], expected[each]) for each in found)
    assert PEER.lowered(audited.proto, PLAIN) is audited.proto


def test_at_most_four_run_unasked_and_none_twice() -> None:
    usual, more = PEER.variants(), PEER.named()
    names = [each.name for each in (*usual, *more)]
    assert 2 <= len(usual) <= 4
    assert names[0] == "onnx-reference[threads=1]"
    assert len(set(names)) == len(names)
    assert all(dict(each.environment)["OPENBLAS_NUM_THREADS"] == each.option("threads") for each in (*usual, *more))


def test_kernels_of_other_cpus_are_offered_where_this_one_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(instruction_sets, "blas_core", lambda: "Haswell")
    monkeypatch.setattr(instruction_sets, "features", lambda: frozenset({"sse3", "sse4.2", "avx", "avx2", "fma"}))
    assert [core.name for core in instruction_sets.blas_cores()] == ["Sandybridge", "Nehalem", "Prescott"]
    assert instruction_sets.is_core("Prescott", "Katmai")
    assert not instruction_sets.is_core("SkylakeX", "Haswell")
    monkeypatch.setattr(instruction_sets, "blas_core", lambda: None)
    assert instruction_sets.blas_cores() == ()


def test_levels_of_numpy_leave_out_what_changes_no_float(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ("X86_V3", "X86_V4", "AVX512_ICL")
    monkeypatch.setattr(instruction_sets, "simd_extensions", lambda: ("X86_V2", found))
    assert instruction_sets.simd_levels() == (("X86_V2", " ".join(found)), ("X86_V3", "X86_V4 AVX512_ICL"))
    monkeypatch.setattr(instruction_sets, "simd_extensions", lambda: ("X86_V2", ()))
    assert instruction_sets.simd_levels() == ()


@pytest.mark.parametrize("option", [("blas", "NoSuchCore"), ("simd", "NO_SUCH_GROUP")])
def test_settings_that_numpy_did_not_take_are_said(option: tuple[str, str]) -> None:
    with pytest.raises(PeerError) as caught:
        PEER.run(model(PRODUCTS), {}, Executor("onnx-reference", (("threads", "1"), option)))
    assert caught.value.outcome is Outcome.MISSING
    assert option[1] in caught.value.reason


@pytest.mark.parametrize(
    ("text", "inputs", "outcome", "words"),
    [
        ("g (float[2] x) => (float[2] y) { y = NoSuchOperator(x) }", {"x": np.ones(2, np.float32)}, "REFUSED", "NoSu"),
        ("g (float[2] x, int64[1] s) => (float[N] y) { y = Reshape(x, s) }",
         {"x": np.ones(2, np.float32), "s": np.array([3])}, "FAILED", "Reshape"),
        ("g (int64[1] n) => (float[N] y) { y = ConstantOfShape(n) }", {"n": np.array([1 << 50])}, "MEMORY", "memory"),
    ],
)  # fmt: skip
def test_what_it_does_not_run_has_its_reason(text: str, inputs: dict[str, Array], outcome: str, words: str) -> None:
    with pytest.raises(PeerError) as caught:
        PEER.run(model(text), inputs, PLAIN)
    assert caught.value.outcome is Outcome[outcome]
    assert words in caught.value.reason


def test_every_adder_adds_all_terms() -> None:
    terms, factors = np.arange(1, 65, dtype=np.float32), np.full(64, 2, np.float32)
    adders = PEER.adders(PLAIN)
    assert {"sum", "dot"} <= adders.keys()
    for name, adder in adders.items():
        assert adder(terms, factors) == (2080 if name.startswith("sum") else 4160), name


# ── cost ────────────────────────────────────────────────────────────────────────────────────────────

LAYERS = """g (
  float[2, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4, 2, 2, 2] t, float[10, 5] a, float[10, 7] b, float[7, 5] c)
=> (float[2, 4, 6, 6] conv, float[2, 2, 12, 12] deconv, float[5, 7] gemm, float[10, 5] matmul, float[2, 4, 3, 3] pool)
{
  conv = Conv(x, w)
  deconv = ConvTranspose <strides = [2, 2]> (conv, t)
  gemm = Gemm <transA = 1> (a, b)
  matmul = MatMul(b, c)
  pool = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (conv)
}"""


def test_products_are_counted_by_declared_shapes() -> None:
    assert cost.multiply_adds(model(LAYERS)) == 2 * 4 * 36 * 27 + 2 * 4 * 36 * 8 + 5 * 7 * 10 + 10 * 5 * 7
    bare = model(LAYERS)
    for item in (*bare.graph.input, *bare.graph.output):
        item.type.tensor_type.ClearField("shape")
    assert cost.multiply_adds(bare) == 0 == cost.reference_nanoseconds(bare)


def test_a_slow_model_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = model(LAYERS)
    assert cost.reference_nanoseconds(slow) > 1000
    monkeypatch.setattr(onnx_reference, "PLAIN_SECONDS", 1e-9)
    with pytest.raises(PeerError, match="too slow") as caught:
        PEER.run(slow, {}, PLAIN)
    assert caught.value.outcome is Outcome.SKIPPED


def test_an_emulated_run_of_many_products_is_not_begun() -> None:
    runtime = OnnxRuntime()
    emulated = next(each for each in runtime.named() if each.emulator)
    many = "g (float[4096, 4096] x, float[4096, 4096] w) => (float[4096, 4096] y) { y = MatMul(x, w) }"
    with pytest.raises(PeerError, match="too slow under") as caught:
        runtime.run(model(many), {}, emulated)
    assert caught.value.outcome is Outcome.SKIPPED
    assert "68.7 billion products" in caught.value.reason


# ── in processes of their own ───────────────────────────────────────────────────────────────────────


def captures(source: ModelProto, *names: str, inputs: Mapping[str, Array] | None = None) -> tuple[Capture, ...]:
    audited = prepare(source, inputs=inputs)
    executors = [each for each in choose(names) if each.name in names]
    assert len(executors) == len(names)
    return run_all(audited, golden(audited, None, lambda *_: None), executors, Limits(60), False, lambda *_: None)


def test_numpy_runs_with_the_instructions_and_kernels_that_were_asked_for() -> None:
    others = [each for each in PEER.variants() if each.option("blas") or each.option("simd")]
    if not others:
        pytest.skip("not run: this CPU and NumPy have no other kernels")
    found = captures(model(PRODUCTS), *(each.name for each in others))
    for capture in found:
        assert capture.outcome is Outcome.RAN, capture.reason
        versions: Any = capture.environment["versions"]
        level = capture.executor.option("simd")
        assert not level or versions["simd"][-1] == level
        core = capture.executor.option("blas")
        assert not core or instruction_sets.is_core(core, versions["blas"].split()[-2])


@pytest.mark.full
def test_another_cpu_under_emulation() -> None:
    """NumPy on a CPU without AVX2 says so itself, and has results."""
    missing = shutil.which(instruction_sets.EMULATOR) is None or os.uname().machine != "x86_64"
    if missing and (os.environ.get("CI") != "true" or os.uname().machine != "x86_64"):
        pytest.skip(f"not run: needs an x86-64 host with {instruction_sets.EMULATOR} (Debian: qemu-user-static)")
    (capture,) = captures(model(PRODUCTS), "onnx-reference[threads=1,cpu=SandyBridge]")
    assert capture.outcome is Outcome.RAN, capture.reason
    versions: Any = capture.environment["versions"]
    assert "X86_V3" not in versions["simd"]
    assert "Sandybridge" in versions["blas"]
    assert capture.fed.keys() == {"p", "y"} and capture.faithful


def test_a_missing_emulator_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(instruction_sets, "EMULATOR", str(tmp_path / "no-such-emulator"))
    names = ("onnxruntime[level=all,threads=1,cpu=Haswell]", "onnx-reference[threads=1,cpu=Haswell]")
    for capture in captures(model(PRODUCTS), *names):
        assert capture.outcome is Outcome.MISSING
        assert "no-such-emulator" in capture.reason
