"""python -m benchmarks: the measurements that need no extra, one after another.

`benchmarks.train_step` needs PyTorch and is run by itself.
"""

from __future__ import annotations

from benchmarks import dot, elementary


def main() -> None:
    dot.main([])
    elementary.main([])


if __name__ == "__main__":
    main()
