"""The recorded errors of the f64 functions: today's code, at most 1 ulp, and the worst point stands."""

from __future__ import annotations

import numpy as np
import pytest

from proofs import double_points, doubles, mpfr, records, ulps
from proofs.doubles import Measure
from repro.ir.expressions import Expr
from repro.ir.types import F64, U64
from repro.numerics.elementary import FUNCTIONS
from repro.numerics.elementary.value import Value, select


@pytest.mark.parametrize("name", doubles.EVERY)
def test_every_function_has_a_measured_error(name: str) -> None:
    record = records.read(f"{name}.f64", doubles.SCHEMA)
    assert record["function"] == name
    records.check_identity(record, doubles.code_digest(name))
    assert record["points"]["asked"] >= 100_000_000
    assert record["points"]["screen"] > record["points"]["asked"] // 2


@pytest.mark.parametrize("name", doubles.EVERY)
def test_the_worst_point_is_as_bad_as_recorded(name: str) -> None:
    worst = records.read(f"{name}.f64", doubles.SCHEMA)["worst"]
    arguments = [mpfr.from_bits(int(bits, 16), F64) for bits in worst["arguments"]]
    result = float(Measure(name).results(np.array(arguments)[:, None])[0])
    assert f"{ulps.exactly(name, arguments, result):.6f}" == worst["ulps"]


@pytest.mark.parametrize("name", ["exp", "sin", "log"])
def test_an_error_of_two_ulps_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a few points among many thousands: those whose low bits are of one pattern."""
    right = FUNCTIONS[name]

    def faulty(x: Expr) -> Expr:
        bits = Value(right(x)).as_bits(U64)
        return select((Value(x).as_bits(U64) & 0xFFF).equals(0x123), bits + 2, bits).as_bits(F64).expr

    monkeypatch.setitem(doubles.EVERY, name, faulty)
    monkeypatch.setattr(doubles, "CONFIRMED", 0)
    monkeypatch.setattr(double_points, "OUTSIDE", 0)
    assert doubles.measure(name, 1 << 20, 3).worst > 1.4
