"""The instruction set: every instruction by its mnemonic, and their text."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from repro.ir.types import DType
from repro.targets.tpu_sim import operands as op
from repro.targets.tpu_sim.instruction import FAR, Instruction, field_names, lane_offset
from repro.targets.tpu_sim.unit_isa import Dma, Matmul, Push, Send, Transpose, Wait, chain
from repro.targets.tpu_sim.vector_isa import (
    Alu,
    Constant,
    Gather,
    Iota,
    Load,
    Lookup,
    Move,
    Rotate,
    Scatter,
    Store,
)

__all__ = [
    "CODES", "FAR", "Alu", "Constant", "Dma", "Gather", "Instruction", "Iota", "Load", "Lookup", "Matmul", "Move",
    "Push", "Rotate", "Scatter", "Send", "Store", "Transpose", "Wait", "chain", "instruction_text", "lane_offset",
    "parse_instruction",
]  # fmt: skip

CODES: dict[str, type[Any]] = {
    code.mnemonic: code
    for code in (
        Constant, Iota, Alu, Lookup, Load, Store, Gather, Scatter, Rotate, Transpose, Move,
        Push, Matmul, Dma, Send, Wait,
    )
}  # fmt: skip


# ── text form ───────────────────────────────────────────────────────────────────────────────────────


def _parse_flag(text: str) -> bool:
    return {"yes": True, "no": False}[text]


_PARSE: dict[str, Any] = {
    "Reg": op.parse_reg,
    "DType": op.parse_dtype,
    "Index": op.parse_index,
    "Ref": op.parse_ref,
    "Pattern": op.parse_pattern,
    "int": int,
    "str": str,
    "bool": _parse_flag,
    "tuple[Reg, ...]": lambda text: tuple(op.parse_reg(part) for part in text.split(",")),
    "tuple[Dim, ...]": op.parse_dims,
}


def _word(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case DType():
            return value.name
        case tuple():
            parts: tuple[object, ...] = value
            return ",".join(map(str, parts))
        case _:
            return str(value)


def instruction_text(instruction: Instruction) -> str:
    """One line: the mnemonic, the fields in their order (`-` for none), the predicate last."""
    names = [name for name in field_names(type(instruction)) if name != "when"]
    words = [instruction.mnemonic, *(_word(getattr(instruction, name)) for name in names)]
    when = instruction.predicate
    return " ".join(words if when is None else [*words, "when", str(when)])


def parse_instruction(text: str) -> Instruction:
    """The inverse of `instruction_text`. Raises ValueError or KeyError."""
    mnemonic, *words = text.split()
    code = CODES[mnemonic]
    when = None
    if len(words) > 1 and words[-2] == "when":
        when = op.parse_index(words[-1])
        words = words[:-2]
    declared = [field for field in fields(code) if field.name != "when"]
    values = list[object]()
    for field, word in zip(declared, words, strict=True):
        kind = str(field.type)
        optional = kind.endswith(" | None")
        if optional and word == "-":
            values.append(None)
        else:
            values.append(_PARSE[kind.removesuffix(" | None")](word))
    return code(*values, when=when)
