"""A benchmark as rows of tables, and as a roofline picture (Williams, Waterman and Patterson 2009)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from repro.bench.kernels import KernelTime
from repro.bench.measuring import Timing
from repro.bench.peaks import Peaks
from repro.bench.sides import OTHER
from repro.bench.suite import Benchmark, Measurement
from repro.errors import EXIT_USAGE, ReproError

COLUMNS = (
    "workload",
    "mode",
    "threads",
    "repro",
    "of peak",
    "torch",
    "torch.compile",
    "faster torch / repro",
    "onnxruntime",
    "ort / repro",
    "memory",
    "build",
)
_OTHER_COLUMN = "other / repro"
KERNEL_COLUMNS = ("kernel", "calls", "ms", "share", "GFLOP/s", "of peak", "GB/s", "of memory")


def columns(benchmark: Benchmark) -> tuple[str, ...]:
    """Those of `rows`; the last is there where another version was measured."""
    return (*COLUMNS, _OTHER_COLUMN) if _with_other(benchmark) else COLUMNS


def _with_other(benchmark: Benchmark) -> bool:
    return any(timing.side == OTHER.name for each in benchmark.measurements for timing in each.timings)


def rows(benchmark: Benchmark) -> Iterator[tuple[str, ...]]:
    """One for each measurement: milliseconds by medians, share of the machine's peak, ratios with 95 % intervals, MiB,
    seconds of the build."""
    with_other = _with_other(benchmark)
    for each in benchmark.measurements:
        compiled = each.timing("torch.compile")
        torch = "torch" if compiled is None or _faster(each, "torch", compiled) else "torch.compile"
        yield (
            each.workload, each.mode, str(each.threads), _time(each, "repro"), share_text(each),
            _time(each, "torch"), _time(each, "torch.compile"), ratio_text(each, torch),
            _time(each, "onnxruntime"), ratio_text(each, "onnxruntime"), _memory(each), f"{each.build_seconds:.1f} s",
            *([ratio_text(each, OTHER.name) or _time(each, OTHER.name)] if with_other else []),
        )  # fmt: skip


def _faster(each: Measurement, side: str, other: Timing) -> bool:
    mine = each.timing(side)
    return mine is not None and mine.seconds <= other.seconds


def _time(each: Measurement, side: str) -> str:
    found = each.timing(side)
    if found is not None:
        return f"{found.seconds * 1e3:.2f} ms"
    return next((timing.reason for timing in each.timings if timing.side == side), "")


def share_text(each: Measurement) -> str:
    """`0.86 fma`, `0.97 memory`: of what the machine allows."""
    found = each.share_of_peak
    return "" if found is None else f"{found[0]:.2f} {found[1]}"


def ratio_text(each: Measurement, side: str) -> str:
    """A side's time over ours with its interval; empty where it did not run."""
    found = each.ratios.get(side)
    return "" if found is None else found.text


def _memory(each: Measurement) -> str:
    return " / ".join(
        f"{each.memory[side] / 2**20:.0f}" for side in ("repro", "torch", "onnxruntime") if side in each.memory
    )


def kernel_rows(benchmark: Benchmark, each: Measurement) -> Iterator[tuple[str, ...]]:
    """One for each kernel of a measurement, the longest first."""
    peak = next(peak for peak in benchmark.peaks if peak.threads == each.threads)
    whole = sum(kernel.seconds for kernel in each.kernels) + each.waiting
    for kernel in each.kernels:
        yield (
            f"{kernel.what} {kernel.kernel[:8]}", str(kernel.calls), f"{kernel.seconds * 1e3:.3f}",
            f"{kernel.seconds / whole:.1%}", f"{kernel.flops / 1e9:.1f}", f"{kernel.flops / peak.flops:.0%}",
            f"{kernel.bandwidth / 1e9:.1f}", f"{_of_memory(kernel, peak):.0%}",
        )  # fmt: skip
    yield "waiting for each other", "", f"{each.waiting * 1e3:.3f}", f"{each.waiting / whole:.1%}", "", "", "", ""


def _of_memory(kernel: KernelTime, peak: Peaks) -> float:
    """How near a kernel is to what memory allows; above 1 where a cache holds what it reads."""
    return peak.floor(kernel.read, kernel.bytes) / kernel.seconds if kernel.seconds else 0.0


def drawing() -> tuple[Any, Any]:
    """Plotly's graphs and pages. Raises ReproError without it (the extra `report`)."""
    try:
        return import_module("plotly.graph_objects"), import_module("plotly.io")
    except ImportError as error:
        raise ReproError(
            "the roofline picture needs plotly", next="pip install 'repro[report]'", exit_code=EXIT_USAGE
        ) from error


def roofline(benchmark: Benchmark) -> str:
    """A page with a picture for each measurement that has kernels. Raises ReproError without plotly."""
    graphs, io = drawing()
    parts: list[str] = []
    for each in benchmark.measurements:
        if each.kernels:
            figure = _figure(graphs, benchmark, each)
            parts.append(io.to_html(figure, full_html=False, include_plotlyjs=not parts))
    style = "<style>body{font-family:sans-serif;margin:1rem;max-width:70rem}</style>"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Roofline</title>{style}'
    return f"{head}<h1>Kernels under this machine's roof</h1>{''.join(parts)}</html>\n"


def _figure(graphs: Any, benchmark: Benchmark, each: Measurement) -> Any:
    peak = next(peak for peak in benchmark.peaks if peak.threads == each.threads)
    ridge = peak.flops / peak.bytes
    ends = [0.01, ridge, max(1000.0, 10 * ridge)]
    roof = graphs.Scatter(
        x=ends, y=[min(peak.flops, x * peak.bytes) / 1e9 for x in ends], mode="lines", name="fma loop and memory"
    )
    whole = sum(kernel.seconds for kernel in each.kernels)
    points = graphs.Scatter(
        x=[kernel.operations / max(kernel.bytes, 1) for kernel in each.kernels],
        y=[kernel.flops / 1e9 for kernel in each.kernels],
        mode="markers",
        name="kernels (area: share of the time)",
        marker={"size": [max(5.0, 60 * (kernel.seconds / whole) ** 0.5) for kernel in each.kernels], "opacity": 0.6},
        text=[f"{kernel.what}<br>{kernel.seconds * 1e3:.3f} ms, {kernel.calls} calls" for kernel in each.kernels],
        hoverinfo="text",
    )
    figure = graphs.Figure([roof, points])
    figure.update_xaxes(type="log", title="operations a byte")
    figure.update_yaxes(type="log", title="billion operations a second")
    figure.update_layout(title=f"{each.workload}, {each.mode}, {each.threads} threads", legend={"orientation": "h"})
    return figure
