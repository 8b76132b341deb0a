"""What the machine refuses, as hardware would (or should)."""

from __future__ import annotations

from repro.errors import EXIT_INTERNAL, ReproError


class FaultError(ReproError):
    """A program does what the machine does not allow: always a fault of the code generator, never of a model.

    `kind` is one of KINDS; `where` names the routine and the instruction's text.
    """

    def __init__(self, kind: str, what: str, where: str, found: str | None = None, expected: str | None = None) -> None:
        self.kind, self.where = kind, where
        super().__init__(
            f"{kind}: {what} (in {where})",
            found=found,
            expected=expected,
            next="report this: the code generator made a program that the machine refuses",
            exit_code=EXIT_INTERNAL,
        )


KINDS = (
    "vmem overflow",
    "hbm overflow",
    "overlapping areas",
    "misaligned tile",
    "out of range",
    "transfer race",
    "semaphore",
    "undefined register",
    "register type",
    "register file",
    "bundle",
    "parallel loop",
    "matrix unit",
)
"""Every kind of fault, each with a test that provokes it."""
