"""python -m benchmarks: every measurement, one after another."""

from __future__ import annotations

from benchmarks import dot


def main() -> None:
    dot.main([])


if __name__ == "__main__":
    main()
