"""Which golden cases run on simulated chips, which is slow."""

from __future__ import annotations

import pytest

from golden import bless

RUN_ELSEWHERE = ("nano_gpt_dynamo_unoptimized",)
"""Most kernels of these are other cases' too."""
CASES = [
    pytest.param(name, marks=pytest.mark.full) if name in RUN_ELSEWHERE else pytest.param(name)
    for name in bless.cases()
]
