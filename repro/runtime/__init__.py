"""Running programs: sessions, buffers, threads, state."""
