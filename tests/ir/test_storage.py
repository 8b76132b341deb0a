"""Users' arrays and stored ones: the same bits, contiguous, of this machine's order; what is both already stays."""

from __future__ import annotations

import numpy as np
import pytest

from repro.ir.types import BF16, BOOL, F32, I64, to_face, to_storage

PLAIN = np.arange(12, dtype=np.float32).reshape(3, 4)


class Named(np.ndarray):
    pass


@pytest.mark.parametrize(
    "given",
    [PLAIN.T, PLAIN[:, ::2], PLAIN[::-1], PLAIN.astype(">f4"), PLAIN.view(Named), PLAIN[0, 1:2].reshape(())],
    ids=["turned", "every other", "backwards", "other order", "subclass", "scalar"],
)
def test_what_is_stored_is_plain(given: np.ndarray) -> None:
    for made in (to_storage(given, F32), to_face(to_storage(given, F32), F32)):
        assert type(made) is np.ndarray and made.dtype == np.dtype(np.float32) and made.flags.c_contiguous
        assert made.dtype.isnative and made.shape == given.shape and np.array_equal(made, np.asarray(given))


def test_what_is_both_stays() -> None:
    assert to_storage(PLAIN, F32) is PLAIN and to_face(PLAIN, F32) is PLAIN


def test_what_is_stored_otherwise() -> None:
    """A bool of any byte for true, and a type that NumPy does not know."""
    assert to_storage(np.array([0, 1, 7], np.uint8).view(bool), BOOL).view(np.uint8).tolist() == [0, 1, 1]
    given = np.array([1.5, -0.0], BF16.face)
    assert to_storage(given, BF16).dtype == BF16.storage and to_face(to_storage(given, BF16), BF16).dtype == BF16.face
    assert to_storage(np.array([1 << 40]), I64).tolist() == [1 << 40]
