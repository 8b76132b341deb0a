"""Constants of the f32 pow: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

RECIPROCALS = (
    float.fromhex("0x1.5600000000000p+0"),
    float.fromhex("0x1.3c00000000000p+0"),
    float.fromhex("0x1.2400000000000p+0"),
    float.fromhex("0x1.1200000000000p+0"),
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.c800000000000p-1"),
    float.fromhex("0x1.9800000000000p-1"),
    float.fromhex("0x1.7400000000000p-1"),
)
"""r, near 1/m in the interval that the leading bits of m name."""
LOGS = (
    float.fromhex("-0x1.abe18797f2000p-2"),
    float.fromhex("-0x1.37124cea4d000p-2"),
    float.fromhex("-0x1.84c2bd02f0800p-3"),
    float.fromhex("-0x1.918a16e464000p-4"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.563dc29ffa800p-3"),
    float.fromhex("0x1.4f6fbb2cec400p-2"),
    float.fromhex("0x1.d7e6c0abc3400p-2"),
)
"""-log2 r, a multiple of 2^-44: its sum with an exponent is exact."""
LOGS_LOW = (
    float.fromhex("0x1.6e3cb71b554e7p-47"),
    float.fromhex("0x1.0993376649b50p-45"),
    float.fromhex("0x1.13408b76dc462p-45"),
    float.fromhex("0x1.94aa31b9b6d65p-45"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.2c8321c83794ep-45"),
    float.fromhex("0x1.9878e4e85ae53p-46"),
    float.fromhex("0x1.78c3d4b5ab9d4p-46"),
)
"""What LOGS leaves out."""
LOGS_LAST = (
    float.fromhex("0x1.21470f2385aaap-101"),
    float.fromhex("-0x1.fb9186e41376fp-100"),
    float.fromhex("0x1.c56a8f0829345p-99"),
    float.fromhex("-0x1.9d1d19046b227p-99"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("-0x1.06a19b5bedec4p-100"),
    float.fromhex("-0x1.5c61129de88c7p-101"),
    float.fromhex("-0x1.29611295daec4p-103"),
)
"""What both leave out."""
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LOG2_E_LOW = float.fromhex("0x1.777d0ffda0d24p-56")
LOG2_E_LAST = float.fromhex("-0x1.60bb8a5442ab9p-110")
LOG2_REST = (
    float.fromhex("-0x1.71547652b82fep-1"),
    float.fromhex("0x1.ec709dc3a0406p-2"),
    float.fromhex("-0x1.71547652b80b1p-2"),
    float.fromhex("0x1.2776c50eed0d8p-2"),
    float.fromhex("-0x1.ec709dc69bcd0p-3"),
    float.fromhex("0x1.a617634c1bae6p-3"),
    float.fromhex("-0x1.71546bc35db96p-3"),
    float.fromhex("0x1.48495b42b11acp-3"),
    float.fromhex("-0x1.278580c5ea529p-3"),
    float.fromhex("0x1.0ea531f3b487dp-3"),
    float.fromhex("-0x1.dfa2776af3550p-4"),
)
"""(log2(1 + z) - z/ln 2)/z^2 for -0.0557 < z < 0.0626; lowest power first; error 2^-55.32."""
EXP2M1 = (
    float.fromhex("0x1.62e42fefa39efp-1"),
    float.fromhex("0x1.ebfbdff82c598p-3"),
    float.fromhex("0x1.c6b08d704a08ep-5"),
    float.fromhex("0x1.3b2ab6fba1e40p-7"),
    float.fromhex("0x1.5d87fe78b214dp-10"),
    float.fromhex("0x1.4309130958e60p-13"),
    float.fromhex("0x1.ffcbfc1e96f54p-17"),
    float.fromhex("0x1.62bfd4b48ea06p-20"),
    float.fromhex("0x1.b525a0a784600p-24"),
    float.fromhex("0x1.e605d2f8b2ee9p-28"),
    float.fromhex("0x1.e8caa0d81ceecp-32"),
)
"""(2^r - 1)/r for |r| <= 1/2; lowest power first; error 2^-54.04."""
LOG2_SERIES = (
    float.fromhex("-0x1.71547652b82fep-1"),
    float.fromhex("0x1.ec709dc3a03fdp-2"),
    float.fromhex("-0x1.71547652b82fep-2"),
    float.fromhex("0x1.2776c50ef9bfep-2"),
    float.fromhex("-0x1.ec709dc3a03fdp-3"),
    float.fromhex("0x1.a61762a7aded9p-3"),
    float.fromhex("-0x1.71547652b82fep-3"),
    float.fromhex("0x1.484b13d7c02a9p-3"),
    float.fromhex("-0x1.2776c50ef9bfep-3"),
    float.fromhex("0x1.0c9a84994022dp-3"),
    float.fromhex("-0x1.ec709dc3a03fdp-4"),
    float.fromhex("0x1.c68f568d31760p-4"),
    float.fromhex("-0x1.a61762a7aded9p-4"),
    float.fromhex("0x1.89f3b1694cffep-4"),
    float.fromhex("-0x1.71547652b82fep-4"),
    float.fromhex("0x1.5b9ac9b743f0dp-4"),
    float.fromhex("-0x1.484b13d7c02a9p-4"),
    float.fromhex("0x1.3703c1f4d0ffep-4"),
    float.fromhex("-0x1.2776c50ef9bfep-4"),
    float.fromhex("0x1.1964ec6fc9491p-4"),
    float.fromhex("-0x1.0c9a84994022dp-4"),
    float.fromhex("0x1.00ecd7e080215p-4"),
    float.fromhex("-0x1.ec709dc3a03fdp-5"),
    float.fromhex("0x1.d8be0817f5ffep-5"),
    float.fromhex("-0x1.c68f568d31760p-5"),
    float.fromhex("0x1.b5b96fca558e1p-5"),
)
"""As LOG2_REST, Taylor's."""
LOG2_SERIES_LOW = (
    float.fromhex("-0x1.777d0ffda0d24p-57"),
    float.fromhex("0x1.d27f05548af0cp-56"),
    float.fromhex("-0x1.777d0ffda0d24p-58"),
    float.fromhex("0x1.e4b29ccc535d4p-56"),
    float.fromhex("-0x1.d27f05548af0cp-57"),
    float.fromhex("0x1.fb22e490ee2f0p-58"),
    float.fromhex("-0x1.777d0ffda0d24p-59"),
    float.fromhex("-0x1.e55fc724e0a2cp-61"),
    float.fromhex("-0x1.e4b29ccc535d4p-57"),
    float.fromhex("0x1.42b91d166906ap-58"),
    float.fromhex("-0x1.d27f05548af0cp-58"),
    float.fromhex("0x1.ce23c4e96378ep-60"),
    float.fromhex("-0x1.fb22e490ee2f0p-59"),
)
"""What the first ones leave out."""
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LN2_LOW = float.fromhex("0x1.abc9e3b39803fp-56")
EXP_SERIES = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.0000000000000p-1"),
    float.fromhex("0x1.5555555555555p-3"),
    float.fromhex("0x1.5555555555555p-5"),
    float.fromhex("0x1.1111111111111p-7"),
    float.fromhex("0x1.6c16c16c16c17p-10"),
    float.fromhex("0x1.a01a01a01a01ap-13"),
    float.fromhex("0x1.a01a01a01a01ap-16"),
    float.fromhex("0x1.71de3a556c734p-19"),
    float.fromhex("0x1.27e4fb7789f5cp-22"),
    float.fromhex("0x1.ae64567f544e4p-26"),
    float.fromhex("0x1.1eed8eff8d898p-29"),
    float.fromhex("0x1.6124613a86d09p-33"),
    float.fromhex("0x1.93974a8c07c9dp-37"),
    float.fromhex("0x1.ae7f3e733b81fp-41"),
)
"""e^w, Taylor's."""
EXP_SERIES_LOW = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x0.0p+0"),
    float.fromhex("0x1.5555555555555p-57"),
    float.fromhex("0x1.5555555555555p-59"),
    float.fromhex("0x1.1111111111111p-63"),
    float.fromhex("-0x1.f49f49f49f49fp-65"),
    float.fromhex("0x1.a01a01a01a01ap-73"),
    float.fromhex("0x1.a01a01a01a01ap-76"),
)
"""What the first ones leave out."""
EIGHTHS = (
    float.fromhex("0x1.0000000000000p+0"),
    float.fromhex("0x1.172b83c7d517bp+0"),
    float.fromhex("0x1.306fe0a31b715p+0"),
    float.fromhex("0x1.4bfdad5362a27p+0"),
    float.fromhex("0x1.6a09e667f3bcdp+0"),
    float.fromhex("0x1.8ace5422aa0dbp+0"),
    float.fromhex("0x1.ae89f995ad3adp+0"),
    float.fromhex("0x1.d5818dcfba487p+0"),
)
"""2^(i/8)."""
EIGHTHS_LOW = (
    float.fromhex("0x0.0p+0"),
    float.fromhex("-0x1.19041b9d78a76p-55"),
    float.fromhex("0x1.6f46ad23182e4p-55"),
    float.fromhex("0x1.d4397afec42e2p-56"),
    float.fromhex("-0x1.bdd3413b26456p-54"),
    float.fromhex("0x1.6e9f156864b27p-54"),
    float.fromhex("0x1.7a1cd345dcc81p-54"),
    float.fromhex("0x1.2ed02d75b3707p-55"),
)
"""What the first ones leave out."""
