"""Peers for the prober's processes: one that adds in lanes, one that dies, one that never ends, one that is absent."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from repro.audit.peers.peer import Adder, PeerError
from repro.audit.records import Executor, Outcome
from repro.ir.types import Array


def in_four_lanes(a: Array, b: Array) -> float:
    lanes = [a[0] * 0] * 4
    for position, (x, y) in enumerate(zip(a, b, strict=True)):
        lanes[position % 4] = lanes[position % 4] + x * y
    return float((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))


def dies(a: Array, b: Array) -> float:
    os.abort()


def hangs(a: Array, b: Array) -> float:
    while True:
        time.sleep(1)


def raises(a: Array, b: Array) -> float:
    raise RuntimeError("no kernel\nfor this")


class Lanes:
    family = "lanes"
    operations: Mapping[str, Adder] = {"dot": in_four_lanes}

    def variants(self) -> tuple[Executor, ...]:
        return Executor(self.family, (("threads", "1"),)), Executor(self.family, (("threads", "2"),))

    def named(self) -> tuple[Executor, ...]:
        return ()

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        return self.operations


class Dies(Lanes):
    family = "dies"
    operations: Mapping[str, Adder] = {"dot": in_four_lanes, "sum": dies}


class Hangs(Lanes):
    family = "hangs"
    operations: Mapping[str, Adder] = {"dot": hangs}


class Raises(Lanes):
    family = "raises"
    operations: Mapping[str, Adder] = {"sum": raises, "dot": in_four_lanes}


class Absent(Lanes):
    family = "absent"

    def adders(self, executor: Executor) -> Mapping[str, Adder]:
        raise PeerError(Outcome.MISSING, "not installed")


TABLE = {each.family: f"{__name__}:{each.__name__}" for each in (Lanes, Dies, Hangs, Raises, Absent)}
