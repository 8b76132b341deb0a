"""Constants of f32 asin, acos and atan: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

PI = float.fromhex("0x1.921fb54442d18p+1")
HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
HALF_PI_RAISED = float.fromhex("0x1.921fb54442d19p+0")
"""For acos: two values lie just above a midpoint."""
ASIN = (
    float.fromhex("0x1.ffffffffffffep-1"),
    float.fromhex("0x1.55555555578e6p-3"),
    float.fromhex("0x1.3333332ff2487p-4"),
    float.fromhex("0x1.6db6dd4a67dbap-5"),
    float.fromhex("0x1.f1c68fdb5f7cbp-6"),
    float.fromhex("0x1.6e97d29691846p-6"),
    float.fromhex("0x1.1ba4475dc782ep-6"),
    float.fromhex("0x1.d5c4098d8493bp-7"),
    float.fromhex("0x1.315fec4bcd866p-7"),
    float.fromhex("0x1.2de953fc049b5p-6"),
    float.fromhex("-0x1.889fe08d2fe09p-7"),
    float.fromhex("0x1.03cf118aca8f1p-5"),
)
"""asin(s)/s in s^2 for |s| <= 1/2; lowest power first; error 2^-51.97."""
CENTRES = (
    float.fromhex("0x1.5a0456bb57467p+1"),
    float.fromhex("0x1.569f1dc77bb4dp+2"),
    float.fromhex("0x1.0000000000000p+60"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.7e8e639a21440p-3"),
    float.fromhex("0x1.7acd608564de1p-2"),
    float.fromhex("0x1.71075a3cdcf19p-1"),
    float.fromhex("0x1.632e57c919237p+0"),
)
"""c by the exponent's lowest bits."""
ANGLES = (
    float.fromhex("0x1.376b714052da1p+0"),
    float.fromhex("0x1.62d961fdc038fp+0"),
    float.fromhex("0x1.921fb54442d18p+0"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.7a329a3414c4ap-3"),
    float.fromhex("0x1.6ad1100fbfddfp-2"),
    float.fromhex("0x1.3fc176b7a8560p-1"),
    float.fromhex("0x1.e47df3d0dd4d1p-1"),
)
"""atan c."""
ATAN = (
    float.fromhex("0x1.0000000000001p+0"),
    float.fromhex("-0x1.5555555554427p-2"),
    float.fromhex("0x1.999999947d381p-3"),
    float.fromhex("-0x1.24924493fe416p-3"),
    float.fromhex("0x1.c7188e2850c23p-4"),
    float.fromhex("-0x1.7382a73f6affep-4"),
    float.fromhex("0x1.231d96608d12ap-4"),
)
"""atan(u)/u in u^2 for |u| <= 0.1623, and 2^-52; lowest power first; error 2^-52.99."""
