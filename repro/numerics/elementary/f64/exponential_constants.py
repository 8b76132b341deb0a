"""Constants of the f64 exponential family: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LN2_LOW = float.fromhex("0x1.abc9e3b39803fp-56")
LN2_SHORT = float.fromhex("0x1.62e42fee00000p-1")
"""The first 32 bits of ln 2: its product with any exponent is exact."""
LN2_REST = float.fromhex("0x1.a39ef35793c76p-33")
EXP = (
    float.fromhex("0x1.555555555555ap-3"),
    float.fromhex("0x1.5555555555531p-5"),
    float.fromhex("0x1.111111110efc3p-7"),
    float.fromhex("0x1.6c16c16c26fc4p-10"),
    float.fromhex("0x1.a01a01b268c2ap-13"),
    float.fromhex("0x1.a01a015287a1dp-16"),
    float.fromhex("0x1.71ddf27115aafp-19"),
    float.fromhex("0x1.27e58cd85fdfep-22"),
    float.fromhex("0x1.af685f402b172p-26"),
    float.fromhex("0x1.1e673affaf274p-29"),
)
"""(e^r - 1 - r - r^2/2)/r^3 for |r| <= ln(2)/2; lowest power first; error 2^-60.01."""
SINH = (
    float.fromhex("0x1.5555555555555p-3"),
    float.fromhex("0x1.1111111111477p-7"),
    float.fromhex("0x1.a01a019eff3d7p-13"),
    float.fromhex("0x1.71de3c6ea1237p-19"),
    float.fromhex("0x1.ae60bc923f0cbp-26"),
    float.fromhex("0x1.63fcdfa58fea3p-33"),
)
"""(sinh x - x)/x^3 in x^2 for |x| <= 3/4; lowest power first; error 2^-53.38."""
