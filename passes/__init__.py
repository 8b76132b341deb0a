"""Graph and kernel passes. `pipeline` is the table of them, in order, with reasons."""
