"""The findings as JSON, by manifests/schema/audit.schema.json. Floats and 64-bit integers are hex strings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from repro.artifact.canonical import Json, hex64
from repro.audit.records import Drift, Origin, Pair, Probe, Record
from repro.audit.report.view import ExecutorRow, View
from repro.version import VERSION

FORMAT_VERSION = 1


def text(view: View) -> str:
    return json.dumps(document(view), separators=(",", ":"), ensure_ascii=False) + "\n"


def document(view: View) -> Json:
    """Everything that was found. Values that do not differ are left out of `growth`."""
    audit = view.audit
    return {
        "format": FORMAT_VERSION,
        "repro": VERSION,
        "model": {
            "name": view.model,
            "digest": view.record.model.digest,
            "nodes": len(view.record.model.nodes),
        },
        "machines": [_machine(record) for record in audit.records],
        "executors": [_executor(row) for row in view.executors],
        "groups": {letter: list(names) for letter, names in view.groups.items()},
        "pairs": [_pair(pair) for pair in audit.pairs],
        "probes": [_probe(probe) for probe in audit.probes],
        "commands": list(audit.commands),
        "verdict": {
            "exit_code": view.exit_code,
            "executors": len(view.executors),
            "ran": view.ran,
            "same": view.same,
            "origins": len(view.origins),
            "reasons": [{"executor": reason.executor, "text": reason.text} for reason in view.reasons],
        },
    }


def _machine(record: Record) -> Json:
    return {"label": record.label, "host": plain(record.host)}


def _executor(row: ExecutorRow) -> Json:
    capture = row.capture
    return {
        "name": row.name,
        "machine": row.label,
        "family": capture.executor.family,
        "options": dict(capture.executor.options),
        "variables": dict(capture.executor.environment),
        "group": row.group or None,
        "outcome": row.outcome,
        "reason": capture.reason,
        "required": row.required,
        "identical": row.identical if capture.ran else None,
        "faithful": capture.faithful,
        "environment": plain(capture.environment),
        "implementations": dict(capture.implementations),
        "notes": list(row.notes),
        "verdict": {"status": row.check.status.value, "detail": row.check.detail},
    }


def _pair(pair: Pair) -> Json:
    return {
        "left": pair.left,
        "right": pair.right,
        "identical": pair.identical,
        "compared": pair.compared,
        "different": pair.different,
        "first": None if pair.first is None else {"value": pair.first, "node": pair.first_node},
        "origins": [_origin(origin) for origin in pair.origins],
        "growth": [{"value": name, "drift": drift_json(drift)} for name, drift in pair.growth if drift.different],
        "outputs": {name: drift_json(drift) for name, drift in pair.outputs.items()},
        "unmeasured": dict(pair.unmeasured),
        "notes": list(pair.notes),
    }


def _origin(origin: Origin) -> Json:
    return {
        "kind": origin.kind.value,
        "nodes": list(origin.nodes),
        "value": origin.value,
        "left": origin.left,
        "right": origin.right,
        "fed": origin.fed,
        "sources": dict(origin.sources),
        "notes": list(origin.notes),
        "causes": [{"name": cause.name, "evidence": cause.evidence} for cause in origin.causes],
        "drift": None if origin.drift is None else drift_json(origin.drift),
    }


def drift_json(drift: Drift) -> Json:
    return {
        "elements": drift.elements,
        "different": drift.different,
        "max_ulp": None if drift.max_ulp is None else hex64(drift.max_ulp),
        "median_ulp": None if drift.median_ulp is None else hex64(drift.median_ulp),
        "histogram": list(drift.histogram),
        "max_absolute": drift.max_absolute.hex(),
        "max_relative": drift.max_relative.hex(),
        "sign_changes": drift.sign_changes,
        "zero_signs": drift.zero_signs,
        "nan_changes": drift.nan_changes,
        "infinity_changes": drift.infinity_changes,
        "argmax_flips": drift.argmax_flips,
    }


def _probe(probe: Probe) -> Json:
    return {
        "executor": probe.executor,
        "operation": probe.operation,
        "length": probe.length,
        "order": probe.order,
        "tree": probe.tree,
        "fused": probe.fused,
        "precision": probe.precision,
        "confirmed": probe.confirmed,
        "calls": probe.calls,
    }


def plain(value: Any) -> Json:
    """Values as a library said them: mappings and sequences to JSON's, floats to hex strings."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, float):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | str) else str(value)
