"""Chips that a floor can be worked out for: peaks as their makers' data sheets state them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A GPU: whose machine code it runs, bytes a second from its memory, and f32 and f64 operations a second outside of
    its matrix units."""

    name: str
    chip: str
    memory: float
    f32: float
    f64: float


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("A100", "sm_80", 2.039e12, 19.5e12, 9.7e12),
        Device("H100", "sm_90", 3.35e12, 66.9e12, 33.5e12),
        Device("H200", "sm_90", 4.8e12, 66.9e12, 33.5e12),
        Device("L40S", "sm_89", 0.864e12, 91.6e12, 1.43e12),
        Device("RTX4090", "sm_89", 1.008e12, 82.6e12, 1.29e12),
    )
}
"""The SXM forms of A100 (80 GB), H100 and H200."""
