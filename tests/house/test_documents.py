"""Documents name what is there: files, modules, links. Their prose is wrapped as the code is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FOLDERS = ("benchmarks", "docs", "examples", "golden", "manifests", "passes", "proofs", "repro", "tests", "tools")
WIDTH = 120

_FILE = re.compile(rf"(?<![\w./~-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
_MODULE = re.compile(rf"python[\d.]* -m ((?:{'|'.join(FOLDERS)})(?:\.\w+)*)")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_MADE = ("build/", "golden/devices/")
"""Folders that a command of the document fills."""


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, those of code and tables left out."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|"):
            yield number, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = (name for name in _FILE.findall(text) if not name.startswith(_MADE) and "NAME" not in name)
    missing = {name for name in named if not _exists(ROOT / name)}
    missing |= {name for name in _MODULE.findall(text) if not _module(name)}
    missing |= {name for name in _LINK.findall(text) if not (document.parent / name).exists()}
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_prose_is_wrapped(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert [number for number, line in _prose(text) if len(line) > WIDTH] == []


def _exists(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists() or bool(list(path.parent.glob(f"{path.name}*")))


def _module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()
