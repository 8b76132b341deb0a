"""Training options as words: what a command line and a config say, name to text, and what they mean.

Every option has one name, whichever dataclass holds it: those of `TrainOptions`, of `Schedule` (its kind is called
`schedule`), and of the loss and the optimizer chosen. `words_of` writes all of them, defaults too, floats in
hexadecimal; so a build can be repeated where a default has changed since.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from repro.errors import ReproError
from repro.train_step.losses import LOSSES
from repro.train_step.optimizers import OPTIMIZERS
from repro.train_step.options import choose
from repro.train_step.problem import TrainOptions
from repro.train_step.schedules import Schedule

Words = dict[str, str]

_OWN = ("loss_output", "weighted", "learning_rate", "clip_norm", "accumulation", "shards", "frozen", "trainable")
_SCHEDULE = {"schedule": "kind", **{f.name: f.name for f in dataclasses.fields(Schedule) if f.name != "kind"}}


def training_of(given: Mapping[str, Any]) -> TrainOptions:
    """Options from values or from their texts; None stands for the default. Raises ReproError for one that is wrong."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if "loss" not in chosen:
        strange = [name for name in chosen if name not in _every_option()]
        if strange:
            raise ReproError("there is no such option", found=", ".join(strange), next="check its spelling")
        found = f"{', '.join(chosen) or 'nothing'}, without a loss"
        add = "add --loss NAME (in Python loss='NAME'), or leave the other training options out"
        raise ReproError("training needs a loss", found=found, expected=", ".join(LOSSES), next=add)
    loss, optimizer = str(chosen.pop("loss")), str(chosen.pop("optimizer", "sgd"))
    parts: dict[str, dict[str, Any]] = {"own": {}, "schedule": {}, "optimizer": {}, "loss": {}}
    holders = {
        "own": (TrainOptions, {name: name for name in _OWN}),
        "schedule": (Schedule, _SCHEDULE),
        "optimizer": _fields("optimizer", OPTIMIZERS, optimizer),
        "loss": _fields("loss", LOSSES, loss),
    }
    for name, value in chosen.items():
        part = next((part for part, (_, names) in holders.items() if name in names), None)
        if part is None:
            known = sorted({"loss", "optimizer", *(name for _, names in holders.values() for name in names)})
            raise ReproError("there is no such training option", found=name, expected=", ".join(known))
        kind, names = holders[part]
        parts[part][names[name]] = _value(name, get_type_hints(kind)[names[name]], value)
    return TrainOptions(
        loss=choose("loss", LOSSES, loss, parts["loss"]),
        optimizer=choose("optimizer", OPTIMIZERS, optimizer, parts["optimizer"]),
        schedule=Schedule(**parts["schedule"]),
        **parts["own"],
    )


def _every_option() -> set[str]:
    """The names of all options of training, whatever the loss and the optimizer."""
    kinds = (*LOSSES.values(), *OPTIMIZERS.values())
    return {"loss", "optimizer", *_OWN, *_SCHEDULE, *(each.name for kind in kinds for each in dataclasses.fields(kind))}


def words_of(options: TrainOptions) -> Words:
    """Every option by name, as text. The inverse of `training_of`."""
    kinds = {"loss": (LOSSES, options.loss), "optimizer": (OPTIMIZERS, options.optimizer)}
    words = {what: next(n for n, kind in table.items() if type(used) is kind) for what, (table, used) in kinds.items()}
    values = {name: getattr(options, name) for name in _OWN}
    values |= {name: getattr(options.schedule, own) for name, own in _SCHEDULE.items()}
    for part in (options.loss, options.optimizer):
        values |= {each.name: getattr(part, each.name) for each in dataclasses.fields(part)}
    words |= {name: _text(value) for name, value in values.items() if value is not None}
    return dict(sorted(words.items()))


def _fields(what: str, table: Mapping[str, type[Any]], kind: str) -> tuple[type[Any], dict[str, str]]:
    if kind not in table:
        raise ReproError(f"there is no {what} of this name", found=f"'{kind}'", expected=", ".join(table))
    return table[kind], {each.name: each.name for each in dataclasses.fields(table[kind])}


def _text(value: bool | int | float | str | tuple[str, ...] | tuple[float, ...]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return value.hex()
        case tuple():
            return ",".join(_text(part) for part in value)
        case _:
            return str(value)


def _value(name: str, kind: Any, given: Any) -> Any:
    """A value of the field's type, from one or from its text."""
    wanted = str(kind)
    try:
        if "bool" in wanted:
            return {"true": True, "false": False, True: True, False: False}[given]
        if "tuple" in wanted:
            return _several(given, _float if "float" in wanted else str)
        if "float" in wanted:
            return _float(given)
        if "int" in wanted:
            return _whole(int(given, 0) if isinstance(given, str) else given)
    except (KeyError, OverflowError, TypeError, ValueError):
        raise ReproError(f"option {name} has no such value", found=repr(given), expected=_in_words(wanted)) from None
    return str(given)


def _in_words(kind: str) -> str:
    """What a field takes, for people."""
    if "bool" in kind:
        return "true or false"
    if "tuple" in kind:
        return "numbers with commas between them"
    return "a number" if "float" in kind else "an integer of 64 bits"


def _several(given: Any, kind: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The elements of a sequence, of a text with commas, or one number."""
    parts = given.split(",") if isinstance(given, str) else given if hasattr(given, "__iter__") else (given,)
    return tuple(kind(part) for part in parts if part != "")


def _float(given: Any) -> float:
    return float.fromhex(given) if isinstance(given, str) and "0x" in given.lower() else float(given)


def _whole(given: Any) -> int:
    """An integer that the graph can hold: i64."""
    if isinstance(given, bool) or int(given) != given or not -(1 << 63) <= given < 1 << 63:
        raise ValueError
    return int(given)
