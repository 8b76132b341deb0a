"""Measurements. None of them is a test: they print ratios to a peer in the same run."""
