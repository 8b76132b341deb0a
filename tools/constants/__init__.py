"""The constants of the elementary functions, computed with mpmath.

One module here for each constants module of repro/numerics/elementary: it names the file (`PATH`) and yields its
lines (`lines()`). `python -m tools.constants` writes them all; `--check` only compares.
"""
