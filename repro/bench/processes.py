"""Processes of a benchmark: its tasks, by this version of the package; a build by another one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import repro
from repro.errors import EXIT_INCOMPLETE, ReproError

_BUILD = """
import json, sys
import numpy, repro
words = json.loads(sys.argv[1])
inputs = None if words["inputs"] is None else dict(numpy.load(words["inputs"]))
named = {"targets": words["target"], "inputs": inputs, "force": True, **words["training"]}
made = repro.build(words["model"], words["out"], **named)
modules = [sys.modules[name].__file__ for name in ("repro", "passes") if name in sys.modules]
print(json.dumps({"id": made.id, "modules": modules}))
"""
_RAISED = re.compile(r"^[\w.]+: ", re.M)
"""Where the last lines of a traceback begin to say what was raised."""


def task(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task of `repro.bench.task`; its answer. Raises ReproError if it fails."""
    threads = {"OMP_NUM_THREADS": str(request["threads"]), "MKL_NUM_THREADS": str(request["threads"])}
    what = f"measuring '{request['workload']}' failed at its {request['task']}"
    said = _python(["-m", "repro.bench.task", json.dumps(request)], Path(repro.__file__).parents[1], threads, what)
    return json.loads(said.splitlines()[-1])


def build_by(package: Path, words: Mapping[str, Any], what: str) -> str:
    """Build by the version of the package in a folder; the artifact's id. `words` are the path of a model, the folder
    to write `out` to, a target, the path of golden inputs or None, and options of training. Raises ReproError, which
    begins with `what`, if it fails or is not that version."""
    place = package.absolute()
    answer = json.loads(
        _python(["-c", _BUILD, json.dumps(words)], place, {"REPRO_CACHE": "off"}, what).splitlines()[-1]
    )
    for module in answer["modules"]:
        if Path(module).parents[1] != place:
            raise ReproError(
                what, found=f"it imports {module}", expected=f"modules of {place}", exit_code=EXIT_INCOMPLETE
            )
    return answer["id"]


def _python(words: Sequence[str], package: Path, environment: Mapping[str, str], what: str) -> str:
    """The output of a Python process that imports the package from a folder, wherever it is started."""
    path = os.pathsep.join(each for each in (str(package), os.environ.get("PYTHONPATH", "")) if each)
    whole = {**os.environ, **environment, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=whole, check=False)
    if done.returncode:
        raise ReproError(what, found=_raised(done.stderr), exit_code=EXIT_INCOMPLETE)
    return done.stdout


def _raised(stderr: str) -> str:
    """What a process said in the end, on one line."""
    last = [found.start() for found in _RAISED.finditer(stderr)]
    lines = (stderr[last[-1] :] if last else stderr).strip().splitlines()
    return "; ".join(line.strip() for line in lines) or "no message"
