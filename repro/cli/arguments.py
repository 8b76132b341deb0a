"""Types of command-line arguments, and the options that several commands have."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from repro import driver
from repro.artifact.files import resolved
from repro.artifact.layout import is_part
from repro.artifact.loaded import MOST_THREADS
from repro.errors import ReproError
from repro.frontend.integer_qdq import FLOAT, QDQ
from repro.train_step.losses import LOSSES
from repro.train_step.optimizers import OPTIMIZERS
from repro.train_step.schedules import SHAPES


def refuse(options: argparse.Namespace, why: str, excluded: Iterable[str], further: Iterable[str] = ()) -> None:
    """An option that a form of a command has no use for is wrong use, not a wish unheard. Raises ReproError.

    `excluded` are names of options (`model` is an argument), `further` those of others that were given.
    """
    given = [name for name in excluded if getattr(options, name) not in (None, (), [], "", False)]
    if words := [*given, *further]:
        told = ("a model" if name == "model" else "--" + name.replace("_", "-") for name in words)
        raise ReproError(f"{why} {', '.join(told)}")


class NewFile(type(Path())):
    """A file that a command writes in the end."""


def new_file(text: str) -> NewFile:
    """A file that is written in the end: where it cannot be is told before anything is computed. Not for one that is
    written from the beginning, perhaps into a folder that is made then (a trace)."""
    try:
        return NewFile(_writable(Path(text), text))
    except OSError as error:  # too long a name, a folder that may not be searched
        raise argparse.ArgumentTypeError(f"{text[:100]!r} cannot be written: {error.strerror}") from error


def _writable(path: Path, text: str) -> Path:
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder, not a file to be written")
    if path.exists() and not path.is_file():  # a device, a pipe
        return path
    place = resolved(path) if path.is_symlink() else path
    if place.is_symlink():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: its links lead in a circle")
    folder = place.parent
    if is_part(place):
        raise argparse.ArgumentTypeError(f"{text!r} is a file of an artifact, which it would damage")
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no such folder: {str(folder)!r}")
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"the folder {str(folder)!r} cannot be written to")
    return path


def new_folder(text: str) -> Path:
    """A folder that is made in the end, unless it is there."""
    place = resolved(Path(text))
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a folder: {str(place)!r} is a file")
    if not os.access(place, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be made: the folder {str(place)!r} cannot be written to")
    return Path(text)


def check_apart(options: argparse.Namespace) -> None:
    """No command writes over what it reads, or two things into one file. Raises ReproError."""
    taken: dict[Path, str] = {}
    given = {name: value if isinstance(value, list) else [value] for name, value in vars(options).items()}
    pairs = [(name, path) for name, values in given.items() for path in values if isinstance(path, Path)]
    for name, path in sorted(pairs, key=lambda pair: isinstance(pair[1], NewFile)):
        place = resolved(path)
        if isinstance(path, NewFile) and place in taken and (place.is_file() or not place.exists()):
            raise ReproError(
                f"--{name.replace('_', '-')} and {taken[place]} are one file",
                found=str(path),
                next="name another file",
            )
        taken[place] = f"--{name.replace('_', '-')}" if isinstance(path, NewFile) else f"the {name.replace('_', ' ')}"


def names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names separated by commas")
    return found


def seed(text: str) -> int:
    try:
        found = int(text, 0)
    except ValueError:
        found = -1
    if not 0 <= found < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer in 0..2^64-1")
    return found


def threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads in 1..{MOST_THREADS}")
    return int(text)


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) < 1 << 53:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return int(text)


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found


_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: str) -> int:
    """Bytes, from a whole number and a unit: 65536, 512MiB, 2GB."""
    digits = text.rstrip("kKMGiB")
    unit = _UNITS.get(text[len(digits) :])
    if unit is None or not (digits.isascii() and digits.isdecimal()) or int(digits) * unit >= 1 << 53:
        known = ", ".join(name for name in _UNITS if name)
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, plain or in {known}")
    return int(digits) * unit


# ── models ──────────────────────────────────────────────────────────────────────────────────────────


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals or not name:
            raise ReproError(f"{option} takes a name and a value", found=word, expected="NAME=VALUE")
        if name in found:
            raise ReproError(f"{option} names {name} twice", found=word)
        found[name] = value
    return found


def bindings(words: Sequence[str]) -> dict[str, int]:
    """What `--bind NAME=INT` says. Raises ReproError."""
    found: dict[str, int] = {}
    for name, value in _pairs(words, "--bind").items():
        if not value.isdecimal() or not value.isascii() or len(value) > 18:
            raise ReproError("--bind takes a size", found=f"{name}={value}", expected="an integer from 0 up")
        found[name] = int(value)
    return found


def _finite(text: str) -> float:
    """A number of JSON; one beyond all doubles is no infinity. Raises ReproError."""
    found = float(text)
    if math.isinf(found):
        raise ReproError("--set takes numbers that a double can hold", found=text, next="write Infinity if it is meant")
    return found


def values(words: Sequence[str]) -> dict[str, Any]:
    """What `--set INPUT=VALUE` says, values being JSON. Raises ReproError."""
    found: dict[str, Any] = {}
    for name, text in _pairs(words, "--set").items():
        try:
            found[name] = json.loads(text, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            next_step = "write a number, true, false or a list of them: --set 'axes=[0,1]'"
            raise ReproError("--set takes a JSON value", found=f"{name}={text}", next=next_step) from error
    return found


def model_options(made: argparse.ArgumentParser) -> None:
    """A model and what it is to become: the arguments of every command that takes one from its source."""
    made.add_argument("model", type=Path, metavar="MODEL.onnx", help="or a folder of ONNX Runtime's training artifacts")
    made.add_argument(
        "--bind",
        action="append",
        default=[],
        metavar="NAME=INT",
        help="fix a dimension as INPUT[AXIS]=INT, or else by its name",
    )
    made.add_argument(
        "--set", action="append", default=[], metavar="INPUT=VALUE", help="fix an input's value at build (JSON)"
    )
    golden = made.add_mutually_exclusive_group()
    golden.add_argument(
        "--inputs", type=Path, metavar="FILE.npz", help="golden inputs; their shapes fix open dimensions"
    )
    golden.add_argument(
        "--golden-seed", type=seed, default=0, metavar="INT", help="seed of drawn golden inputs (default: 0)"
    )
    training_options(made)
    made.add_argument(
        "--seed", type=seed, default=0, metavar="INT", help="seed of random nodes without one (default: 0)"
    )
    start = "start from the initialization graphs of the model's training_info, not from its initializers"
    made.add_argument("--initialize", action="store_true", help=start)
    budget = "limit for the temporaries of a program, such as 512MiB; values that do not fit are recomputed"
    made.add_argument("--memory-budget", type=size, metavar="SIZE", help=budget)
    qdq_option(made)


def qdq_option(made: Any, default: str | None = FLOAT) -> None:
    """How quantized models compute."""
    how = "what lies between DequantizeLinear and QuantizeLinear: in floats, as ONNX defines it, or on integers"
    made.add_argument("--qdq", choices=QDQ, default=default, help=how)


def model_words(options: argparse.Namespace) -> dict[str, Any]:
    """What `model_options` heard, as keywords of the Python functions. Raises ReproError."""
    return {
        "bind": bindings(options.bind),
        "set": values(options.set),
        "inputs": None if options.inputs is None else driver.read_npz(options.inputs),
        "golden_seed": options.golden_seed,
        "seed": options.seed,
        "gradients": options.gradients,
        "memory_budget": options.memory_budget,
        "qdq": options.qdq,
        "initialize": options.initialize,
        **training(options),
    }


# ── training ────────────────────────────────────────────────────────────────────────────────────────


_TRAINING = {
    "loss": f"add the entry train_step; its loss, of the first output and an input `labels`: {', '.join(LOSSES)}",
    "loss-output": "the output that the loss reads",
    "optimizer": f"{', '.join(OPTIMIZERS)} (default: sgd)",
    "learning-rate": "default: the optimizer's default",
    "schedule": f"{', '.join(SHAPES)} (default: constant)",
    "total-steps": "where the schedule ends",
    "warmup-steps": "steps until the full learning rate",
    "clip-norm": "clip the norm of all gradients together to this",
    "accumulation": "number of microbatches in a step (default: 1)",
    "shards": "virtual shards of each microbatch, a power of two; --bind gives the size of one (default: 1)",
    "frozen": "patterns of parameters that are not trained, separated by commas",
    "trainable": "patterns of numbers (of rank 0) that are trained too",
}


def training_options(made: argparse.ArgumentParser, entries: bool = True) -> None:
    """How a forward model becomes a training step; `entries`: and which entries an artifact has."""
    group = made.add_argument_group("training")
    for name, what in _TRAINING.items():
        group.add_argument(f"--{name}", metavar="X", help=what)
    group.add_argument("--weighted", action="store_true", help="the loss takes another input, `weight`")
    if entries:
        gradients = "add the entry gradients: the loss and each gradient"
        group.add_argument("--gradients", action="store_true", help=gradients)
    more = "another option of the loss, the optimizer or the schedule, such as beta1=0.8"
    group.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help=more)


def training(options: argparse.Namespace) -> dict[str, str | None]:
    """What was said of training, by the options' Python names."""
    given = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in _TRAINING}
    given["weighted"] = "true" if options.weighted else None
    for word in options.option:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ReproError("--option takes a name and a value", found=word, expected="NAME=VALUE")
        name = name.replace("-", "_")
        if given.get(name) is not None:
            raise ReproError(f"the training option {name} is given twice", found=word)
        given[name] = value
    return given
