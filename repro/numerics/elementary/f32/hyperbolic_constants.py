"""Constants of the f32 hyperbolic functions: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

COSH = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.0000000000010p-1"),
    float.fromhex("0x1.555555554f232p-5"),
    float.fromhex("0x1.6c16c187bb0acp-10"),
    float.fromhex("0x1.a0199246e8772p-16"),
    float.fromhex("0x1.28b384ddf9af9p-22"),
)
"""cosh(r) in r^2 for |r| <= ln(2)/2; lowest power first; error 2^-57.27."""
SINH = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.555555555555ap-3"),
    float.fromhex("0x1.111111110f249p-7"),
    float.fromhex("0x1.a01a01b136255p-13"),
    float.fromhex("0x1.71ddf5943cd38p-19"),
    float.fromhex("0x1.af62e87235348p-26"),
)
"""sinh(r)/r in r^2 for |r| <= ln(2)/2; lowest power first; error 2^-59.42."""
