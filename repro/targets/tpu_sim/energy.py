"""Energy by a stated table: dynamic energy of arithmetic and of moving data, nothing for leakage or clocks.

Assumptions of this machine, of the order that is published for 7 nm parts (for instance in Jouppi et al., Ten Lessons
From Three Generations Shaped Google's TPUv4i, ISCA 2021); none of them was measured here. One table for all chips:
it ranks programs, it does not predict a power meter.
"""

from __future__ import annotations

from collections.abc import Mapping

PICOJOULE = {
    "products": 1.7,
    "passes": 1024 * 0.7,
    "vmem accesses": 4096 / 8 * 14,
    "hbm read": 350 / 8,
    "hbm written": 350 / 8,
    "link bytes": 350 / 8,
    "bundles": 50.0,
}
"""pJ for one of each count of `timing.Timing`: an fma of the matrix unit (1.3 for the product, 0.4 for the sum), a
vector pass (between a bit operation and an fma, on 1024 lanes), 4 KiB of VMEM (14 for 8 bytes), a byte of HBM or of a
link (350 for 8), fetching and issuing a bundle."""


def energy(counts: Mapping[str, int]) -> dict[str, float]:
    """Joules by what they go into."""
    return {name: counts.get(name, 0) * each * 1e-12 for name, each in PICOJOULE.items()}
