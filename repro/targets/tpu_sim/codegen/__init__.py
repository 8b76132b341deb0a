"""Code generation for the TPU simulator: a kernel in loop IR to a program of the machine's instructions."""
