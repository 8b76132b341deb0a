from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.artifact.canonical import decode, encode, hex64
from repro.errors import InternalError, ReproError

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(documents)
def test_what_is_written_reads_back(document: object) -> None:
    data = encode(document)
    assert decode(data, "it") == document
    assert encode(decode(data, "it")) == data


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',  # a key twice
        b'{"b":1,"a":2}',  # order
        b'{"a": 1}',
        b'{"a":1.0}',
        b'{"a":1e0}',
        b'{"a":NaN}',
        b'{"a":"\\u0041"}',
        b'{"a":01}',
        b'{"a":1}\n',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\xff"}',
        b'{"a":9007199254740993}',
        b'{"a":-0}',
        b'{"a":0.5}',
        b"",
        b"[" * 100_000,
        b'{"a":"\\ud800"}',
    ],
)
def test_other_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(ReproError, match="RFC 8785"):
        decode(data, "it")


def test_floats_are_never_written() -> None:
    with pytest.raises(InternalError):
        encode({"a": [1.0]})


def test_hex64() -> None:
    assert hex64(0) == "0x0000000000000000"
    assert hex64(-1) == "0xffffffffffffffff"
