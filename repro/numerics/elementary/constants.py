"""Constants of the elementary functions: printed by tools/elementary_constants.py, never edited by hand."""

from __future__ import annotations

LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2_SHORT = float.fromhex("0x1.62e42fee00000p-1")
"""The first 32 bits of ln 2: its product with any exponent is exact."""
LN2_REST_HIGH = float.fromhex("0x1.a39ef35793c76p-33")
LN2_REST_LOW = float.fromhex("0x1.cc01f97b57a08p-87")
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LOG10_E = float.fromhex("0x1.bcb7b1526e50ep-2")
LOG10_2_SHORT = float.fromhex("0x1.3441350800000p-2")
LOG10_2_REST = float.fromhex("0x1.f79fef311f12bp-34")
SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
HALF_PI_HIGH = float.fromhex("0x1.921fb54442d18p+0")
HALF_PI_LOW = float.fromhex("0x1.1a62633145c07p-54")

TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1d"
    "eb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b"
    "5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b"
    "6babf0cfbc209af4361d",
    16,
)
"""floor(2/pi * 2^1280)."""

ATAN_QUARTERS_HIGH = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.f5b75f92c80ddp-3"),
    float.fromhex("0x1.dac670561bb4fp-2"),
    float.fromhex("0x1.4978fa3269ee1p-1"),
    float.fromhex("0x1.921fb54442d18p-1"),
)
"""atan(k/4), k = 0..4."""

ATAN_QUARTERS_LOW = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.8ab6e3cf7afbdp-57"),
    float.fromhex("0x1.a2b7f222f65e2p-56"),
    float.fromhex("0x1.2419a87f2a458p-56"),
    float.fromhex("0x1.1a62633145c07p-55"),
)
"""What the doubles above leave out."""

ERF_SMALL = (
    float.fromhex("0x1.20dd750429b6dp+0"),
    float.fromhex("-0x1.812746b0379e6p-2"),
    float.fromhex("0x1.ce2f21a042b30p-4"),
    float.fromhex("-0x1.b82ce31284e00p-6"),
    float.fromhex("0x1.565bcd0dbaa38p-8"),
    float.fromhex("-0x1.c02db3dac435fp-11"),
    float.fromhex("0x1.f9a321d5b8e1ep-14"),
    float.fromhex("-0x1.f4d1e3183f7aep-17"),
    float.fromhex("0x1.b9df224ca4b97p-20"),
    float.fromhex("-0x1.5f1ecb6f0764cp-23"),
    float.fromhex("0x1.f7b4bf3b13964p-27"),
    float.fromhex("-0x1.389d4f2641625p-30"),
    float.fromhex("0x1.05ffd737fb32ep-34"),
)
"""erf(x)/x in z = x^2 on [0, 1]; lowest power first; fitted within 1.3e-19."""

ERFC_SCALED = (
    float.fromhex("0x1.43cc6f6c9672cp+0"),
    float.fromhex("-0x1.f52c5d7e22302p-4"),
    float.fromhex("-0x1.959ac16f8573ap-4"),
    float.fromhex("0x1.42d379989b5aap-3"),
    float.fromhex("-0x1.a5c0c8a403023p-4"),
    float.fromhex("0x1.0c6092a5a4355p-5"),
    float.fromhex("0x1.e894894aa8355p-11"),
    float.fromhex("-0x1.1f2f13252fcefp-8"),
    float.fromhex("0x1.01e11e81a7970p-11"),
    float.fromhex("0x1.4b6a480e3f481p-11"),
    float.fromhex("-0x1.731c7741fb7c8p-14"),
    float.fromhex("-0x1.dc246f55fd3fep-14"),
    float.fromhex("0x1.a4b87c9be6ac6p-18"),
    float.fromhex("0x1.7cad2067a2ae3p-16"),
    float.fromhex("0x1.5d31a015829e3p-19"),
    float.fromhex("-0x1.182b0d9b67f90p-18"),
    float.fromhex("-0x1.adb38ff3c45edp-20"),
    float.fromhex("0x1.d1667d987261bp-22"),
    float.fromhex("0x1.5cb4be96dd532p-21"),
    float.fromhex("0x1.328cd98baf2cep-24"),
    float.fromhex("-0x1.3d4e40a52a036p-22"),
    float.fromhex("0x1.5d27327a8d567p-24"),
)
"""(1 + 2x) exp(x^2) erfc(x) in t = (x - 5/2)/(x + 5/2), x on [15/16, 28]; lowest power first; fitted within 7.2e-19."""

CBRT_START = (
    float.fromhex("0x1.2a42adf7ed3e4p-1"),
    float.fromhex("0x1.09a54c5a1204fp-1"),
    float.fromhex("-0x1.ee0f77cb9a5d4p-4"),
    float.fromhex("0x1.1e113a6764ac1p-6"),
    float.fromhex("-0x1.097dc574e2381p-10"),
)
"""x^(1/3) on [0.7, 5.7]; lowest power first; fitted within 0.0032."""
