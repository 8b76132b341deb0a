"""build, run and the Python API on a real model."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import repro
from repro import cli
from repro.errors import EXIT_USAGE, ReproError
from tests.artifact.test_layout import tree
from tests.cli.conftest import INPUTS, MODEL


def test_build_says_where_and_what(tmp_path: Path, mlp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(["build", str(MODEL), "-o", str(out), "--inputs", str(INPUTS)]) == 0
    artifact = repro.load(out)
    *_, where, identity, graph = capsys.readouterr().out.splitlines()
    assert str(out) in where
    assert identity == f"artifact {artifact.id}"
    assert graph == f"graph    {artifact.graph_digest}"
    assert tree(out) == tree(mlp)


def test_the_default_folder_lies_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL.read_bytes())
    assert cli.main(["build", str(tmp_path / "m.onnx"), "--bind", "N=2"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.repro"]


def test_identical_is_a_no_op_and_another_needs_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["build", str(MODEL), "-o", str(tmp_path / "out"), "--json"]
    assert cli.main([*words, "--bind", "N=2"]) == 0
    first = json.loads(capsys.readouterr().out)
    before = (tmp_path / "out").stat().st_mtime_ns
    assert cli.main([*words, "--bind", "N=2"]) == 0
    assert (tmp_path / "out").stat().st_mtime_ns == before
    capsys.readouterr()
    assert cli.main([*words, "--bind", "N=3"]) == 2
    assert "--force" in capsys.readouterr().err
    assert repro.load(tmp_path / "out").id == first["artifact"]
    assert cli.main([*words, "--bind", "N=3", "--force"]) == 0
    assert repro.load(tmp_path / "out").id != first["artifact"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_drawn_golden_inputs_that_a_model_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sum of drawn numbers is no index of three rows, and the user gave none."""
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["i"]), helper.make_node("Gather", ["table", "i"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [64])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])]
    held = [numpy_helper.from_array(np.array(0), "axis"), numpy_helper.from_array(np.ones(3, np.float32), "table")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, held)), tmp_path / "m.onnx")
    assert cli.main(["build", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "a")]) == EXIT_USAGE
    assert "the golden inputs were drawn" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=np.zeros(64, np.int64))
    words = ["build", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "a"), "--inputs", str(tmp_path / "x.npz")]
    assert cli.main(words) == 0


def test_a_build_shows_what_its_step_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["build", str(MODEL), "-o", str(tmp_path / "out"), "--bind", "N=2", "--loss", "softmax_cross_entropy"]
    words += ["--frozen", "*.bias"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "trained (--frozen leaves out)" in shown and "kept as they are (--trainable adds)" in shown
    assert cli.main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["parameters"]
    assert told["trained"] and told["kept"] and not told["updated"]
    assert not any(name.endswith(".bias") for name in told["trained"])


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    assert cli.main(["build", str(MODEL), "-o", str(tmp_path / "out"), "--bind", "N=2"]) == 2
    assert (tmp_path / "out" / "thesis.tex").exists()


@pytest.mark.parametrize("model", [".", "/", ""])
def test_a_model_without_a_name_needs_an_output_folder(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", model, "--bind", "N=2"]) == 2
    assert "-o" in capsys.readouterr().err


def test_the_folder_of_the_model_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL.read_bytes())
    assert cli.main(["build", str(tmp_path / "m.onnx"), "-o", str(tmp_path), "--bind", "N=2", "--force"]) == 2
    assert (tmp_path / "m.onnx").exists()


def test_an_unbound_dimension_is_named_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", str(MODEL), "-o", str(tmp_path / "out")]) == 2
    assert "--bind N=" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ("cpu", ["cpu/aarch64", "cpu/x86-64-v3", "cpu/x86-64-v4"]),
        ("cpu/x86-64-v3", ["cpu/x86-64-v3"]),
        ("cpu/x86-64-v3,cpu", ["cpu/aarch64", "cpu/x86-64-v3", "cpu/x86-64-v4"]),
        ("reference", []),
    ],
)
def test_targets(tmp_path: Path, targets: str, names: list[str]) -> None:
    artifact = repro.build(MODEL, tmp_path / "out", bind={"N": 2}, targets=targets)
    assert [target.name for target in artifact.config.targets] == names


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    assert cli.main(["build", str(MODEL), "-o", str(tmp_path / "out"), "--bind", "N=2", "--targets", "abacus"]) == 2


def test_a_model_proto_gives_the_same_artifact(tmp_path: Path) -> None:
    one = repro.build(MODEL, tmp_path / "one", bind={"N": 2})
    two = repro.build(onnx.load(MODEL), tmp_path / "two", bind={"N": 2})
    assert one.id == two.id
    with pytest.raises(repro.ReproError):
        repro.build(onnx.load(MODEL), bind={"N": 2})


def test_one_bit_of_a_weight_changes_the_artifact_and_not_the_graph(tmp_path: Path) -> None:
    model = onnx.load(MODEL)
    one = repro.build(model, tmp_path / "one", bind={"N": 2})
    raw = bytearray(model.graph.initializer[-1].raw_data)
    raw[0] ^= 1
    model.graph.initializer[-1].raw_data = bytes(raw)
    two = repro.build(model, tmp_path / "two", bind={"N": 2})
    assert (one.graph_digest, one.id == two.id) == (two.graph_digest, False)


def test_golden_seed_changes_the_golden_run_alone(tmp_path: Path) -> None:
    one = repro.build(MODEL, tmp_path / "one", bind={"N": 2})
    two = repro.build(MODEL, tmp_path / "two", bind={"N": 2}, golden_seed=1)
    assert one.config.golden != two.config.golden
    assert (one.config.targets, one.graph_digest) == (two.config.targets, two.graph_digest)


def test_seed_is_the_key_of_unseeded_random_nodes(tmp_path: Path) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])
    node = helper.make_node("RandomUniform", [], ["y"], shape=[64])
    model = helper.make_model(helper.make_graph([node], "random", [], [y]), opset_imports=[helper.make_opsetid("", 21)])
    built = [repro.build(model, tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    drawn = []
    for artifact in built:
        assert repro.verify(artifact.folder / "artifact.json").exit_code == 0
        with artifact.session() as session:
            drawn.append(session.run({})["y"])
    assert built[0].graph_digest != built[1].graph_digest
    assert not np.array_equal(*drawn)
    again = repro.build(model, tmp_path / "again", seed=1)
    assert again.id == built[1].id


# ── run ─────────────────────────────────────────────────────────────────────────────────────────────


def test_run_writes_the_outputs(mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.npz"
    words = ["run", str(mlp / "artifact.json"), "--inputs", str(INPUTS), "--outputs", str(out), "--json"]
    assert cli.main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["outputs"]
    assert row["digest"] == repro.load(mlp).config.golden[0].outputs[0].digest
    first = out.read_bytes()
    assert cli.main([*words, "--target", "reference"]) == 0
    assert out.read_bytes() == first
    (peer,) = onnxruntime.InferenceSession(MODEL).run(None, dict(repro.read_npz(INPUTS)))
    np.testing.assert_allclose(repro.read_npz(out)["logits"], np.asarray(peer), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"input": np.zeros((16, 64), np.float64)},
        {"input": np.zeros((15, 64), np.float32)},
        {"input": np.zeros((16, 64), np.float32), "other": np.zeros(1)},
        {"Input": np.zeros((16, 64), np.float32)},
    ],
    ids=["missing", "type", "shape", "unknown", "name"],
)
def test_inputs_that_do_not_fit_are_two(mlp: Path, tmp_path: Path, inputs: dict[str, np.ndarray]) -> None:
    repro.write_npz(tmp_path / "in.npz", inputs)
    words = ["run", str(mlp), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert cli.main(words) == 2
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_what_is_no_npz_is_two(mlp: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    assert cli.main(["run", str(mlp), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "o.npz")]) == 2


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_archive_is_read_or_refused(save: Callable[..., None], tmp_path: Path) -> None:
    """Whatever its layers raise: of every byte some bits are other ones."""
    save(tmp_path / "whole.npz", x=np.arange(12, dtype=np.float32).reshape(3, 4))
    whole, refused = (tmp_path / "whole.npz").read_bytes(), 0
    for place in range(len(whole)):
        for bits in (1, 8, 255):
            damaged = bytearray(whole)
            damaged[place] ^= bits
            (tmp_path / "in.npz").write_bytes(damaged)
            try:
                repro.read_npz(tmp_path / "in.npz")
            except ReproError:
                refused += 1
    assert refused > len(whole)


def test_pickles_are_not_opened(mlp: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", input=np.array([{}], dtype=object))
    assert cli.main(["run", str(mlp), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "o.npz")]) == 2


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["--target", "abacus"], 2),
        (["--entry", "train_step"], 2),
        (["--target", "cpu/x86-64-v3" if platform.machine() == "aarch64" else "cpu/aarch64"], 3),
    ],
)
def test_what_cannot_run(mlp: Path, tmp_path: Path, extra: list[str], code: int) -> None:
    words = ["run", str(mlp), "--inputs", str(INPUTS), "--outputs", str(tmp_path / "o.npz"), *extra]
    assert cli.main(words) == code


def test_the_python_api(mlp: Path) -> None:
    artifact = repro.load(mlp / "artifact.json")
    assert list(artifact.entries) == ["infer"]
    assert [value.type for value in artifact.entries["infer"].inputs] == ["f32[16,64]"]
    inputs = repro.read_npz(INPUTS)
    with artifact.session(entry="infer", target="cpu", threads=2) as session:
        before = session.run(inputs)["logits"]
        state = session.state
        assert set(state) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}
        state["fc3.bias"] += 1
        session.state = state
        after = session.run(inputs)["logits"]
        assert np.abs(after - before - 1).max() < 1e-5
        with pytest.raises(repro.ReproError):
            session.state = {"fc9.bias": state["fc3.bias"]}
        with pytest.raises(repro.ReproError):
            session.state = {"fc3.bias": state["fc3.bias"][:3]}


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_an_index_out_of_range_is_two_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    table = onnx.helper.make_tensor("table", onnx.TensorProto.FLOAT, [5, 2], list(range(10)))
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [3])
    rows = onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, [3, 2])
    node = onnx.helper.make_node("Gather", ["table", "ids"], ["rows"], name="lookup")
    graph = onnx.helper.make_graph([node], "g", [ids], [rows], [table])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    artifact = repro.build(model, tmp_path / "out")
    words = ["run", str(artifact.folder), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "o.npz")]
    repro.write_npz(tmp_path / "in.npz", {"ids": np.array([4, -5, 0])})
    assert cli.main([*words, "--target", target]) == 0
    (tmp_path / "o.npz").unlink()
    repro.write_npz(tmp_path / "in.npz", {"ids": np.array([0, 1, 5])})
    assert cli.main([*words, "--target", target]) == 2
    error = capsys.readouterr().err
    assert "Gather" in error
    assert "lookup" in error
    assert "index 5 at position 2" in error
    assert not (tmp_path / "o.npz").exists()


def test_arrays_are_written_and_read_by_a_path_of_either_kind(tmp_path: Path):
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(3)}
    repro.write_npz(str(tmp_path / "a.npz"), arrays)
    repro.write_npz(tmp_path / "b.npz", arrays)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    found = repro.read_npz(str(tmp_path / "a.npz"))
    assert found.keys() == arrays.keys()
    assert all(found[name].tobytes() == array.tobytes() for name, array in arrays.items())
