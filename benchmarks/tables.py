"""The tables of docs/performance.md, from records that `repro bench --json` wrote, and those of docs/zoo.md and
docs/gpu.md.

    repro bench WORKLOAD... --json benchmarks/records/MACHINE/NAME.json
    python -m benchmarks.bounds --record benchmarks/records/MACHINE/bounds.jsonl
    python -m benchmarks.zoo --record benchmarks/records/MACHINE/zoo.jsonl
    python -m benchmarks.gpu --results benchmarks/records/DEVICE/gpu.jsonl
    python -m benchmarks.tables                                            # prints them
    python -m benchmarks.tables --write docs/performance.md                # puts them between their marks

A record is what the command wrote, every sample of it; no number of a table is written by hand. Where two records of a
machine have the same measurement, the one whose file name is later counts.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from benchmarks import bounds_table, gpu_table, zoo_table
from benchmarks.markdown import head, line
from repro import ending
from repro.bench.report import ratio_text, share_text
from repro.bench.suite import Benchmark, Measurement
from repro.bench.workloads import FORWARD, MODES, STEP, WORKLOADS
from repro.bench.workloads.models import MODELS

RECORDS = Path(__file__).parent / "records"
ZOO = "zoo.jsonl"
"""A machine's record of the zoo, beside those of `repro bench`."""
MIB = 1 << 20
MARKED = re.compile(r"<!-- (?P<name>\w+) of (?P<machine>[\w-]+) -->\n.*?<!-- end of (?P=name) -->", re.S)
SQUARE, SKINNY = re.compile(r"dot/\d+"), re.compile(r"dot(_t)?/\d+x\d+x\d+")
STREAMED = re.compile(r"layer_norm|elementwise|adam|sum/\d+")


@dataclass(frozen=True)
class Row:
    measurement: Measurement

    def cells(self, peers: Iterable[str]) -> tuple[str, ...]:
        """Those under `_HEAD`, then each peer's ratio."""
        each, ours = self.measurement, self.measurement.timing("repro")
        time = "" if ours is None else f"{ours.seconds * 1e3:.2f}"
        share = share_text(each)
        ratios = (ratio_text(each, side) for side in peers)
        return each.workload, each.mode, str(each.threads), time, share, *ratios

    @property
    def mebibytes(self) -> str:
        return " / ".join(
            f"{self.measurement.memory[side] / MIB:.0f}"
            for side in ("repro", "torch")
            if side in self.measurement.memory
        )


def rows(machine: Path) -> list[Row]:
    """Every measurement of a machine's records once, in the order of the workloads."""
    found: dict[tuple[str, str, int], Row] = {}
    for path in sorted(machine.glob("*.json")):
        benchmark = Benchmark.of(json.loads(path.read_text(encoding="utf-8")))
        for each in benchmark.measurements:
            found[each.workload, each.mode, each.threads] = Row(each)
    names = list(WORKLOADS)
    order = sorted(found, key=lambda key: (names.index(key[0]), MODES.index(key[1]), key[2]))
    return [found[key] for key in order]


def models(machine: Path) -> Iterator[str]:
    yield from head(*_HEAD, *_PEERS.values(), "MiB, repro / PyTorch")
    for row in rows(machine):
        if row.measurement.workload in _MODELS:
            yield line(*row.cells(_PEERS), row.mebibytes)


def operations(machine: Path) -> Iterator[str]:
    peers = {side: head for side, head in _PEERS.items() if side != "torch.compile"}
    yield from head(*_HEAD, *peers.values())
    for row in rows(machine):
        if row.measurement.workload not in _MODELS:
            yield line(*row.cells(peers))


def aims(machine: Path) -> Iterator[str]:
    """What is asked of all, and what the worst of them has: its name behind the number."""
    found = rows(machine)
    threads = sorted({row.measurement.threads for row in found})
    yield from head(*("", "asked", *(f"{count} thread{'s' * (count > 1)}" for count in threads)))
    for aim in _AIMS:
        cells = [aim.cell([row for row in found if row.measurement.threads == count]) for count in threads]
        if any(cells):
            yield line(aim.what, aim.asked, *cells)
    if (machine / bounds_table.RECORD).exists():
        what, asked, cell = bounds_table.aim(machine)
        yield line(what, asked, *(cell if count == 1 else "" for count in threads))


@dataclass(frozen=True)
class _Aim:
    """Of the rows that `value` has a number for, the `worst`; before it their geometric mean if `mean`."""

    what: str
    asked: str
    value: Callable[[Row], float | None]
    worst: Callable[[Iterable[tuple[float, str]]], tuple[float, str]] = min
    mean: bool = False

    def cell(self, found: Iterable[Row]) -> str:
        values = [(value, row.measurement.workload) for row in found if (value := self.value(row)) is not None]
        if not values:
            return ""
        number, name = self.worst(values)
        mean = exp(sum(log(value) for value, _ in values) / len(values))
        return f"{mean:.2f}, least {number:.2f} ({name})" if self.mean else f"{number:.2f} ({name})"


def _peer(side: str, mode: str, among: Callable[[str], object]) -> Callable[[Row], float | None]:
    """A peer's time over ours, of the workloads of a mode that are `among` those of an aim."""

    def value(row: Row) -> float | None:
        each = row.measurement
        found = each.ratios.get(side) if each.mode == mode and among(each.workload) else None
        return None if found is None else found.value

    return value


def _share(among: Callable[[str], object], mode: str | None = None) -> Callable[[Row], float | None]:
    """The share of the machine's peak."""

    def value(row: Row) -> float | None:
        each = row.measurement
        wanted = among(each.workload) and mode in (None, each.mode)
        found = each.share_of_peak if wanted else None
        return None if found is None else found[0]

    return value


def _memory(row: Row) -> float | None:
    """Of a training step, ours over PyTorch's."""
    each = row.measurement
    held = each.memory if each.mode == STEP else {}
    return held["repro"] / held["torch"] if {"repro", "torch"} <= held.keys() else None


def zoo(machine: Path) -> Iterator[str]:
    """Models as users bring them."""
    yield from zoo_table.lines(machine / ZOO)


def steps(machine: Path) -> Iterator[str]:
    """Training steps of models as users bring them."""
    yield from zoo_table.steps(machine / ZOO)


_MODELS = {model.name for model in MODELS}
_HEAD = ("workload", "mode", "threads", "repro, ms", "of peak")
_PEERS = {
    "torch": "PyTorch / repro",
    "torch.compile": "torch.compile / repro",
    "onnxruntime": "ONNX Runtime / repro",
}
_AIMS = (
    _Aim("steps, PyTorch / repro", "1.0", _peer("torch", STEP, _MODELS.__contains__)),
    _Aim("steps, torch.compile / repro", "1.0", _peer("torch.compile", STEP, _MODELS.__contains__)),
    _Aim("forward passes, ONNX Runtime / repro", "1.0", _peer("onnxruntime", FORWARD, _MODELS.__contains__)),
    _Aim("steps of mlp, resnet18, gpt, of the fma peak", "0.85", _share({"mlp", "resnet18", "gpt"}.__contains__, STEP)),
    _Aim("memory of a step, repro / PyTorch", "at most 1.0", _memory, max),
    _Aim("square dots, PyTorch / repro", "1.0, least 0.97", _peer("torch", FORWARD, SQUARE.fullmatch), mean=True),
    _Aim("skinny dots, PyTorch / repro", "0.95", _peer("torch", FORWARD, SKINNY.fullmatch), mean=True),
    _Aim("layer norm, sums, elementwise, Adam, of memory", "0.9", _share(STREAMED.fullmatch)),
)
TABLES: dict[str, Callable[[Path], Iterator[str]]] = {
    "aims": aims,
    "models": models,
    "operations": operations,
    "bounds": bounds_table.lines,
    "zoo": zoo,
    "steps": steps,
    "gpu": gpu_table.cases,
    "gpu_steps": gpu_table.steps,
    "gpu_bits": gpu_table.bits,
    "gpu_functions": gpu_table.functions,
    "gpu_quantized": gpu_table.quantized,
}
_OF_THE_ZOO = ("zoo", "steps")
_OF_A_GPU = {
    gpu_table.SPEED: ("gpu", "gpu_steps"),
    gpu_table.BITS: ("gpu_bits",),
    gpu_table.FUNCTIONS: ("gpu_functions",),
    gpu_table.QUANTIZED: ("gpu_quantized",),
}


def marked(name: str, machine: Path) -> str:
    """A table between the marks that say which it is."""
    lines = TABLES[name](machine)
    return "\n".join((f"<!-- {name} of {machine.name} -->", *lines, f"<!-- end of {name} -->"))


def tables_of(machine: Path) -> Iterator[str]:
    """The tables that a machine has records for."""
    if any(machine.glob("*.json")):
        yield from ("aims", "models", "operations")
    if (machine / bounds_table.RECORD).exists():
        yield "bounds"
    if (machine / ZOO).exists():
        yield from _OF_THE_ZOO
    for record, names in _OF_A_GPU.items():
        if (machine / record).exists():
            yield from names


def renewed(text: str, records: Path = RECORDS) -> str:
    """A page with its marked tables written anew."""

    def table(found: re.Match[str]) -> str:
        return marked(found["name"], records / found["machine"])

    return MARKED.sub(table, text)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables", description="Tables of measurements, from records."
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="renew the tables of this page")
    options = parser.parse_args(words)
    if options.write is not None:
        options.write.write_text(renewed(options.write.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    for machine in sorted(each for each in RECORDS.iterdir() if each.is_dir()):
        print(*(marked(name, machine) for name in tables_of(machine)), sep="\n\n")
    return 0


if __name__ == "__main__":
    ending.run(main)
