"""Which golden cases run on simulated chips with every change; all do in the full tests."""

from __future__ import annotations

import pytest

from golden import bless

SELDOM = {"nano_gpt_dynamo_unoptimized"}
"""Most of their kernels are in other cases too."""
assert set(bless.cases()) >= SELDOM
CASES = [pytest.param(name, marks=[pytest.mark.full] if name in SELDOM else []) for name in bless.cases()]
