"""Training: data, the loop, checkpoints, traces, and where two traces part."""
