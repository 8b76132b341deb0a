"""Running programs: buffers, state, threads."""
