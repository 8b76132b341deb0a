"""A TPU-like machine: its instructions, programs and chips, and a simulator that runs them bit for bit."""
