"""Constants of the screens: printed by proofs/generate.py, never edited by hand."""

from __future__ import annotations


def _words(text: str) -> tuple[float, ...]:
    """The doubles of a line, whose unevaluated sum is the constant."""
    return tuple(map(float.fromhex, text.split()))


LN2 = _words("0x1.62e42fefa2000p-1 0x1.9ef35793c7673p-41 0x1.f97b57a079a19p-103")
"""ln 2; the first word has 40 bits."""
LN2_PAIR = _words("0x1.62e42fefa39efp-1 0x1.abc9e3b39803fp-56")
"""ln 2."""
LOG2_E = _words("0x1.71547652b82fep+0 0x1.777d0ffda0d24p-56")
"""1 / ln 2."""
LOG10_E = _words("0x1.bcb7b1526e50ep-2 0x1.95355baaafad3p-57")
"""1 / ln 10."""
EXP = (
    _words("0x1.0000000000000p-1 0x0.0p+0"),
    _words("0x1.5555555555555p-3 0x1.5555555555555p-57"),
    _words("0x1.5555555555555p-5 0x1.5555555555555p-59"),
    _words("0x1.1111111111111p-7 0x1.1111111111111p-63"),
    _words("0x1.6c16c16c16c17p-10 -0x1.f49f49f49f49fp-65"),
    _words("0x1.a01a01a01a01ap-13 0x1.a01a01a01a01ap-73"),
)
"""1/2!, 1/3!, ..."""
EXP_TRAILING = _words(
    "0x1.a01a01a01a01ap-16 0x1.71de3a556c734p-19 0x1.27e4fb7789f5cp-22 0x1.ae64567f544e4p-26 0x1.1eed8eff8d898p-29"
)
"""Its later terms."""

LOG_RECIPROCALS = (
    _words("0x1.7fafa3bd8151cp-2 -0x1.219024acd3b77p-58"),
    _words("0x1.269621134db92p-2 0x1.e0efadd9db02bp-56"),
    _words("0x1.a93ed3c8ad9e3p-3 0x1.bcafa9de97203p-57"),
    _words("0x1.1178e8227e47cp-3 -0x1.0e63a5f01c691p-58"),
    _words("0x1.08598b59e3a07p-4 -0x1.dd7009902bf32p-58"),
    _words("0x0.0p+0 0x0.0p+0"),
    _words("-0x1.f0a30c01162a6p-5 -0x1.85f325c5bbacdp-59"),
    _words("-0x1.e27076e2af2e6p-4 0x1.61578001e0162p-60"),
    _words("-0x1.5ff3070a793d4p-3 0x1.bc60efafc6f6ep-58"),
    _words("-0x1.c8ff7c79a9a22p-3 0x1.4f689f8434012p-57"),
    _words("-0x1.1675cababa60ep-2 -0x1.ce63eab883717p-61"),
)
"""-ln(j/16), j = 11..21."""
LOG = (
    _words("0x1.5555555555555p-2 0x1.5555555555555p-56"),
    _words("0x1.999999999999ap-3 -0x1.999999999999ap-57"),
    _words("0x1.2492492492492p-3 0x1.2492492492492p-57"),
    _words("0x1.c71c71c71c71cp-4 0x1.c71c71c71c71cp-58"),
)
"""1/3, 1/5, ..."""
LOG_TRAILING = _words(
    "0x1.745d1745d1746p-4 "
    "0x1.3b13b13b13b14p-4 "
    "0x1.1111111111111p-4 "
    "0x1.e1e1e1e1e1e1ep-5 "
    "0x1.af286bca1af28p-5 "
    "0x1.8618618618618p-5 "
)
"""Its later terms."""

HALF_PI = _words("0x1.921fb54442d18p+0 0x1.1a62633145c07p-54")
"""pi / 2."""
PI = _words("0x1.921fb54442d18p+1 0x1.1a62633145c07p-53")
"""pi."""
TWO_OVER_PI = _words(
    "0x1.45f306dc9c883p-1 "
    "-0x1.6b01ec5417056p-55 "
    "-0x1.6447e493ad4cep-109 "
    "0x1.e21c820ff28b2p-163 "
    "-0x1.508510ea79237p-218 "
    "0x1.b8e909374b802p-274 "
)
"""2 / pi, to 2^-318."""
SINES = (
    _words("0x0.0p+0 0x0.0p+0 0x1.0000000000000p+0 0x0.0p+0"),
    _words("0x1.ffaaaeeed4edbp-5 -0x1.2d16d32684b69p-59 0x1.ff0015549f4d3p-1 0x1.328387b99426fp-55"),
    _words("0x1.feaaeee86ee36p-4 -0x1.afcb2bcc6f03bp-59 0x1.fc015527d5bd3p-1 0x1.b68f35094efb8p-55"),
    _words("0x1.7dc102fbaf2b5p-3 0x1.5ab50e23c97c3p-59 0x1.f706bdf9ece1cp-1 -0x1.698c80c36dcb4p-55"),
    _words("0x1.faaeed4f31577p-3 -0x1.15d88508e32b8p-57 0x1.f01549f7deea1p-1 0x1.d3c1e99e5cafdp-55"),
    _words("0x1.3ad129769d3d8p-2 0x1.03d550487839ap-63 0x1.e733ea0193d40p-1 -0x1.6428b3546ce13p-55"),
    _words("0x1.7710255764214p-2 -0x1.6ead7314bb6cep-57 0x1.dc6b7eb995912p-1 0x1.4b364776dcd35p-58"),
    _words("0x1.b1d8305321617p-2 -0x1.ae242cb99f519p-56 0x1.cfc6cfa52ad9fp-1 0x1.8b5b5508f2a0dp-55"),
    _words("0x1.eaee8744b05f0p-2 -0x1.789b43c9b027dp-58 0x1.c1528065b7d50p-1 -0x1.892111312e828p-55"),
    _words("0x1.110d0c4b69c3bp-1 0x1.d918998809981p-55 0x1.b11d04162a4c6p-1 0x1.1dd561efbc0c2p-56"),
    _words("0x1.2b91dea88421ep-1 -0x1.fa371db216ab0p-55 0x1.9f368ed912f85p-1 -0x1.1d200c5791606p-55"),
    _words("0x1.44eb381cf386bp-1 -0x1.3ed6c1e6a5505p-55 0x1.8bb105a5dc900p-1 0x1.863e03e9474c1p-55"),
    _words("0x1.5cffc16bf8f0dp-1 0x1.96cb370eb578ap-55 0x1.769fec655211fp-1 -0x1.827d5cf8c68c5p-57"),
    _words("0x1.73b7680dea578p-1 -0x1.2248306dc12a2p-56 0x1.6018526f563dfp-1 0x1.46ca5e0e432d0p-55"),
)
"""sin(j/16) and cos(j/16), j = 0..13."""
SIN = (
    _words("-0x1.5555555555555p-3 -0x1.5555555555555p-57"),
    _words("0x1.1111111111111p-7 0x1.1111111111111p-63"),
    _words("-0x1.a01a01a01a01ap-13 -0x1.a01a01a01a01ap-73"),
)
"""-1/3!, 1/5!, ..."""
SIN_TRAILING = _words("0x1.71de3a556c734p-19 -0x1.ae64567f544e4p-26 0x1.6124613a86d09p-33 -0x1.ae7f3e733b81fp-41")
"""Its later terms."""
VERSINE = (
    _words("0x1.0000000000000p-1 0x0.0p+0"),
    _words("-0x1.5555555555555p-5 -0x1.5555555555555p-59"),
    _words("0x1.6c16c16c16c17p-10 -0x1.f49f49f49f49fp-65"),
    _words("-0x1.a01a01a01a01ap-16 -0x1.a01a01a01a01ap-76"),
)
"""1/2!, -1/4!, ..."""
VERSINE_TRAILING = _words("0x1.27e4fb7789f5cp-22 -0x1.1eed8eff8d898p-29 0x1.93974a8c07c9dp-37 -0x1.ae7f3e733b81fp-45")
"""Its later terms."""
ARC_TANGENTS = (
    _words("0x0.0p+0 0x0.0p+0"),
    _words("0x1.ff55bb72cfdeap-5 -0x1.c934d86d23f1dp-60"),
    _words("0x1.fd5ba9aac2f6ep-4 -0x1.cd37686760c17p-59"),
    _words("0x1.7b97b4bce5b02p-3 0x1.347b0b4f881cap-58"),
    _words("0x1.f5b75f92c80ddp-3 0x1.8ab6e3cf7afbdp-57"),
    _words("0x1.362773707ebccp-2 -0x1.963a544b672d8p-57"),
    _words("0x1.6f61941e4def1p-2 -0x1.c63aae6f6e918p-56"),
    _words("0x1.a64eec3cc23fdp-2 -0x1.24dec1b50b7ffp-56"),
    _words("0x1.dac670561bb4fp-2 0x1.a2b7f222f65e2p-56"),
    _words("0x1.0657e94db30d0p-1 -0x1.d5b495f6349e6p-56"),
    _words("0x1.1e00babdefeb4p-1 -0x1.928df287a668fp-58"),
    _words("0x1.345f01cce37bbp-1 0x1.1021137c71102p-55"),
    _words("0x1.4978fa3269ee1p-1 0x1.2419a87f2a458p-56"),
    _words("0x1.5d58987169b18p-1 0x1.0028e4bc5e7cap-57"),
    _words("0x1.700a7c5784634p-1 -0x1.8c34d25aadef6p-56"),
    _words("0x1.819d0b7158a4dp-1 -0x1.bf76229d3b917p-56"),
    _words("0x1.921fb54442d18p-1 0x1.1a62633145c07p-55"),
)
"""atan(j/16), j = 0..16."""
ATAN = (
    _words("-0x1.5555555555555p-2 -0x1.5555555555555p-56"),
    _words("0x1.999999999999ap-3 -0x1.999999999999ap-57"),
    _words("-0x1.2492492492492p-3 -0x1.2492492492492p-57"),
    _words("0x1.c71c71c71c71cp-4 0x1.c71c71c71c71cp-58"),
)
"""-1/3, 1/5, ..."""
ATAN_TRAILING = _words(
    "-0x1.745d1745d1746p-4 "
    "0x1.3b13b13b13b14p-4 "
    "-0x1.1111111111111p-4 "
    "0x1.e1e1e1e1e1e1ep-5 "
    "-0x1.af286bca1af28p-5 "
    "0x1.8618618618618p-5 "
    "-0x1.642c8590b2164p-5 "
)
"""Its later terms."""

TAN_TINY = (
    _words("0x1.5555555555555p-2 0x1.5555555555555p-56"),
    _words("0x1.1111111111111p-3 0x1.1111111111111p-59"),
)
"""Coefficients of x^3, x^5, ... of tan."""
TAN_TINY_TRAILING = _words("0x1.ba1ba1ba1ba1cp-5 0x1.664f4882c10fap-6 0x1.226e355e6c23dp-7")
"""Its later terms."""
ASIN_TINY = (
    _words("0x1.5555555555555p-3 0x1.5555555555555p-57"),
    _words("0x1.3333333333333p-4 0x1.999999999999ap-59"),
)
"""Coefficients of x^3, x^5, ... of asin."""
ASIN_TINY_TRAILING = _words("0x1.6db6db6db6db7p-5 0x1.f1c71c71c71c7p-6 0x1.6e8ba2e8ba2e9p-6")
"""Its later terms."""
SINH_TINY = (
    _words("0x1.5555555555555p-3 0x1.5555555555555p-57"),
    _words("0x1.1111111111111p-7 0x1.1111111111111p-63"),
)
"""Coefficients of x^3, x^5, ... of sinh."""
SINH_TINY_TRAILING = _words("0x1.a01a01a01a01ap-13 0x1.71de3a556c734p-19 0x1.ae64567f544e4p-26")
"""Its later terms."""
TANH_TINY = (
    _words("-0x1.5555555555555p-2 -0x1.5555555555555p-56"),
    _words("0x1.1111111111111p-3 0x1.1111111111111p-59"),
)
"""Coefficients of x^3, x^5, ... of tanh."""
TANH_TINY_TRAILING = _words("-0x1.ba1ba1ba1ba1cp-5 0x1.664f4882c10fap-6 -0x1.226e355e6c23dp-7")
"""Its later terms."""
ASINH_TINY = (
    _words("-0x1.5555555555555p-3 -0x1.5555555555555p-57"),
    _words("0x1.3333333333333p-4 0x1.999999999999ap-59"),
)
"""Coefficients of x^3, x^5, ... of asinh."""
ASINH_TINY_TRAILING = _words("-0x1.6db6db6db6db7p-5 0x1.f1c71c71c71c7p-6 -0x1.6e8ba2e8ba2e9p-6")
"""Its later terms."""
ATANH_TINY = (
    _words("0x1.5555555555555p-2 0x1.5555555555555p-56"),
    _words("0x1.999999999999ap-3 -0x1.999999999999ap-57"),
)
"""Coefficients of x^3, x^5, ... of atanh."""
ATANH_TINY_TRAILING = _words("0x1.2492492492492p-3 0x1.c71c71c71c71cp-4 0x1.745d1745d1746p-4")
"""Its later terms."""

CUBE_ROOT = _words("0x1.2343470fc7fdbp-1 0x1.0b42f8ee28884p-1 -0x1.ba797501b18f9p-4 0x1.529f77524a817p-7")
"""A cubic near the cube root on [1/2, 4], lowest power first."""
