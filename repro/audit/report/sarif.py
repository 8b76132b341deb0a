"""SARIF 2.1.0: a result for each origin at its ONNX node, and one for each reason that failed the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator

from repro.artifact.canonical import Json
from repro.audit.report import plots
from repro.audit.report.view import OriginRow, Variant, View
from repro.version import VERSION

RULES = {
    "origin": "A node makes other bits than repro from the same inputs.",
    "given": "A weight, an input, an attribute or the graph is not the same on both sides.",
    "threshold": "A threshold of the audit was passed, or an executor that is required did not run.",
}


def text(view: View, model_uri: str) -> str:
    """`model_uri` says where the model's file lies, relative to where the tool was run."""
    results = [*_origins(view, model_uri), *_reasons(view, model_uri)]
    rules = [{"id": name, "shortDescription": {"text": what}} for name, what in RULES.items()]
    driver = {"name": "repro audit", "version": VERSION, "rules": rules}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2) + "\n"


def _origins(view: View, model_uri: str) -> Iterator[Json]:
    failed = {reason.executor for reason in view.reasons}
    for row in view.origins:
        hit = not view.good and bool(failed.intersection(row.executors))
        yield {
            "ruleId": "origin" if row.is_node else "given",
            "kind": "fail",
            "level": "error" if hit else "warning",
            "message": {"text": "; ".join((f"{row.title}: {row.kind.value}", *map(_said, row.variants)))},
            "locations": [_location(row, model_uri)],
            "partialFingerprints": {"value/v1": f"{row.kind.value}:{row.value}"},
        }


def _said(variant: Variant) -> str:
    drift = "bits differ" if variant.drift is None else plots.said(variant.drift)
    causes = "".join(f", {cause.name} ({cause.evidence})" for cause in variant.causes)
    return f"{', '.join(variant.executors)}: {drift}{causes}"


def _location(row: OriginRow, model_uri: str) -> Json:
    names = row.nodes or (row.value,)
    return {
        "physicalLocation": {"artifactLocation": {"uri": model_uri}},
        "logicalLocations": [{"name": name, "kind": "element" if row.nodes else "resource"} for name in names],
    }


def _reasons(view: View, model_uri: str) -> Iterator[Json]:
    for reason in view.reasons:
        yield {
            "ruleId": "threshold",
            "kind": "fail",
            "level": "error",
            "message": {"text": f"{reason.executor}: {reason.text}" if reason.executor else reason.text},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": model_uri}}}],
        }
