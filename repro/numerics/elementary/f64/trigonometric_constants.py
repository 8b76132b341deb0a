"""Constants of the f64 trigonometric functions: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
HALF_PI_LOW = float.fromhex("0x1.1a62633145c07p-54")
HALF_PI_LOWEST = float.fromhex("-0x1.f1976b7ed8fbcp-110")
TWO_OVER_PI_WORDS = (
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
    0xDEBBC561,
    0xB7246E3A,
    0x424DD2E0,
    0x06492EEA,
    0x09D1921C,
    0xFE1DEB1C,
    0xB129A73E,
    0xE88235F5,
    0x2EBB4484,
    0xE99C7026,
    0xB45F7E41,
    0x3991D639,
    0x835339F4,
    0x9C845F8B,
    0xBDF9283B,
    0x1FF897FF,
    0xDE05980F,
    0xEF2F118B,
    0x5A0A6D1F,
    0x6D367ECF,
    0x27CB09B7,
    0x4F463F66,
    0x9E5FEA2D,
    0x7527BAC7,
    0xEBE5F17B,
    0x3D0739F7,
    0x8A5292EA,
    0x6BFB5FB1,
    0x1F8D5D08,
    0x56033046,
    0xFC7B6BAB,
    0xF0CFBC20,
    0x9AF4361D,
)
"""Word j: the bits of 2/pi that weigh 2^(-32 j - 1) down to 2^(-32 j - 32)."""
SIN = (
    float.fromhex("-0x1.5555555555555p-3"),
    float.fromhex("0x1.1111111111110p-7"),
    float.fromhex("-0x1.a01a01a01992ap-13"),
    float.fromhex("0x1.71de3a545f199p-19"),
    float.fromhex("-0x1.ae6454107368ep-26"),
    float.fromhex("0x1.61217d5fa5962p-33"),
    float.fromhex("-0x1.ab16ecdb07241p-41"),
)
"""(sin x - x)/x^3 in x^2 for |x| <= pi/4; lowest power first; error 2^-53.96."""
SIN_LOW = float.fromhex("-0x1.5555555555555p-57")
"""What the first coefficient leaves out of -1/6."""
COS = (
    float.fromhex("0x1.5555555555555p-5"),
    float.fromhex("-0x1.6c16c16c16962p-10"),
    float.fromhex("0x1.a01a019f4dc86p-16"),
    float.fromhex("-0x1.27e4fa16d3f4ep-22"),
    float.fromhex("0x1.1eeb67f70e403p-29"),
    float.fromhex("-0x1.907d06a975c62p-37"),
)
"""(cos x - 1 + x^2/2)/x^4 in x^2 for |x| <= pi/4; lowest power first; error 2^-54.0."""
ASIN = (
    float.fromhex("0x1.5555555555555p-3"),
    float.fromhex("0x1.333333333338dp-4"),
    float.fromhex("0x1.6db6db6dab864p-5"),
    float.fromhex("0x1.f1c71c7abbd94p-6"),
    float.fromhex("0x1.6e8ba110ff6a3p-6"),
    float.fromhex("0x1.1c4efee7215bcp-6"),
    float.fromhex("0x1.c9906661d4258p-7"),
    float.fromhex("0x1.7b05bf3e2028dp-7"),
    float.fromhex("0x1.3b2fbf886847cp-7"),
    float.fromhex("0x1.31f2190b446ccp-7"),
    float.fromhex("0x1.86bc3775e82d6p-9"),
    float.fromhex("0x1.42e32148df923p-6"),
    float.fromhex("-0x1.3ec0a237aa9f6p-6"),
    float.fromhex("0x1.e7522a0620dbap-6"),
)
"""(asin x - x)/x^3 in x^2 for |x| <= 1/2; lowest power first; error 2^-53.98."""
ATAN = (
    float.fromhex("-0x1.5555555555555p-2"),
    float.fromhex("0x1.999999999983bp-3"),
    float.fromhex("-0x1.249249243a761p-3"),
    float.fromhex("0x1.c71c70bf292afp-4"),
    float.fromhex("-0x1.745c5a3329047p-4"),
    float.fromhex("0x1.3ace06f7f9455p-4"),
    float.fromhex("-0x1.04464b30d316fp-4"),
)
"""(atan x - x)/x^3 in x^2 for |x| <= 1/8; lowest power first; error 2^-53.98."""
ATAN_QUARTERS = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.f5b75f92c80ddp-3"),
    float.fromhex("0x1.dac670561bb4fp-2"),
    float.fromhex("0x1.4978fa3269ee1p-1"),
    float.fromhex("0x1.921fb54442d18p-1"),
    float.fromhex("0x1.921fb54442d18p-1"),
    float.fromhex("0x1.921fb54442d18p-1"),
    float.fromhex("0x1.921fb54442d18p-1"),
)
"""atan(k/4), k = 0..4."""
ATAN_QUARTERS_LOW = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.8ab6e3cf7afbdp-57"),
    float.fromhex("0x1.a2b7f222f65e2p-56"),
    float.fromhex("0x1.2419a87f2a458p-56"),
    float.fromhex("0x1.1a62633145c07p-55"),
    float.fromhex("0x1.1a62633145c07p-55"),
    float.fromhex("0x1.1a62633145c07p-55"),
    float.fromhex("0x1.1a62633145c07p-55"),
)
"""What they leave out."""
