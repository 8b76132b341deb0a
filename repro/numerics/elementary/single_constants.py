"""Constants of the f32 road of elementary functions: printed by `python -m tools.constants`, never edited by hand."""

from __future__ import annotations

LOG2_E = float.fromhex("0x1.7154760000000p+0")
LN2_HIGH = float.fromhex("0x1.62e4000000000p-1")
LN2_MIDDLE = float.fromhex("0x1.7f7d1c0000000p-20")
LN2_LOW = float.fromhex("0x1.ef357a0000000p-45")
EXP_TRAILING = (
    float.fromhex("0x1.1111120000000p-7"),
    float.fromhex("0x1.6c16c20000000p-10"),
    float.fromhex("0x1.a01a020000000p-13"),
    float.fromhex("0x1.a01a020000000p-16"),
    float.fromhex("0x1.71de3a0000000p-19"),
    float.fromhex("0x1.27e4fc0000000p-22"),
)
"""e^r: powers 5 and up."""
EXP_LEADING = (
    (float.fromhex("0x1.5555560000000p-5"), float.fromhex("-0x1.5555560000000p-30")),
    (float.fromhex("0x1.5555560000000p-3"), float.fromhex("-0x1.5555560000000p-28")),
    (float.fromhex("0x1.0000000000000p-1"), float.fromhex("0x0.0p+0")),
    (float.fromhex("0x1.0000000000000p+0"), float.fromhex("0x0.0p+0")),
    (float.fromhex("0x1.0000000000000p+0"), float.fromhex("0x0.0p+0")),
)
"""Powers 4 to 0, in sums of two."""
EXPM1_TRAILING = (
    float.fromhex("0x1.6c16c20000000p-10"),
    float.fromhex("0x1.a01a020000000p-13"),
    float.fromhex("0x1.a01a020000000p-16"),
    float.fromhex("0x1.71de3a0000000p-19"),
    float.fromhex("0x1.27e4fc0000000p-22"),
)
"""(e^r - 1)/r: powers 5 and up."""
EXPM1_LEADING = (
    (float.fromhex("0x1.1111120000000p-7"), float.fromhex("-0x1.ddddde0000000p-32")),
    (float.fromhex("0x1.5555560000000p-5"), float.fromhex("-0x1.5555560000000p-30")),
    (float.fromhex("0x1.5555560000000p-3"), float.fromhex("-0x1.5555560000000p-28")),
    (float.fromhex("0x1.0000000000000p-1"), float.fromhex("0x0.0p+0")),
    (float.fromhex("0x1.0000000000000p+0"), float.fromhex("0x0.0p+0")),
)
"""Powers 4 to 0, in sums of two."""
PIECES_A_UNIT = float.fromhex("0x1.0410420000000p+0")
PIECES_A_UNIT_LOW = float.fromhex("-0x1.f7df7e0000000p-25")
ERF_TRAILING = (
    (
        float.fromhex("-0x1.0cb2880000000p-10"),
        float.fromhex("0x1.0090c00000000p-10"),
        float.fromhex("-0x1.4811da0000000p-13"),
        float.fromhex("-0x1.bf2b720000000p-18"),
    ),
    (
        float.fromhex("-0x1.96feac0000000p-10"),
        float.fromhex("0x1.7a24620000000p-12"),
        float.fromhex("-0x1.30b6440000000p-15"),
        float.fromhex("0x1.aec0f00000000p-18"),
    ),
    (
        float.fromhex("0x1.430c3a0000000p-12"),
        float.fromhex("-0x1.0affa40000000p-12"),
        float.fromhex("0x1.549cf60000000p-15"),
        float.fromhex("-0x1.96174e0000000p-19"),
    ),
    (
        float.fromhex("0x1.a617ec0000000p-13"),
        float.fromhex("0x1.af58720000000p-17"),
        float.fromhex("-0x1.9404ec0000000p-17"),
        float.fromhex("0x1.da54020000000p-21"),
    ),
    (
        float.fromhex("-0x1.e325480000000p-15"),
        float.fromhex("0x1.085ea60000000p-15"),
        float.fromhex("-0x1.8923360000000p-21"),
        float.fromhex("-0x1.7a82980000000p-24"),
    ),
    (
        float.fromhex("-0x1.668ae60000000p-16"),
        float.fromhex("-0x1.1c5e7c0000000p-17"),
        float.fromhex("0x1.db72fe0000000p-20"),
        float.fromhex("-0x1.111dfa0000000p-24"),
    ),
    (
        float.fromhex("0x1.f4aac00000000p-18"),
        float.fromhex("-0x1.112a260000000p-19"),
        float.fromhex("-0x1.e511800000000p-22"),
        float.fromhex("0x1.566f5c0000000p-25"),
    ),
    (
        float.fromhex("0x1.cb8c420000000p-20"),
        float.fromhex("0x1.44f5fa0000000p-20"),
        float.fromhex("-0x1.8d59cc0000000p-25"),
        float.fromhex("-0x1.48e4f60000000p-27"),
    ),
)
"""The pieces of f32.error_function_constants: powers 8 to 15."""
ERF_LEADING = (
    (
        (
            float.fromhex("0x1.3c03180000000p-7"),
            float.fromhex("-0x1.0029800000000p-8"),
            float.fromhex("0x1.7345320000000p-11"),
            float.fromhex("-0x1.ecd68e0000000p-17"),
        ),
        (
            float.fromhex("0x1.9c72580000000p-33"),
            float.fromhex("0x1.61eba20000000p-33"),
            float.fromhex("0x1.c8c31e0000000p-38"),
            float.fromhex("0x1.2f03800000000p-42"),
        ),
    ),
    (
        (
            float.fromhex("-0x1.f702d20000000p-12"),
            float.fromhex("0x1.03bbd80000000p-9"),
            float.fromhex("-0x1.658f4a0000000p-10"),
            float.fromhex("0x1.f589500000000p-14"),
        ),
        (
            float.fromhex("0x1.90f8cc0000000p-38"),
            float.fromhex("0x1.77c94a0000000p-34"),
            float.fromhex("-0x1.1c6f800000000p-35"),
            float.fromhex("-0x1.763b080000000p-40"),
        ),
    ),
    (
        (
            float.fromhex("-0x1.7b0b240000000p-5"),
            float.fromhex("0x1.fe568a0000000p-7"),
            float.fromhex("0x1.6dd59a0000000p-11"),
            float.fromhex("-0x1.0d63460000000p-11"),
        ),
        (
            float.fromhex("0x1.063a9a0000000p-30"),
            float.fromhex("0x1.a4f4b00000000p-37"),
            float.fromhex("-0x1.ec16080000000p-38"),
            float.fromhex("0x1.42d6b20000000p-39"),
        ),
    ),
    (
        (
            float.fromhex("0x1.07f1e60000000p-5"),
            float.fromhex("-0x1.4709c60000000p-5"),
            float.fromhex("0x1.2f7ad00000000p-8"),
            float.fromhex("0x1.f2e6a40000000p-10"),
        ),
        (
            float.fromhex("0x1.24e01a0000000p-30"),
            float.fromhex("-0x1.0915600000000p-32"),
            float.fromhex("-0x1.5b47dc0000000p-33"),
            float.fromhex("0x1.69158c0000000p-38"),
        ),
    ),
    (
        (
            float.fromhex("0x1.4400d00000000p-3"),
            float.fromhex("0x1.39dfaa0000000p-6"),
            float.fromhex("-0x1.581d6c0000000p-6"),
            float.fromhex("-0x1.ba6a540000000p-8"),
        ),
        (
            float.fromhex("-0x1.fca62c0000000p-29"),
            float.fromhex("0x1.88dd420000000p-31"),
            float.fromhex("0x1.a37f360000000p-32"),
            float.fromhex("-0x1.52a84a0000000p-35"),
        ),
    ),
    (
        (
            float.fromhex("-0x1.d000be0000000p-3"),
            float.fromhex("0x1.c141440000000p-4"),
            float.fromhex("0x1.fbe38e0000000p-5"),
            float.fromhex("0x1.84103c0000000p-6"),
        ),
        (
            float.fromhex("-0x1.78248c0000000p-29"),
            float.fromhex("0x1.bd2f680000000p-29"),
            float.fromhex("-0x1.6d93080000000p-34"),
            float.fromhex("0x1.c690f00000000p-33"),
        ),
    ),
    (
        (
            float.fromhex("-0x1.4360c00000000p-2"),
            float.fromhex("-0x1.6645fe0000000p-2"),
            float.fromhex("-0x1.4a8c6a0000000p-3"),
            float.fromhex("-0x1.53aa480000000p-4"),
        ),
        (
            float.fromhex("-0x1.c05e6c0000000p-27"),
            float.fromhex("0x1.70cf500000000p-30"),
            float.fromhex("-0x1.f94bde0000000p-28"),
            float.fromhex("0x1.27a0780000000p-29"),
        ),
    ),
    (
        (
            float.fromhex("0x1.0b24260000000p+0"),
            float.fromhex("0x1.4dff420000000p-1"),
            float.fromhex("0x1.9fe4a80000000p-2"),
            float.fromhex("0x1.2937100000000p-2"),
        ),
        (
            float.fromhex("-0x1.7fa5380000000p-25"),
            float.fromhex("-0x1.9587c80000000p-26"),
            float.fromhex("-0x1.c83b240000000p-27"),
            float.fromhex("0x1.087e280000000p-28"),
        ),
    ),
)
"""Powers 7 to 0, in sums of two."""
