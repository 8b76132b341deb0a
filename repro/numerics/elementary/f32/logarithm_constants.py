"""Constants of the f32 logarithms: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LOG10_2 = float.fromhex("0x1.34413509f79ffp-2")
LOG = (
    float.fromhex("0x1.0000000000000p+1"),
    float.fromhex("0x1.55555555555aep-1"),
    float.fromhex("0x1.999999997ac4ap-2"),
    float.fromhex("0x1.2492494532553p-2"),
    float.fromhex("0x1.c71c4fe93360dp-3"),
    float.fromhex("0x1.74669dd2a0e8dp-3"),
    float.fromhex("0x1.39994f82e8d05p-3"),
    float.fromhex("0x1.2f51c9b09450fp-3"),
)
"""log((1 + s)/(1 - s)) / s in s^2 for |s| <= 0.1716; lowest power first; error 2^-58.61."""
LOG2 = (
    float.fromhex("0x1.71547652b82fep+1"),
    float.fromhex("0x1.ec709dc3a047dp-1"),
    float.fromhex("0x1.2776c50ee3825p-1"),
    float.fromhex("0x1.a61762d6bf629p-2"),
    float.fromhex("0x1.484afb69bb760p-2"),
    float.fromhex("0x1.0ca163a4024cbp-2"),
    float.fromhex("0x1.c46d72dbc7eb5p-3"),
    float.fromhex("0x1.b598f6bf691eep-3"),
)
"""log2((1 + s)/(1 - s)) / s in s^2 for |s| <= 0.1716; lowest power first; error 2^-55.93."""
LOG10 = (
    float.fromhex("0x1.bcb7b1526e50ep-1"),
    float.fromhex("0x1.287a7636f43acp-2"),
    float.fromhex("0x1.63c627750a45cp-3"),
    float.fromhex("0x1.fc3fa64dbd5a6p-4"),
    float.fromhex("0x1.8b4dd589599fcp-4"),
    float.fromhex("0x1.437698837e8dep-4"),
    float.fromhex("0x1.106375db6e4adp-4"),
    float.fromhex("0x1.0775bfaf52e89p-4"),
)
"""log10((1 + s)/(1 - s)) / s in s^2 for |s| <= 0.1716; lowest power first; error 2^-55.13."""
ATANH = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.5555555555882p-2"),
    float.fromhex("0x1.99999998cad14p-3"),
    float.fromhex("0x1.249249c4ccfc6p-3"),
    float.fromhex("0x1.c71bf807f248dp-4"),
    float.fromhex("0x1.74762320c831ep-4"),
    float.fromhex("0x1.383d1770029b4p-4"),
    float.fromhex("0x1.3b54f7745ba43p-4"),
)
"""atanh(s) / s in s^2 for |s| <= 0.2004; lowest power first; error 2^-54.96."""
LOG_PATCHES = {
    0x4C5D65A5: 0x418F034B,
    0x65D890D3: 0x4254D1F9,
    0x6F31A8EC: 0x42845A89,
}
LOG10_PATCHES = {
    0x0EFEEE7A: 0xC1E99D23,
}
LOG1P_PATCHES = {
    0x35400003: 0x353FFFFF,
    0x3710001B: 0x370FFFF3,
    0x65D890D3: 0x4254D1F9,
    0x6F31A8EC: 0x42845A89,
    0xB53FFFFD: 0xB5400001,
    0xB70FFFE5: 0xB710000D,
    0xBB0EC8C4: 0xBB0EF0A5,
}
ASINH_PATCHES = {
    0x4BDD65A5: 0x418F034B,
    0x655890D3: 0x4254D1F9,
    0x6EB1A8EC: 0x42845A89,
}
ACOSH_PATCHES = {
    0x655890D3: 0x4254D1F9,
    0x6EB1A8EC: 0x42845A89,
}
