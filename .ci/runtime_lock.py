"""Print the part of requirements.lock that a build needs: the package's own dependencies, without the peers."""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

PEERS = {"onnxruntime"}


def closure(name: str) -> set[str]:
    """Names of everything that a distribution needs, itself left out."""
    found: set[str] = set()
    queue = [name]
    while queue:
        for text in requires(queue.pop()) or []:
            requirement = Requirement(text)
            plain = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if plain in PEERS | found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
                continue
            found.add(plain)
            queue.append(requirement.name)
    return found


def main() -> int:
    needed = closure("repro")
    entries = re.split(r"\n(?=\S)", Path("requirements.lock").read_text())
    kept = [entry for entry in entries if re.split(r"[=\s]", entry, maxsplit=1)[0] in needed]
    if len({entry.partition("==")[0] for entry in kept}) != len(needed):
        sys.exit(f"not in requirements.lock: {needed - {entry.partition('==')[0] for entry in kept}}")
    sys.stdout.write("\n".join(kept) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
