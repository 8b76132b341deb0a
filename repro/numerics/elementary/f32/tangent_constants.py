"""Constants of the f32 tangent: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
HALF_PI_LOW = float.fromhex("0x1.1a62633145c07p-54")
TANGENT_TOP = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("-0x1.06b8e571ba96ep-3"),
    float.fromhex("0x1.6fc2cd2360333p-9"),
    float.fromhex("-0x1.f623193daafd2p-18"),
)
"""Lowest power first."""
TANGENT_BOTTOM = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("-0x1.d8b1c80e329e0p-2"),
    float.fromhex("0x1.7e79516797b84p-6"),
    float.fromhex("-0x1.b51c10ab940a3p-13"),
)
"""The quotient is tan(r)/r in r^2 for |r| <= pi/4; error 2^-54.11."""
