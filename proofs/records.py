"""Records of proofs (golden/elementary): canonical JSON, written by the drivers and checked by the tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from proofs import rules
from proofs.exhaustive import Tally, code_digest, screen_digest
from proofs.screens import SCREENS
from repro.artifact.canonical import decode, encode
from repro.errors import ReproError
from repro.numerics.contract import CONTRACT_VERSION

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "elementary"
SCHEMAS = Path(__file__).resolve().parent / "schema"

Record = dict[str, Any]


def word(bits: int) -> str:
    """The bits of an f32."""
    return f"0x{bits:08x}"


def digest_of_digests(digests: Sequence[str]) -> str:
    """sha256 (hex) of the digests' bytes, one after another."""
    return hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def of_every_input(name: str, digests: Sequence[str], tally: Tally) -> Record:
    """The record of all classes of an f32 function."""
    spans = rules.spans(name)
    return {
        "format": 1,
        "contract": CONTRACT_VERSION,
        "function": name,
        "dtype": "f32",
        "code": code_digest(name),
        "screen": {"code": screen_digest(name), "error_log2": SCREENS[name].error_log2},
        "rules": [{"first": word(first), "last": word(last), "result": word(bits)} for first, last, bits in spans],
        "counts": {
            "inputs": tally.inputs,
            "rule": tally.rule,
            "screen": tally.screen,
            "mpfr": tally.mpfr,
            "hard": len(tally.hard),
            "misroundings": tally.misroundings,
        },
        "classes": list(digests),
        "results": digest_of_digests(digests),
        "hard": [[word(argument), word(result)] for argument, result in sorted(tally.hard)],
    }


def check_today(record: Record) -> None:
    """Raise ReproError where a record speaks of other code, another screen or another contract, or of too little."""
    name = record["function"]
    spans = [[word(part) for part in span] for span in rules.spans(name)]
    counts = record["counts"]
    _compare(
        name,
        {
            **_identity(record, code_digest(name)),
            "rules": ([[rule["first"], rule["last"], rule["result"]] for rule in record["rules"]], spans),
            "results": (record["results"], digest_of_digests(record["classes"])),
            "count of inputs": (counts["rule"] + counts["screen"] + counts["mpfr"], counts["inputs"]),
            "count of hard cases": (len(record["hard"]), counts["hard"]),
        },
    )


def check_identity(record: Record, code: str) -> None:
    """Raise ReproError where a record of any kind speaks of other code than `code`, another screen or contract."""
    _compare(record["function"], _identity(record, code))


def _identity(record: Record, code: str) -> dict[str, tuple[object, object]]:
    name = record["function"]
    return {
        "contract": (record["contract"], CONTRACT_VERSION),
        "code": (record["code"], code),
        "screen": (record["screen"]["code"], screen_digest(name)),
        "error of the screen": (record["screen"]["error_log2"], SCREENS[name].error_log2),
    }


def _compare(name: str, wanted: Mapping[str, tuple[object, object]]) -> None:
    """(found, expected) by what they are."""
    for what, (found, expected) in wanted.items():
        if found != expected:
            raise ReproError(
                f"the record of {name} is not of today: {what}",
                found=str(found),
                expected=str(expected),
                next=f"make prove FUNCTION={name}",
            )


def path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def write(record: Mapping[str, Any], name: str, schema: str) -> Path:
    """Write a record that follows its schema."""
    check(record, schema, name)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path(name).write_bytes(encode(record))
    return path(name)


def read(name: str, schema: str) -> Record:
    """A record that follows its schema. Raises ReproError where there is none, or another."""
    if not path(name).exists():
        raise ReproError(f"no record of {name}", expected=str(path(name)), next="make prove")
    record = decode(path(name).read_bytes(), f"the record of {name}")
    check(record, schema, name)
    return record


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text("utf-8")))


def check(record: Any, schema: str, name: str) -> None:
    """Raise ReproError with the place and the rule if the record breaks its schema."""
    error = best_match(_validator(schema).iter_errors(record))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "the document itself"
        raise ReproError(f"the record of {name} does not follow its schema", found=f"{place}: {error.message}")
