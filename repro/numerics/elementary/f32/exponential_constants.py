"""Constants of the f32 exponential family: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LN2_LOW = float.fromhex("0x1.abc9e3b39803fp-56")
EXP = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.000000000001dp+0"),
    float.fromhex("0x1.ffffffffffe17p-2"),
    float.fromhex("0x1.555555554bc08p-3"),
    float.fromhex("0x1.55555555933a5p-5"),
    float.fromhex("0x1.1111112d49af9p-7"),
    float.fromhex("0x1.6c16c0c0b29fbp-10"),
    float.fromhex("0x1.a0197a4dd37d5p-13"),
    float.fromhex("0x1.a01b6cd4c7f2fp-16"),
    float.fromhex("0x1.72f9862683e86p-19"),
    float.fromhex("0x1.2727b5e49d7cdp-22"),
)
"""e^r for |r| <= ln(2)/2; lowest power first; error 2^-51.54."""
EXP2 = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.62e42fefa3a17p-1"),
    float.fromhex("0x1.ebfbdff82c3b9p-3"),
    float.fromhex("0x1.c6b08d703d489p-5"),
    float.fromhex("0x1.3b2ab6fbde0dap-7"),
    float.fromhex("0x1.5d87fe9cc610bp-10"),
    float.fromhex("0x1.430912605be33p-13"),
    float.fromhex("0x1.ffcb55e7621c5p-17"),
    float.fromhex("0x1.62c157e16e965p-20"),
    float.fromhex("0x1.b67410a4ba89ap-24"),
    float.fromhex("0x1.e399347cc25afp-28"),
)
"""2^r for |r| <= 1/2; lowest power first; error 2^-51.68."""
EXP2_PATCHES = {
    0x3B429D37: 0x3F804385,
    0xBCF3A937: 0x3F7AC6B1,
}
EXPM1 = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.0000000000005p-1"),
    float.fromhex("0x1.5555555555530p-3"),
    float.fromhex("0x1.555555555211ep-5"),
    float.fromhex("0x1.111111111a277p-7"),
    float.fromhex("0x1.6c16c17f29cdep-10"),
    float.fromhex("0x1.a01a0170fbe23p-13"),
    float.fromhex("0x1.a019a6b20bfc6p-16"),
    float.fromhex("0x1.71de8e76383a6p-19"),
    float.fromhex("0x1.28a27e8a44411p-22"),
    float.fromhex("0x1.ae6434b7a6fd6p-26"),
)
"""(e^r - 1)/r for |r| <= ln(2)/2; lowest power first; error 2^-55.38."""
