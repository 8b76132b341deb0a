"""Constants of the f32 complementary error function: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

SCALED_TOP = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.f075ffb679356p+0"),
    float.fromhex("0x1.ddc2a8b11ff1fp+0"),
    float.fromhex("0x1.20c3303e44ad9p+0"),
    float.fromhex("0x1.d9cf544c432bbp-2"),
    float.fromhex("0x1.0ce5b6daf2623p-3"),
    float.fromhex("0x1.9c90e9452edc6p-6"),
    float.fromhex("0x1.8935b24d1d716p-9"),
    float.fromhex("0x1.68ae3b1ca40cep-13"),
)
"""Lowest power first."""
SCALED_BOTTOM = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.88a9ba5d5179cp+1"),
    float.fromhex("0x1.14f9fa01b12b3p+2"),
    float.fromhex("0x1.d91356c0e0c73p+1"),
    float.fromhex("0x1.0e76b5d55864ap+1"),
    float.fromhex("0x1.af4024c39a05dp-1"),
    float.fromhex("0x1.e20d95c0d4ac3p-3"),
    float.fromhex("0x1.6ee0310dfc03bp-5"),
    float.fromhex("0x1.5c791b4b696b6p-8"),
    float.fromhex("0x1.3fa514d6749d4p-12"),
)
"""The quotient is e^(x^2) erfc(x) for 0 <= x <= 10.06; error 2^-51.93."""
