"""Targets: what runs programs. Each takes the same kernels; none may change a bit."""
