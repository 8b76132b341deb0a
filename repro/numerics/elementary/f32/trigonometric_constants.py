"""Constants of the f32 trigonometric functions: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

ONE_OVER_PI = float.fromhex("0x1.45f306dc9c883p-2")
PI = float.fromhex("0x1.921fb54442d18p+1")
PI_LOW = float.fromhex("0x1.1a62633145c07p-53")
SIN = (
    float.fromhex("0x1.fffffffffffffp-1"),
    float.fromhex("-0x1.5555555555459p-3"),
    float.fromhex("0x1.1111111108fcap-7"),
    float.fromhex("-0x1.a01a0199c0789p-13"),
    float.fromhex("0x1.71de37de512d7p-19"),
    float.fromhex("-0x1.ae634b182d12cp-26"),
    float.fromhex("0x1.60e55579809e8p-33"),
    float.fromhex("-0x1.9eee718ce6a8fp-41"),
)
"""sin(r)/r in r^2 for |r| <= pi/2; lowest power first; error 2^-52.36."""
ONE_OVER_PI_WORDS = (
    0x28BE60DB9391054A,
    0x9391054A7F09D5F4,
    0x7F09D5F47D4D3770,
    0x7D4D377036D8A566,
    0x36D8A5664F10E410,
    0x4F10E4107F9458EA,
    0x7F9458EAF7AEF158,
    0xF7AEF1586DC91B8E,
)
"""Word j: the bits of 1/pi that weigh 2^(-32 j) down to 2^(-32 j - 63)."""
