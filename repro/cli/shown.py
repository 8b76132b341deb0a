"""What the command line shows of results, as tables or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console

from repro.artifact.build import Role
from repro.artifact.checks import Report, Status
from repro.tables import inert, line, size, table

STYLES = {Status.GOOD: "green", Status.MISMATCH: "bold red", Status.NOT_RUN: "yellow"}


def short(digest: str) -> str:
    """The first 16 hex digits: enough to tell blobs apart in a table."""
    return digest.removeprefix("sha256:")[:16]


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def show_kernel(to: Console, content: Mapping[str, Any]) -> None:
    """One kernel as `inspect --kernel` shows it: its texts, then what is known of its cost."""
    for text in (content["loops"], content.get("ptx", ""), content.get("routine", "")):
        for each in text.splitlines():
            line(to, each.expandtabs(4))
    names = ("kernel", "target", "schedule", "code", "code_bytes")
    rows = [(name.replace("_", " "), str(content[name])) for name in names]
    rows += [
        (f"launch {launch['symbol']}", f"{launch['grid']} blocks of {launch['block']} threads")
        for launch in content.get("launches", ())
    ]
    to.print(table("kernel", ("what", "value"), [*rows, *_cost_rows(content)]))


def _cost_rows(content: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What the assembler says of a GPU kernel, what it cannot do without, and what was measured."""
    if "simulated" in content:
        took = content["simulated"]
        yield f"on {took['chip']}", f"{took['cycles']:,} cycles, {took['nanoseconds'] / 1000:.2f} us"
        yield "VMEM", f"{took['vmem_bytes']:,} bytes"
        yield from ((name, f"{count:,}") for name, count in took["counts"].items())
    if "floor" not in content:
        return
    if content["assembled"] is None:
        yield "ptxas", "not run: it is not on the PATH"
    for name, used in (content["assembled"] or {}).items():
        share = "" if used["fma_per_mille"] is None else f", fma {used['fma_per_mille'] / 10:.1f} % of its inner loop"
        spilled = f"{used['spill_stores']} + {used['spill_loads']} bytes spilled"
        yield f"ptxas on {name}", f"{used['registers']} registers, {spilled}{share}"
    floor, measured = content["floor"], content["measured_nanoseconds"]
    work = f"{floor['bytes']} bytes, {floor['f32_operations']} f32 and {floor['f64_operations']} f64 operations"
    yield "needs", work
    yield f"floor on {floor['device']}", f"{floor['nanoseconds'] / 1000:.2f} us, by its {floor['bound']}"
    yield "measured, all calls of a run", "no record of a device" if measured is None else f"{measured / 1000:.1f} us"


def show_layers(to: Console, layers: Iterable[tuple[str, int]]) -> None:
    """Sizes per kind of layer (the first part of its title)."""
    kinds: dict[str, list[int]] = {}
    for title, count in layers:
        kinds.setdefault(title.partition("/")[0], []).append(count)
    rows = [(kind, len(counts), size(sum(counts))) for kind, counts in kinds.items()]
    rows.append(("total", sum(row[1] for row in rows), size(sum(sum(counts) for counts in kinds.values()))))
    to.print(table("layers", ("kind", "blobs", "size"), rows, right=(1, 2)))


ROLES = {
    "trained": "trained (--frozen leaves out)",
    "updated": "running statistics",
    "kept": "kept as they are (--trainable adds)",
}
"""What a training step does with a parameter, and how it is shown."""


def show_roles(to: Console, roles: Sequence[Role]) -> None:
    """The model's parameters by what its training step does with them, so that a buffer among the trained is seen."""
    kinds = {kind: [each for each in roles if each.role == kind] for kind in ROLES}
    rows = [
        (ROLES[kind], len(own), f"{sum(each.type.elements for each in own):,}", ", ".join(each.name for each in own))
        for kind, own in kinds.items()
        if own
    ]
    to.print(table("the training step", ("parameters", "tensors", "elements", "names"), rows, right=(1, 2)))


def show_report(to: Console, report: Report) -> None:
    rows = [
        (
            inert(check.name),
            inert(check.status.value, STYLES[check.status]),
            inert("yes" if check.required else "no"),
            inert(check.detail),
        )
        for check in report.checks
    ]
    to.print(table("", ("check", "result", "required", "detail"), rows))


def show_arrays(to: Console, title: str, arrays: Iterable[tuple[str, str, str, str]]) -> None:
    """Rows of (name, type, digest, first values)."""
    to.print(table(title, ("name", "type", "sha256", "first values"), arrays))


def show_mapping(to: Console, title: str, rows: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    to.print(table(title, ("what", "value"), pairs))


def show_estimates(to: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Runs on simulated chips as `inspect --chips` shows them."""
    columns = ("entry", "chip", "µs", "µJ", "matrix units", "HBM", "HBM MB", "VMEM KiB")
    rows = [
        (
            each["entry"] if each["exact"] else f"{each['entry']} (data decide how often loops run)",
            each["chip"],
            f"{each['seconds'] * 1e6:,.1f}",
            f"{each['joules'] * 1e6:,.1f}",
            f"{each['matrix_utilisation']:.1%}",
            f"{each['occupancy']['hbm']:.1%}",
            f"{(each['counts'].get('hbm read', 0) + each['counts'].get('hbm written', 0)) / 1e6:,.2f}",
            f"{each['vmem_high_water'] / 1024:,.0f}",
        )
        for each in found
    ]
    to.print(table("one run on simulated chips", columns, rows, right=range(2, 8)))


def show_content(to: Console, content: Mapping[str, Any]) -> None:
    """An artifact as `inspect` shows it."""
    config = content["config"]
    versions, source = config["versions"], config["source"]
    opset = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in source["opset"].items())
    rows = [
        ("artifact", content["artifact"]),
        *((f"graph of {entry['name']}", entry["graph"]) for entry in config["entries"]),
        ("source", f"{source['digest']} (opset {opset})"),
        ("built with", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("numerics contract", f"version {config['contract']}"),
        ("bound dimensions", ", ".join(f"{name}={value}" for name, value in config["build"]["bind"].items()) or "none"),
        ("golden inputs", f"{config['build']['golden_inputs']}, seed {config['build']['golden_seed']}"),
    ]
    to.print(table("artifact", ("what", "value"), rows))
    for entry in config["entries"]:
        rows = [(kind, value["name"], value["type"]) for kind in ("inputs", "outputs") for value in entry[kind]]
        to.print(table(f"entry {entry['name']}", ("", "name", "type"), rows))
    if config["weights"]:
        rows = [(weight["name"], weight["type"], short(weight["digest"])) for weight in config["weights"]]
        to.print(table("weights", ("name", "type", "digest"), rows))
    rows = [
        (group["entry"], group["target"] or "all", step["name"], short(step["before"]), short(step["after"]))
        for group in config["passes"]
        for step in group["passes"]
    ]
    to.print(table("passes", ("entry", "target", "pass", "before", "after"), rows))
    rows = [
        (
            target["name"],
            compiled["entry"],
            len(compiled["kernels"]),
            short(compiled["program"]),
            short(compiled["code"]),
        )
        for target in config["targets"]
        for compiled in target["entries"]
    ]
    to.print(table("targets", ("target", "entry", "kernels", "program", "code"), rows, right=(2,)))
    show_layers(to, ((title, layer["size"]) for title, layer in content["layers"].items()))
