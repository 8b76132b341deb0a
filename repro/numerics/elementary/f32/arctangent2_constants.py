"""Constants of the f32 atan2: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

PI = float.fromhex("0x1.921fb54442d18p+1")
PI_LOW = float.fromhex("0x1.1a62633145c07p-53")
ATAN_REST = (
    float.fromhex("-0x1.5555555555526p-2"),
    float.fromhex("0x1.999999999554ap-3"),
    float.fromhex("-0x1.249249237e2b1p-3"),
    float.fromhex("0x1.c71c717f96172p-4"),
    float.fromhex("-0x1.745d11ab0b00dp-4"),
    float.fromhex("0x1.3b136676f8a18p-4"),
    float.fromhex("-0x1.110e50241bf94p-4"),
    float.fromhex("0x1.e1bb9b6d2860bp-5"),
    float.fromhex("-0x1.ae5e457a52991p-5"),
    float.fromhex("0x1.82da4810b1b81p-5"),
    float.fromhex("-0x1.59a29d0199ef0p-5"),
    float.fromhex("0x1.2c2bb13e27485p-5"),
    float.fromhex("-0x1.e9f1fc9c206d3p-6"),
    float.fromhex("0x1.68334c8d3aa3bp-6"),
    float.fromhex("-0x1.c77e9e35187f2p-7"),
    float.fromhex("0x1.d7a1acab54d7fp-8"),
    float.fromhex("-0x1.7a223462ae8bbp-9"),
    float.fromhex("0x1.b3dab62df51afp-11"),
    float.fromhex("-0x1.3f1b419d6dee4p-13"),
    float.fromhex("0x1.bbc35f59aaa7fp-17"),
)
"""(atan(q)/q - 1)/z in z = q^2 for 0 <= q <= 1, the error beside atan q; lowest power first; error 2^-55.55."""
CENTRES = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.8000000000000p-3"),
    float.fromhex("0x1.4000000000000p-2"),
    float.fromhex("0x1.c000000000000p-2"),
    float.fromhex("0x1.2000000000000p-1"),
    float.fromhex("0x1.6000000000000p-1"),
    float.fromhex("0x1.a000000000000p-1"),
    float.fromhex("0x1.e000000000000p-1"),
)
"""c, near q in each eighth of [0, 1]."""
ATAN_CENTRES = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.7b97b4bce5b02p-3"),
    float.fromhex("0x1.362773707ebccp-2"),
    float.fromhex("0x1.a64eec3cc23fdp-2"),
    float.fromhex("0x1.0657e94db30d0p-1"),
    float.fromhex("0x1.345f01cce37bbp-1"),
    float.fromhex("0x1.5d58987169b18p-1"),
    float.fromhex("0x1.819d0b7158a4dp-1"),
)
"""atan c."""
ATAN_CENTRES_LOW = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.347b0b4f881cap-58"),
    float.fromhex("-0x1.963a544b672d8p-57"),
    float.fromhex("-0x1.24dec1b50b7ffp-56"),
    float.fromhex("-0x1.d5b495f6349e6p-56"),
    float.fromhex("0x1.1021137c71102p-55"),
    float.fromhex("0x1.0028e4bc5e7cap-57"),
    float.fromhex("-0x1.bf76229d3b917p-56"),
)
"""What the first ones leave out."""
ATAN_SERIES = (
    float.fromhex("-0x1.5555555555555p-2"),
    float.fromhex("0x1.999999999999ap-3"),
    float.fromhex("-0x1.2492492492492p-3"),
    float.fromhex("0x1.c71c71c71c71cp-4"),
    float.fromhex("-0x1.745d1745d1746p-4"),
    float.fromhex("0x1.3b13b13b13b14p-4"),
    float.fromhex("-0x1.1111111111111p-4"),
    float.fromhex("0x1.e1e1e1e1e1e1ep-5"),
    float.fromhex("-0x1.af286bca1af28p-5"),
    float.fromhex("0x1.8618618618618p-5"),
    float.fromhex("-0x1.642c8590b2164p-5"),
    float.fromhex("0x1.47ae147ae147bp-5"),
    float.fromhex("-0x1.2f684bda12f68p-5"),
    float.fromhex("0x1.1a7b9611a7b96p-5"),
    float.fromhex("-0x1.0842108421084p-5"),
    float.fromhex("0x1.f07c1f07c1f08p-6"),
)
"""As ATAN_REST, Taylor's."""
ATAN_SERIES_LOW = (
    float.fromhex("-0x1.5555555555555p-56"),
    float.fromhex("-0x1.999999999999ap-57"),
    float.fromhex("-0x1.2492492492492p-57"),
    float.fromhex("0x1.c71c71c71c71cp-58"),
    float.fromhex("0x1.745d1745d1746p-59"),
    float.fromhex("-0x1.3b13b13b13b14p-58"),
    float.fromhex("-0x1.1111111111111p-60"),
    float.fromhex("0x1.e1e1e1e1e1e1ep-61"),
)
"""What the first ones leave out."""
