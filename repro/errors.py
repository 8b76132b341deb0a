"""The one error class a user sees: what was found, where, what was expected, what to do next."""

from __future__ import annotations

from dataclasses import dataclass

EXIT_GOOD = 0
EXIT_MISMATCH = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
EXIT_INTERNAL = 4
EXIT_INTERRUPTED = 130


@dataclass(eq=False)
class ReproError(Exception):
    """A user-facing failure.

    `what` says in one line what is wrong. `op` is the ONNX operator type and `node` its name in the
    model, where there is one. `found` and `expected` are the two sides of the disagreement; `next` is
    the step that would help. `exit_code` is the process exit code that the command line uses.
    """

    what: str
    op: str | None = None
    node: str | None = None
    found: str | None = None
    expected: str | None = None
    next: str | None = None
    exit_code: int = EXIT_USAGE

    def __post_init__(self) -> None:
        super().__init__(self.what)

    def __str__(self) -> str:
        where = [part for part in (self.op, f"'{self.node}'" if self.node else None) if part]
        lines = [f"{self.what} (at {' '.join(where)})" if where else self.what]
        for label, text in (("found", self.found), ("expected", self.expected), ("next", self.next)):
            if text:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)


class InternalError(Exception):
    """A broken invariant of ours: never the user's fault, exit code 4."""
