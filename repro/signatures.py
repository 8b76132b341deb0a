"""Public functions refuse an argument of another type than their signature states, before anything is done with it."""

from __future__ import annotations

import errno
import inspect
import operator
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from repro.errors import ReproError

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which raises ReproError for an argument that is not of the annotated type. Integers of any kind
    (NumPy's, say) become Python's; arrays by name are left to what reads them, which knows their names."""
    signature = inspect.signature(function)

    @cache
    def kinds() -> dict[str, Any]:
        hints = typing.get_type_hints(function)
        return {name: hints.get(name, Any) for name in signature.parameters if name != "self"}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, kind in kinds().items():
            if name in bound.arguments:
                bound.arguments[name] = _accepted(kind, bound.arguments[name], f"{function.__name__}({name}=...)")
        return function(*bound.args, **bound.kwargs)

    return call


def _accepted(kind: Any, value: Any, where: str) -> Any:
    for each in _choices(kind):
        fitting = _fitting(each, value)
        if fitting is not _OTHER:
            if each is Path or (each is str and Path in _choices(kind)):
                _check_path(fitting, where)
            return fitting
    expected = [text for each in _choices(kind) if (text := _shown(each))]
    found = f"{type(value).__qualname__} {value!r}"
    found = found if len(found) <= _LONGEST else f"{found[:_LONGEST]}..."
    said = " or ".join(filter(None, (", ".join(expected[:-1]), expected[-1])))
    raise ReproError(f"{where} is given another type", found=found, expected=said)


_OTHER = object()
"""Stands for a value that does not fit."""
_LONGEST = 80


def _choices(kind: Any) -> tuple[Any, ...]:
    origin = typing.get_origin(kind)
    return typing.get_args(kind) if origin in (typing.Union, UnionType) else (kind,)


def _fitting(kind: Any, value: Any) -> Any:
    """The value as one of that type, or _OTHER."""
    origin = typing.get_origin(kind)
    if kind is int:
        try:
            return _OTHER if isinstance(value, bool | np.bool_) else operator.index(value)
        except TypeError:
            return _OTHER
    if kind is float:
        numbers = (int, float, np.integer, np.floating)
        return value if isinstance(value, numbers) and not isinstance(value, bool) else _OTHER
    if kind is Path:
        return value if isinstance(value, os.PathLike) and isinstance(os.fspath(value), str) else _OTHER
    if origin is Mapping:
        key, held = typing.get_args(kind)
        if typing.get_origin(held) is np.ndarray:
            return value
        return value if isinstance(value, Mapping) and all(isinstance(each, key) for each in value) else _OTHER
    if origin is Sequence:
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | Set):
            return _OTHER
        made = tuple(_fits_one(typing.get_args(kind)[0], each) for each in value)
        return _OTHER if _OTHER in made else made
    if origin is Callable:
        return value if callable(value) else _OTHER
    return value if kind is Any or isinstance(value, (bool, np.bool_) if kind is bool else kind) else _OTHER


def _fits_one(kind: Any, value: Any) -> Any:
    fitting = (_fitting(each, value) for each in _choices(kind))
    return next((each for each in fitting if each is not _OTHER), _OTHER)


def _shown(kind: Any) -> str:
    """The type in an error."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is NoneType:
        return "None"
    if origin is Mapping:
        return "a mapping from names"
    if origin is Sequence:
        return f"a sequence of {' or '.join(map(_shown, _choices(inside[0])))}"
    return "a function" if origin is Callable else kind.__name__


def _check_path(path: str | os.PathLike[str], where: str) -> None:
    """Raises ReproError for what no file can be called."""
    try:
        os.lstat(path)
    except ValueError as error:  # a zero byte, a lone surrogate
        raise ReproError(f"{where} is no path", found=f"{os.fspath(path)[:_LONGEST]!r}: {error}") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            found = f"{os.fspath(path)[:_LONGEST]!r}: {error.strerror}"
            raise ReproError(f"{where} is no path", found=found) from None
