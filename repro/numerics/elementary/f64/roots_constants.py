"""Constants of the f64 cube root: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

INVERSE_CBRT = (
    float.fromhex("0x1.ab8597628ae0ap+0"),
    float.fromhex("-0x1.2c41eb9133564p+0"),
    float.fromhex("0x1.64164d1e9aa43p-1"),
    float.fromhex("-0x1.c518340b75b67p-3"),
    float.fromhex("0x1.d46f10eaf4c8cp-6"),
)
"""m^(-1/3) on [1, 2]; lowest power first; error 2^-14.7."""
INVERSE_CBRT_OCTAVES = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.965fea53d6e3dp-1"),
    float.fromhex("0x1.428a2f98d728bp-1"),
    float.fromhex("0x1.428a2f98d728bp-1"),
)
"""2^(-k/3), k = 0..2."""
