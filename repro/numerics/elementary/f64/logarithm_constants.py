"""Constants of the f64 logarithms: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

RECIPROCALS = (
    float.fromhex("0x1.642c8590b2164p+0"),
    float.fromhex("0x1.5555555555555p+0"),
    float.fromhex("0x1.47ae147ae147bp+0"),
    float.fromhex("0x1.3b13b13b13b14p+0"),
    float.fromhex("0x1.2f684bda12f68p+0"),
    float.fromhex("0x1.2492492492492p+0"),
    float.fromhex("0x1.1a7b9611a7b96p+0"),
    float.fromhex("0x1.1111111111111p+0"),
    float.fromhex("0x1.0842108421084p+0"),
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.e1e1e1e1e1e1ep-1"),
    float.fromhex("0x1.c71c71c71c71cp-1"),
    float.fromhex("0x1.af286bca1af28p-1"),
    float.fromhex("0x1.999999999999ap-1"),
    float.fromhex("0x1.8618618618618p-1"),
    float.fromhex("0x1.745d1745d1746p-1"),
)
"""1/c of the centres 23/32 to 31/32, 1 to 22/16, rounded: this defines c."""
LOG_CENTRES = (
    float.fromhex("-0x1.522ae07400000p-2"),
    float.fromhex("-0x1.2696211400000p-2"),
    float.fromhex("-0x1.f991c6d000000p-3"),
    float.fromhex("-0x1.a93ed3d000000p-3"),
    float.fromhex("-0x1.5bf406b800000p-3"),
    float.fromhex("-0x1.1178e82800000p-3"),
    float.fromhex("-0x1.9335e5e000000p-4"),
    float.fromhex("-0x1.08598b6000000p-4"),
    float.fromhex("-0x1.0415d8a000000p-5"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.f0a30c0000000p-5"),
    float.fromhex("0x1.e27076e000000p-4"),
    float.fromhex("0x1.5ff3070800000p-3"),
    float.fromhex("0x1.c8ff7c7800000p-3"),
    float.fromhex("0x1.1675cab800000p-2"),
    float.fromhex("0x1.4618bc2000000p-2"),
)
"""The logarithms of the centres cut to 32 bits after the point."""
LOG_CENTRES_REST = (
    float.fromhex("0x1.d70a2c7bf4d9cp-36"),
    float.fromhex("0x1.648dd0f882913p-35"),
    float.fromhex("0x1.313217099af99p-33"),
    float.fromhex("0x1.d4986a4350562p-33"),
    float.fromhex("0x1.5e128023eb68ap-34"),
    float.fromhex("0x1.606e188731d30p-33"),
    float.fromhex("0x1.4d6cf0a3c542cp-33"),
    float.fromhex("0x1.8717e9dd70099p-34"),
    float.fromhex("0x1.8bbbf8fe8c38ap-37"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.162a8617cc971p-37"),
    float.fromhex("0x1.57974f4f54400p-35"),
    float.fromhex("0x1.3c9eae439f105p-34"),
    float.fromhex("0x1.a9a1fac25d81fp-35"),
    float.fromhex("0x1.5d30781ce63ebp-33"),
    float.fromhex("0x1.c5ec1fd0b7b38p-34"),
)
"""What they leave out."""
LOG_OCTAVE = float.fromhex("0x1.62e42fee00000p-1")
"""The logarithm of 2, cut likewise."""
LOG_OCTAVE_REST = float.fromhex("0x1.a39ef35793c76p-33")
LOG_UNIT = float.fromhex("0x1.0000000000000p+0")
LOG_UNIT_LOW = float.fromhex("0x0.0p+0")
LOG2_CENTRES = (
    float.fromhex("-0x1.e7df5fe800000p-2"),
    float.fromhex("-0x1.a8ff971c00000p-2"),
    float.fromhex("-0x1.6cb0f68800000p-2"),
    float.fromhex("-0x1.32bfee3800000p-2"),
    float.fromhex("-0x1.f5fd8a9800000p-3"),
    float.fromhex("-0x1.8a8980b000000p-3"),
    float.fromhex("-0x1.22dadc3000000p-3"),
    float.fromhex("-0x1.7d60497000000p-4"),
    float.fromhex("-0x1.77394ca000000p-5"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.663f6fa000000p-4"),
    float.fromhex("0x1.5c01a39800000p-3"),
    float.fromhex("0x1.fbc16b9000000p-3"),
    float.fromhex("0x1.49a784bc00000p-2"),
    float.fromhex("0x1.91bba89000000p-2"),
    float.fromhex("0x1.d6753e0000000p-2"),
)
"""The logarithms of the centres cut to 32 bits after the point."""
LOG2_CENTRES_REST = (
    float.fromhex("0x1.63aa6b4d774e7p-33"),
    float.fromhex("0x1.f7ad1ac9e3c8cp-33"),
    float.fromhex("0x1.a37157212ab8fp-34"),
    float.fromhex("0x1.e232c52128069p-35"),
    float.fromhex("0x1.e707394863f50p-33"),
    float.fromhex("0x1.010b41f0f944ap-33"),
    float.fromhex("0x1.532da7976000ep-33"),
    float.fromhex("0x1.8225a850c98a0p-35"),
    float.fromhex("0x1.3539833b60ae5p-36"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.92262fdc4193bp-33"),
    float.fromhex("0x1.ef5a2a0923deep-33"),
    float.fromhex("0x1.34068328e31f1p-38"),
    float.fromhex("0x1.a371319e96b49p-35"),
    float.fromhex("0x1.f170a26072b58p-34"),
    float.fromhex("0x1.9750722ca4178p-33"),
)
"""What they leave out."""
LOG2_OCTAVE = float.fromhex("0x1.0000000000000p+0")
"""The logarithm of 2, cut likewise."""
LOG2_OCTAVE_REST = float.fromhex("0x0.0p+0")
LOG2_UNIT = float.fromhex("0x1.71547652b82fep+0")
LOG2_UNIT_LOW = float.fromhex("0x1.777d0ffda0d24p-56")
LOG10_CENTRES = (
    float.fromhex("-0x1.25ba821800000p-3"),
    float.fromhex("-0x1.ffbfc2c000000p-4"),
    float.fromhex("-0x1.b721cd2000000p-4"),
    float.fromhex("-0x1.715d0cf000000p-4"),
    float.fromhex("-0x1.2e3a741000000p-4"),
    float.fromhex("-0x1.db11ed8000000p-5"),
    float.fromhex("-0x1.5e3966c000000p-5"),
    float.fromhex("-0x1.cb38fd0000000p-6"),
    float.fromhex("-0x1.c3d0838000000p-7"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.af5f928000000p-6"),
    float.fromhex("0x1.a30a9d6000000p-5"),
    float.fromhex("0x1.31b3055000000p-4"),
    float.fromhex("0x1.8cf1838000000p-4"),
    float.fromhex("0x1.e3bc1ab000000p-4"),
    float.fromhex("0x1.1b3e71e800000p-3"),
)
"""The logarithms of the centres cut to 32 bits after the point."""
LOG10_CENTRES_REST = (
    float.fromhex("0x1.2840227625926p-34"),
    float.fromhex("0x1.0e1ff91cd0d42p-34"),
    float.fromhex("0x1.1d50398689799p-33"),
    float.fromhex("0x1.930a052b52a4bp-33"),
    float.fromhex("0x1.21ffcca1d4048p-34"),
    float.fromhex("0x1.32a81e8d264d1p-34"),
    float.fromhex("0x1.02dad7854416fp-34"),
    float.fromhex("0x1.93a01329a6440p-33"),
    float.fromhex("0x1.0f678cac3e7efp-36"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.807308b1caddep-33"),
    float.fromhex("0x1.3dfda77e1f5a5p-38"),
    float.fromhex("0x1.88e2337cd7a42p-33"),
    float.fromhex("0x1.0c9015bce2015p-33"),
    float.fromhex("0x1.c33fff41bb74dp-37"),
    float.fromhex("0x1.253de932351b4p-33"),
)
"""What they leave out."""
LOG10_OCTAVE = float.fromhex("0x1.3441350800000p-2")
"""The logarithm of 2, cut likewise."""
LOG10_OCTAVE_REST = float.fromhex("0x1.f79fef311f12bp-34")
LOG10_UNIT = float.fromhex("0x1.bcb7b1526e50ep-2")
LOG10_UNIT_LOW = float.fromhex("0x1.95355baaafad3p-57")
LOG1P = (
    float.fromhex("-0x1.0000000000000p-1"),
    float.fromhex("0x1.55555555554edp-2"),
    float.fromhex("-0x1.ffffffffffcefp-3"),
    float.fromhex("0x1.9999999b93976p-3"),
    float.fromhex("-0x1.555555595badfp-3"),
    float.fromhex("0x1.2492314580891p-3"),
    float.fromhex("-0x1.ffffbbe778a38p-4"),
    float.fromhex("0x1.c7ffa387112bbp-4"),
    float.fromhex("-0x1.9a95f01123f59p-4"),
)
"""(log(1 + f) - f)/f^2 for |f| <= 1/32; lowest power first; error 2^-61.98."""
LOG1P_FOURTH = (
    float.fromhex("-0x1.0000000000000p-2"),
    float.fromhex("0x1.9999999999827p-3"),
    float.fromhex("-0x1.5555555555012p-3"),
    float.fromhex("0x1.249249272e53ap-3"),
    float.fromhex("-0x1.0000000532278p-3"),
    float.fromhex("0x1.c71c3e024f0b3p-4"),
    float.fromhex("-0x1.9999505919b5cp-4"),
    float.fromhex("0x1.7532fe8483c25p-4"),
    float.fromhex("-0x1.5643d36ebaae3p-4"),
)
"""(log(1 + f) - f + f^2/2 - f^3/3)/f^4 for |f| <= 1/32; lowest power first; error 2^-72.36."""
