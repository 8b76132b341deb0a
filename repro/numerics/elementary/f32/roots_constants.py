"""Constants of the f32 roots: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

RSQRT_START = 0x5F374740
"""Less half of the argument's bits, the bits of r with |1 - a r^2| <= 0.0681."""
RSQRT = (
    float.fromhex("0x1.ffffbcbee3b13p-2"),
    float.fromhex("0x1.8116caf2a5fafp-2"),
    float.fromhex("0x1.414a394f00a6ap-2"),
)
"""(a^(-1/2)/r - 1) / h in h = 1 - a r^2, to be rounded to f32; lowest power first; error 2^-19.89."""
CBRT_START = 346655
"""Less a third of the argument's bits, in units of 2^12, those of r with |1 - a r^3| <= 0.1027."""
CBRT = (
    float.fromhex("0x1.55543000b45c1p-2"),
    float.fromhex("0x1.c718f7ef39a44p-3"),
    float.fromhex("0x1.6561960af4cd9p-3"),
    float.fromhex("0x1.2aa254f715a69p-3"),
)
"""(a^(-1/3)/r - 1) / h in h = 1 - a r^3, to be rounded to f32; lowest power first; error 2^-23.35."""
