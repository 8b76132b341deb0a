"""What is wrong with a model is said once, with op, node, found, expected and the next step; never a traceback."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from repro.errors import EXIT_USAGE, ReproError
from repro.frontend import import_model, load_model
from tests.frontend.models import chain_of_functions, function, model, node, relu_model, value

QUICKLY = 1.0
"""Seconds of CPU time in which a hostile model has to be refused."""


def refused(action: Callable[[], object]) -> ReproError:
    started = time.process_time()
    with pytest.raises(ReproError) as caught:
        action()
    assert time.process_time() - started < QUICKLY
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value


def refused_import(proto: onnx.ModelProto, **options: object) -> ReproError:
    return refused(lambda: import_model(load_model(proto), **options))  # type: ignore[arg-type]


# ── files ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "content",
    [b"", b"not a model at all", b"\x80\x02}q\x00.", b"PK\x03\x04zip", b"\x00" * 64, b"\x08\x0a"],
    ids=["empty", "text", "pickle", "zip", "zeros", "header only"],
)
def test_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    error = refused(lambda: load_model(path))
    assert error.found
    assert error.expected


def test_no_such_file(tmp_path: Path) -> None:
    error = refused(lambda: load_model(tmp_path / "absent.onnx"))
    assert "No such file" in str(error.found)


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    assert refused(lambda: load_model(tmp_path)).expected


def test_every_truncation_is_refused_or_whole(tmp_path: Path) -> None:
    """Cut anywhere, a model is refused with our error, or what is left is a model of its own."""
    content = relu_model().SerializeToString()
    path = tmp_path / "m.onnx"
    refusals = 0
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            import_model(load_model(path))
        except ReproError:
            refusals += 1
    assert refusals > len(content) // 2


def test_every_changed_byte_is_taken_or_refused() -> None:
    """No byte of a model, however it is changed, leads to anything but an import or our error."""
    content = model(
        [node("Gemm", "x w b", "h", alpha=0.5, transB=1), node("Relu", "h", "y")],
        [value("x", (2, 3))],
        initializers={"w": np.ones((4, 3), np.float32), "b": np.ones(4, np.float32)},
    ).SerializeToString()
    outcomes = {"import": 0, "refusal": 0}
    for place in range(len(content)):
        for flip in (0x01, 0x80, 0xFF):
            changed = content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]
            try:
                import_model(load_model(changed))
                outcomes["import"] += 1
            except ReproError:
                outcomes["refusal"] += 1
    assert min(outcomes.values()) > 0


# ── operators and opsets ────────────────────────────────────────────────────────────────────────────


def test_unknown_operators_are_listed_at_once_with_counts() -> None:
    proto = model(
        [
            node("Blur", "x", "a", domain="acme"),
            node("Blur", "a", "b", domain="acme"),
            node("NoSuchOp", "b", "c"),
            node("Relu", "c", "y"),
            node("NeverReached", "x", "unused"),
        ],
        [value("x")],
        domains=["acme"],
    )
    error = refused_import(proto)
    assert error.what == "the model uses operators that are not supported"
    assert error.found == "NoSuchOp ×1 (at 'nosuchop_c'), acme.Blur ×2 (at 'blur_a')"
    assert error.next


@pytest.mark.parametrize(
    ("op", "domain", "advice"),
    [
        ("TreeEnsembleClassifier", "ai.onnx.ml", "classical machine learning (ai.onnx.ml) is out of scope"),
        ("QAttention", "com.microsoft", "QDQ"),
        ("SkipLayerNormalization", "com.microsoft", "before ONNX Runtime's optimizer"),
        ("Blur", "acme", "docs/adding-an-op.md"),
    ],
)
def test_unknown_operators_come_with_what_helps(op: str, domain: str, advice: str) -> None:
    proto = model([node(op, "x", "y", domain=domain)], [value("x")], domains=[domain])
    assert advice in str(refused_import(proto).next)


def test_unknown_operators_inside_functions_are_listed() -> None:
    proto = model(
        [node("f", "x", "t", domain="local"), node("f", "t", "y", domain="local")],
        [value("x")],
        functions=[function("f", "a", "b", [node("Mystery", "a", "b", domain="acme")])],
        domains=["local"],
    )
    assert "acme.Mystery" in str(refused_import(proto).found)


@pytest.mark.parametrize("opset", [1, 6, 99])
def test_unsupported_opset(opset: int) -> None:
    error = refused_import(model([node("Relu", "x", "y", name="act")], [value("x")], opset=opset))
    assert (error.op, error.node) == ("Relu", "act")
    assert f"opset {opset}" in str(error.found)
    assert "7 to" in str(error.expected)


def test_one_domain_at_two_versions() -> None:
    proto = relu_model()
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    assert "21 and 13" in str(refused_import(proto).found)


# ── graphs that do not hold together ────────────────────────────────────────────────────────────────


def test_shape_conflict_names_the_node() -> None:
    proto = model(
        [node("MatMul", "x w", "y", name="head")],
        [value("x", (2, 5))],
        initializers={"w": np.zeros((4, 3), np.float32)},
    )
    error = refused_import(proto)
    assert (error.op, error.node) == ("MatMul", "head")
    assert "f32[2,5]" in str(error.found)
    assert "f32[4,3]" in str(error.found)


def test_dtype_conflict_names_the_node() -> None:
    proto = model(
        [node("MatMul", "x w", "y", name="head")],
        [value("x", (2, 4))],
        initializers={"w": np.zeros((4, 3), np.float64)},
    )
    error = refused_import(proto)
    assert (error.op, error.node) == ("MatMul", "head")
    assert "f64[4,3]" in str(error.found)


def test_declared_output_type_conflicts() -> None:
    proto = relu_model()
    proto.graph.output[0].CopyFrom(value("y", (3,), TensorProto.INT64))
    assert "f32[3]" in str(refused_import(proto).found)


def test_wrong_number_of_inputs() -> None:
    error = refused_import(model([node("Relu", "x x", "y", name="act")], [value("x")]))
    assert (error.op, error.node, error.found) == ("Relu", "act", "2 inputs")
    assert refused_import(model([node("MatMul", "x", "y", name="m")], [value("x")])).node == "m"
    assert refused_import(model([node("MatMul", "x _", "y", name="m")], [value("x")])).node == "m"


def test_a_wrongly_typed_attribute() -> None:
    error = refused_import(model([node("Gemm", "x x", "y", name="g", transA="yes")], [value("x", (2, 2))]))
    assert (error.op, error.node, error.found, error.expected) == ("Gemm", "g", "STRING", "INT")


def test_outputs_are_told_by_name() -> None:
    assert "no outputs" in refused_import(model([node("Relu", "x", "y")], [value("x")], outputs=[])).what
    assert refused_import(model([node("Relu", "x", "y")], [value("x")], outputs=["y", "y"])).node == "y"


@pytest.mark.parametrize("what", ["input", "output", "initializer"])
def test_a_name_that_no_artifact_can_hold(what: str) -> None:
    """In words that can be read: the name itself is not among them."""
    names = dict.fromkeys(("input", "output", "initializer"), "") | {what: "n" * 70_000}
    x, y, w = (f"{short}{name}" for short, name in zip("xyw", names.values(), strict=True))
    proto = model([node("Add", f"{x} {w}", y)], [value(x)], [y], {w: np.ones(3, np.float32)})
    error = refused_import(proto)
    assert what in error.what
    assert len(str(error)) < 500


def test_a_name_that_nothing_makes() -> None:
    error = refused_import(model([node("Relu", "nowhere", "y", name="act")]))
    assert (error.op, error.node) == ("Relu", "act")
    assert "'nowhere'" in str(error.found)
    error = refused_import(model([], [value("x")]))
    assert error.node is None
    assert "'y'" in str(error.found)


def test_a_name_that_nothing_makes_is_told_with_the_node_whose_subgraph_reads_it() -> None:
    branch = helper.make_graph([node("Relu", "nowhere", "t")], "branch", [], [onnx.ValueInfoProto(name="t")])
    choice = node("If", "go", "y", name="choice", then_branch=branch, else_branch=branch)
    error = refused_import(model([choice], [value("go", (), TensorProto.BOOL)]))
    assert (error.op, error.node) == ("If", "choice")


def test_two_initializers_of_one_name() -> None:
    proto = model([node("Add", "x w", "y")], [value("x")], initializers={"w": np.ones(3, np.float32)})
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 3)), "w"))
    error = refused_import(proto)
    assert error.what == "two initializers have one name"
    assert error.found == "'w' twice, as float[3] and double[1, 3]"


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ([node("Relu", "x", "y"), node("Relu", "x", "y")], "'y'"),
        ([node("Split", "x", "y y", axis=0)], "'y'"),
        ([node("Neg", "x", "x"), node("Relu", "x", "y")], "'x'"),
        ([node("Neg", "x", "w"), node("Add", "x w", "y")], "'w'"),
    ],
)
def test_a_name_that_is_written_again(nodes: list[onnx.NodeProto], what: str) -> None:
    """By another node, by the same one, or over what is given."""
    proto = model(nodes, [value("x")], initializers={"w": np.ones(3, np.float32)})
    assert what in str(refused_import(proto).found)


@pytest.mark.parametrize("length", [1, 2, 500])
def test_a_cycle(length: int) -> None:
    nodes = [node("Relu", f"t{i}", f"t{(i + 1) % length}") for i in range(length)]
    assert "cycle" in refused_import(model(nodes, outputs=["t0"])).what


def test_a_sequence_or_map_input() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, (2,)))
    proto = model([node("Relu", "x", "y")], [helper.make_value_info("x", kind)])
    assert refused_import(proto).found == "sequence"


@pytest.mark.parametrize(
    "kind", [TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.INT4, TensorProto.UNDEFINED, 999]
)
def test_element_types_without_a_meaning(kind: int) -> None:
    proto = relu_model()
    proto.graph.input[0].type.tensor_type.elem_type = kind
    assert "float" not in str(refused_import(proto).found).lower()


def test_data_that_does_not_fit_its_type() -> None:
    proto = model([node("MatMul", "x w", "y")], [value("x", (2, 4))], initializers={"w": np.zeros((4, 3), np.float32)})
    proto.graph.initializer[0].raw_data = b"\0" * 44
    error = refused_import(proto)
    assert error.node == "w"
    assert error.found == "44 bytes"
    assert "48 bytes" in str(error.expected)


# ── bombs and sizes ─────────────────────────────────────────────────────────────────────────────────


def test_doubling_functions_are_refused_by_count() -> None:
    error = refused_import(chain_of_functions(35))
    assert "nodes" in str(error.found)


def test_functions_nested_too_deep() -> None:
    assert "deep" in refused_import(chain_of_functions(1000, calls=1)).what


def test_a_function_that_calls_itself() -> None:
    body = [node("f", "a", "b", domain="local")]
    proto = model([node("f", "x", "y", domain="local")], [value("x")], functions=[function("f", "a", "b", body)])
    assert "calls itself" in refused_import(proto).what


def test_graphs_nested_too_deep() -> None:
    """Nesting over protobuf's own limit does not parse; the message has to be written by hand."""
    graph = onnx.GraphProto(output=[onnx.ValueInfoProto(name="y")]).SerializeToString()
    for _ in range(10_000):
        attribute = onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH).SerializeToString()
        branch = onnx.NodeProto(op_type="If", output=["y"]).SerializeToString() + _field(
            5, attribute + _field(6, graph)
        )
        graph = _field(1, branch) + onnx.GraphProto(output=[onnx.ValueInfoProto(name="y")]).SerializeToString()
    proto = onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 21)])
    content = proto.SerializeToString() + _field(7, graph)
    assert "nested" in str(refused(lambda: load_model(content)).found)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, head = len(content), bytearray([number << 3 | 2])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes(head) + bytes([size]) + content


def test_a_loop_that_would_unroll_for_ever() -> None:
    """The body swaps two states of different shapes, and has no node that could be counted."""
    states = [
        value("i", (), TensorProto.INT64),
        value("go", (), TensorProto.BOOL),
        value("a", (None,)),
        value("b", (None,)),
    ]
    body = helper.make_graph([], "swap", states, [states[1], states[3], states[2]])
    constants = {"n": np.array(1 << 62, np.int64), "t": np.array(True)}
    loop = node("Loop", "n t x z", "y w", name="endless", body=body)
    error = refused_import(model([loop], [value("x"), value("z", (2,))], ["y", "w"], constants))
    assert (error.op, error.node) == ("Loop", "endless")


def test_an_input_over_the_size_limit() -> None:
    error = refused_import(relu_model((1 << 20, 1 << 20)))
    assert "bytes" in str(error.expected)


def test_an_initializer_over_the_size_limit() -> None:
    proto = model([node("Relu", "w", "y")])
    proto.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 31, 1 << 31]))
    assert refused_import(proto).node == "w"


def test_a_result_over_the_size_limit() -> None:
    proto = model([node("MatMul", "x z", "y", name="outer")], [value("x", (1 << 20, 1)), value("z", (1, 1 << 20))])
    error = refused_import(proto)
    assert (error.op, error.node) == ("MatMul", "outer")


def test_a_fill_of_terabytes_is_refused_before_memory_is_taken() -> None:
    shape = {"shape": np.array([1 << 20, 1 << 20], np.int64)}
    error = refused_import(model([node("ConstantOfShape", "shape", "y", name="fill")], initializers=shape))
    assert (error.op, error.node) == ("ConstantOfShape", "fill")


HOSTILE = {
    "pool over a plane": (node("AveragePool", "x", "y", kernel_shape=[2, 2]), (1, 1, 40_000, 40_000)),
    "a part for each element": (node("SplitToSequence", "x", "s", axis=0), (1 << 31,)),
    "parts without end": (node("Split", "x", "y", num_outputs=1 << 40), (8,)),
    "a batch of scans": (node("Scan", "_ x", "y", num_scan_inputs=1 << 60), (3, 3)),
    "repeats": (node("Tile", "x n", "y"), (1 << 20,)),
    "an expansion": (node("Expand", "x n", "y"), (1,)),
    "a ramp": (node("Range", "zero n one", "y"), (1,)),
    "left out": (node("Concat", "x _ x", "y", axis=0), (1,)),
    "a sequence as a tensor": (node("Relu", "parts", "y"), (1,)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_one_hostile_node(case: str) -> None:
    """Found by fuzzing: each would have taken memory or time without end, or ended in a traceback."""
    hostile, shape = HOSTILE[case]
    parts = node("SequenceConstruct", "x", "parts")
    last = node("SequenceLength", "s", "y")
    number = {name: np.array([at], np.int64) for name, at in (("zero", 0), ("one", 1), ("n", 1 << 40))}
    nodes = [parts, hostile, *([last] if hostile.output[0] == "s" else [])]
    proto = model(nodes, [value("x", shape)], initializers=number, opset=8 if hostile.op_type == "Scan" else 21)
    assert refused_import(proto).what


def test_too_many_axes() -> None:
    assert "axes" in refused_import(relu_model((1,) * 300)).what


# ── external data ───────────────────────────────────────────────────────────────────────────────────


def external_model(folder: Path, location: str = "w.bin", **fields: str) -> Path:
    """A model whose weight (12 floats) lies in `location`, beside it unless a test says otherwise."""
    proto = model([node("MatMul", "x w", "y")], [value("x", (2, 4))], initializers={"w": np.ones((4, 3), np.float32)})
    tensor = proto.graph.initializer[0]
    external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    for key, text in fields.items():
        tensor.external_data.add(key=key, value=text)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def import_file(path: Path) -> object:
    return import_model(load_model(path))


def test_external_data_is_read(tmp_path: Path) -> None:
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    (tmp_path / "w.bin").write_bytes(b"\0" * 5000 + weights.tobytes() + b"rest")
    imported = import_model(load_model(external_model(tmp_path, offset="5000", length="48")))
    assert np.array_equal(imported.parameters[0].initial, weights)


def test_missing_external_data(tmp_path: Path) -> None:
    assert "missing" in refused(lambda: import_file(external_model(tmp_path))).what


def test_external_data_without_a_folder(tmp_path: Path) -> None:
    proto = onnx.load(external_model(tmp_path), load_external_data=False)
    assert "folder" in refused(lambda: import_model(load_model(proto))).what


@pytest.mark.parametrize("fields", [{}, {"offset": "8"}, {"offset": "99999999999999999"}], ids=str)
def test_external_data_too_short(tmp_path: Path, fields: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 47)
    error = refused(lambda: import_file(external_model(tmp_path, **fields)))
    assert "too short" in error.what
    assert "47 bytes" in str(error.found)
    assert error.node == "w"


@pytest.mark.parametrize("fields", [{"offset": "-4"}, {"length": "many"}, {"length": "44"}, {"offset": "1e3"}], ids=str)
def test_external_data_with_bad_fields(tmp_path: Path, fields: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 48)
    assert refused(lambda: import_file(external_model(tmp_path, **fields))).node == "w"


@pytest.mark.parametrize(
    "location", ["", "..", "../w.bin", "a/../../w.bin", "..\\w.bin", "C:\\w.bin", "\\\\host\\w.bin", "w\0.bin"]
)
def test_external_data_out_of_its_folder(tmp_path: Path, location: str) -> None:
    inside = tmp_path / "model"
    (inside / "a").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(b"\0" * 48)
    error = refused(lambda: import_file(external_model(inside, location)))
    assert error.node == "w"
    assert error.next


def test_external_data_at_an_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 48)
    assert "absolute" in refused(lambda: import_file(external_model(tmp_path, str(tmp_path / "w.bin")))).what


def test_external_data_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.bin").write_bytes(b"\0" * 48)
    (tmp_path / "w.bin").symlink_to(tmp_path / "real.bin")
    assert "link" in refused(lambda: import_file(external_model(tmp_path))).what


def test_external_data_in_a_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w.bin").write_bytes(b"\0" * 48)
    (tmp_path / "sub").symlink_to(tmp_path / "real")
    assert "link" in refused(lambda: import_file(external_model(tmp_path, "sub/w.bin"))).what


def test_external_data_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "w.bin").mkdir()
    assert "regular file" in refused(lambda: import_file(external_model(tmp_path))).what
