"""Records on disk: what is written is read, on any machine; anything else is refused in the user's words."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from repro.artifact.canonical import encode, sha256
from repro.audit import environment
from repro.audit.capture import capture_json, key, load_arrays, read, store_arrays, value_at, value_of, write
from repro.audit.model import prepare
from repro.audit.records import Capture, Executor, Outcome, Record
from repro.errors import ReproError
from repro.ir.types import DTYPES, Array
from tests.audit.models import CHAIN, model

ARRAYS: dict[str, Array] = {
    **{dtype.name: np.array([[0, 1], [1, 0]]).astype(dtype.face) for dtype in DTYPES},
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "nan": np.array([np.nan, -0.0, np.inf], np.float32),
}


def record(values: bool = True) -> Record:
    """A record with a value of every type, and rows that did not run."""
    audited = prepare(model(CHAIN), bind={"N": 2})
    arrays = ARRAYS if values else {}
    shown = {name: value_of(array) for name, array in ARRAYS.items()}
    best = Capture(
        Executor("repro", (("target", "reference"),)),
        Outcome.RAN,
        served={"f32": shown["f32"]},
        values=shown,
        fed={"nan": shown["nan"]},
        arrays=arrays,
        fed_arrays={"nan": ARRAYS["nan"]} if values else {},
    )
    other = Capture(
        Executor(
            "numpy", (("kernel", "Haswell"),), (("OPENBLAS_CORETYPE", "Haswell"),), ("qemu-x86_64", "-cpu", "max")
        ),
        Outcome.RAN,
        environment={"versions": {"numpy": "2.4"}, "cores": 2},
        values={"f32": value_of(ARRAYS["f32"] + np.float32(1)), "later": shown["i64"]},
        faithful=False,
        implementations={"node": "onnx.reference"},
        notes=("differs from run to run: f32",),
        arrays={"f32": ARRAYS["f32"] + np.float32(1), "later": ARRAYS["i64"]} if values else {},
    )
    lost = Capture(
        Executor("torch"), Outcome.CRASHED, "SIGSEGV: Speicherzugriffsfehler \N{HEAVY EXCLAMATION MARK SYMBOL}"
    )
    inputs = {name: value_of(array) for name, array in audited.inputs.items()}
    return Record(audited.summary, inputs, best, (other, lost), environment.host(), "laptop")


def documents(found: Record) -> list[object]:
    """Everything in a record but its arrays."""
    captures = [capture_json(each) for each in (found.golden, *found.captures)]
    return [found.model, dict(found.inputs), captures, dict(found.host), found.label]


@pytest.mark.parametrize("values", [True, False])
def test_what_is_written_is_read(values: bool, tmp_path: Path) -> None:
    given, path = record(values), tmp_path / "run.json"
    write(given, path, values)
    assert (tmp_path / "run.safetensors").exists() == values
    found = read(path)
    assert documents(found) == documents(given)
    pairs = zip((given.golden, *given.captures), (found.golden, *found.captures), strict=True)
    for left, right in pairs:
        assert left.arrays.keys() == right.arrays.keys()
        assert left.fed_arrays.keys() == right.fed_arrays.keys()
        for name, array in left.arrays.items():
            assert right.arrays[name].dtype == array.dtype
            assert right.arrays[name].shape == array.shape
            assert value_of(right.arrays[name]) == value_of(array)


def test_the_same_record_is_the_same_bytes_and_holds_each_array_once(tmp_path: Path) -> None:
    paths = [tmp_path / name / "run.json" for name in ("left", "right")]
    for path in paths:
        path.parent.mkdir()
        write(record(), path, True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    tensors = [path.with_suffix(".safetensors") for path in paths]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()
    assert len(load_arrays(tensors[0])) == len({key(value_of(array)) for array in ARRAYS.values()}) + 1


def test_a_value_is_its_type_and_its_bits() -> None:
    array = np.array([1, -0.0], np.float32)
    assert value_of(array) == value_of(np.asfortranarray(array)) == value_of(array.astype(">f4"))
    assert value_of(array) != value_of(np.array([1, 0.0], np.float32))
    assert value_of(array) != value_of(array.reshape(2, 1))
    assert value_of(array).digest == sha256(b"\0\0\x80\x3f\0\0\0\x80")
    for kind, bits in ((np.float32, 0xFFC00001), (np.float64, 0xFFF8000000000001), (ml_dtypes.bfloat16, 0xFFC1)):
        nan = np.array([bits], np.dtype(f"u{np.dtype(kind).itemsize}")).view(kind)
        assert value_of(nan) == value_of(np.array([np.nan], kind))
    for name, each in ARRAYS.items():
        assert value_at(key(value_of(each))) == value_of(each), name
    with pytest.raises(KeyError):
        value_of(np.array(["text"]))


# ── what is no capture ──────────────────────────────────────────────────────────────────────────────


def test_damage_anywhere_is_found(tmp_path: Path) -> None:
    """One bit flipped at each of many places of either file, or its end cut off."""
    path = tmp_path / "run.json"
    write(record(), path, True)
    checked = 0
    for each in (path, path.with_suffix(".safetensors")):
        whole = each.read_bytes()
        for position in [*range(0, len(whole), max(1, len(whole) // 60)), len(whole) - 1]:
            damaged = bytearray(whole)
            damaged[position] ^= 1
            each.write_bytes(damaged)
            with pytest.raises(ReproError):
                read(path)
            checked += 1
        each.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ReproError):
            read(path)
        each.write_bytes(whole)
    assert checked > 100
    read(path)
    path.with_suffix(".safetensors").unlink()
    with pytest.raises(ReproError, match="values are missing"):
        read(path)


@pytest.mark.parametrize(
    "content", [b"", b"not JSON", b"[]", b"{}", b'{"format":"repro-capture/2"}', b"\xff\xfe", b"[" * 99999]
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ReproError) as caught:
        read(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("missing", ["no.json", "."])
def test_what_is_not_there_is_refused(missing: str, tmp_path: Path) -> None:
    with pytest.raises(ReproError):
        read(tmp_path / missing)
    with pytest.raises(ReproError):
        write(record(), tmp_path / "none" / "run.json", True)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("golden", "values", "f32"), "f33[2] sha256:" + "0" * 64),
        (("golden", "values", "f32"), "f32[99999999999999999999] sha256:" + "0" * 64),
        (("golden", "values", "f32"), "f32[2,2] sha256:" + "0" * 64 + "\n"),
        (("golden", "outcome"), "won"),
        (("golden", "executor", "family"), "a family"),
        (("captures",), {}),
        (("model", "nodes"), [{}]),
        (("label",), 5),
    ],
)
def test_documents_that_break_the_schema_are_refused_though_their_digest_holds(
    place: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    write(record(), path)
    document = json.loads(path.read_bytes())
    del document["digest"]
    at = document
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    path.write_bytes(encode({**document, "digest": sha256(encode(document))}))
    with pytest.raises(ReproError, match="schema"):
        read(path)


def test_an_array_under_another_name_is_refused(tmp_path: Path) -> None:
    names = [key(value_of(ARRAYS[name])) for name in ("f32", "f64")]
    store_arrays(tmp_path / "a", {names[0]: ARRAYS["f32"] + np.float32(1)})
    with pytest.raises(ReproError, match="cannot be read"):
        load_arrays(tmp_path / "a")
    with pytest.raises(ReproError, match="cannot be read"):
        load_arrays(tmp_path / "a", [names[1]])


def test_the_host_says_what_decides_bits() -> None:
    host = environment.host()
    assert host["cpu"]
    assert host["cores"] >= 1
    assert set(host["flags"]) <= set(environment.FLAGS)
    assert json.loads(encode(host)) == host
