"""The columns' operand of a contraction where it is brought in strips (repro.targets.gpu.strips)."""

from __future__ import annotations

from repro.targets.gpu.access import Access
from repro.targets.gpu.body import GpuBody
from repro.targets.gpu.operand import Operand
from repro.targets.gpu.outputs import Outputs
from repro.targets.gpu.strips import TAPS, strip
from repro.targets.gpu.tiles import Plan
from repro.targets.llvm import scalars
from repro.targets.llvm.text import Val


class StripOperand(Operand):
    """A step of rows of pixels. What a thread reads of them serves all taps."""

    def __init__(
        self, body: GpuBody, plan: Plan, side: int, access: Access, groups: tuple[int, int], *, spare: int = 0
    ) -> None:
        seen, found = plan.seen(side), strip(plan.contraction)
        assert found is not None
        super().__init__(body, seen, side, access, Outputs(body, seen, (groups[0], 1)), spare=spare)
        self.width = found.width
        self.known: dict[tuple[str, int], list[list[Val]]] = {}
        """Chunks that were read, by the step's address and term: [pixel][row]."""

    def fragments(self, first: str, term: int) -> list[list[Val]]:
        """A chunk of terms from `term` on, of each of the thread's columns, taps of a row side by side."""
        chunk = self._chunk(first, term)
        begins, ends = term % self.width == 0, (term + self.chunk) % self.width == 0
        zero = [scalars.constant(self.f, self.dtype, 0, 1)] * len(chunk[0])
        before = zero if begins else self._chunk(first, term - self.chunk)[-1]
        after = zero if ends else self._chunk(first, term + self.chunk)[0]
        pixels = [before, *chunk, after]
        lines = range(len(zero))
        return [[pixels[t + tap][line] for line in lines for tap in range(TAPS)] for t in range(self.chunk)]

    def _chunk(self, first: str, term: int) -> list[list[Val]]:
        found = self.known.get((first, term))
        if found is None:
            found = self.known[first, term] = super().fragments(first, term)
        return found
