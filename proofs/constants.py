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
    _words("0x0.0p+0 0x0.0p+0"),
    _words("0x1.ffaaaeeed4edbp-5 -0x1.2d16d32684b69p-59"),
    _words("0x1.feaaeee86ee36p-4 -0x1.afcb2bcc6f03bp-59"),
    _words("0x1.7dc102fbaf2b5p-3 0x1.5ab50e23c97c3p-59"),
    _words("0x1.faaeed4f31577p-3 -0x1.15d88508e32b8p-57"),
    _words("0x1.3ad129769d3d8p-2 0x1.03d550487839ap-63"),
    _words("0x1.7710255764214p-2 -0x1.6ead7314bb6cep-57"),
    _words("0x1.b1d8305321617p-2 -0x1.ae242cb99f519p-56"),
    _words("0x1.eaee8744b05f0p-2 -0x1.789b43c9b027dp-58"),
    _words("0x1.110d0c4b69c3bp-1 0x1.d918998809981p-55"),
    _words("0x1.2b91dea88421ep-1 -0x1.fa371db216ab0p-55"),
    _words("0x1.44eb381cf386bp-1 -0x1.3ed6c1e6a5505p-55"),
    _words("0x1.5cffc16bf8f0dp-1 0x1.96cb370eb578ap-55"),
    _words("0x1.73b7680dea578p-1 -0x1.2248306dc12a2p-56"),
)
"""sin(j/16), j = 0..13."""
COSINES = (
    _words("0x1.0000000000000p+0 0x0.0p+0"),
    _words("0x1.ff0015549f4d3p-1 0x1.328387b99426fp-55"),
    _words("0x1.fc015527d5bd3p-1 0x1.b68f35094efb8p-55"),
    _words("0x1.f706bdf9ece1cp-1 -0x1.698c80c36dcb4p-55"),
    _words("0x1.f01549f7deea1p-1 0x1.d3c1e99e5cafdp-55"),
    _words("0x1.e733ea0193d40p-1 -0x1.6428b3546ce13p-55"),
    _words("0x1.dc6b7eb995912p-1 0x1.4b364776dcd35p-58"),
    _words("0x1.cfc6cfa52ad9fp-1 0x1.8b5b5508f2a0dp-55"),
    _words("0x1.c1528065b7d50p-1 -0x1.892111312e828p-55"),
    _words("0x1.b11d04162a4c6p-1 0x1.1dd561efbc0c2p-56"),
    _words("0x1.9f368ed912f85p-1 -0x1.1d200c5791606p-55"),
    _words("0x1.8bb105a5dc900p-1 0x1.863e03e9474c1p-55"),
    _words("0x1.769fec655211fp-1 -0x1.827d5cf8c68c5p-57"),
    _words("0x1.6018526f563dfp-1 0x1.46ca5e0e432d0p-55"),
)
"""cos(j/16), j = 0..13."""
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

ERF = (
    _words("0x1.20dd750429b6dp+0 0x1.1ae3a914fed80p-56"),
    _words("-0x1.812746b0379e7p-2 0x1.ee12e49cab700p-57"),
    _words("0x1.ce2f21a042be2p-4 -0x1.2871bc5e00766p-58"),
    _words("-0x1.b82ce31288b51p-6 0x1.1015978e7ac92p-61"),
    _words("0x1.565bcd0e6a53fp-8 -0x1.a73e0832f7e39p-64"),
    _words("-0x1.c02db40040b86p-11 0x1.d9a497a0f8b0ep-65"),
    _words("0x1.f9a326f9b89b7p-14 0x1.e9a2341c71459p-68"),
    _words("-0x1.f4d25c3e0c2ebp-17 -0x1.79b1b9b5c586cp-71"),
    _words("0x1.b9e6c9dc651a3p-20 -0x1.fe08d49bd93ddp-74"),
    _words("-0x1.5f742ec43e71ap-23 0x1.d28f03df991d8p-80"),
    _words("0x1.fcc5720624c1cp-27 -0x1.92e82d499b600p-82"),
    _words("-0x1.51d7181c5d36dp-30 0x1.edfe29582f8a2p-84"),
)
"""2/sqrt(pi) (-1)^k / (k! (2k + 1))."""
ERF_TRAILING = _words(
    "0x1.9e6ad5e55a730p-34 "
    "-0x1.d8453cb0c46eap-38 "
    "0x1.f683ae4a97007p-42 "
    "-0x1.f56f071a885cfp-46 "
    "0x1.d70b3537f4765p-50 "
    "-0x1.a2007af3447f6p-54 "
    "0x1.5f7919bc67b8cp-58 "
    "-0x1.18cc8a061c479p-62 "
    "0x1.ab5cc31489f29p-67 "
    "-0x1.3676fc48c133cp-71 "
)
"""Its later terms."""
ERFC_FIRST = _words("-0x1.8000000000000p-1")
"""Where the first piece begins."""
ERFC_WIDTH = _words("0x1.5000000000000p-2")
"""The width of a piece."""
ERFC_HIGH = (
    _words("0x1.45323796446e0p+0 0x1.482fb6b772f13p+0 0x1.3e478dc5bad55p+0 0x1.327c6edb40a40p+0"),
    _words("0x1.999bf0314c82cp-3 -0x1.34d0dfe64a2fdp-4 -0x1.1fd5c590d7467p-3 -0x1.13d830d2dc14dp-3"),
    _words("-0x1.673417f7d0be1p-1 -0x1.ab78088b425fbp-3 -0x1.816cbf59e2d24p-6 0x1.d672efa5c390ep-6"),
    _words("0x1.7b12d3e67f961p-1 0x1.39cd84416372dp-2 0x1.96c9d1c973cb6p-4 0x1.572e792f23087p-6"),
    _words("-0x1.c1852c3214e05p-2 -0x1.dad7cee0c1e30p-3 -0x1.8d4358ec2aa1dp-4 -0x1.051f21b722d76p-5"),
    _words("0x1.20d0f1fd6741bp-3 0x1.b3d958608f065p-4 0x1.dfdc644ef54a5p-5 0x1.8a9556defe762p-6"),
    _words("-0x1.1809aa5e90ca2p-7 -0x1.86e0d16640509p-6 -0x1.6d27e519430b5p-6 -0x1.98be8c2dcbc41p-7"),
    _words("-0x1.454b90a60a80cp-7 -0x1.75371f12e959fp-9 0x1.c425c322583fbp-9 0x1.164908801969dp-8"),
    _words("0x1.de78f85a66df9p-10 0x1.92211b3b4b57ap-9 0x1.697eff0b26d4cp-10 -0x1.139bbd18194f3p-11"),
    _words("0x1.c4ed572a2c35fp-11 -0x1.0b07e13800b48p-13 -0x1.adc64bdc1c004p-11 -0x1.6d96685d745aep-12"),
    _words("-0x1.66f970e7fe8fdp-13 -0x1.726403d9f79b6p-12 -0x1.26d207158b1dbp-17 0x1.b6138f0686475p-13"),
    _words("-0x1.a83e152116a52p-14 0x1.cda0beb8d9523p-16 0x1.fdd0e668cf05cp-14 -0x1.c85cab6871d96p-17"),
    _words("0x1.19ce33a0a1e74p-17 0x1.8a2e1bb815e76p-15 -0x1.babd0622ed747p-17 -0x1.0e09b202fee86p-15"),
    _words("0x1.a8a4fbaf0f393p-17 -0x1.46ae06607ac5fp-20 -0x1.3e8e934286c8ep-16 0x1.6a9a0316a9f43p-17"),
    _words("0x1.3e3861fcd68ebp-20 -0x1.cc1e565e1cda7p-18 0x1.9117ffd43fe62p-19 0x1.08daa0fecb53bp-18"),
    _words("-0x1.5abad8bb4749ap-20 -0x1.6fe37143f77d2p-21 0x1.ccc8a598f34aap-19 -0x1.94433a7541a9bp-19"),
    _words("-0x1.da0b75f63c74bp-22 0x1.fbbffa4593bedp-21 -0x1.e0ee83f260bd5p-22 -0x1.a1a6c5cc35b75p-22"),
    _words("0x1.c73b2b180240cp-25 0x1.31e457308212cp-22 -0x1.78acb8543940bp-21 0x1.91a8b5698f524p-21"),
    _words("0x1.355b6cd730cb5p-24 -0x1.9044cbae8c4b6p-24 0x1.96d7bbb8099f4p-26 0x1.32b9c57990b5fp-26"),
    _words("0x1.e9845dc30c4bcp-27 -0x1.2ba384cba59cdp-24 0x1.41f461f744f5bp-23 -0x1.9933940c4ea63p-23"),
    _words("-0x1.6a81ca0d6e3eep-28 -0x1.3bc39b580d6ccp-29 0x1.2c31916824016p-26 0x1.3eddd2fc8593dp-28"),
    _words("-0x1.ff55971bb5bf4p-29 0x1.8c9337c08e83bp-27 -0x1.03853a5f0ca3bp-25 0x1.bddcd61786d23p-25"),
    _words("-0x1.2250f4d4eac3dp-31 0x1.0236c4b48cb25p-28 -0x1.461242902734cp-27 -0x1.6ea86bcd379c5p-30"),
    _words("0x1.6b3a15c723f1ap-32 -0x1.db221a867d11ap-31 0x1.4863bdad561eap-28 -0x1.f2151d80a0d55p-27"),
)
"""By power, then by piece: (1 + 2x) e^(x^2) erfc(x), high words."""
ERFC_LOW = (
    _words("0x1.1545fb1ed80f9p-55 0x1.5807b90d62878p-54 0x1.b9bd9fe5b134ep-55 0x1.58e4977e1afe8p-54"),
    _words("0x1.656b7b2336da2p-57 0x1.2840889d3027cp-59 -0x1.6f7c3a65c45d0p-62 -0x1.925b992c46107p-60"),
    _words("-0x1.3dfc0e74fad02p-55 -0x1.273d1d30f10bfp-59 0x1.8adeda457da1ep-60 -0x1.642c0ce86a1efp-66"),
    _words("0x1.02eb652ffa24bp-56 0x1.25acdf67fb498p-61 -0x1.2a2e88b36fd2bp-58 -0x1.c7794a0262cd9p-61"),
    _words("-0x1.30ecfe87a7fabp-57 -0x1.056cb71372fafp-57 0x1.2b56f15fdf60ep-58 -0x1.b74bf27147fd3p-60"),
    _words("0x1.4848ef72dc5bbp-59 0x1.490b4cc7aea43p-58 0x1.1612b9db9244fp-59 0x1.ca80d6ecce6a8p-63"),
    _words("-0x1.fcda7a57dc9fap-62 0x1.0d8a81472f8fbp-60 0x1.a46434e564b0bp-61 -0x1.0fb9de4bf81ccp-62"),
    _words("-0x1.2024906c88008p-62 0x1.2e8ebccb95cebp-69 0x1.1d8cd083457a9p-63 -0x1.a4f3ff84f9bb0p-64"),
    _words("0x1.e1b3f89cc2140p-67 0x1.8ab01f6730ecbp-63 0x1.26a5fa149fdf1p-65 -0x1.b792afacfb941p-65"),
    _words("0x1.67cad1f2bbcc1p-69 0x1.4aa93c79b3ec6p-67 0x1.94aa029c76171p-65 0x1.c571a670e9f88p-66"),
    _words("0x1.19c9fd0226651p-67 -0x1.718784d319b9ap-66 -0x1.3fafeaed25015p-72 -0x1.9bb44c3a56ecbp-68"),
    _words("0x1.26bfcecf907dfp-68 0x1.ff3fcea7e69a7p-71 0x1.d48ebc46473b7p-68 0x1.bcd554942f4f6p-71"),
    _words("0x1.be19acbf3331ep-74 0x1.7ba8e663b0e59p-69 -0x1.95867fff5bea3p-72 0x1.0ef09119e0ecep-69"),
    _words("-0x1.dc5fff0bd45b3p-76 -0x1.ebfdb5f339028p-74 -0x1.cff235f66f7dep-76 -0x1.e1d266f052f37p-71"),
    _words("-0x1.f37ab217234f1p-75 -0x1.1ad9b577fc6bap-74 -0x1.4f4a53386dbf5p-76 0x1.2179b3f0a0980p-73"),
)
"""Their low words, where they are needed."""
