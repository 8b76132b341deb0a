"""What a compiled GPU kernel is: PTX, and how its entries are launched."""

from __future__ import annotations

from dataclasses import dataclass

from repro.errors import InternalError

PLAIN_SHARED = 48 << 10
"""Bytes of shared memory that a block may have unasked, and static ones at most."""


@dataclass(frozen=True)
class Launch:
    """One launch of an entry: `grid` blocks of `block` threads, in one dimension both.

    `shared_bytes` is dynamic shared memory, over what the entry's PTX declares itself. Above 48 KiB a driver wants to
    be asked for it first (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES).
    """

    symbol: str
    grid: int
    block: int
    shared_bytes: int = 0


@dataclass(frozen=True)
class GpuKernel:
    """A kernel's code: one PTX module, and the launches that together run the kernel once, in order.

    Every entry takes the same arguments: a pointer for each buffer of the kernel, then each scalar as i64, then, where
    `workspace_bytes` is above zero, a pointer to that many bytes that no one else touches meanwhile (their content
    before does not matter). Buffers and workspace are aligned to 16 bytes at least. A kernel with nothing to do has no
    launches. `schedule` names the road taken, for reports.
    """

    ptx: str
    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
    schedule: str = ""

    @property
    def code(self) -> bytes:
        """The PTX under a head of comments that says how it is launched: what an artifact carries."""
        head = [f"// schedule {self.schedule}", f"// workspace {self.workspace_bytes}"]
        head += [f"// launch {e.symbol} {e.grid} {e.block} {e.shared_bytes}" for e in self.launches]
        return ("\n".join(head) + "\n" + self.ptx).encode()

    @staticmethod
    def parse(code: bytes) -> GpuKernel:
        """The kernel from its code. Raises InternalError where the head is none."""
        text = code.decode()
        schedule, workspace, launches = None, None, list[Launch]()
        for line in text.splitlines():
            match line.split(" "):
                case ["//", "schedule", *words]:
                    schedule = " ".join(words)
                case ["//", "workspace", size]:
                    workspace = int(size)
                case ["//", "launch", symbol, grid, block, shared]:
                    launches.append(Launch(symbol, int(grid), int(block), int(shared)))
                case _:
                    break
        if schedule is None or workspace is None:
            raise InternalError("GPU code without a head that says how it is launched")
        lines = len(launches) + 2
        return GpuKernel(text.split("\n", lines)[lines], tuple(launches), workspace, schedule)
