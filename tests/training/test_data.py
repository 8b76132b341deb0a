"""Data of a run: which samples come when, and what does not fit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from repro.artifact.config import Value
from repro.errors import ReproError
from repro.numerics.random_bits import philox_words
from repro.training import data, digests

VALUES = (Value("x", "f32[4,3]"), Value("labels", "i64[4]"), Value("rate", "f32[]"))


def arrays(samples: int = 10) -> dict[str, np.ndarray]:
    x = np.arange(samples * 3, dtype=np.float32).reshape(samples, 3)
    return {"x": x, "labels": np.arange(samples), "rate": np.array(0.5, np.float32)}


def test_a_digest_is_of_the_values_however_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever pieces it is taken in: no array is taken as a whole, it may be mapped."""
    values = (Value("x", "f32[4,3]"), Value("half", "bf16[4]"), Value("w", "f32[]"))
    x = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
    half, w = x[:, 0].astype(ml_dtypes.bfloat16), np.array(2, np.float32)
    wanted = digests.of_arrays({"x": x.reshape(1000, 1, 3), "half": half.reshape(1000, 1), "w": w})
    np.save(tmp_path / "x.npy", np.asfortranarray(x.astype(">f4")))
    others = (x, x.astype(">f4"), np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], data.read(tmp_path)["x"])
    for pieces in (data.PIECE_BYTES, 400, 1):
        monkeypatch.setattr(data, "PIECE_BYTES", pieces)
        for array in others:
            fitted = data.fit({"x": array, "half": half.view("V2"), "w": w}, values, None)
            assert fitted.digest(lambda: False) == wanted
            assert max(len(piece) for piece in data.in_pieces(fitted.sampled["x"])) <= max(1, pieces // 12)
    asked = iter([False, False, True])
    with pytest.raises(KeyboardInterrupt):
        data.fit({"x": x, "half": half, "w": w}, values, None).digest(lambda: next(asked))


def test_an_epoch_takes_each_sample_once_in_the_order_of_its_words():
    order = data.order_of(7, 3, 1000)
    words = philox_words(7, data.SHUFFLE_SLOT, 3, 1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() == sorted(range(1000), key=lambda i: (int(words[i]), i))


def test_equal_words_keep_the_order_of_the_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "philox_words", lambda *_: np.array([5, 1, 5, 1, 0], np.uint32))
    assert data.order_of(0, 0, 5).tolist() == [4, 1, 3, 0, 2]


def test_the_order_is_the_same_on_every_host():
    """Digests as this code gave them on x86-64; the words themselves are tested against Philox's known answers."""
    text = ",".join(map(str, data.order_of(0, 0, 1797).tolist()))
    assert hashlib.sha256(text.encode()).hexdigest() == ORDER_OF_EPOCH_0
    assert data.order_of(0, 0, 64).tolist() != data.order_of(0, 1, 64).tolist()
    assert data.order_of(0, 0, 64).tolist() != data.order_of(1, 0, 64).tolist()


ORDER_OF_EPOCH_0 = "05fc8797a426ea4d83c19bf0a5662b547701be5edf5531e3a27f171071e8d692"


def test_dropping_leaves_out_what_does_not_fill_a_batch():
    batches = data.Batches(data.fit(arrays(), VALUES, None), 0, "drop")
    assert batches.per_epoch == 2
    taken = [batches.inputs(step)["labels"].tolist() for step in range(2)]
    assert [*taken[0], *taken[1]] == data.order_of(0, 0, 10)[:8].tolist()
    assert batches.cursor(5) == (2, 1)
    assert float(batches.inputs(0)["rate"]) == 0.5


def test_padding_fills_up_with_labels_that_count_for_nothing():
    batches = data.Batches(data.fit(arrays(), VALUES, -100), 0, "pad")
    order = data.order_of(0, 0, 10).tolist()
    assert batches.per_epoch == 3
    last = batches.inputs(2)
    assert last["labels"].tolist() == [order[8], order[9], -100, -100]
    assert last["x"][:, 0].tolist() == [3.0 * i for i in (order[8], order[9], order[0], order[1])]


def test_padding_fills_up_with_weights_of_zero():
    values = (Value("x", "f32[4,3]"), Value("labels", "f32[4]"), Value("weight", "f32[4]"))
    given = {"x": arrays()["x"], "labels": np.ones(10, np.float32), "weight": np.ones(10, np.float32)}
    last = data.Batches(data.fit(given, values, None), 0, "pad").inputs(2)
    assert last["weight"].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("flat", [True, False])
def test_an_input_may_have_several_rows_for_each_sample(flat: bool):
    """A label for each character of a line."""
    values = (Value("ids", "i64[2,3]"), Value("labels", "i64[6]"))
    ids = np.arange(9).reshape(3, 3)
    fitted = data.fit({"ids": ids, "labels": (ids + 1).reshape(-1) if flat else ids + 1}, values, -100)
    assert (fitted.batch, fitted.samples) == (2, 3)
    batches = data.Batches(fitted, 0, "pad")
    for step in (0, 1):
        given = batches.inputs(step)
        expected = (given["ids"] + 1).reshape(-1)
        if step == 1:
            expected[3:] = -100
        assert given["labels"].tolist() == expected.tolist()


def test_an_array_of_exactly_the_inputs_shape_is_fixed():
    values = (Value("mask", "f32[3,3]"), Value("x", "f32[4,2]"), Value("labels", "i64[4]"))
    given = {"mask": np.eye(3, dtype=np.float32), "x": np.zeros((8, 2), np.float32), "labels": np.arange(8)}
    fitted = data.fit(given, values, None)
    assert (fitted.batch, fitted.samples, list(fitted.fixed)) == (4, 8, ["mask"])


def test_fewer_samples_than_a_batch_can_only_be_padded():
    fitted = data.fit(arrays(1), VALUES, -100)
    assert data.Batches(fitted, 0, "pad").inputs(0)["labels"].tolist() == [0, -100, -100, -100]
    with pytest.raises(ReproError, match="no whole batch"):
        data.Batches(fitted, 0, "drop")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((10, 3), np.float64)}, "array 'x' of the data does not fit"),
        ({"x": np.zeros((9, 3), np.float32)}, "array 'x' of the data does not fit"),
        ({"x": np.zeros((10, 4), np.float32)}, "array 'x' of the data does not fit"),
        ({"labels": np.zeros((), np.int64)}, "does not fit"),
        ({"more": np.zeros(3)}, "unknown: more"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, np.ndarray], message: str):
    with pytest.raises(ReproError, match=message):
        data.fit({**arrays(), **change}, VALUES, None)


def test_a_missing_array_is_named():
    with pytest.raises(ReproError, match="missing: labels"):
        data.fit({"x": arrays()["x"], "rate": arrays()["rate"]}, VALUES, None)


def test_a_folder_of_npy_files_is_mapped(tmp_path: Path):
    for name, array in arrays().items():
        np.save(tmp_path / f"{name}.npy", array)
    read = data.read(tmp_path)
    assert isinstance(read["x"], np.memmap)
    one, other = (data.Batches(data.fit(given, VALUES, None), 3, "drop").inputs(1) for given in (read, arrays()))
    assert {name: array.tobytes() for name, array in one.items()} == {n: a.tobytes() for n, a in other.items()}


@pytest.mark.parametrize("content", [b"", b"no array", b"\x80\x04K\x01."])
def test_a_file_that_is_no_plain_array_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ReproError, match=r"not an \.npy file") as caught:
        data.read(tmp_path)
    assert "allow_pickle" not in str(caught.value)
