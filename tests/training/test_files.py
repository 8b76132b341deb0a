"""Checkpoints and traces: what is written is read again; what was changed is refused and named."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.artifact.canonical import encode, sha256
from repro.errors import EXIT_MISMATCH, EXIT_USAGE, ReproError
from repro.ir.types import Array
from repro.training import checkpoint as checkpoints
from repro.training import digests, trace

EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""BLAKE3 of nothing, as its authors' test vectors have it."""

_GOOD = "blake3:" + "0" * 64
STATE: dict[str, Array] = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.array([1.5, -0.0], np.float16),
    "brain": np.array([[3.0]], ml_dtypes.bfloat16),
    "f8": np.array([1.0, 2.0], ml_dtypes.float8_e4m3fn),
    "fnuz": np.array([1.0, 2.0], ml_dtypes.float8_e4m3fnuz),
    "step": np.array(7, np.int64),
    "none": np.zeros((0, 4), np.float64),
}


def test_the_root_is_that_of_a_tree_of_tagged_leaves():
    def leaf(name: str, kind: str, data: bytes) -> bytes:
        return blake3(b"\x00" + name.encode() + b"\x00" + kind.encode() + b"\x00" + data).digest()

    def node(left: bytes, right: bytes) -> bytes:
        return blake3(b"\x01" + left + right).digest()

    arrays: dict[str, Array] = {"a": np.array([1], np.float32), "b": np.array(2, np.int64), "c": np.array([[True]])}
    a, b, c = (
        leaf("a", "f32[1]", bytes.fromhex("0000803f")),
        leaf("b", "i64[]", b"\x02" + bytes(7)),
        leaf("c", "bool[1,1]", b"\x01"),
    )
    assert digests.of_arrays(arrays) == "blake3:" + node(node(a, b), c).hex()
    assert digests.of_arrays({}) == "blake3:" + EMPTY
    assert digests.bits_of(np.array(1, np.float32)) == "0x3f800000"


@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 1000, digests.SHARED_FROM // 64, digests.SHARED_FROM // 4]), max_size=40),
    threads=st.integers(1, 5),
)
@settings(max_examples=20, deadline=None)
def test_threads_share_a_large_state_and_change_no_digest(sizes: list[int], threads: int) -> None:
    sizes = [digests.SHARED_FROM // 4, *sizes]
    arrays: dict[str, Array] = {f"w{n}": np.full(size, n, np.float32) for n, size in enumerate(sizes)}
    assert digests.leaves(arrays, threads) == [digests.leaf(name, array) for name, array in arrays.items()]


def test_neighbours_go_together_until_they_are_large_enough():
    arrays: dict[str, Array] = {f"w{n}": np.zeros(size, np.uint8) for n, size in enumerate([5, 1, 3, 2, 9, 0, 1])}
    runs = [[name for name, _ in run] for run in digests.neighbours(arrays, 4)]
    assert runs == [["w0"], ["w1", "w2"], ["w3", "w4"], ["w5", "w6"]]


def document(step: int) -> checkpoints.Document:
    rows, root = checkpoints.describe(STATE)
    artifact, graph = (f"sha256:{digit * 64}" for digit in "01")
    options = {"data": _GOOD, "seed": f"0x{7:016x}", "last": "drop", "batch": 32, "samples": 100}
    return checkpoints.Document(
        checkpoints.FORMAT, artifact, "../a", "train_step", graph, step, 1, 2, options, "0x3f800000", rows, root
    )


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path):
    for step in (1, 2, 3, 4):
        checkpoints.write(tmp_path, document(step), STATE, keep=2)
    read = checkpoints.read(tmp_path)
    assert read.document == document(4)
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in read.state.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in STATE.items()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-0000000{step}.{kind}" for step in (3, 4) for kind in ("json", "safetensors")
    ]


def test_every_changed_byte_of_a_checkpoint_is_found(tmp_path: Path):
    path = checkpoints.write(tmp_path, document(1), STATE, keep=1)
    tried = 0
    for file, places in (
        (path, range(0, path.stat().st_size, 7)),
        (path.with_suffix(".safetensors"), range(0, 900, 5)),
    ):
        good = file.read_bytes()
        header_end = 8 + int.from_bytes(good[:8], "little") if file.suffix == ".safetensors" else 0
        for place in places:
            if place >= len(good) or (place < header_end and good[place : place + 1] == b" "):
                continue
            file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            with pytest.raises(ReproError):
                checkpoints.read(path)
            tried += 1
        file.write_bytes(good)
    assert tried > 200
    checkpoints.read(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensors", "abc"), ("tensors", [["a", "b"]]), ("options", 5), ("options", {"seed": "0x0"}), ("entry", []),
        ("artifact_path", 5), ("step", "x"), ("step", -1), ("epoch", True), ("loss", 4),
    ],
)  # fmt: skip
def test_a_document_that_says_something_else(field: str, value: Any, tmp_path: Path):
    """With a digest that holds: somebody made it so."""
    path = checkpoints.write(tmp_path, document(1), STATE, keep=1)
    fields = {name: item for name, item in json.loads(path.read_bytes()).items() if name != "digest"} | {field: value}
    path.write_bytes(encode({**fields, "digest": sha256(encode(fields))}))
    with pytest.raises(ReproError, match=r"checkpoint\.schema\.json") as refused:
        checkpoints.read(path)
    assert refused.value.found is not None
    assert refused.value.found.startswith(field)


def test_a_document_without_its_tensors_and_a_folder_without_any(tmp_path: Path):
    path = checkpoints.write(tmp_path, document(1), STATE, keep=1)
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(ReproError, match="cannot be read"):
        checkpoints.read(path)
    path.unlink()
    with pytest.raises(ReproError, match="holds no checkpoint"):
        checkpoints.read(tmp_path)


# ── traces ──────────────────────────────────────────────────────────────────────────────────────────

HEADER: dict[str, Any] = {
    "format": trace.FORMAT, "entry": "train_step", "graph": "sha256:" + "0" * 64, "contract": 1, "data": _GOOD,
    "seed": f"0x{7:016x}", "last": "drop", "batch": 32, "samples": 100, "tensors": [[n, "f32[]"] for n in STATE],
    "step": 0, "state": _GOOD,
}  # fmt: skip


def written(path: Path, steps: int = 5) -> list[bytes]:
    writer = trace.TraceWriter(path, HEADER, 0, False, trace.Detail(state_every=2, tensors=True))
    writer.begin()
    for step in range(1, steps + 1):
        state = STATE if writer.detail.state_of(step) else None
        writer.add(step, np.array(step, np.float32), {"x": np.arange(step)}, state)
    writer.sync()
    writer.close()
    return path.read_bytes().splitlines()


def test_each_line_holds_the_digest_of_the_one_before(tmp_path: Path):
    lines = written(tmp_path / "t")
    assert len(lines) == 6
    for before, line in itertools.pairwise(lines):
        document = json.loads(line)
        assert encode(document) == line
        assert document["previous"] == "sha256:" + hashlib.sha256(before).hexdigest()
        assert (document["state"] is None) == (document["step"] % 2 == 1)
    assert json.loads(lines[2])["state"] == digests.of_arrays(STATE)
    assert len(trace.read(tmp_path / "t").steps) == 5


def test_every_changed_byte_but_the_last_lines_is_found(tmp_path: Path):
    """The last line has no line after it: its own form is all that vouches for it."""
    path = tmp_path / "t"
    lines = written(path)
    good = path.read_bytes()
    end = len(good) - len(lines[-1]) - 1
    for place in range(0, end, 11):
        path.write_bytes(good[:place] + bytes([good[place] ^ 2]) + good[place + 1 :])
        with pytest.raises(ReproError):
            trace.read(path)


def test_a_line_left_out_is_named(tmp_path: Path):
    path = tmp_path / "t"
    lines = written(path)
    path.write_bytes(b"\n".join([*lines[:2], *lines[3:]]) + b"\n")
    with pytest.raises(ReproError, match="damaged at line 3") as caught:
        trace.read(path)
    assert caught.value.exit_code == EXIT_MISMATCH


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"{}\n", b"[]\n", b"7", b"\xff\x00\n", b'{"format":"repro-trace/0"}\n']
)
def test_what_is_no_trace_is_wrong_use(tmp_path: Path, content: bytes):
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(ReproError) as caught:
        trace.read(path)
    assert caught.value.exit_code == EXIT_USAGE


def test_a_torn_last_line_is_for_resuming_only(tmp_path: Path):
    path = tmp_path / "t"
    written(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ReproError, match="damaged at line 6"):
        trace.read(path)
    assert len(trace.read(path, torn=True).steps) == 4


def test_a_trace_that_does_not_reach_the_checkpoint_is_refused(tmp_path: Path):
    written(tmp_path / "t")
    with pytest.raises(ReproError, match="does not reach the checkpoint"):
        trace.TraceWriter(tmp_path / "t", HEADER, 9, True, trace.Detail())


_ROWS: list[Any] = [["input", "x", "f32[2]", []], ["dot", "", "f32[]", [0, 0]]]


@pytest.mark.parametrize(
    ("rows", "nodes", "line"),
    [
        (_ROWS, [_GOOD], 2), (_ROWS, [_GOOD, "blake3:0"], 2), (_ROWS, [_GOOD, 7], 2), (_ROWS, "nodes", 2),
        (_ROWS, [_GOOD, "sha256:" + "0" * 64], 2), (None, [_GOOD, _GOOD], 2),
        ([["dot", "", "f32[]", [0]]], [_GOOD], 1), ([["dot", "", "f32[]"]], [_GOOD], 1), ("rows", [_GOOD], 1),
        ([["dot", 3, "f32[]", []]], [_GOOD], 1), ([["dot", "", "f32[]", [-1]]], [_GOOD], 1),
    ],
)  # fmt: skip
def test_nodes_that_do_not_fit_their_rows_are_refused(tmp_path: Path, rows: Any, nodes: Any, line: int):
    header = HEADER if rows is None else HEADER | {"nodes": rows}
    writer = trace.TraceWriter(tmp_path / "t", header, 0, False, trace.Detail())
    writer.begin()
    writer.add(1, np.array(1, np.float32), {}, None, nodes)
    writer.close()
    with pytest.raises(ReproError, match=f"damaged at line {line}"):
        trace.read(tmp_path / "t")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entry", [1]), ("seed", "zz"), ("tensors", "abc"), ("tensors", [["w"]]), ("step", "0"), ("step", -1),
        ("batch", 0), ("samples", True), ("last", "keep"), ("state", None), ("data", "sha256:" + "0" * 64), ("more", 1),
        ("graph", 7),
    ],
)  # fmt: skip
def test_a_first_line_that_says_something_else(field: str, value: Any, tmp_path: Path):
    (tmp_path / "t").write_bytes(encode(HEADER | {field: value}) + b"\n")
    with pytest.raises(ReproError, match="damaged at line 1") as refused:
        trace.read(tmp_path / "t")
    assert field in str(refused.value.found)


@pytest.mark.parametrize(
    ("field", "value"),
    [("loss", 1), ("loss", "1.0"), ("loss", "0x12345"), ("inputs", None), ("inputs", [_GOOD]), ("state", "0")],
)
def test_a_step_that_says_something_else(field: str, value: Any, tmp_path: Path):
    """With a chain that holds."""
    *before, last = written(tmp_path / "t")
    lines = [*before, encode(json.loads(last) | {field: value})]
    (tmp_path / "t").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(ReproError, match="damaged at line 6"):
        trace.read(tmp_path / "t")


def test_nodes_that_fit_their_rows_are_read(tmp_path: Path):
    writer = trace.TraceWriter(tmp_path / "t", HEADER | {"nodes": _ROWS}, 0, False, trace.Detail())
    writer.begin()
    writer.add(1, np.array(1, np.float32), {}, None, [_GOOD, _GOOD])
    writer.close()
    assert trace.read(tmp_path / "t").steps[0]["nodes"] == [_GOOD, _GOOD]
