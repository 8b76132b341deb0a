"""What is measured, in one table."""

from __future__ import annotations

from repro.bench.workloads.models import MODELS
from repro.bench.workloads.quantized import QUANTIZED
from repro.bench.workloads.single import SINGLE
from repro.bench.workloads.workload import FORWARD, MODES, STEP, Workload

__all__ = ["FORWARD", "MODES", "STEP", "WORKLOADS", "Workload"]

WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in (*MODELS, *SINGLE, *QUANTIZED)}
